"""Writing a slice of a tensor."""

from __future__ import annotations

from tilesmith.frontend.common.lists import picked
from tilesmith.frontend.common.node import NodeContext
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ops import scatter, slicing
from tilesmith.ops.functions import clamp


def updated(n: NodeContext, x: Value, update: Value, starts: Value) -> Value:
    """`x` with `update` written at `starts`, which are clamped so that `update` lies inside."""
    dims, sizes, rank = x.type.shape, update.type.shape, x.type.rank
    if len(sizes) != rank or starts.type.size != rank:
        n.bad(f"expected an update and starts for {x.type}, found {update.type}, {starts.type}")
    room = [extents.difference(d, s) for d, s in zip(dims, sizes, strict=True)]
    moved = [a for a in range(rank) if extents.are_equal(dims[a], sizes[a]) is not True]
    if not moved:
        return update
    depth = moved[-1] + 1  # later axes are written whole
    first = clamp(starts, 0, n.of_dims(room))
    grid = sizes[:depth]
    columns = [
        (n.positions(sizes[a], depth, a) + picked(first, a).reshape(*[1] * depth)).expand(*grid)
        for a in range(depth)
    ]
    indices = n.add(slicing.Concat(depth), *(c.reshape(*grid, 1) for c in columns))
    return n.add(scatter.ScatterNd(), x, indices, update)


def places_of(n: NodeContext, x: Value, cut: slicing.Slice) -> Value:
    """The position in x, as a list of elements, of each element of a slice, i64."""
    return n.add(cut, n.reshape(n.positions(extents.product(x.type.shape)), x.type.shape))


def replaced(n: NodeContext, x: Value, places: Value, new: Value) -> Value:
    """x with the elements at `places` (see `places_of`) replaced by those of `new`, in order."""
    count = extents.product(places.type.shape)
    flat = n.reshape(x, (extents.product(x.type.shape),))
    index, rows = n.reshape(places, (count, 1)), n.reshape(new, (count,))
    return n.reshape(n.add(scatter.ScatterNd(), flat, index, rows), x.type.shape)
