"""Groups of equal elements or rows."""

from __future__ import annotations

from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ops import gather, scan, scatter
from tilesmith.ops.functions import is_nan, maximum

from .computed import taken
from .lists import joined
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
