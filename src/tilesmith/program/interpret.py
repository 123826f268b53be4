"""The interpreter: the meaning of the main program.

A memory is an array of bytes, and an address a memory with an offset.  Kernels and functions of
sizes run in the interpreter of loops, or are Python functions.  A slot that is large enough keeps
its memory.  A slot that grows gets other memory, and only the bytes to keep are copied.  All other
bytes of fresh memory are arbitrary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tilesmith.host_functions import prepare
from tilesmith.ir.dtypes import DType, by_name, string
from tilesmith.ir.expr import Var
from tilesmith.ir.symbols import value_of
from tilesmith.loop.interpret import interpret as interpret_loops
from tilesmith.loop.nodes import Func
from tilesmith.support.errors import InternalError, ModelError

from . import nodes
from .functions import ARENA, OUTPUTS, SIZES
from .main import Main, TensorSpec
from .nodes import Arg, Step
from .text import head
from .visit import measurements_of

_ARBITRARY = 0xA5
"""Every byte of fresh memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Address:
    """An address in a memory.

    memory: its bytes, followed by as many guard bytes.
    offset: bytes from its start.
    """

    memory: np.ndarray
    offset: int = 0

    @property
    def size(self) -> int:
        """Bytes of the memory."""
        return len(self.memory) // 2

    def at(self, distance: int) -> Address:
        """The address `distance` bytes further on."""
        return Address(self.memory, self.offset + distance)

    def is_same(self, other: Address) -> bool:
        """Whether both are one address."""
        return self.memory is other.memory and self.offset == other.offset

    def view(self, dtype: np.dtype, shape: Sequence[int] = ()) -> np.ndarray:
        """The array at this address.  Raises InternalError if it ends beyond the memory."""
        return self._view(dtype, shape, self.size)

    def kernel_view(self, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
        """The array that a kernel gets.  It may be declared larger than the part that the kernel
        uses, if its rows are inside longer rows of another array.
        """
        return self._view(dtype, shape, len(self.memory))

    def _view(self, dtype: np.dtype, shape: Sequence[int], limit: int) -> np.ndarray:
        end = self.offset + math.prod(shape) * dtype.itemsize
        if not 0 <= self.offset <= end <= limit:
            raise InternalError(f"bytes {self.offset} to {end} of a memory of {self.size} bytes")
        return self.memory[self.offset : end].view(dtype).reshape(shape)

    def check_end(self) -> None:
        """Raises InternalError if guard bytes after the memory were written."""
        if (self.memory[self.size :] != _ARBITRARY).any():
            raise InternalError(f"something is written behind a memory of {self.size} bytes")


Function: TypeAlias = Func | Callable[[Sequence[Address | int]], int | None]
"""A kernel or a function of sizes: loops, or a Python function of addresses and numbers that
returns an error code, or nothing.
"""


def interpret(
    main: Main,
    inputs: Sequence[Any],
    constants: np.ndarray,
    functions: Mapping[str, Function],
) -> list[Any]:
    """The outputs of a main program.

    inputs: arrays, which are not changed; objects for inputs of host types.
    constants: the bytes of constants.
    functions: kernels and functions of sizes, by symbol.

    Raises ModelError for impossible sizes and for errors of host functions, InternalError for a
    program that reaches beyond its memory.
    """
    if main.parts:
        raise InternalError("a program of several parts is interpreted part by part")
    run = _Run(main, constants, functions)
    run.begin(inputs)
    run.steps(main.steps)
    return [run.output(i, spec) for i, spec in enumerate(main.outputs)]


def _fresh(size: int) -> np.ndarray:
    return np.full(2 * size, _ARBITRARY, np.uint8)


def _holding(array: np.ndarray) -> Address:
    """Fresh memory with the contents of an array."""
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    place = Address(_fresh(len(content)))
    place.memory[: len(content)] = content
    return place


_I64, _BYTE, _SHAPELESS = np.dtype(np.int64), np.dtype(np.uint8), ()


@dataclass(slots=True)
class _Run:
    """A run of a main program.

    memories: memories of inputs, outputs, constants and the arena, by their names in text.
    values, extents: results and operands of the functions of sizes.
    slots: memory that grows.
    pointers: current addresses of the loops' pointers.
    turns: for pointers to memory that grows, the slot of the current iteration.
    objects: values of host types, by the numbers that memory holds.
    shapes: shapes of outputs, as the program reports them.
    """

    main: Main
    constants: np.ndarray
    functions: Mapping[str, Function]
    memories: dict[str, Address] = field(default_factory=dict)
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    extents: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    slots: dict[int, np.ndarray] = field(default_factory=dict)
    pointers: dict[int, Address] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)
    objects: list[Any] = field(default_factory=list)
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)

    # --- inputs and outputs ---

    def begin(self, inputs: Sequence[Any]) -> None:
        """Stores the inputs, computes the sizes that depend on them, and allocates memory."""
        main = self.main
        extents: dict[str, int] = {}
        for i, (spec, value) in enumerate(zip(main.inputs, inputs, strict=True)):
            self.memories[f"input{i}"] = self.taken(spec, value)
            for name, extent in zip(spec.shape, getattr(value, "shape", ())):
                if isinstance(name, str) and extents.setdefault(name, extent) != extent:
                    known = {s.name for s in main.symbols}
                    if name in known:
                        raise ModelError(f"dimension {name!r}: found {extents[name]} and {extent}")
        ends = [m.first + len(m.extents) for m in measurements_of(main.steps)]
        self.extents = np.zeros(max((len(main.symbols), *ends)), np.int64)
        self.values = np.zeros(main.size_values, np.int64)
        for i, symbol in enumerate(main.symbols):
            self.extents[i] = extents[symbol.name]
        arena = main.arena_bytes
        if main.symbols:
            self.compute_sizes(SIZES, len(main.symbols))
            arena = int(self.values[ARENA])
        self.memories["arena"] = Address(_fresh(arena))
        self.memories["constants"] = _holding(self.constants)
        homes = {o: f"input{i}" for o, i in main.in_place}
        for i, shape in self.known_shapes():
            self.shapes[i] = shape
            size = math.prod(shape) * main.outputs[i].dtype.bytes
            home = homes.get(i)
            self.memories[f"output{i}"] = (
                Address(_fresh(size)) if home is None else self.memories[home]
            )

    def taken(self, spec: TensorSpec, value: Any) -> Address:
        """Memory that holds an input."""
        if spec.dtype.is_host:
            return _holding(np.array([self.numbered(value)], np.int64))
        array = np.asarray(value)
        if array.dtype != spec.dtype.numpy:
            raise ModelError(f"input {spec}: found an array of {array.dtype}")
        return _holding(array)

    def known_shapes(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The shapes of outputs that are known before the first step, by number."""
        main, position = self.main, OUTPUTS
        reports = [s for s in main.steps if isinstance(s, nodes.Report)]
        grown = {i for r in reports for i, _ in r.shapes}
        for i, spec in enumerate(main.outputs):
            if spec.dtype.is_host:
                yield i, _SHAPELESS
            elif i not in grown:
                end = position + len(spec.shape)
                sizes = self.values[position:end] if main.symbols else spec.static_shape
                yield i, tuple(map(int, sizes))
                position = end

    def output(self, i: int, spec: TensorSpec) -> Any:
        if spec.dtype.is_host:
            return self.objects[int(self.memories[f"output{i}"].view(_I64))]
        place = self.memories.get(f"output{i}") or Address(self.slots[i])
        return place.view(spec.dtype.numpy, self.shapes[i]).copy()

    def numbered(self, value: Any) -> int:
        """The number of an object of a host type."""
        self.objects.append(value)
        return len(self.objects) - 1

    # --- arguments ---

    def address(self, arg: Arg) -> Address:
        """The address of an argument that is memory."""
        if arg.kind == "pointer":
            return self.pointers[arg.index].at(arg.offset)
        if arg.kind in ("input", "output"):
            return self.memories[f"{arg.kind}{arg.index}"].at(arg.offset)
        if arg.kind == "constant":
            return self.memories["constants"].at(arg.index)
        base = self.memories["arena"] if arg.slot is None else Address(self.slots[arg.slot])
        if arg.kind == "arena":
            return base.at(arg.index)
        return base.at(int(self.values[arg.index]) + arg.offset)

    def number(self, size: int | Arg) -> int:
        return int(self.values[size.index]) if isinstance(size, Arg) else size

    def operand(self, arg: Arg) -> Address | int:
        if arg.kind == "scalar":
            return arg.index
        return self.number(arg) if arg.kind == "extent" else self.address(arg)

    def holds(self, condition: Arg) -> bool:
        return bool(self.address(condition).view(_BYTE))

    def call(self, symbol: str, args: Sequence[Address | int]) -> int:
        """Runs a function; the result is its error code, 0 for success."""
        function = self.functions[symbol]
        if not isinstance(function, Func):
            return function(args) or 0
        pairs = list(zip(function.params, args, strict=True))
        scalars = {p: a for p, a in pairs if isinstance(p, Var) and isinstance(a, int)}
        arguments: list[np.ndarray | int] = []
        for p, a in pairs:
            if isinstance(a, int):
                arguments.append(a)
            elif not isinstance(p, Var):
                shape = [value_of(d, scalars) for d in p.shape]
                arguments.append(a.kernel_view(p.dtype.numpy, shape))
        code = interpret_loops(function, arguments) or 0
        for a in args:
            if isinstance(a, Address):
                a.check_end()
        return code

    def compute_sizes(self, symbol: str, known: int) -> None:
        """Computes the values that depend on the known extents."""
        places = _, values = (_holding(self.extents), _holding(self.values))
        if self.call(symbol, places):
            raise ModelError(f"the model can't run with the extents {self.extents[:known]}")
        self.values[:] = values.view(_I64, self.values.shape)

    # --- steps ---

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            try:
                self.step(step)
            except InternalError as e:
                raise InternalError(f"{head(step)}: {e}") from e

    def step(self, step: Step) -> None:
        match step:
            case nodes.KernelCall():
                if code := self.call(step.symbol, [self.operand(a) for a in step.args]):
                    raise InternalError(f"the kernel failed with code {code}")
            case nodes.HostCall():
                self.host(step)
            case nodes.Copy():
                self.copy(step.source, step.to, self.number(step.bytes))
            case nodes.Branch():
                self.steps(step.then if self.holds(step.condition) else step.otherwise)
            case nodes.Repeat():
                self.repeat(step)
            case nodes.Measurement():
                self.measure(step)
            case nodes.Grow():
                self.grow(step)
            case nodes.Store():
                self.store(self.address(step.to), [self.number(n) for n in step.numbers])
            case nodes.Report():
                for output, shape in step.shapes:
                    self.shapes[output] = tuple(map(self.number, shape))
            case _:
                raise InternalError("only a program of parts has this step")

    def copy(self, source: Arg, to: Arg, size: int) -> None:
        self.move(self.address(source), self.address(to), size)

    def move(self, source: Address, to: Address, size: int) -> None:
        """Copies bytes, unless source and destination are the same."""
        if source.is_same(to):
            return
        if source.memory is to.memory and abs(source.offset - to.offset) < size:
            raise InternalError(f"the {size} bytes at {source.offset} and {to.offset} overlap")
        to.view(_BYTE, (size,))[:] = source.view(_BYTE, (size,))

    def store(self, to: Address, numbers: Sequence[int]) -> None:
        to.view(_I64, (len(numbers),))[:] = numbers

    def take(self, slot: int, size: int, keep: int = 0) -> None:
        """Grows a slot to at least `size` bytes; the first `keep` bytes stay as they are."""
        before = self.slots.get(slot)
        if before is None or len(before) < 2 * size:
            self.slots[slot] = memory = _fresh(size)
            if before is not None:
                memory[:keep] = before[:keep]

    def grow(self, step: nodes.Grow) -> None:
        if step.for_threads:  # kernels have scratch memory of their own
            return
        if step.target is None:
            self.take(step.slot, self.number(step.bytes), self.number(step.keep))
            return
        slot = self.turns[step.target]
        self.take(slot, self.number(step.bytes))
        self.pointers[step.target] = Address(self.slots[slot])

    def measure(self, step: nodes.Measurement) -> None:
        measured = self.address(step.source).view(_I64, (len(step.extents),))
        for i, (e, extent) in enumerate(zip(step.extents, map(int, measured), strict=True)):
            if not e.low <= extent <= self.number(e.high):
                high = self.number(e.high)
                raise ModelError(f"{e.name!r} is {extent}; expected {e.low} to {high}")
            self.extents[step.first + i] = extent
        self.compute_sizes(step.sizes, step.first + len(step.extents))

    def repeat(self, step: nodes.Repeat) -> None:
        if isinstance(step.count, Arg) and step.count.kind != "extent":
            count = int(self.address(step.count).view(_I64))
        else:
            count = self.number(step.count)
        current = [self.address(c.first) for c in step.carried]
        turning = [self.turning(c, step.is_even) for c in step.carried]
        bases = [None if s.slot is not None else self.address(s.first) for s in step.slices]
        goes_on, i = step.first is None or self.holds(step.first), 0
        while goes_on and i < count:
            for c, place, turns in zip(step.carried, current, turning, strict=True):
                self.pointers[c.pointer] = place
                if c.target is not None:
                    self.turn(c.target, turns[i % 2])
            for s, base in zip(step.slices, bases, strict=True):
                stride = self.number(s.stride)
                if s.slot is not None:
                    self.take(s.slot, (i + 1) * stride, i * stride)
                    base = Address(self.slots[s.slot])
                assert base is not None
                self.pointers[s.pointer] = base.at((count - 1 - i if s.backward else i) * stride)
            if step.number is not None:
                self.store(self.address(step.number), [i])
            self.steps(step.body)
            current = [self.address(c.following) for c in step.carried]
            goes_on = step.again is None or self.holds(step.again)
            i += 1
        for c, place in zip(step.carried, current, strict=True):
            self.pointers[c.pointer] = place
        if step.ran is not None:
            self.store(self.address(step.ran), [i])
        for c, place in zip(step.carried, current, strict=True):
            if c.end is not None and c.bytes is not None:
                self.move(place, self.address(c.end), self.number(c.bytes))

    def turning(self, c: nodes.Carried, is_even: bool) -> tuple[Any, ...]:
        """The two memories of a carried value that alternate: two slots, or two addresses.  If the
        number of iterations is known, the last iteration writes the one where the value is needed.
        """
        if c.slot is not None:
            return c.slot, c.slot + 1
        if c.end is None or c.other is None:
            return ()
        places = self.address(c.end), self.address(c.other)
        return places[::-1] if is_even else places

    def turn(self, target: int, to: Address | int) -> None:
        if isinstance(to, int):
            self.turns[target] = to
        else:
            self.pointers[target] = to

    # --- host functions ---

    def host(self, step: nodes.HostCall) -> None:
        inputs = [self.read(a) for a in step.inputs]
        made = prepare(step.function, step.settings)(*inputs)
        results = made if isinstance(made, tuple) else (made,)
        for array, value in zip(step.outputs, results, strict=True):
            dtype, shape = _typed(array), tuple(map(self.number, array.shape))
            if dtype.is_host:
                if dtype is string and np.shape(value) != shape:
                    raise ModelError(f"expected strings of shape {shape}, found {np.shape(value)}")
                self.store(self.address(array.place), [self.numbered(value)])
            else:
                self.address(array.place).view(dtype.numpy, shape)[...] = value

    def read(self, array: nodes.HostArray) -> Any:
        """The argument of a host function: an object, or an array of its own."""
        dtype, place = _typed(array), self.address(array.place)
        if dtype.is_host:
            return self.objects[int(place.view(_I64))]
        return place.view(dtype.numpy, tuple(map(self.number, array.shape))).copy()


def _typed(array: nodes.HostArray) -> DType:
    dtype = by_name(array.dtype)
    if dtype is None:
        raise InternalError(f"{array.dtype!r} is no element type")
    return dtype
