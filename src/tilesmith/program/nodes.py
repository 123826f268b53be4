"""The steps of the main program: a tree of kernel calls, copies, branches and loops.

Steps are immutable and compared by value.  Each class of steps declares the roles of its fields and
its text (`ir.grammar`; `program.text` explains the forms).

Sizes that depend on data are measured during the run.  Memory for tensors of such sizes grows when
it is too small.  A loop moves pointers, which are arguments of the kernels in it.  They point to an
element of a tensor, or to values that one iteration passes to the next.  These values are not
copied: two buffers alternate, or two slots (memory that grows) if the size changes.
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
    index: the number of an input, of an output, or of a pointer that a loop moves; the offset in
        bytes of a constant, or of memory in the arena; the value of a scalar.  For a "place" in the
        arena, and for an "extent", it is the number of the value of `codegen.sizes` that is the
        offset or the extent.
    offset: bytes from the start of an input or output, from a place, or from a pointer.
    slot: for "arena" and "place", the number of a slot (memory that grows) that replaces the arena;
        None for the arena itself.
    """

    kind: ArgKind
    index: int
    offset: int = 0
    slot: int | None = None

    def at(self, offset: int) -> Arg:
        """The argument for the memory `offset` bytes further on."""
        if self.kind in ("constant", "arena"):
            return replace(self, index=self.index + offset)
        return replace(self, offset=self.offset + offset)


@dataclass(frozen=True, slots=True)
class Node:
    """Base of steps, of the declarations in steps, and of the program itself.

    syntax: the lines of the node's text.
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
    label: the source model's node, for users.
    workspace: the address of the kernel's shared workspace, an "arena" or a "place".
    messages: texts of the kernel's assertions.
    sources: all nodes of the source model that the kernel computes.
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
    """A copy of bytes from one place to another.  The places do not overlap, or they are equal and
    nothing is copied.

    source, to: the places.
    bytes: number of bytes, or an "extent".
    """

    syntax = "copy {source} -> {to}, {bytes}"
    source: Operand[Arg]
    to: Operand[Arg]
    bytes: Operand[int | Arg]


@dataclass(frozen=True, slots=True)
class Branch(Step):
    """Two lists of steps, of which one runs.

    condition: address of a byte, which is true unless it is 0.
    then, otherwise: the steps for a true and a false condition.
    """

    syntax = "if {condition}:\n{then}\nelse:\n{otherwise}"
    condition: Operand[Arg]
    then: Body[tuple[Step, ...]]
    otherwise: Body[tuple[Step, ...]]


@dataclass(frozen=True, slots=True)
class Slice(Node):
    """A pointer that moves by the same distance in each iteration.

    pointer: number of the pointer.
    first: the pointer's address in the first iteration or, if `backward`, in the last one.
    stride: the distance in bytes, a number or an "extent".
    backward: whether the pointer moves to lower addresses.  The loop then has a known trip count.
    slot: number of the slot that begins at `first` and grows by `stride` in each iteration; None if
        all of the memory exists before the loop.
    """

    syntax = "slice {pointer:pointer} = {first} by {stride}{backward=}{slot:slot=}"
    pointer: Binder[int]
    first: Operand[Arg]
    stride: Operand[int | Arg]
    backward: Label[bool] = False
    slot: Reference[int | None] = None


@dataclass(frozen=True, slots=True)
class Carried(Node):
    """A value that each iteration passes to the next one.

    pointer: number of the pointer to the current value.
    first: address of the value before the first iteration.
    following: address to which an iteration writes the next value.
    end: address where the value is needed after the last iteration; None with a `slot`.
    bytes: the value's size, a number or an "extent".  None if the size changes; a step after the
        loop then copies the value from `pointer` to where it is needed.
    target: number of a pointer to one of two alternating memories: the one to which the current
        iteration may write the next value.  None if the next value is written elsewhere.
    other: address of the memory that alternates with `end`; None without `target`, and with `slot`.
    slot: number of the first of two alternating slots, which a `Grow` in each iteration makes large
        enough.  The value before the first iteration is in the second slot.
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

    count: number of iterations, or an upper bound if there is a condition: a number, an "extent",
        or the address of an i64.
    body: the steps.
    slices: pointers to an element of a tensor for each iteration.
    carried: values that one iteration passes to the next.
    number: address where the iteration's number is written as an i64; None if nothing reads it.
    first: address of the condition for the first iteration; None: there is no condition.
    again: address to which each iteration writes the condition for the next.
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

    dtype: the element type.  For a host type, the memory contains the number that stands for one
        object.
    place: the tensor's address.  Elements are in row-major order.
    shape: the extents, each a number or an "extent".
    """

    syntax = "{dtype}[{shape}] at {place}"
    dtype: Label[DType]
    place: Operand[Arg]
    shape: Operand[tuple[int | Arg, ...]]

    @property
    def extents(self) -> tuple[Arg, ...]:
        """The extents that are known only at run time."""
        return tuple(d for d in self.shape if isinstance(d, Arg))


@dataclass(frozen=True, slots=True)
class HostCall(Step):
    """A call of a host function (see `graph.control`).

    function, settings, operator, is_fallback: as in `graph.control.Host`.
    label: the source model's node, for users.
    inputs: the tensors that the function reads.
    outputs: the tensors that the function writes.
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
        """The arguments of the call: addresses of inputs and outputs, then those of their extents
        that are known only at run time.
        """
        arrays = (*self.inputs, *self.outputs)
        return (*(a.place for a in arrays), *(e for a in arrays for e in a.extents))


