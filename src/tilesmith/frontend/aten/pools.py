"""Pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from tilesmith.frontend.aten.convolutions import spread
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, f32, f64, i64
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, pool, reduce
from tilesmith.ops import matmul as mm
from tilesmith.ops.functions import maximum, minimum, reciprocal, where

Numbers: TypeAlias = "Sequence[int] | int"


def _batched(n: AtenNode, x: Value, rank: int, make: Callable[[Value], Value]) -> Value:
    """The result of `make` for images [N, C, spatial...]; `x` may lack the batch axis."""
    if x.type.rank == rank + 2:
        return make(x)
    y = make(n.reshape(x, (1, *x.type.shape)))
    return n.reshape(y, y.type.shape[1:])


def _max_pool(
    n: AtenNode, self: Value, kernel_size: Numbers, stride: Numbers = (), padding: Numbers = 0,
    dilation: Numbers = 1, ceil_mode: bool = False, *, rank: int,
) -> tuple[Value, Value]:  # fmt: skip
    """The maxima, and their positions in the flattened image."""
    kernel = spread(kernel_size, rank)
    strides = spread(stride, rank) or kernel
    pads, dilations = spread(padding, rank), spread(dilation, rank)
    settings = (kernel, strides, (*pads, *pads), dilations, ceil_mode)

    def places(x: Value) -> Value:
        op = pool.MaxPlaces(*settings, in_plane=True)
        return n.add(op, x, n.add(pool.MaxPool(*settings), x))

    best = _batched(n, self, rank, lambda x: n.add(pool.MaxPool(*settings), x))
    return best, _batched(n, self, rank, places)


def _max_pool_alone(n: AtenNode, *args: object, rank: int, **kwargs: object) -> Value:
    return _max_pool(n, *args, rank=rank, **kwargs)[0]  # type: ignore[arg-type]  # as given


for _rank in (1, 2, 3):
    aten_op(f"aten.max_pool{_rank}d_with_indices.default")(partial(_max_pool, rank=_rank))
    aten_op(f"aten.max_pool{_rank}d.default")(partial(_max_pool_alone, rank=_rank))


def _avg_pool(
    n: AtenNode, self: Value, kernel_size: Numbers, stride: Numbers = (), padding: Numbers = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    rank: int,
) -> Value:  # fmt: skip
    if self.dtype.is_int:  # an integer quotient, rounded toward zero
        settings = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        mean = _avg_pool(n, n.cast(self, f64), *settings, rank=rank)
        return n.cast(n.add(ew.Trunc(), mean), self.dtype)
    kernel = spread(kernel_size, rank)
    strides = spread(stride, rank) or kernel
    pads = spread(padding, rank)
    includes = count_include_pad or divisor_override is not None
    op = pool.AvgPool(kernel, strides, (*pads, *pads), (), ceil_mode, includes)
    if divisor_override is None:
        return _batched(n, self, rank, lambda x: n.add(op, x))
    # `AvgPool` divides by the number of positions in a window, and in ceil mode this number differs
    # at the end.  So windows are summed here.  `LpPool` adds magnitudes, so positive and negative
    # elements have separate pools.
    total = pool.LpPool(kernel, strides, (*pads, *pads), (), ceil_mode, 1)
    zero = n.tensor(0, self.dtype)
    parts = [
        _batched(n, part, rank, lambda x: n.add(total, x))
        for part in (maximum(self, zero), minimum(self, zero))
    ]
    return n.add(ew.Sub(), *parts) / float(divisor_override)


for _rank in (1, 2, 3):
    aten_op(f"aten.avg_pool{_rank}d.default")(partial(_avg_pool, rank=_rank))


def _adaptive_avg_pool(
    n: AtenNode, self: Value, output_size: Sequence[int | None] | int, *, rank: int
) -> Value:
    """Adaptive average pooling, with windows whose sizes differ as little as possible."""
    sizes = (output_size,) * rank if isinstance(output_size, int) else tuple(output_size)
    sizes = sizes * rank if len(sizes) == 1 else sizes
    wanted: list[Dim] = [
        d if s is None else s for s, d in zip(sizes, self.type.shape[-rank:], strict=True)
    ]
    axes = tuple(range(self.type.rank - rank, self.type.rank))
    if all(same_dim(s, 1) for s in wanted):
        return self.mean(axes, keepdims=True)
    x = self
    for axis, size in zip(axes, wanted, strict=True):
        x = _averaged(n, x, axis, size)
    return x


def averages(places: int, bins: int) -> np.ndarray:
    """The matrix [bins, places] that computes the mean of each adaptive window."""
    weights = np.zeros((bins, places))
    for b in range(bins):
        start, end = b * places // bins, -(-(b + 1) * places // bins)
        weights[b, start:end] = 1 / (end - start)
    return weights


def _averaged(n: AtenNode, x: Value, axis: int, size: Dim) -> Value:
    """Adaptive means along an axis: a reduction if windows don't overlap, else a matrix product."""
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
    last = (*range(axis), *range(axis + 1, x.type.rank), axis)
    back = (*range(axis), x.type.rank - 1, *range(axis, x.type.rank - 1))
    y = n.add(mm.MatMul(transpose_b=True), n.permute(x, last), weights)
    return n.permute(y, back)


