"""Rows that are repeated a data-dependent number of times, and reductions of runs of rows."""

from __future__ import annotations

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Number
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.aten.scatters import scatter_add, scatter_reduce
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim
from tilesmith.ops import scan, slicing
from tilesmith.ops.functions import where


@aten_op("aten.repeat_interleave.Tensor")
def repeat_interleave(n: AtenNode, repeats: Value, output_size: Dim | None = None) -> Value:
    """The indices of `repeats` in order, with index i repeated `repeats[i]` times."""
    counts = n.cast(repeats, i64)
    negative = counts < 0
    n.builder.require_zero(n.cast(negative, i64).sum((0,), keepdims=True))
    summed = counts.sum((0,), keepdims=True)
    if output_size is None:
        (output_size,) = n.extents(summed, "the number of repetitions")
    else:
        n.builder.require_zero(summed - n.of_dims((output_size,), (1,)))
    return n.cast(_segments(n, counts, output_size), repeats.dtype)


def _segments(n: AtenNode, counts: Value, total: Dim) -> Value:
    """The segment's number for each of `total` rows, in order.

    counts: number of rows of each segment.
    """
    longer = extents.total((total, 1))
    one = n.full(1, counts.type.shape, i64)
    begins = scatter_add(n, n.full(0, (longer,), i64), 0, n.add(scan.CumSum(0), counts), one)
    return n.add(slicing.Slice((0,), (total,), (0,), (1,)), n.add(scan.CumSum(0), begins))


_KINDS = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}
"""Reductions of segments, and the equivalent reductions of scatters."""


@aten_op("aten.segment_reduce.default")
def segment_reduce(
    n: AtenNode, data: Value, reduce: str, lengths: Value | None = None,
    indices: Value | None = None, offsets: Value | None = None, axis: int = 0,
    unsafe: bool = False, initial: Number | None = None,
) -> Value:  # fmt: skip
    """A reduction of each segment.  A segment without rows gives `initial`.  If that is None, it
    gives the reduction's neutral element, or NaN for a mean.
    """
    told = lengths if lengths is not None else offsets
    if told is None or told.type.rank != 1 or axis:
        n.unsupported("expected lengths or offsets of rank 1, and axis 0")
    counts = n.cast(told, i64)
    if lengths is None:
        (count,) = counts.type.shape
        ends = n.add(slicing.Slice((1,), (count,), (0,), (1,)), counts)
        last = extents.difference(count, 1)
        counts = ends - n.add(slicing.Slice((0,), (last,), (0,), (1,)), counts)
    rows = repeat_interleave(n, counts, data.type.shape[0])
    dims = (counts.type.shape[0], *data.type.shape[1:])
    neutral = {"amax": data.dtype.min, "amin": data.dtype.max, "prod": 1, "sum": 0}[_KINDS[reduce]]
    if data.dtype.is_float and reduce in ("max", "min"):
        neutral = -float("inf") if reduce == "max" else float("inf")
    start = n.full(neutral if initial is None else initial, dims, data.dtype)
    wide = n.reshape(rows, (data.type.shape[0], *[1] * (data.type.rank - 1)))
    index = n.expand(wide, data.type.shape)
    reduced = scatter_reduce(n, start, 0, index, data, _KINDS[reduce])
    if reduce != "mean":
        return reduced
    sizes = n.cast(n.reshape(counts, (dims[0], *[1] * (data.type.rank - 1))), data.dtype)
    mean = reduced / sizes
    if initial is None:
        return mean
    is_empty = sizes.equals(0)
    return where(is_empty, initial, mean)
