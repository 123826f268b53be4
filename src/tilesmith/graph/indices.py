"""Upper limits of inputs that hold indices, so that generated inputs stay inside the axes.

An input holds indices if operators that only move or convert elements make an index operand from
it.  Index operands that are computed from an input in other ways are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilesmith.ir.symbols import expected, symbols_of
from tilesmith.ir.types import Dim
from tilesmith.ops.elementwise import Cast, Identity, Where
from tilesmith.ops.gather import FromFront, Gather, GatherElements, GatherNd
from tilesmith.ops.runtime_shape import Reinterpret, Stretch, Window
from tilesmith.ops.scatter import ElementPlaces, ScatterElements, ScatterNd, SlicePlaces
from tilesmith.ops.shape import Expand, Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from tilesmith.ops.slicing import Append, Concat, Flip, Slice, Split, Tile

from .builder import expansion
from .control import If
from .nodes import Graph, Node, Value

_FIRST = (
    Cast, Identity, Gather, GatherElements, GatherNd, Reinterpret, Stretch, Window, Expand, Flatten,
    Reshape, Squeeze, Transpose, Unsqueeze, Flip, Slice, Split, Tile,
)  # fmt: skip
"""Operators whose results consist of elements of the first operand."""

_DEEPEST = 8
"""Upper bound on the nesting depth of graphs that are searched."""


def index_limits(graph: Graph) -> dict[str, int]:
    """Name of an integer input that holds indices -> the limit of its elements: the smallest
    expected size of the axes that they index, but at most the maximum of the input's type.
    """
    limits = _limits(graph, {})
    return {
        v.name: max(min(limits[v], int(v.dtype.max)), 1)
        for v in graph.inputs
        if v in limits and v.dtype.is_int
    }


def _limits(graph: Graph, of_outputs: Mapping[Value, int], depth: int = 0) -> dict[Value, int]:
    """The limits of the values of a graph; `of_outputs`: the known limits of its outputs."""
    limits = dict(of_outputs)

    def limit(value: Value, size: int) -> None:
        limits[value] = min(limits.get(value, size), size)

    for node in reversed(graph.nodes):
        for value, size in _indexed(node):
            limit(value, size)
        known = [limits[v] for v in node.outputs if v in limits]
        if known:
            for value in _moved(node):
                limit(value, min(known))
        if depth < _DEEPEST:
            for value, size in _inside(node, limits, depth):
                limit(value, size)
    return limits


def _size(dims: tuple[Dim, ...]) -> int:
    """The smallest of the expected extents; 1 if one depends on data."""
    is_measured = any(v.sizes is None or v.sizes.low == 0 for v in symbols_of(dims))
    return 1 if is_measured else min(expected(d) for d in dims)


def _indexed(node: Node) -> Iterator[tuple[Value, int]]:
    """The operands of a node that are indices, each with the size of its axis."""
    op, inputs = node.op, node.inputs
    match op:
        case Gather() | GatherElements() | ScatterElements():
            yield inputs[1], _size((inputs[0].shape[op.axis],))
        case GatherNd():
            depth = inputs[1].shape[-1]
            if isinstance(depth, int) and depth:
                first = op.batch_dims
                yield inputs[1], _size(inputs[0].shape[first : first + depth])
        case ScatterNd():
            depth = inputs[1].shape[-1]
            if isinstance(depth, int) and depth:
                yield inputs[1], _size(inputs[0].shape[:depth])
        case ElementPlaces():
            yield inputs[0], op.shape[op.axis]
        case SlicePlaces():
            yield inputs[0], min(op.shape, default=1)
        case FromFront():
            yield inputs[0], _size((op.extent,))
        case _:
            pass


def _moved(node: Node) -> tuple[Value, ...]:
    """The operands whose elements make up the results."""
    if isinstance(node.op, _FIRST):
        return node.inputs[:1]
    if isinstance(node.op, Where):
        return node.inputs[1:]
    return node.inputs if isinstance(node.op, (Concat, Append)) else ()


def _inside(node: Node, limits: Mapping[Value, int], depth: int) -> Iterator[tuple[Value, int]]:
    """The limits of a node's operands that follow from the graphs inside it."""
    if isinstance(node.op, If):
        bodies = [(b, node.inputs[1:]) for b in (node.op.then, node.op.otherwise)]
    elif node.op.is_composite():
        bodies = [(expansion(node.op, tuple(v.type for v in node.inputs)), node.inputs)]
    else:
        return
    for body, operands in bodies:
        pairs = zip(body.outputs, node.outputs, strict=False)
        inner_limits = _limits(body, {b: limits[v] for b, v in pairs if v in limits}, depth + 1)
        for inner, operand in zip(body.inputs, operands, strict=False):
            if inner in inner_limits:
                yield operand, inner_limits[inner]