def _open_averages(n: AtenNode, places: Dim, bins: Dim, dtype: DType) -> Value:
    """The matrix of `averages` in type `dtype`, for symbolic extents."""
    b, place = n.positions(bins, 2), n.positions(places, 2, 1)
    count, whole, one = (n.tensor(d, i64) for d in (bins, places, 1))
    start = b * whole / count
    following = (b + one) * whole
    end = (following - one) / count + one
    is_inside = (place >= start) & (place < end)
    wide = f64 if dtype is f64 else f32
    share = reciprocal(n.cast(end - start, wide))
    return n.cast(where(is_inside, share, 0.0), dtype)


for _rank in (1, 2, 3):
    aten_op(f"aten.adaptive_avg_pool{_rank}d.default", f"aten._adaptive_avg_pool{_rank}d.default")(
        partial(_adaptive_avg_pool, rank=_rank)
    )


def _windows(places: int, bins: int) -> np.ndarray:
    """Positions in each window, [bins, largest window], padded with the window's last position."""
    starts = np.arange(bins) * places // bins
    ends = -(-(np.arange(bins) + 1) * places // bins)
    size = int((ends - starts).max(initial=0))
    return np.minimum(starts[:, None] + np.arange(size), ends[:, None] - 1).astype(np.int64)


def _adaptive_max_pool(
    n: AtenNode, self: Value, output_size: Sequence[int] | int, *, rank: int
) -> tuple[Value, Value]:
    """Maxima of the windows of `_adaptive_avg_pool`, and their positions in the flattened image."""
    sizes = spread(output_size, rank)
    lead = self.type.shape[: self.type.rank - rank]
    images = n.shape(self)[-rank:]
    x, numbers = self, np.arange(math.prod(images), dtype=np.int64).reshape(images)
    axis = len(lead)
    for a, (places, bins) in enumerate(zip(images, sizes, strict=True)):
        windows = _windows(places, bins)
        x = n.add(gather.Gather(axis + 2 * a), x, n.const(windows))
        numbers = np.take(numbers, windows, axis=2 * a)
    # [lead..., bins, window, bins, window...] -> [lead..., bins..., windows]
    order = (*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))
    x = n.permute(x, (*range(axis), *(axis + o for o in order)))
    x = n.reshape(x, (*lead, *sizes, -1))
    plane = numbers.transpose(order).reshape(*sizes, -1)
    last = x.type.rank - 1
    place = n.add(reduce.ArgMax(last, True), x)
    flat = n.expand(n.const(plane.reshape([1] * axis + list(plane.shape))), x.type.shape)
    chosen = n.add(gather.GatherElements(last), flat, place)
    return x.max((last,)), n.reshape(chosen, (*lead, *sizes))


for _rank in (1, 2, 3):
    aten_op(f"aten.adaptive_max_pool{_rank}d.default")(partial(_adaptive_max_pool, rank=_rank))
