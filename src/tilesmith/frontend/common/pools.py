"""Pools over images [N, C, spatial...], in the forms that model formats have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from tilesmith.frontend.common.node import NodeContext
from tilesmith.frontend.common.windows import Geometry
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, f32, f64
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import gather, reduce, slicing
from tilesmith.ops import matmul as mm
from tilesmith.ops import pool as ops
from tilesmith.ops.base import Op
from tilesmith.ops.functions import reciprocal, where

Kind: TypeAlias = "Literal['max', 'average']"

Rounding: TypeAlias = "Literal['floor', 'ceil', 'full']"
"""The rounding of the number of windows along an axis, (padded extent - window) / stride + 1.

floor: every window lies in the padded input.
ceil: the last window may extend past the end, but starts inside the input or the padding before it.
full: the last window may start anywhere.
"""


def pooled(
    n: NodeContext,
    x: Value,
    kind: Kind,
    g: Geometry,
    rounding: Rounding = "floor",
    counts_padding: bool = False,
) -> Value:
    """The maxima or averages of windows over `x` [N, C, spatial...].

    counts_padding: whether averages count elements of the padding, which are 0.  They never count
        the part of a window past the padded input.
    """
    settings = (g.kernel, g.strides, g.pads, g.dilations, rounding != "floor")
    op: Op = ops.MaxPool(*settings)
    if kind == "average":
        op = ops.AvgPool(*settings, counts_padding)
    y = n.add(op, x)
    if rounding != "full":
        return y
    missing = [extents.difference(w, d) for w, d in zip(_full(g), y.type.shape[2:], strict=True)]
    if all(same_dim(m, 0) for m in missing):
        return y
    # The missing windows start past the end and are empty, so the result is padded.
    rank = len(missing)
    filler = x.dtype.min if kind == "max" else 0
    return n.add(slicing.Pad((0,) * (rank + 4) + tuple(missing), "constant", filler), y)


def _full(g: Geometry) -> list[Dim]:
    """The number of windows along each axis with rounding "full"."""
    rank = len(g.kernel)
    sums = zip(g.extents, g.pads[:rank], g.pads[rank:], g.reach, g.strides, strict=True)
    rooms = [extents.total((e, b, a, s - 1, -r)) for e, b, a, r, s in sums]
    return [
        extents.total((as_dim(as_expr(room) // s), 1))
        for room, s in zip(rooms, g.strides, strict=True)
    ]


def global_pool(n: NodeContext, x: Value, kind: Kind) -> Value:
    """The maximum or average of each channel of `x`; spatial axes stay, with extent 1."""
    return n.add(ops.GlobalMaxPool() if kind == "max" else ops.GlobalAvgPool(), x)


# Adaptive pools: the number of windows is given, and their sizes differ as little as possible


def adaptive_averages(n: NodeContext, x: Value, sizes: Sequence[Dim]) -> Value:
    """Averages of adaptive windows; `sizes` are their numbers along the last axes of `x`."""
    axes = tuple(range(x.type.rank - len(sizes), x.type.rank))
    if all(same_dim(s, 1) for s in sizes):
        return x.mean(axes, keepdims=True)
    for axis, size in zip(axes, sizes, strict=True):
        x = _averaged(n, x, axis, size)
    return x


def averages(places: int, bins: int) -> np.ndarray:
    """The matrix [bins, places] that computes the mean of each adaptive window."""
    weights = np.zeros((bins, places))
    for b in range(bins):
        start, end = b * places // bins, -(-(b + 1) * places // bins)
        weights[b, start:end] = 1 / (end - start)
    return weights


def _averaged(n: NodeContext, x: Value, axis: int, size: Dim) -> Value:
    """Averages of adaptive windows along an axis, by a reduction if all windows have the same size,
    otherwise by a matrix product.
    """
    extent = x.type.shape[axis]
    if same_dim(extent, size):
        return x
    window = extents.quotient(extent, size)
    before, after = x.type.shape[:axis], x.type.shape[axis + 1 :]
    if window is not None:
        split = n.reshape(x, (*before, size, window, *after))
        return split.mean((axis + 1,))
    if isinstance(extent, int) and isinstance(size, int):
        weights = n.const(averages(extent, size).astype(x.dtype.numpy))
    else:
        weights = _open_averages(n, extent, size, x.dtype)
    product = mm.MatMul(transpose_b=True)
    if axis == x.type.rank - 1:
        return n.add(product, x, weights)
    last = (*range(axis), *range(axis + 1, x.type.rank), axis)
    back = (*range(axis), x.type.rank - 1, *range(axis, x.type.rank - 1))
    return n.add(product, x.transpose(*last), weights).transpose(*back)


def _open_averages(n: NodeContext, places: Dim, bins: Dim, dtype: DType) -> Value:
    """The matrix of `averages` in type `dtype`, for symbolic extents."""
    b, place = n.positions(bins, 2), n.positions(places, 2, 1)
    count, whole, one = (n.of_dims((d,), ()) for d in (bins, places, 1))
    start = b * whole / count
    following = (b + one) * whole
    end = (following - one) / count + one
    is_inside = (place >= start) & (place < end)
    wide = f64 if dtype is f64 else f32
    share = reciprocal((end - start).cast(wide))
    return where(is_inside, share, 0.0).cast(dtype)


def _windows(places: int, bins: int) -> np.ndarray:
    """Positions in each window, [bins, largest window], padded with the window's last position."""
    starts = np.arange(bins) * places // bins
    ends = -(-(np.arange(bins) + 1) * places // bins)
    size = int((ends - starts).max(initial=0))
    return np.minimum(starts[:, None] + np.arange(size), ends[:, None] - 1).astype(np.int64)


def adaptive_maxima(n: NodeContext, x: Value, sizes: Sequence[int]) -> tuple[Value, Value]:
    """Maxima of adaptive windows, and their i64 positions in the flattened image.  `sizes` are the
    numbers of windows along the last axes of `x`.
    """
    rank = len(sizes)
    lead = x.type.shape[: x.type.rank - rank]
    images = n.shape(x)[-rank:]
    numbers = np.arange(math.prod(images), dtype=np.int64).reshape(images)
    axis = len(lead)
    for a, (places, bins) in enumerate(zip(images, sizes, strict=True)):
        windows = _windows(places, bins)
        x = n.add(gather.Gather(axis + 2 * a), x, n.const(windows))
        numbers = np.take(numbers, windows, axis=2 * a)
    # [lead..., bins, window, bins, window...] -> [lead..., bins..., windows joined]
    order = (*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))
    x = x.transpose(*range(axis), *(axis + o for o in order))
    plane = numbers.transpose(order).reshape(*sizes, -1)
    x = n.reshape(x, (*lead, *sizes, plane.shape[-1]))
    last = x.type.rank - 1
    place = n.add(reduce.ArgMax(last, True), x)
    flat = n.expand(n.const(plane.reshape([1] * axis + list(plane.shape))), x.type.shape)
    chosen = n.add(gather.GatherElements(last), flat, place)
    return x.max((last,)), n.reshape(chosen, (*lead, *sizes))
