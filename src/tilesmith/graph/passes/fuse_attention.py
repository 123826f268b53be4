"""Attention as one group: a contraction, a chain of nodes over its rows, a contraction of these
rows.

    scores = matmul(q, k)                     any contraction whose last axis comes from one factor
    p      = softmax(scale * scores + mask)   elementwise nodes and reductions over the last axis
    y      = matmul(p, v)                     a contraction over that axis
    z      = reshape(transpose(y))            elementwise nodes and permutations of elements

Only the last value may be needed outside, since the others are never written to memory.  A product
with a constant does not join, since a separate kernel has packed weights.  So a layer norm between
two products with weights is not attention.
"""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.ir.expr import Expr, same, vars_of
from tilesmith.ir.extents import values_of
from tilesmith.ir.types import same_dim, same_shape
from tilesmith.ops.shape import Reshape, Transpose
from tilesmith.ops.structure import Structure, product_of_loads, stages
from tilesmith.te.tensor import Compute


def attention(
    graph: Graph,
    first: Node,
    order: dict[Node, int],
    structure: Callable[[Node], Structure],
    limit: int,
) -> list[Node] | None:
    """The nodes of the group around `first`, which computes the scores.  The last node computes the
    group's result.  None if there is no such group.

    order: node -> its number.
    limit: upper bound on the nodes in the group.
    """
    if not _has_rows(first) or not all(_is_solid(v) for v in (*first.inputs, *first.outputs)):
        return None
    shape = first.outputs[0].shape
    members = {first: None}
    second: Node | None = None
    result = first.outputs[0]
    reduces = False
    best: list[Node] | None = None
    while len(members) < limit:
        inner = {v for n in members for v in n.outputs}
        live = [
            v
            for v in inner
            if v in graph.outputs or any(c not in members for c in graph.consumers.get(v, ()))
        ]
        if second is not None and len(live) == 1:
            best = list(members)
        following = {c for v in live for c in graph.consumers.get(v, ()) if c not in members}
        if not following or any(v in graph.outputs for v in live):
            return best
        node = min(following, key=order.__getitem__)
        s = structure(node)
        if len(node.outputs) != 1:
            return best
        out = node.outputs[0].shape
        if second is None:
            if s.kind == "reduction" and s.reduced == {len(shape) - 1} and s.keeps_rank:
                if not same_shape(node.inputs[0].shape, shape):
                    return None
                reduces = True
            elif s.kind == "contraction":
                if (
                    not reduces
                    or not _contracts_rows(node, inner)
                    or not _is_solid(node.outputs[0])
                    or any(v in graph.constant for v in node.inputs)
                ):
                    return None
                second, result = node, node.outputs[0]
            elif (
                isinstance(node.op, Reshape) and same_shape(out[-2:], shape[-2:]) and len(live) == 1
            ):
                shape = out  # the reshape splits or merges the axes of heads
            elif s.kind != "elementwise" or not (
                same_shape(out, shape) or same_shape(out, (*shape[:-1], 1))
            ):
                return None
        elif isinstance(node.op, (Reshape, Transpose)):
            if len(live) != 1 or _merges_open(live[0], node.outputs[0]):
                return best
        elif s.kind != "elementwise" or not same_shape(
            out, (live[0] if len(live) == 1 else result).shape
        ):
            return best
        members[node] = None
    return best


def _is_solid(value: Value) -> bool:
    """Whether no extent can be 0."""
    return all((values_of(d).lo or 0) > 0 for d in value.shape)


def _merges_open(before: Value, after: Value) -> bool:
    """Whether a symbolic axis of `after` merges several axes of `before`.  No split by a constant
    separates these again.  Such a reshape stays outside of the group, where it moves no elements.
    """
    return any(
        isinstance(n, Expr) and all(not same_dim(n, d) for d in before.shape) for n in after.shape
    )


def _core(node: Node) -> Compute | None:
    """The only stage that reduces, if it has as many axes as the result; else None."""
    outputs = node.op.tensors(*(v.type for v in node.inputs)).outputs
    reducing = [s for s in stages(outputs) if s.reduce_axis]
    if len(reducing) != 1 or len(reducing[0].axis) != node.outputs[0].type.rank:
        return None
    return reducing[0]


def _has_rows(node: Node) -> bool:
    """Whether a contraction's last axis occurs in one factor only, and the axis before it in the
    other factor only.
    """
    core = _core(node)
    factors = product_of_loads(core) if core is not None else None
    if core is None or factors is None or len(core.axis) < 2 or not node.outputs[0].dtype.is_float:
        return False
    used = [vars_of(f.indices) for f in factors]
    row, column = core.axis[-2].var, core.axis[-1].var
    return any(
        column in a and column not in b and row in b and row not in a
        for a, b in (used, reversed(used))
    )


def _contracts_rows(node: Node, inner: set) -> bool:
    """Whether `node` sums over the last axis of a result in `inner` and keeps the result's other
    axes.
    """
    core = _core(node)
    factors = product_of_loads(core) if core is not None else None
    if core is None or factors is None or len(core.reduce_axis) != 1:
        return False
    places = [i for i, v in enumerate(node.inputs) if v in inner]
    if len(places) != 1 or len(core.axis) < 2:
        return False
    k = core.reduce_axis[0].var
    member = node.op.tensors(*(v.type for v in node.inputs)).inputs[places[0]]
    rows = [f for f in factors if f.buffer is member]
    if len(rows) != 1 or not same(rows[0].indices, (*(a.var for a in core.axis[:-1]), k)):
        return False
    other = next(f for f in factors if f is not rows[0])
    return core.axis[-2].var not in vars_of(other.indices)
