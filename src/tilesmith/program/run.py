"""A run of a main program, which defines the meaning of steps.

A run handles control flow, addresses and sizes.  Its memory and functions are `Actions`: of NumPy
(`program.interpret`), of a device (`runtime.device_runner`), or of parts on host and device
(`runtime.parts_runner`).

A slot that is large enough keeps its memory.  A slot that grows gets new memory, to which only the
bytes to keep are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilesmith.support.errors import InternalError, ModelError

from . import nodes
from .nodes import Arg, ArgKind, HostArray, Step
from .text import head

Address: TypeAlias = tuple[Any, int]
"""An address: a memory, in the form that `Actions` use, and an offset in bytes."""

Memories: TypeAlias = dict[tuple[ArgKind, int], Any]
"""The memory of inputs, outputs, constants and the arena, by kind of argument and number."""

Located: TypeAlias = tuple[HostArray, Address, tuple[int, ...]]
"""An argument of a host function, its address, and its extents as numbers."""

I64, BYTE = np.dtype(np.int64), np.dtype(np.uint8)


def _at(address: Address, distance: int) -> Address:
    memory, offset = address
    return memory, offset + distance


def _refuse(*_: Any) -> Any:
    raise InternalError("what runs this program has no such step")


@dataclass(frozen=True, slots=True)
class Actions:
    """The memory and the functions of a run.  A step that needs a missing action raises an error.

    copy: copies a number of bytes from one address to another.
    view: returns the array at an address, given its element type and shape.
    allocate: returns memory of a number of bytes.
    kernel: calls a kernel with its arguments.  The last argument is the kernel's workspace.
    sizes: calls a function of sizes, which computes values from extents.  Returns its error code.
    host: calls a function of the host with its inputs and outputs.
    part: runs a part on values.  Returns its results.
    transfer: copies a value to the device or back.  Returns the copy.
    """

    copy: Callable[[Address, Address, int], None] = _refuse
    view: Callable[[Address, np.dtype, Sequence[int]], np.ndarray] = _refuse
    allocate: Callable[[int], Any] = _refuse
    kernel: Callable[[nodes.KernelCall, Sequence[Address | int]], None] = _refuse
    sizes: Callable[[str, np.ndarray, np.ndarray], int] = _refuse
    host: Callable[[nodes.HostCall, list[Located], list[Located]], None] = _refuse
    part: Callable[[nodes.PartCall, list[Any]], Iterable[Any]] = _refuse
    transfer: Callable[[nodes.Transfer, Any], Any] = _refuse


class Run:
    """A run of a main program.

    values: for a program of parts, its values by number.
    results: for a program of parts, the numbers of the values that are its results.
    extents, sizes: arguments and results of the functions of sizes.
    slots: memory of each slot, and its size in bytes.
    pointers: current addresses of the loops' pointers.
    turns: for each pointer to one of two alternating slots, the slot of the current iteration.
    shapes: shapes of outputs, as the program reports them.
    """

    extents: np.ndarray
    sizes: np.ndarray
    results: tuple[int, ...] = ()

    def __init__(
        self, actions: Actions, memories: Memories | None = None, values: Iterable[Any] = ()
    ) -> None:
        """Start a run.

        values: the inputs of a program of parts.
        """
        self.actions, self.memories = actions, memories or {}
        self.values: dict[int, Any] = dict(enumerate(values))
        self.slots: dict[int, tuple[Any, int]] = {}
        self.pointers: dict[int, Address] = {}
        self.turns: dict[int, int] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}

    # --- arguments ---

    def operand(self, arg: Arg) -> Any:
        """The address of an argument in memory; the value of any other argument."""
        kind = arg.kind
        if kind == "input" or kind == "output":
            return self.memories[kind, arg.index], arg.offset
        if kind == "constant":
            return self.memories["constant", 0], arg.index
        if kind == "scalar":
            return arg.index
        if kind == "extent":
            return int(self.sizes[arg.index])
        if kind == "pointer":
            return _at(self.pointers[arg.index], arg.offset)
        memory = self.memories["arena", 0] if arg.slot is None else self.slots[arg.slot][0]
        return memory, arg.index if kind == "arena" else int(self.sizes[arg.index]) + arg.offset

    def number(self, size: int | Arg) -> int:
        return size if isinstance(size, int) else self.operand(size)

    def located(self, arrays: Sequence[HostArray]) -> list[Located]:
        return [(a, self.operand(a.place), tuple(map(self.number, a.shape))) for a in arrays]

    def holds(self, condition: Arg) -> bool:
        return bool(self.actions.view(self.operand(condition), BYTE, ()))

    def numbers(self, source: Arg, count: int) -> list[int]:
        return self.actions.view(self.operand(source), I64, (count,)).tolist()

    def store(self, to: Arg, numbers: Sequence[int]) -> None:
        self.actions.view(self.operand(to), I64, (len(numbers),))[:] = numbers

    def compute_sizes(self, symbol: str, known: int) -> None:
        """Computes the sizes that depend on the known extents."""
        if self.actions.sizes(symbol, self.extents, self.sizes):
            raise ModelError(f"the model can't run with the extents {self.extents[:known]}")

    # --- steps ---

    def steps(self, steps: Sequence[Step]) -> None:
        actions, values, operand = self.actions, self.values, self.operand
        for step in steps:
            try:
                match step:
                    case nodes.KernelCall():
                        actions.kernel(step, [*map(operand, step.args), operand(step.workspace)])
                    case nodes.PartCall():
                        computed = actions.part(step, [*map(values.__getitem__, step.inputs)])
                        values.update(zip(step.outputs, computed, strict=True))
                    case nodes.Transfer():
                        values[step.to] = actions.transfer(step, values[step.source])
                    case nodes.Results():
                        self.results = step.values
                    case nodes.Copy():
                        size = self.number(step.bytes)
                        actions.copy(operand(step.source), operand(step.to), size)
                    case nodes.HostCall():
                        actions.host(step, self.located(step.inputs), self.located(step.outputs))
                    case nodes.Branch():
                        self.steps(step.then if self.holds(step.condition) else step.otherwise)
                    case nodes.Repeat():
                        self.repeat(step)
                    case nodes.Measurement():
                        self.measure(step)
                    case nodes.Grow():
                        self.grow(step)
                    case nodes.Store():
                        self.store(step.to, [self.number(n) for n in step.numbers])
                    case nodes.Report():
                        for output, shape in step.shapes:
                            self.shapes[output] = tuple(map(self.number, shape))
                    case _:
                        _refuse()
            except InternalError as e:
                raise InternalError(f"{head(step)}: {e}") from e

    def take(self, slot: int, size: int, keep: int = 0) -> Any:
        """Memory of at least `size` bytes in a slot; the first `keep` bytes stay as they are."""
        before, room = self.slots.get(slot, (None, -1))
        if room >= size:
            return before
        memory = self.actions.allocate(size)
        if before is not None:
            self.actions.copy((before, 0), (memory, 0), keep)
        self.slots[slot] = memory, size
        return memory

    def grow(self, step: nodes.Grow) -> None:
        if step.for_threads:  # kernels allocate their own scratch memory
            return
        slot = step.slot if step.target is None else self.turns[step.target]
        memory = self.take(slot, self.number(step.bytes), self.number(step.keep))
        if step.target is not None:
            self.pointers[step.target] = memory, 0

    def measure(self, step: nodes.Measurement) -> None:
        measured = self.numbers(step.source, len(step.extents))
        for i, (e, extent) in enumerate(zip(step.extents, measured, strict=True)):
            if not e.low <= extent <= self.number(e.high):
                high = self.number(e.high)
                raise ModelError(f"{e.name!r} is {extent}; expected {e.low} to {high}")
            self.extents[step.first + i] = extent
        self.compute_sizes(step.sizes, step.first + len(step.extents))

    def repeat(self, step: nodes.Repeat) -> None:
        if isinstance(step.count, Arg) and step.count.kind != "extent":
            (count,) = self.numbers(step.count, 1)
        else:
            count = self.number(step.count)
        current = [self.operand(c.first) for c in step.carried]
        turning = [self.turning(c, step.is_even) for c in step.carried]
        bases = [None if s.slot is not None else self.operand(s.first) for s in step.slices]
        goes_on, i = step.first is None or self.holds(step.first), 0
        while goes_on and i < count:
            for c, place, turns in zip(step.carried, current, turning, strict=True):
                self.pointers[c.pointer] = place
                if c.target is not None:
                    moved: dict[int, Any] = self.pointers if c.slot is None else self.turns
                    moved[c.target] = turns[i % 2]
            for s, base in zip(step.slices, bases, strict=True):
                stride = self.number(s.stride)
                if s.slot is not None:
                    base = self.take(s.slot, (i + 1) * stride, i * stride), 0
                assert base is not None
                self.pointers[s.pointer] = _at(base, (count - 1 - i if s.backward else i) * stride)
            if step.number is not None:
                self.store(step.number, [i])
            self.steps(step.body)
            current = [self.operand(c.following) for c in step.carried]
            goes_on = step.again is None or self.holds(step.again)
            i += 1
        for c, place in zip(step.carried, current, strict=True):
            self.pointers[c.pointer] = place
        if step.ran is not None:
            self.store(step.ran, [i])
        for c, place in zip(step.carried, current, strict=True):
            if c.end is not None and c.bytes is not None:
                self.actions.copy(place, self.operand(c.end), self.number(c.bytes))

    def turning(self, c: nodes.Carried, is_even: bool) -> tuple[Any, ...]:
        """The two alternating memories of a carried value: two slots, or two addresses.  If the
        number of iterations is known, they are ordered so that the last iteration writes to where
        the value is needed.
        """
        if c.slot is not None:
            return c.slot, c.slot + 1
        if c.end is None or c.other is None:
            return ()
        places = self.operand(c.end), self.operand(c.other)
        return places[::-1] if is_even else places
