"""What a program's main function does: a tree of kernel calls, copies, branches and loops.

Sizes that depend on data are measured on the way, and memory for them grows then.  A loop moves
pointers that kernels in it get as arguments: to an element of a tensor, and to values that go from
one iteration to the next.  Those are not copied: two buffers take turns, or two slots if the size
changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

ArgKind = Literal["input", "output", "constant", "arena", "scalar", "place", "extent", "pointer"]


@dataclass(frozen=True, slots=True)
class Arg:
    """An argument of a kernel.

    kind: what `index` means.
    index: number of an input or output; byte offset into the constants or the arena; the scalar
        itself; of a "place" in the arena and an "extent", the number of the value that
        `codegen.sizes` computes; or the number of a pointer that a loop moves.
    offset: bytes from the start of an input or output, from a place, or from a pointer.
    slot: for "arena" and "place", the number of the memory that is meant instead of the arena:
        of a slot that grows.
    """

    kind: ArgKind
    index: int
    offset: int = 0
    slot: int | None = None

    def at(self, offset: int) -> Arg:
        """The memory so many bytes further on."""
        if self.kind in ("constant", "arena"):
            return replace(self, index=self.index + offset)
        return replace(self, offset=self.offset + offset)


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel run by a program.

    symbol: the kernel's name.
    args: buffers in the kernel's order, then scalars.
    label: for people: the source model's node.
    workspace: the kernel's shared workspace, an "arena" or a "place".
    messages: of its assertions.
    sources: all nodes of the source model that it computes.
    """

    symbol: str
    args: tuple[Arg, ...]
    label: str = ""
    workspace: Arg = Arg("arena", 0)
    messages: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes copied from one place to another, which do not overlap; none if it is the same place.

    source, to: the places.
    bytes: how many, a number or an "extent".
    """

    source: Arg
    to: Arg
    bytes: int | Arg


@dataclass(frozen=True, slots=True)
class Branch:
    """Steps of which one list runs.

    condition: a byte, true unless it is 0.
    then, otherwise: the steps.
    """

    condition: Arg
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """A pointer that moves by the same distance in each iteration.

    pointer: its number.
    first: where it points in iteration 0; if `backward`, in the last one.
    stride: distance in bytes, a number or an "extent".
    backward: whether it moves to lower addresses; the number of iterations is known then.
    slot: of memory that grows by `stride` with each iteration, at the start of which `first` lies;
        None if all of it is there before.
    """

    pointer: int
    first: Arg
    stride: int | Arg
    backward: bool = False
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that each iteration hands to the next one.

    pointer: number of the pointer to the current one.
    first: where the value lies before the first iteration.
    following: where an iteration leaves the next one.
    end: where it is needed after the last iteration; None with a `slot`.
    bytes: its size, a number or an "extent"; None if it changes: a step behind the loop, where
        `pointer` still says where it lies, brings it to its end.
    target: number of the pointer to the memory, of two that take turns, where an iteration may
        write the next one; None if it has other memory.
    other: the memory that takes turns with `end`; None without a `target`, and with a `slot`.
    slot: number of two slots that take turns instead, which a `Grow` in each iteration makes large
        enough; the value before the first iteration lies in the second one.
    """

    pointer: int
    first: Arg
    following: Arg
    end: Arg | None
    bytes: int | Arg | None
    target: int | None = None
    other: Arg | None = None
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """Steps that run again and again.

    count: number of iterations (at most, if there is a condition), an "extent", or where that i64
        lies.
    body: the steps.
    slices: pointers to an element of a tensor for each iteration.
    carried: values that go around.
    number: where the iteration's number is written as an i64; None if nothing reads it.
    first: where the condition before the first iteration lies; None: there is no condition.
    again: where each iteration leaves the condition for the next.
    ran: where the number of iterations that ran is written as an i64; None if nothing reads it.
    """

    count: int | Arg
    body: tuple[Step, ...]
    slices: tuple[Slice, ...] = ()
    carried: tuple[Carried, ...] = ()
    number: Arg | None = None
    first: Arg | None = None
    again: Arg | None = None
    ran: Arg | None = None

    @property
    def is_even(self) -> bool:
        """Whether the number of iterations is known to be even."""
        return isinstance(self.count, int) and self.first is None and self.count % 2 == 0


@dataclass(frozen=True, slots=True)
class HostArray:
    """A tensor that a host function reads or writes.

    dtype: the element type by name; of a host type, the memory holds the number of one object.
    place: where it lies, row-major.
    shape: its extents, each a number or an "extent".
    """

    dtype: str
    place: Arg
    shape: tuple[int | Arg, ...]

    @property
    def extents(self) -> tuple[Arg, ...]:
        """The extents that are known to a run only."""
        return tuple(d for d in self.shape if isinstance(d, Arg))


