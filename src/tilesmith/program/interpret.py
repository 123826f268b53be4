"""The interpreter of main programs, in NumPy.

`program.run` defines the meaning of steps.  A memory is an array of bytes, and an address is a
memory with an offset.  Kernels and functions of sizes run in the interpreter of loop IR, or are
Python functions.  Fresh memory contains arbitrary bytes.  Each memory is followed by as many guard
bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tilesmith.host_functions import prepare
from tilesmith.ir.dtypes import string
from tilesmith.ir.expr import Var
from tilesmith.ir.symbols import value_of
from tilesmith.loop.interpret import interpret as interpret_loops
from tilesmith.loop.nodes import Func
from tilesmith.support.errors import InternalError, ModelError

from . import nodes
from .functions import ARENA, OUTPUTS, SIZES
from .main import Main, TensorSpec
from .run import BYTE, I64, Actions, Address, Located, Run
from .visit import measurements_of

_ARBITRARY = 0xA5
"""The value of every byte of fresh memory."""


def view(place: Address, dtype: np.dtype, shape: Sequence[int] = (), guard: int = 1) -> np.ndarray:
    """The array at an address.  Raises InternalError if the array ends beyond the memory.

    guard: 1 for an array inside the memory, 2 if the array may extend into the guard bytes.  A
        kernel's parameter may be declared larger than the part that the kernel uses, if its rows
        are inside longer rows of another array.
    """
    memory, offset = place
    size, end = len(memory) // 2, offset + math.prod(shape) * dtype.itemsize
    if not 0 <= offset <= end <= guard * size:
        raise InternalError(f"bytes {offset} to {end} of a memory of {size} bytes")
    return memory[offset:end].view(dtype).reshape(shape)


Function: TypeAlias = Func | Callable[[Sequence[Address | int]], int | None]
"""A kernel or a function of sizes: loop IR, or a Python function of addresses and numbers that
returns an error code, or None.
"""

Part: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
"""A part of a program: a function from its inputs to its outputs."""


def interpret(
    main: Main,
    inputs: Sequence[Any],
    constants: np.ndarray,
    functions: Mapping[str, Function],
    parts: Sequence[Part] = (),
) -> list[Any]:
    """Run a main program and return its outputs.

    inputs: arrays, which are not changed, and objects for inputs of host types.
    constants: the bytes of constants.
    functions: kernels and functions of sizes, by symbol.
    parts: functions for the parts, if the program consists of parts.

    Raises ModelError for impossible sizes and for errors of host functions, InternalError for a
    program that reaches beyond its memory.
    """
    if len(parts) != main.parts:
        raise InternalError(f"the program has {main.parts} parts, {len(parts)} are given")
    own = _Interpreter(main, functions)
    actions = Actions(_copy, view, _allocate, own.kernel, own.sizes, own.host,
                      lambda step, values: parts[step.part](values),
                      lambda _, value: np.array(value))  # fmt: skip
    run = Run(actions, values=inputs)
    if parts:
        run.steps(main.steps)
        return [run.values[v] for v in run.results]
    own.begin(run, inputs, constants)
    run.steps(main.steps)
    return [own.output(run, i, spec) for i, spec in enumerate(main.outputs)]


def _allocate(size: int) -> np.ndarray:
    return np.full(2 * size, _ARBITRARY, np.uint8)


def _holding(array: np.ndarray) -> np.ndarray:
    """Fresh memory that contains a copy of an array."""
    memory = _allocate(array.nbytes)
    memory[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memory


def _copy(source: Address, to: Address, size: int) -> None:
    """Copies bytes, unless source and destination are the same."""
    if source[0] is to[0]:
        if source[1] == to[1]:
            return
        if abs(source[1] - to[1]) < size:
            raise InternalError(f"the {size} bytes at {source[1]} and {to[1]} overlap")
    view(to, BYTE, (size,))[:] = view(source, BYTE, (size,))


@dataclass(slots=True)
class _Interpreter:
    """The actions of a run in NumPy (see `run.Actions`).

    objects: values of host types, by number.  Memory contains these numbers.
    """

    main: Main
    functions: Mapping[str, Function]
    objects: list[Any] = field(default_factory=list)

    # --- inputs and outputs ---

    def begin(self, run: Run, inputs: Sequence[Any], constants: np.ndarray) -> None:
        """Stores the inputs, computes the sizes that depend on them, and allocates memory."""
        main = self.main
        extents: dict[int | str, int] = {}
        known = {s.name for s in main.symbols}
        for i, (spec, value) in enumerate(zip(main.inputs, inputs, strict=True)):
            run.memories["input", i] = self.taken(spec, value)
            for name, extent in zip(spec.shape, getattr(value, "shape", ())):
                if name in known and extents.setdefault(name, extent) != extent:
                    raise ModelError(f"dimension {name!r}: found {extents[name]} and {extent}")
        ends = [m.first + len(m.extents) for m in measurements_of(main.steps)]
        run.extents = np.zeros(max((len(main.symbols), *ends)), np.int64)
        run.sizes = np.zeros(main.size_values, np.int64)
        for i, symbol in enumerate(main.symbols):
            run.extents[i] = extents[symbol.name]
        arena = main.arena_bytes
        if main.symbols:
            run.compute_sizes(SIZES, len(main.symbols))
            arena = int(run.sizes[ARENA])
        run.memories["arena", 0] = _allocate(arena)
        run.memories["constant", 0] = _holding(constants)
        homes = dict(main.in_place)
        for i, shape in self.known_shapes(run):
            run.shapes[i] = shape
            size = math.prod(shape) * main.outputs[i].dtype.bytes
            run.memories["output", i] = (
                run.memories["input", homes[i]] if i in homes else _allocate(size)
            )

    def taken(self, spec: TensorSpec, value: Any) -> np.ndarray:
        """Memory that holds an input."""
        if spec.dtype.is_host:
            return _holding(np.array([self.numbered(value)], np.int64))
        array = np.asarray(value)
        if array.dtype != spec.dtype.numpy:
            raise ModelError(f"input {spec}: found an array of {array.dtype}")
        return _holding(array)

    def known_shapes(self, run: Run) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The outputs whose shapes are known before the first step: their numbers and shapes."""
        main, position = self.main, OUTPUTS
        grown = {i for s in main.steps if isinstance(s, nodes.Report) for i, _ in s.shapes}
        for i, spec in enumerate(main.outputs):
            if spec.dtype.is_host:
                yield i, ()
            elif i not in grown:
                end = position + len(spec.shape)
                sizes = run.sizes[position:end] if main.symbols else spec.static_shape
                yield i, tuple(map(int, sizes))
                position = end

    def output(self, run: Run, i: int, spec: TensorSpec) -> Any:
        if spec.dtype.is_host:
            return self.objects[int(view((run.memories["output", i], 0), I64))]
        memory = run.slots[i][0] if i in run.slots else run.memories["output", i]
        return view((memory, 0), spec.dtype.numpy, run.shapes[i]).copy()

    def numbered(self, value: Any) -> int:
        """Store an object of a host type and return its number."""
        self.objects.append(value)
        return len(self.objects) - 1

    # --- functions ---

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
                arguments.append(view(a, p.dtype.numpy, shape, guard=2))
        code = interpret_loops(function, arguments) or 0
        for memory in (a[0] for a in args if isinstance(a, tuple)):
            size = len(memory) // 2
            if (memory[size:] != _ARBITRARY).any():
                raise InternalError(f"something is written behind a memory of {size} bytes")
        return code

    def kernel(self, step: nodes.KernelCall, args: Sequence[Address | int]) -> None:
        if code := self.call(step.symbol, args[:-1]):
            raise InternalError(f"the kernel failed with code {code}")

    def sizes(self, symbol: str, extents: np.ndarray, values: np.ndarray) -> int:
        places = _, computed = (_holding(extents), 0), (_holding(values), 0)
        code = self.call(symbol, places)
        values[:] = view(computed, I64, values.shape)
        return code

    def host(self, step: nodes.HostCall, inputs: list[Located], outputs: list[Located]) -> None:
        made = prepare(step.function, step.settings)(*(self.read(*x) for x in inputs))
        results = made if isinstance(made, tuple) else (made,)
        for (array, place, shape), value in zip(outputs, results, strict=True):
            if array.dtype.is_host:
                if array.dtype is string and np.shape(value) != shape:
                    raise ModelError(f"expected strings of shape {shape}, found {np.shape(value)}")
                view(place, I64)[...] = self.numbered(value)
            else:
                view(place, array.dtype.numpy, shape)[...] = value

    def read(self, array: nodes.HostArray, place: Address, shape: tuple[int, ...]) -> Any:
        """The argument of a host function: an object, or a new array."""
        if array.dtype.is_host:
            return self.objects[int(view(place, I64))]
        return view(place, array.dtype.numpy, shape).copy()
