"""ONNX's operators whose results are as many as the data say: unique elements, boxes."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.numbers import Numbers
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.computed import iota, of_dims, taken
from tilesmith.frontend.onnx.computed_values import places_of
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_, f32, i64
from tilesmith.ir.types import same_dim
from tilesmith.ops import gather, scan, scatter, select, sort
from tilesmith.ops.functions import is_nan
from tilesmith.ops.suppression import CountAbove, NonMaxSuppression


@onnx_op("NonMaxSuppression", since=10)
def non_max_suppression(n: OnnxNode) -> Result:
    boxes, scores = n.input(0), n.input(1)
    if boxes.type.rank != 3 or scores.type.rank != 3:
        n.bad(f"expected boxes [B,N,4] and scores [B,C,N], found {boxes.type} and {scores.type}")
    limits = []
    for i, (dtype, default) in enumerate(((i64, 0), (f32, 0.0), (f32, -np.inf)), 2):
        given = n.optional(i)
        value = n.const([default], dtype) if given is None else Numbers.of(n, given, dtype).value
        limits.append(value)
    most, overlap, least = limits
    counts = n.add(CountAbove(), scores, least)
    of_classes = Numbers(n, counts).summed(-1).summed(-1).cast(i64).shaped(-1)
    ends = n.add(scan.CumSum(0), of_classes.value)
    bound = extents.product(scores.type.shape)
    (candidates,) = n.measured(of_classes.summed(0).shaped(1).value, bounds=[bound])
    op = NonMaxSuppression(candidates, n.attr_flag("center_point_box"))
    found, many = n.add(op, boxes, scores, least, counts, ends, most, overlap)
    (length,) = n.measured(many, bounds=[found.type.shape[0]])
    return taken(n, found, 0, iota(n, length))


@onnx_op("Unique", since=11)
def unique(n: OnnxNode) -> Result:
    x = n.input(0)
    axis = n.axis(n.attr_int("axis"), x.type.rank) if n.has("axis") else None
    dims = x.type.shape
    if any(same_dim(d, 0) for d in dims):
        n.unsupported(f"unique elements of {x.type}, which has none")
    perm = () if axis is None else (axis, *(a for a in range(len(dims)) if a != axis))
    if axis is None:
        count = extents.product(dims)
        rows = x.reshape(count, 1)
        _, order = n.add(sort.TopK(count, 0, largest=False), rows)
        order = Numbers.of(n, order)
    else:
        columns = extents.product(dims[a] for a in perm[1:])
        rows = x.transpose(*perm).reshape(dims[axis], columns)
        order = _scattered(n, n.add(select.RowRanks(), rows), iota(n, dims[axis]))
    firsts, inverse, counts = _groups(n, rows, order, n.attr_flag("sorted", True))
    kept = n.add(gather.Gather(0), rows, firsts.value)
    length = firsts.value.type.shape[0]
    if axis is None:
        y = kept.reshape(length)
    else:
        rest = tuple(d for a, d in enumerate(dims) if a != axis)
        y = kept.reshape(length, *rest)
        y = y.transpose(*tuple(int(i) for i in np.argsort(perm)))
    return (y, firsts.value, inverse.value, counts.value)


def _groups(
    n: OnnxNode, rows: Value, order: Numbers, is_sorted: bool
) -> tuple[Numbers, Numbers, Numbers]:
    """Of groups of equal rows: their first rows, the group of each row, and their sizes.

    order: the rows from the smallest, equal ones in their order.  Groups have that order too, or
        that of their first rows.
    """
    count = rows.type.shape[0]
    ordered = n.add(gather.Gather(0), rows, order.value)
    below = taken(n, ordered, 0, iota(n, count) - 1)  # the first one stands for what it lacks
    differs = ordered.differs(below)
    if rows.dtype.is_float:  # NaN is one element
        same = is_nan(ordered) & is_nan(below)
        differs = differs & ~same
    changes = Numbers(n, differs.cast(i64).max((1,)))
    begins = changes.most(iota(n, count).equals(0).cast(i64))
    starts = places_of(n, begins.cast(bool_).value).shaped(-1)
    number = Numbers(n, n.add(scan.CumSum(0), begins.value)) - 1
    inverse = Numbers(n, _scattered(n, order.value, number).value)
    ends = starts.joined(of_dims(n, [count]))
    later = taken(n, ends.value, 0, iota(n, starts.value.type.shape[0]) + 1)
    sizes = Numbers(n, later) - starts
    firsts = Numbers(n, n.add(gather.Gather(0), order.value, starts.value))
    if is_sorted:
        return firsts, inverse, sizes
    zeros = n.const([0], i64).expand(count)
    is_first = n.add(scatter.ScatterElements(0), zeros, firsts.value, (firsts * 0 + 1).value)
    appearing = places_of(n, is_first).shaped(-1)
    rank = Numbers(n, n.add(scan.CumSum(0), is_first)) - 1  # of a first row among the first rows
    group = n.add(gather.Gather(0), inverse.value, appearing.value)
    sizes = Numbers(n, n.add(gather.Gather(0), sizes.value, group))
    first = n.add(gather.Gather(0), firsts.value, inverse.value)
    return appearing, Numbers(n, n.add(gather.Gather(0), rank.value, first)), sizes


def _scattered(n: OnnxNode, places: Value, numbers: Numbers) -> Numbers:
    """The numbers, each at its place: the inverse of a lookup."""
    zeros = n.const([0], i64).expand(*places.type.shape)
    return Numbers(n, n.add(scatter.ScatterElements(0), zeros, places, numbers.value))
