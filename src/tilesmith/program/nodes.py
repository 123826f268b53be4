"""The steps of the main program: a tree of kernel calls, copies, branches and loops.

Immutable and compared by value.  Each step declares the roles of its fields and its text
(`ir.grammar`; `program.text` explains the forms).

Sizes that depend on data are measured during the run, and memory for them grows then.  A loop moves
pointers, which the kernels in it get as arguments: to an element of a tensor, and to values that
one iteration hands to the next.  Those values are not copied: two buffers alternate, or two slots
if the size changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal, get_type_hints

from tilesmith.ir.dtypes import DType
from tilesmith.ir.grammar import Binder, Body, Label, Operand, Reference, tokens

ArgKind = Literal["input", "output", "constant", "arena", "scalar", "place", "extent", "pointer"]


@dataclass(frozen=True, slots=True)
class Arg:
    """An argument of a kernel.

    kind: meaning of `index`.
    index: number of an input or output; byte offset into the constants or the arena; the scalar
        itself; for a "place" in the arena and an "extent", the number of the value that
        `codegen.sizes` computes; or the number of a pointer that a loop moves.
    offset: bytes from the start of an input or output, from a place, or from a pointer.
    slot: for "arena" and "place", the number of the slot, a memory that grows, that replaces the
        arena.
    """

    kind: ArgKind
    index: int
    offset: int = 0
    slot: int | None = None

    def at(self, offset: int) -> Arg:
        """The memory `offset` bytes further on."""
        if self.kind in ("constant", "arena"):
            return replace(self, index=self.index + offset)
        return replace(self, offset=self.offset + offset)


@dataclass(frozen=True, slots=True)
class Node:
    """Base of steps, and of what steps declare.

    syntax: the lines of its text.
    """

    syntax: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Step(Node):
    """Base of all steps."""


@dataclass(frozen=True, slots=True)
class KernelCall(Step):
    """One kernel run by a program.

    symbol: the kernel's name.
    args: buffers in the kernel's order, then scalars.
    label: for people: the source model's node.
    workspace: the kernel's shared workspace, an "arena" or a "place".
    messages: texts of its assertions.
    sources: all nodes of the source model that it computes.
    """

    syntax = "call {symbol:word}({args}){workspace=}{label=}{messages=}{sources=}"
    symbol: Label[str]
    args: Operand[tuple[Arg, ...]]
    label: Label[str] = ""
    workspace: Operand[Arg] = Arg("arena", 0)
    messages: Label[tuple[str, ...]] = ()
    sources: Label[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True)
class Copy(Step):
    """Bytes copied from one place to another.  The places do not overlap; if they are equal,
    nothing is copied.

    source, to: the places.
    bytes: their number, or an "extent".
    """

    syntax = "copy {source} -> {to}, {bytes}"
    source: Operand[Arg]
    to: Operand[Arg]
    bytes: Operand[int | Arg]


@dataclass(frozen=True, slots=True)
class Branch(Step):
    """Two lists of steps, of which one runs.

    condition: a byte, true unless it is 0.
    then, otherwise: the steps.
    """

    syntax = "if {condition}:\n{then}\nelse:\n{otherwise}"
    condition: Operand[Arg]
    then: Body[tuple[Step, ...]]
    otherwise: Body[tuple[Step, ...]]


@dataclass(frozen=True, slots=True)
class Slice(Node):
    """A pointer that moves by the same distance in each iteration.

    pointer: its number.
    first: its address in iteration 0; if `backward`, in the last one.
    stride: distance in bytes, a number or an "extent".
    backward: whether it moves to lower addresses; the number of iterations is known then.
    slot: memory that grows by `stride` with each iteration and begins at `first`; None if all of it
        exists before the loop.
    """

    syntax = "slice {pointer:pointer} = {first} by {stride}{backward=}{slot:slot=}"
    pointer: Binder[int]
    first: Operand[Arg]
    stride: Operand[int | Arg]
    backward: Label[bool] = False
    slot: Reference[int | None] = None


@dataclass(frozen=True, slots=True)
class Carried(Node):
    """A value that each iteration hands to the next one.

    pointer: number of the pointer to the current one.
    first: address of the value before the first iteration.
    following: address where an iteration leaves the next value.
    end: address where the value is needed after the last iteration; None with a `slot`.
    bytes: its size, a number or an "extent"; None if the size changes: then a step after the loop
        copies the value from `pointer` to its end.
    target: number of the pointer to the one of two alternating memories where an iteration may
        write the next value; None if that is elsewhere.
    other: the memory that alternates with `end`; None without a `target`, and with a `slot`.
    slot: number of the first of two alternating slots, which a `Grow` in each iteration makes large
        enough; the value before the first iteration is in the second one.
    """

    syntax = (
        "carry {pointer:pointer} = {first} then {following}"
        "{end=}{bytes=}{target:pointer=}{other=}{slot:slot=}"
    )
    pointer: Binder[int]
    first: Operand[Arg]
    following: Operand[Arg]
    end: Operand[Arg | None]
    bytes: Operand[int | Arg | None]
    target: Binder[int | None] = None
    other: Operand[Arg | None] = None
    slot: Reference[int | None] = None


@dataclass(frozen=True, slots=True)
class Repeat(Step):
    """Steps that run repeatedly.

    count: number of iterations (an upper bound, if there is a condition), an "extent", or the
        address of that i64.
    body: the steps.
    slices: pointers to an element of a tensor for each iteration.
    carried: values that one iteration hands to the next.
    number: address where the iteration's number is written as an i64; None if nothing reads it.
    first: address of the condition before the first iteration; None: there is no condition.
    again: address where each iteration leaves the condition for the next.
    ran: address where the number of iterations that ran is written as an i64; None if nothing reads
        it.
    """

    syntax = "repeat {count}{number=}{first=}{again=}{ran=}:\n{body}"
    count: Operand[int | Arg]
    body: Body[tuple[Step, ...]]
    slices: Binder[tuple[Slice, ...]] = ()
    carried: Binder[tuple[Carried, ...]] = ()
    number: Operand[Arg | None] = None
    first: Operand[Arg | None] = None
    again: Operand[Arg | None] = None
    ran: Operand[Arg | None] = None

    @property
    def is_even(self) -> bool:
        """Whether the number of iterations is known to be even."""
        return isinstance(self.count, int) and self.first is None and self.count % 2 == 0


@dataclass(frozen=True, slots=True)
class HostArray(Node):
    """A tensor that a host function reads or writes.

    dtype: the element type; for a host type, the memory holds the number of one object.
    place: its address, row-major.
    shape: its extents, each a number or an "extent".
    """

    syntax = "{dtype}[{shape}] at {place}"
    dtype: Label[DType]
    place: Operand[Arg]
    shape: Operand[tuple[int | Arg, ...]]

    @property
    def extents(self) -> tuple[Arg, ...]:
        """The extents that are known to a run only."""
        return tuple(d for d in self.shape if isinstance(d, Arg))


@dataclass(frozen=True, slots=True)
class HostCall(Step):
    """A function of the host (see `graph.control`).

    function, settings, operator, is_fallback: as in `graph.control.Host`.
    label: for people: the source model's node.
    inputs: the tensors that it reads.
    outputs: the tensors that it writes.
    """

    syntax = (
        "host {function:word}({inputs}) -> ({outputs}){settings=}{operator=}{label=}{is_fallback=}"
    )
    function: Label[str]
    settings: Label[str]
    operator: Label[str]
    label: Label[str]
    inputs: Operand[tuple[HostArray, ...]]
    outputs: Operand[tuple[HostArray, ...]]
    is_fallback: Label[bool] = False

    @property
    def arguments(self) -> tuple[Arg, ...]:
        """The arguments of the call: places of inputs and outputs, then extents of all."""
        arrays = (*self.inputs, *self.outputs)
        return (*(a.place for a in arrays), *(e for a in arrays for e in a.extents))


@dataclass(frozen=True, slots=True)
class Extent(Node):
    """An extent that a run finds.

    name: name of the symbol, or its formula, for people.
    low: its lower bound.
    high: its upper bound, a number or an "extent".
    """

    syntax = "{name} from {low} to {high}"
    name: Label[str]
    low: Label[int]
    high: Operand[int | Arg]


@dataclass(frozen=True, slots=True)
class Measurement(Step):
    """A measurement: reads and checks extents, and computes the sizes that depend on them.

    source: address of the extents, consecutive i64.
    first: number of the first one among the extents of the program.
    extents: their names and bounds.
    sizes: the function that computes the dependent sizes (see `codegen.sizes`).
    label: for people: the source model's node.
    """

    syntax = "measure {extents} at {source}, first {first}, sizes {sizes:word}{label=}"
    source: Operand[Arg]
    first: Label[int]
    extents: Operand[tuple[Extent, ...]]
    sizes: Label[str]
    label: Label[str] = ""


@dataclass(frozen=True, slots=True)
class Grow(Step):
    """Memory of the context that a run makes large enough, unless it is already.

    slot: its number; the first slots are the outputs.
    bytes: the least size, a number or an "extent".
    for_threads: whether it is scratch memory of that size for each thread.
    target: number of the pointer to memory that a loop writes (see `Carried`): the slot and the
        next slot grow in turn.
    keep: number of bytes that stay as they are, or an "extent".
    """

    syntax = "grow {slot:slot} to {bytes}{for_threads=}{target:pointer=}{keep=}"
    slot: Reference[int]
    bytes: Operand[int | Arg]
    for_threads: Label[bool] = False
    target: Reference[int | None] = None
    keep: Operand[int | Arg] = 0


@dataclass(frozen=True, slots=True)
class Store(Step):
    """Numbers written to memory as consecutive i64.

    to: the place.
    numbers: numbers or "extent"s.
    """

    syntax = "store {numbers} -> {to}"
    to: Operand[Arg]
    numbers: Operand[tuple[int | Arg, ...]]


@dataclass(frozen=True, slots=True)
class Report(Step):
    """Extents of outputs that only the run knows, written for the caller.

    to: number of the output, an array of i64, that gets them in order.
    shapes: for each output that grows, its number and its extents, numbers or "extent"s.
    """

    syntax = "report {shapes} -> {to:output}"
    to: Reference[int]
    shapes: Operand[tuple[tuple[int, tuple[int | Arg, ...]], ...]]


@dataclass(frozen=True, slots=True)
class PartCall(Step):
    """A part of a program, which runs in one place.

    part: its number.
    inputs, outputs: numbers of values on its side, in its order.
    """

    syntax = "part {part}({inputs}) -> ({outputs})"
    part: Label[int]
    inputs: Reference[tuple[int, ...]]
    outputs: Reference[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Transfer(Step):
    """A value copied from the host to the device, or back.

    source, to: numbers of the value on the two sides.
    to_device: whether it is copied to the device.
    """

    syntax = "transfer {source} -> {to}{to_device=}"
    source: Reference[int]
    to: Reference[int]
    to_device: Label[bool]


@dataclass(frozen=True, slots=True)
class Results(Step):
    """The last step of a program that consists of parts.

    values: for each output, the number of the value on the host.
    """

    syntax = "results {values}"
    values: Reference[tuple[int, ...]]


BY_WORD: dict[str, type[Node]] = {
    tokens(kind.syntax)[0]: kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, Node) and hasattr(kind, "syntax")
    and kind.syntax[0] != "{"
}  # fmt: skip
"""The kinds of nodes that stand in lines of their own, by their first word."""

WORDS: dict[type[Node], str] = {kind: word for word, kind in BY_WORD.items()}


@cache
def hints_of(kind: type[Node]) -> dict[str, Any]:
    """The types of the fields of a kind of node."""
    return get_type_hints(kind)
