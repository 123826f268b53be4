"""Memory of a program's values: parts of the arena, slots outside of it, and cells of loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tilesmith.graph.control import If, Loop
from tilesmith.graph.measure import Stage, symbols_defined
from tilesmith.graph.nodes import Fused, Graph, Node, Value
from tilesmith.graph.passes.memory_bounds import known_before
from tilesmith.graph.passes.memory_plan import aligned, factors, plus, value_bytes
from tilesmith.ir.expr import index_of
from tilesmith.ir.symbols import as_dim, symbols_of
from tilesmith.ir.target import LINE_BYTES
from tilesmith.ir.types import Dim
from tilesmith.program.nodes import Arg, Carried, Slice, Step


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory for one value, allocated as soon as its size is known.

    slot: number of the slot that is the memory.
    target: number of the pointer to memory that a loop writes, if this slot and the next one
        alternate (see `Grow`); else None.
    shorter: the shorter value that the memory already contains and keeps (see `appends`).
    """

    slot: int
    target: int | None = None
    shorter: Value | None = None


@dataclass(frozen=True, slots=True)
class Base:
    """Beginning of a part of the arena or of a slot.

    offset: in bytes.
    slot: number of the slot; None for the arena.
    """

    offset: Dim = 0
    slot: int | None = None

    def __add__(self, distance: Dim) -> Base:
        return Base(plus(self.offset, distance), self.slot)


@dataclass(frozen=True, slots=True)
class Cells:
    """Memory that a loop itself needs, as offsets in its part of the arena.

    number: the iteration number.
    again: the condition.
    others: for each carried value, the buffer that alternates with the result; None if two slots
        alternate instead.  The buffer has no bytes if iterations append to the value.
    bytes: total size in bytes.
    extents: the first of the extents that the loop measures; the rest follow.
    """

    number: int
    again: int
    others: tuple[Dim | None, ...]
    bytes: Dim
    extents: ClassVar[int] = 0

    @staticmethod
    def of(node: Node, op: Loop, graph: Graph, stages: Sequence[Stage]) -> Cells:
        """The cells of a loop node of `graph`.  Extents in `graph` become known at `stages`."""
        number = extents_bytes(op)
        end: Dim = number + 2 * LINE_BYTES
        others: list[Dim | None] = []
        following, stacked = results_of(op)
        for v, out in zip(following, node.outputs):
            others.append(end)
            size: Dim | Stage = value_bytes(out)
            if finds_size(node, out):
                is_border = out in graph.outputs
                size = Stage(node) if is_border else known_before(factors(out), stages)
            if isinstance(size, Stage):
                others[-1] = None
            elif not is_aliased(op, v, stacked) and not appends(op, len(others) - 1):
                end = as_dim(end + aligned(size))
        return Cells(number, number + LINE_BYTES, tuple(others), end)


@dataclass(slots=True)
class LoopParts:
    """A loop under construction.

    body: the loop's body.
    border: places of the body's inputs, and of those results that the body computes.
    slices: pointers that move to the next element in each iteration.
    carried: values that one iteration passes to the next.
    growths: memory that grows for results of the body.
    start: steps before the loop.
    ends: steps at the end of each iteration.
    behind: steps to run once the extents of the loop's results are known.
    """

    body: Graph
    border: dict[Value, Arg]
    slices: list[Slice]
    carried: list[Carried] = field(default_factory=list)
    growths: dict[Value, Growth] = field(default_factory=dict)
    start: list[Step] = field(default_factory=list)
    ends: list[Step] = field(default_factory=list)
    behind: list[Step] = field(default_factory=list)

    def computes(self, value: Value) -> bool:
        """Whether the body computes a result whose memory is not decided yet."""
        return value in self.body.producer and value not in self.border

    def place(self, value: Value, constants: Mapping[Value, Arg]) -> Arg:
        return self.border[value] if value in self.border else constants[value]


def extents_bytes(op: If | Loop) -> int:
    """Bytes for the extents that control flow computes."""
    count = len(op.inside) + (op.ran is not None) if isinstance(op, Loop) else len(op.symbols)
    size = aligned(8 * count)
    assert isinstance(size, int)
    return size


def results_of(op: Loop) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """The body's carried results, and those that are collected."""
    results = op.body.outputs[op.conditional :]
    return results[: op.carried], results[op.carried :]


def is_aliased(op: Loop, carried: Value, stacked: Sequence[Value]) -> bool:
    """Whether a carried value is also collected, and the next iteration reads it there."""
    return op.ran is None and carried in stacked and carried in op.body.producer


def appends(op: Loop, k: int) -> bool:
    """Whether an iteration writes the next carried value `k` directly after the current one."""
    current, following = op.body.inputs[1 + k], op.body.outputs[op.conditional + k]
    node = op.body.producer.get(following)
    if node is None or not isinstance(node.op, Fused):
        return False
    pairs = ((node.outputs[o], node.inputs[i]) for o, i in node.op.body.in_place)
    is_longer = current.type != following.type
    return is_longer and any(o is following and i is current for o, i in pairs)


def finds_size(node: Node, value: Value) -> bool:
    """Whether a node computes the size of its result while it runs."""
    return not value.dtype.is_host and not {*symbols_defined(node)}.isdisjoint(
        symbols_of(value.shape)
    )


def carries(node: Node, value: Value) -> bool:
    """Whether `value` is a loop's result for one of its carried values."""
    return isinstance(node.op, Loop) and value in node.outputs[: node.op.carried]


def takes_turns(node: Node, value: Value) -> bool:
    """Whether `value` is a loop's result for a carried value that alternates between two slots."""
    return carries(node, value) and not (
        isinstance(node.op, Loop) and appends(node.op, index_of(node.outputs, value))
    )


def stages_inside(node: Node) -> list[Stage]:
    """The stages at which the symbols of a loop's body become known."""
    assert isinstance(node.op, Loop)
    return [Stage(node, is_inside=True)] if node.op.inside else []