@dataclass(frozen=True, slots=True)
class Extent(Node):
    """An extent that a run measures.

    name: name of the symbol, or a formula, for users.
    low: lower bound of the extent.
    high: upper bound of the extent, a number or an "extent".
    """

    syntax = "{name} from {low} to {high}"
    name: Label[str]
    low: Label[int]
    high: Operand[int | Arg]


@dataclass(frozen=True, slots=True)
class Measurement(Step):
    """A measurement: reads and checks extents, and computes the sizes that depend on them.

    source: address of the extents, consecutive i64.
    first: number of the first of these extents among all extents of the program.
    extents: the names and bounds of the extents.
    sizes: the function that computes the dependent sizes (see `codegen.sizes`).
    label: the source model's node, for users.
    """

    syntax = "measure {extents} at {source}, first {first}, sizes {sizes:word}{label=}"
    source: Operand[Arg]
    first: Label[int]
    extents: Operand[tuple[Extent, ...]]
    sizes: Label[str]
    label: Label[str] = ""


@dataclass(frozen=True, slots=True)
class Grow(Step):
    """A request that a slot has a least size: memory that is too small grows.

    slot: number of the slot.  The first slots are the outputs.
    bytes: the least size, a number or an "extent".
    for_threads: whether the memory is scratch memory, with this size for each thread.
    target: number of the pointer to memory that a loop writes (see `Carried`); None without one.
        The slot and the next slot then grow in alternate iterations.
    keep: number of bytes whose contents are kept, or an "extent".
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
    """Extents of outputs that are known only at run time, written for the caller.

    to: number of the output, an array of i64, that receives the extents in order.
    shapes: for each output that grows, its number and its extents, each a number or an "extent".
    """

    syntax = "report {shapes} -> {to:output}"
    to: Reference[int]
    shapes: Operand[tuple[tuple[int, tuple[int | Arg, ...]], ...]]


@dataclass(frozen=True, slots=True)
class PartCall(Step):
    """A call of a part of the program.  A part runs on the host or on the device.

    part: number of the part.
    inputs, outputs: numbers of the values that the part takes and gives, in the part's order.  The
        numbers are those on the side where the part runs.
    """

    syntax = "part {part}({inputs}) -> ({outputs})"
    part: Label[int]
    inputs: Reference[tuple[int, ...]]
    outputs: Reference[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Transfer(Step):
    """A value copied from the host to the device, or back.

    source: number of the value on the side that it comes from.
    to: number of the value on the other side.
    to_device: whether the copy goes to the device.
    """

    syntax = "transfer {source} -> {to}{to_device=}"
    source: Reference[int]
    to: Reference[int]
    to_device: Label[bool]


@dataclass(frozen=True, slots=True)
class Results(Step):
    """The results of a program that consists of parts; its last step.

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
"""The classes of nodes that are printed on lines of their own, by the first word of the line."""

WORDS: dict[type[Node], str] = {kind: word for word, kind in BY_WORD.items()}


@cache
def hints_of(kind: type[Node]) -> dict[str, Any]:
    """The types of the fields of a class of nodes."""
    return get_type_hints(kind)