@dataclass(frozen=True, slots=True)
class HostCall:
    """A function of the host (see `graph.host`).

    function, settings, operator, is_fallback: as of `graph.host.Host`.
    label: for people: the source model's node.
    inputs: what it reads.
    outputs: what it writes.
    """

    function: str
    settings: str
    operator: str
    label: str
    inputs: tuple[HostArray, ...]
    outputs: tuple[HostArray, ...]
    is_fallback: bool = False

    @property
    def arguments(self) -> tuple[Arg, ...]:
        """What the host gets: the places of inputs and outputs, and then the extents of all."""
        arrays = (*self.inputs, *self.outputs)
        return (*(a.place for a in arrays), *(e for a in arrays for e in a.extents))


@dataclass(frozen=True, slots=True)
class Extent:
    """An extent that a run finds.

    name: of the symbol, or its formula, for people.
    low: the least that it may be.
    high: the most that it may be, a number or an "extent".
    """

    name: str
    low: int
    high: int | Arg


@dataclass(frozen=True, slots=True)
class Measurement:
    """Extents are read and checked, and the sizes that depend on them are computed.

    source: where the extents lie as i64, one after the other.
    first: number of the first one among the extents of the program.
    extents: what they may be.
    sizes: the function that computes what depends on them (see `codegen.sizes`).
    label: for people: the source model's node.
    """

    source: Arg
    first: int
    extents: tuple[Extent, ...]
    sizes: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Grow:
    """Memory from the context, whose size a run finds.

    slot: its number; the first slots are the outputs.
    bytes: how many are needed, a number or an "extent".
    for_threads: whether each thread needs so much, as scratch memory, if it has less.
    target: number of the pointer to memory that a loop writes (see `Carried`): of the slot and the
        one behind it, that of whose turn it is grows.
    keep: how many bytes stay as they are, a number or an "extent".
    """

    slot: int
    bytes: int | Arg
    for_threads: bool = False
    target: int | None = None
    keep: int | Arg = 0


@dataclass(frozen=True, slots=True)
class Store:
    """Numbers written to memory as i64, one after the other.

    to: the place.
    numbers: numbers or "extent"s.
    """

    to: Arg
    numbers: tuple[int | Arg, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Extents of outputs that a run finds, written for the caller.

    to: number of the output, an array of i64, that takes them one after the other.
    shapes: for each output that grows, its number and its extents, numbers or "extent"s.
    """

    to: int
    shapes: tuple[tuple[int, tuple[int | Arg, ...]], ...]


Step: TypeAlias = (
    "KernelCall | Copy | Branch | Repeat | HostCall | Measurement | Grow | Store | Report"
)


def steps_in(steps: Iterable[Step]) -> Iterator[Step]:
    """Every step in `steps`, in the order in which calls and measurements are numbered."""
    for s in steps:
        yield s
        if isinstance(s, Branch):
            yield from steps_in((*s.then, *s.otherwise))
        elif isinstance(s, Repeat):
            yield from steps_in(s.body)


def calls_of(steps: Iterable[Step]) -> Iterator[KernelCall]:
    """The kernel calls in `steps`, each once, in the order in which they are numbered."""
    return (s for s in steps_in(steps) if isinstance(s, KernelCall))


def host_calls_of(steps: Iterable[Step]) -> Iterator[HostCall]:
    """The calls of host functions in `steps`, likewise in the order of their numbers."""
    return (s for s in steps_in(steps) if isinstance(s, HostCall))


def measurements_of(steps: Iterable[Step]) -> Iterator[Measurement]:
    """The measurements in `steps`, each once, in the order in which they are numbered."""
    return (s for s in steps_in(steps) if isinstance(s, Measurement))


def slots_of(steps: Iterable[Step]) -> int:
    """How many slots `steps` number."""
    grown = (s for s in steps_in(steps) if isinstance(s, Grow))
    return max((s.slot + 1 + (s.target is not None) for s in grown), default=0)


def args_of(steps: Iterable[Step]) -> Iterator[Arg]:
    """Every argument in `steps`."""
    for s in steps_in(steps):
        match s:
            case KernelCall():
                yield from (*s.args, s.workspace)
            case HostCall():
                yield from s.arguments
            case Copy():
                yield from _given(s.source, s.to, s.bytes)
            case Branch():
                yield s.condition
            case Repeat():
                yield from _given(s.count, s.number, s.first, s.again, s.ran)
                for x in s.slices:
                    yield from _given(x.first, x.stride)
                for c in s.carried:
                    yield from _given(c.first, c.following, c.end, c.bytes, c.other)
            case Measurement():
                yield from _given(s.source, *(e.high for e in s.extents))
            case Grow():
                yield from _given(s.bytes, s.keep)
            case Store():
                yield from _given(s.to, *s.numbers)
            case Report():
                yield from _given(*(d for _, shape in s.shapes for d in shape))


def _given(*found: Arg | int | None) -> Iterator[Arg]:
    return (a for a in found if isinstance(a, Arg))
