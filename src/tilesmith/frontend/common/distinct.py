"""Groups of equal elements or rows."""

from __future__ import annotations

import numpy as np

from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ir.types import same_dim
from tilesmith.ops import gather, scan, scatter, select, sort
from tilesmith.ops.functions import is_nan, maximum

from .computed import taken
from .lists import joined, listed
from .node import NodeContext


def groups(
    n: NodeContext, rows: Value, order: Value, is_sorted: bool
) -> tuple[Value, Value, Value]:
    """Groups of equal rows: the first row of each group, the group of each row, the groups' sizes.

    order: row numbers that sort the rows in ascending order; equal rows keep their order.
    is_sorted: whether the groups are in ascending order, too; otherwise they are in the order in
        which their first rows occur.
    """
    count = rows.type.shape[0]
    ordered = n.add(gather.Gather(0), rows, order)
    # the first row has no predecessor and is compared with itself
    below = taken(n, ordered, 0, n.positions(count) - 1)
    differs = ordered.differs(below)
    if rows.dtype.is_float:  # all NaN count as one element
        same = is_nan(ordered) & is_nan(below)
        differs = differs & ~same
    changes = differs.cast(i64).max((1,))
    begins = maximum(changes, n.positions(count).equals(0).cast(i64))
    starts = n.places(begins.cast(bool_)).reshape(-1)
    number = n.add(scan.CumSum(0), begins) - 1
    inverse = scattered(n, order, number)
    ends = joined(starts, n.of_dims([count]))
    later = taken(n, ends, 0, n.positions(starts.type.shape[0]) + 1)
    sizes = later - starts
    firsts = n.add(gather.Gather(0), order, starts)
    if is_sorted:
        return firsts, inverse, sizes
    zeros = n.const([0], i64).expand(count)
    is_first = n.add(scatter.ScatterElements(0), zeros, firsts, firsts * 0 + 1)
    appearing = n.places(is_first).reshape(-1)
    rank = n.add(scan.CumSum(0), is_first) - 1  # number of each first row among the first rows
    group = n.add(gather.Gather(0), inverse, appearing)
    sizes = n.add(gather.Gather(0), sizes, group)
    first = n.add(gather.Gather(0), firsts, inverse)
    return appearing, n.add(gather.Gather(0), rank, first), sizes


def scattered(n: NodeContext, places: Value, numbers: Value) -> Value:
    """Put each of `numbers` at its position in `places`: the inverse of a gather."""
    zeros = n.const([0], i64).expand(*places.type.shape)
    return n.add(scatter.ScatterElements(0), zeros, places, numbers)


def unique_elements(
    n: NodeContext, x: Value, axis: int | None, is_sorted: bool
) -> tuple[Value, Value, Value, Value]:
    """The distinct elements of x, or its distinct slices along an axis.  For these: the first
    place, the group of each element, and the number of equal elements, all i64.

    is_sorted: whether they are in ascending order, not in the order in which they occur.
    """
    dims = x.type.shape
    if any(same_dim(d, 0) for d in dims):
        n.unsupported(f"unique elements of {x.type}, which has none")
    perm = () if axis is None else (axis, *(a for a in range(len(dims)) if a != axis))
    if axis is None:
        count = extents.product(dims)
        rows = x.reshape(count, 1)
        _, order = n.add(sort.TopK(count, 0, largest=False), rows)
        order = listed(order)
    else:
        columns = extents.product(dims[a] for a in perm[1:])
        rows = x.transpose(*perm).reshape(dims[axis], columns)
        order = scattered(n, n.add(select.RowRanks(), rows), n.positions(dims[axis]))
    firsts, inverse, counts = groups(n, rows, order, is_sorted)
    kept = n.add(gather.Gather(0), rows, firsts)
    length = firsts.type.shape[0]
    if axis is None:
        y = kept.reshape(length)
    else:
        rest = tuple(d for a, d in enumerate(dims) if a != axis)
        y = kept.reshape(length, *rest)
        y = y.transpose(*tuple(int(i) for i in np.argsort(perm)))
    return (y, firsts, inverse, counts)
