"""Sorting, search in sorted elements, and distinct elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from tilesmith.frontend.aten.elementwise import isnan
from tilesmith.frontend.aten.indexing import row
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Number, Operand
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i32, i64, u8
from tilesmith.ir.types import Dim
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, reduce, scan, scatter, select, slicing, sort
from tilesmith.ops.base import Op
from tilesmith.ops.functions import maximum, minimum, where

Pair: TypeAlias = "tuple[Value, Value]"
"""Elements, and their positions along an axis."""


@aten_op("aten.topk.default")
def topk(
    n: AtenNode, self: Value, k: Dim, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    if not self.type.rank:
        return self, n.tensor(0, i64)
    return n.add(sort.TopK(k, n.axis(dim, self.type.rank), largest), self)


@aten_op("aten.sort.default")
def sort_(n: AtenNode, self: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    return sort_stable(n, self, None, dim, descending)


@aten_op("aten.sort.stable")
def sort_stable(
    n: AtenNode, self: Value, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    if not self.type.rank:
        return self, n.tensor(0, i64)
    axis = n.axis(dim, self.type.rank)
    x = n.cast(self, u8) if self.dtype.is_bool else self
    values, places = n.add(sort.TopK(self.type.shape[axis], axis, descending), x)
    return n.cast(values, self.dtype), places


@aten_op("aten.argsort.default")
def argsort(n: AtenNode, self: Value, dim: int = -1, descending: bool = False) -> Value:
    return sort_stable(n, self, None, dim, descending)[1]


# The element at a rank


@aten_op("aten.kthvalue.default")
def kthvalue(n: AtenNode, self: Value, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    return _ranked(n, self, n.const(k - 1, i64), dim, keepdim)


def _ranked(n: AtenNode, x: Value, rank: Value, dim: int, keepdim: bool) -> Pair:
    """The element of a given rank along an axis, and its index.

    rank: i64, of rank 0, or of the shape of `x` with extent 1 along the axis.
    """
    if not x.type.rank:
        return x, n.tensor(0, i64)
    axis = n.axis(dim, x.type.rank)
    dims = [1 if a == axis else d for a, d in enumerate(x.type.shape)]
    position = n.expand(rank, dims)
    pair = (n.add(gather.GatherElements(axis), v, position) for v in sort_stable(n, x, None, axis))
    values, places = (
        v if keepdim else n.reshape(v, (*dims[:axis], *dims[axis + 1 :])) for v in pair
    )
    return values, places


@aten_op("aten.median.dim")
def median(n: AtenNode, self: Value, dim: int, keepdim: bool = False) -> Pair:
    """The median, and its index.  If two elements are in the middle, it is the lower one.  If any
    element is NaN, so is the median.
    """
    return _median(n, self, dim, keepdim, ignores_nan=False)


@aten_op("aten.nanmedian.dim")
def nanmedian(n: AtenNode, self: Value, dim: int, keepdim: bool = False) -> Pair:
    """The median of the elements that are not NaN, and its index."""
    return _median(n, self, dim, keepdim, ignores_nan=True)


def _median(n: AtenNode, x: Value, dim: int, keepdim: bool, ignores_nan: bool) -> Pair:
    if not x.type.rank:
        return x, n.tensor(0, i64)
    axis = n.axis(dim, x.type.rank)
    last = n.tensor(extents.difference(x.type.shape[axis], 1))
    two = n.tensor(2)
    middle = last / two
    if not x.dtype.is_float:
        return _ranked(n, x, middle, axis, keepdim)
    # NaN is ordered after all numbers
    count = n.cast(isnan(n, x), i64).sum((axis,), keepdims=True)
    if ignores_nan:
        rest = maximum(last - count, 0)
        return _ranked(n, x, rest / two, axis, keepdim)
    rank = where(n.truth(count), last, middle)
    return _ranked(n, x, rank, axis, keepdim)


@aten_op("aten.median.default")
def median_of_all(n: AtenNode, self: Value) -> Value:
    return median(n, n.reshape(self, (-1,)), 0)[0]


@aten_op("aten.nanmedian.default")
def nanmedian_of_all(n: AtenNode, self: Value) -> Value:
    return nanmedian(n, n.reshape(self, (-1,)), 0)[0]


@aten_op("aten.mode.default")
def mode(n: AtenNode, self: Value, dim: int = -1, keepdim: bool = False) -> Pair:
    """The smallest of the most frequent elements, and its last index."""
    if not self.type.rank:
        return self, n.tensor(0, i64)
    axis = n.axis(dim, self.type.rank)
    x = n.cast(self, u8) if self.dtype.is_bool else self
    values, places = sort_stable(n, x, True, axis)
    # The position of each element in its run of equal elements, counted from the run's start.
    extent = x.type.shape[axis]
    place = n.positions(extent, x.type.rank, axis)
    before = n.add(gather.Gather(axis), values, n.add(ew.Max(), *_previous(n, extent)))
    is_new = values.differs(before) | isnan(n, values)
    first = where(is_new, place, 0)
    number = place - n.add(scan.CumMax(axis), first)
    position = n.add(reduce.ArgMax(axis, True), number)
    modes = [n.add(gather.GatherElements(axis), v, position) for v in (values, places)]
    if not keepdim:
        dims = position.type.shape
        modes = [n.reshape(v, (*dims[:axis], *dims[axis + 1 :])) for v in modes]
    return n.cast(modes[0], self.dtype), modes[1]


def _previous(n: AtenNode, extent: Dim) -> tuple[Value, Value]:
    """The numbers -1, 0, 1, ..., one less than each index of an axis, and a constant 0.  The caller
    takes the maximum of both values, so the predecessor of index 0 is 0.
    """
    return n.positions(extent) - 1, n.tensor(0)


@aten_op("aten.histc.default")
def histc(n: AtenNode, self: Value, bins: int = 100, min: Number = 0, max: Number = 0) -> Value:
    """The number of elements in each of `bins` equal parts of a range.  The last part includes its
    end.
    """
    least, most = (float(n.number(v, "a limit")) for v in (min, max))
    if least == most:
        n.unsupported(
            "expected limits that differ, found the elements' own range, which may not be finite; "
            "give min and max"
        )
    x = n.reshape(self, (-1,))
    low, high = (n.tensor(v, x.dtype) for v in (least, most))
    is_inside = (x >= low) & (x <= high)
    above = where(is_inside, x, low) - low
    scaled = above * float(bins)
    bin_ = n.cast(scaled / (high - low), i64)
    bin_ = minimum(bin_, n.tensor(bins - 1))
    zeros = n.full(0, (bins,), i64)
    counts = n.add(scatter.ScatterElements(0, "add"), zeros, bin_, n.cast(is_inside, i64))
    return n.cast(counts, self.dtype)


# Running extremes


def _running_extreme(n: AtenNode, self: Value, dim: int, *, make: Callable[[int], Op]) -> Pair:
    """The extreme of all elements so far, and the last index of an element that equals it."""
    if not self.type.rank:
        return self, n.tensor(0, i64)
    axis = n.axis(dim, self.type.rank)
    x = n.cast(self, u8) if self.dtype.is_bool else self
    best = n.add(make(axis), x)
    is_best = x.equals(best) | isnan(n, x)
    places = n.positions(x.type.shape[axis], x.type.rank, axis)
    best_places = where(is_best, places, 0)
    return n.cast(best, self.dtype), n.add(scan.CumMax(axis), best_places)


aten_op("aten.cummax.default")(partial(_running_extreme, make=scan.CumMax))
aten_op("aten.cummin.default")(partial(_running_extreme, make=scan.CumMin))


# Indices into sorted elements


@aten_op("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    n: AtenNode, sorted_sequence: Value, self: Operand, out_int32: bool = False,
    right: bool = False, side: str | None = None, sorter: Value | None = None,
) -> Value:  # fmt: skip
    """For each value, the number of sorted elements that are less.  With `right`, equal elements
    count too.  NaN is ordered last.
    """
    keys = sorted_sequence
    if sorter is not None:
        keys = n.add(gather.GatherElements(keys.type.rank - 1), keys, sorter)
    keys, x = n.common(keys, self)
    if keys.dtype.is_bool:
        keys, x = n.cast(keys, u8), n.cast(x, u8)
    wide = n.reshape(x, (*x.type.shape, 1))
    if keys.type.rank > 1:
        keys = n.reshape(keys, (*keys.type.shape[:-1], 1, keys.type.shape[-1]))
    after = ew.Greater() if right or side == "right" else ew.GreaterEqual()
    before = ~n.add(after, keys, wide)
    count = n.cast(before, i64).sum((wide.type.rank - 1,))
    return n.cast(count, i32 if out_int32 else i64)


@aten_op("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(
    n: AtenNode, self: Operand, boundaries: Value, out_int32: bool = False, right: bool = False
) -> Value:
    return searchsorted(n, boundaries, self, out_int32, right)


# Distinct elements


def _of_runs(n: AtenNode, rows: Value, order: Value | None) -> tuple[Value, Value, Value]:
    """For runs of equal rows: the first row of each run, the run of each row, and the lengths of
    runs.

    rows: [count, width], with equal rows adjacent.
    order: original positions of the rows, i64 [count].  If given, the second result is in the
        original order.
    """
    count = rows.type.shape[0]
    last = extents.difference(count, 1)
    above = n.add(slicing.Slice((1,), (count,), (0,), (1,)), rows)
    below = n.add(slicing.Slice((0,), (last,), (0,), (1,)), rows)
    differs = above.differs(below).max((1,))
    begins = n.add(slicing.Concat(0), n.const(np.ones(1, np.bool_)), differs)
    starts = row(n, n.places(begins), 0)
    runs = n.add(scan.CumSum(0), n.cast(begins, i64)) - 1
    if order is not None:
        empty = n.full(0, order.type.shape, i64)
        runs = n.add(scatter.ScatterElements(0), empty, order, runs)
    ends = n.add(slicing.Concat(0), starts, n.of_dims((count,), (1,)))
    following = n.positions(starts.type.shape[0]) + 1
    lengths = n.add(gather.Gather(0), ends, following) - starts
    return n.add(gather.Gather(0), rows, starts), runs, lengths


@aten_op("aten._unique2.default")
def unique(
    n: AtenNode, self: Value, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """The distinct elements in ascending order, the index of each element among them, and their
    counts.  PyTorch allows any order without `sorted`; here the order is always ascending.
    """
    if not n.extent(n.reshape(self, (-1,)), 0):
        return n.reshape(self, (0,)), n.full(0, self.type.shape, i64), n.full(0, (0,), i64)
    values, order = sort_stable(n, n.reshape(self, (-1,)), None, 0)
    firsts, runs, lengths = _of_runs(n, n.reshape(values, (-1, 1)), order)
    return n.reshape(firsts, (-1,)), n.reshape(runs, self.type.shape), lengths


@aten_op("aten.unique_dim.default")
def unique_dim(
    n: AtenNode, self: Value, dim: int, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """`unique` of slices along an axis, in lexicographic order."""
    axis, rows = _rows(n, self, dim)
    numbers = n.cast(rows, u8) if rows.dtype.is_bool else rows
    ranks = n.add(select.RowRanks(), numbers)
    empty = n.full(0, ranks.type.shape, i64)
    places = n.positions(rows.type.shape[0])
    order = n.add(scatter.ScatterElements(0), empty, ranks, places)
    firsts, runs, lengths = _of_runs(n, n.add(gather.Gather(0), rows, order), order)
    return _slices(n, self, axis, firsts), runs, lengths


def _rows(n: AtenNode, x: Value, dim: int) -> tuple[int, Value]:
    """The axis counted from the front, and the slices along it as rows [count, width]."""
    axis = n.axis(dim, x.type.rank)
    moved = n.permute(x, [axis, *(a for a in range(x.type.rank) if a != axis)])
    return axis, n.reshape(moved, (x.type.shape[axis], -1))


def _slices(n: AtenNode, x: Value, axis: int, rows: Value) -> Value:
    """Rows turned back into slices of `x` along an axis."""
    rest = [d for a, d in enumerate(x.type.shape) if a != axis]
    wide = n.reshape(rows, (rows.type.shape[0], *rest))
    return n.permute(wide, [*range(1, axis + 1), 0, *range(axis + 1, x.type.rank)])


@aten_op("aten.unique_consecutive.default")
def unique_consecutive(
    n: AtenNode,
    self: Value,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Value, Value, Value]:
    """One element of each run of equal elements, or one slice of each run of equal slices along
    `dim`.
    """
    if dim is None:
        if not n.extent(n.reshape(self, (-1,)), 0):
            return n.reshape(self, (0,)), n.full(0, self.type.shape, i64), n.full(0, (0,), i64)
        firsts, runs, lengths = _of_runs(n, n.reshape(self, (-1, 1)), None)
        return n.reshape(firsts, (-1,)), n.reshape(runs, self.type.shape), lengths
    axis, rows = _rows(n, self, dim)
    firsts, runs, lengths = _of_runs(n, rows, None)
    return _slices(n, self, axis, firsts), runs, lengths
