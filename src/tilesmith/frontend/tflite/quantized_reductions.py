"""Pools, means, sums and bilinear resizes of quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilesmith.frontend.common.arithmetic import rounded_away
from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.recurrence import over_time
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import channels_last, channels_second, convolve
from tilesmith.frontend.tflite.fixed_point import (
    centred,
    fused,
    limits,
    quantize_multiplier,
    scaled,
    single,
    stored,
)
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.pools import maxima, windows
from tilesmith.frontend.tflite.registry import quantized_op
from tilesmith.frontend.tflite.resizing import coordinates, new_sizes
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, f64, i16, i32, i64, u8
from tilesmith.ops.elementwise import Bitcast, BitShift, Sign, Trunc
from tilesmith.ops.fixed_point import DoublingHighMul, RoundingShift
from tilesmith.ops.functions import clip, maximum, minimum, where
from tilesmith.ops.gather import Gather
from tilesmith.ops.slicing import Slice


def _kept(n: TfliteNode) -> None:
    """Raises ModelError unless the result has the input's scale and zero point."""
    if not n.input_tensor(0).is_stored_as(n.output_tensor()):
        n.bad("expected a result with the scale and zero point of the input")


def _activated(n: TfliteNode, y: Value) -> Value:
    """Apply the fused activation function to stored integers."""
    return clip(y, *limits(n, fused(n), n.output_tensor())).cast(n.output_tensor().dtype)


@quantized_op("MAX_POOL_2D")
def max_pool_2d(n: TfliteNode) -> Result:
    _kept(n)
    return _activated(n, maxima(n, n.input(0)))


@quantized_op("AVERAGE_POOL_2D")
def average_pool_2d(n: TfliteNode) -> Result:
    _kept(n)
    x = n.input(0)
    g, channels = windows(n, x), n.extent(x, 3)
    ones = n.const(np.ones((channels, 1, *g.kernel), np.int32))
    sums = convolve(n, channels_second(x).cast(i32), ones, g, channels)
    pads = g.numbers()
    if pads is not None and not any(pads):
        count = int(np.prod(g.kernel))
        means = where(sums > 0, sums + count // 2, sums - count // 2) / count
        return _activated(n, channels_last(means))
    one = n.expand(n.const(np.ones((1, 1, 1, 1), np.int32)), (1, 1, *x.type.shape[1:3]))
    counts = convolve(n, one, n.const(np.ones((1, 1, *g.kernel), np.int32)), g)
    half = counts / 2
    # f64 division and truncation equal integer division, and are faster
    sums = where(sums > 0, sums + half, sums - half).cast(f64)
    means = n.add(Trunc(), sums / counts.cast(f64)).cast(i32)
    return _activated(n, channels_last(means))


def _axes(n: TfliteNode) -> tuple[int, ...]:
    rank = n.input(0).type.rank
    return tuple(sorted({n.axis(a, rank) for a in n.int_list(n.input(1), "axes")}))


@quantized_op("SUM")
def total(n: TfliteNode) -> Result:
    x, axes = centred(n, 0), _axes(n)
    sums = x.sum(axes, bool(n.option("keep_dims"))) if axes else x
    scale = single(n, n.input_tensor(0))[0]
    if n.input(0).dtype is u8:
        return stored(n, scaled(n, sums, scale / _scale(n)))
    # TFLite scales sums of signed integers in f32.  A product in f64 that is rounded to f32 is the
    # same, even if a multiply and an add are fused.
    factor = float(np.float32(scale) / np.float32(_scale(n)))
    steps = (sums.cast(f32).cast(f64) * factor).cast(f32)
    return stored(n, clip(rounded_away(steps), -(2.0**20), 2.0**20).cast(i32))


def _scale(n: TfliteNode) -> float:
    return single(n, n.output_tensor())[0]


@quantized_op("MEAN")
def mean(n: TfliteNode) -> Result:
    """The sum times a multiplier, divided by the number of elements first."""
    x, axes = centred(n, 0), _axes(n)
    sums = x.sum(axes, bool(n.option("keep_dims"))) if axes else x
    multiplier, up = quantize_multiplier(single(n, n.input_tensor(0))[0] / _scale(n))
    dims = n.input(0).type.shape
    count = n.reshape(n.of_dims([extents.product([dims[a] for a in axes])]), ())
    bits = n.add(Bitcast(i64), count.cast(f64))
    shift = n.add(BitShift("right"), bits, n.const(52, i64)) - 1023  # floor(log2(count))
    shift = minimum(shift, min(32, 31 + up))
    divided = n.add(BitShift("left"), n.const(multiplier, i64), shift) / count
    up_bits = n.const(up, i64) - shift
    left = n.add(BitShift("left"), n.const(1, i32), maximum(up_bits, 0).cast(i32))
    product = n.add(DoublingHighMul(), sums * left, divided.cast(i32))
    return stored(n, n.add(RoundingShift(), product, maximum(-up_bits, 0).cast(i32)))


@quantized_op("REDUCE_PROD")
def product(n: TfliteNode) -> Result:
    """Products in the order of the elements; each step is scaled, so that it fits 32 bits."""
    x, axes = centred(n, 0), _axes(n)
    if n.input(0).dtype is u8:
        n.unsupported(f"a product of {n.input(0).type}; expected signed integers")
    rest = [a for a in range(x.type.rank) if a not in axes]
    dims = [x.type.shape[a] for a in rest]
    count = int(np.prod([n.extent(x, a) for a in axes], dtype=np.int64))
    if count == 0:
        n.unsupported("a product of no elements")
    factor = single(n, n.input_tensor(0))[0] / _scale(n) ** (1 / count)
    rows = n.reshape(x.transpose(*axes, *rest), (count, *dims))
    first, others = (n.add(Slice((a,), (b,), (0,), (1,)), rows) for a, b in ((0, 1), (1, count)))

    def step(
        body: Body, _: Value, x: Value, before: Sequence[Value]
    ) -> tuple[Sequence[Value], Value]:
        inner = replace(n, builder=body)
        after = scaled(inner, before[0].cast(i64) * x.cast(i64), factor)
        return (after,), after

    y = n.reshape(first, dims)
    if count > 1:
        (y,), _ = over_time(n, "product", others, (y,), step)
    y = stored(n, scaled(n, y.cast(i64), factor))
    kept = [1 if a in axes else d for a, d in enumerate(x.type.shape)]
    return n.reshape(y, kept) if n.option("keep_dims") else y


# Bilinear resizes


@quantized_op("RESIZE_BILINEAR")
def resize_bilinear(n: TfliteNode) -> Result:
    _kept(n)
    x, sizes = n.input(0), new_sizes(n, n.input(0))
    how = coordinates(n, "half_pixel")
    known = [(e, s) for e, s in zip(x.type.shape[1:3], sizes, strict=True)
             if isinstance(e, int) and isinstance(s, int)]  # fmt: skip
    if len(known) != 2:
        n.unsupported("quantised images of open sizes")
    if x.dtype is u8:
        return _resized_floats(n, x, known, how)
    wide = i64 if x.dtype is i16 else i32
    y = x.cast(wide)
    for axis, (extent, size) in enumerate(known, 1):
        low, high, position = _places(how, extent, size)
        weight = (position - 1024 * low).reshape(-1, *[1] * (3 - axis))
        before, after = (n.add(Gather(axis), y, n.const(place)) for place in (low, high))
        y = before * n.const(1024 - weight, wide) + after * n.const(weight, wide)
    if wide is i32:
        return n.add(RoundingShift(), y, n.const(20, i32)).cast(x.dtype)
    size = n.add(BitShift("right"), abs(y) + (1 << 19), n.expand(n.const(20, i64), y.type.shape))
    return (n.add(Sign(), y) * size).cast(x.dtype)


def _places(how: str, extent: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The elements before and after each sample, and the samples' positions times 1024."""
    by, to = (extent - 1, size - 1) if how == "align_corners" and size > 1 else (extent, size)
    step = (1024 * by + to // 2) // to
    position = np.arange(size, dtype=np.int64) * step
    if how == "half_pixel":
        position += step // 2 - 512
    low = np.maximum(np.trunc(position / 1024).astype(np.int64), 0)
    high = np.minimum(np.trunc((position + 1023) / 1024).astype(np.int64), extent - 1)
    return low, high, position


def _resized_floats(n: TfliteNode, x: Value, known: list[tuple[int, int]], how: str) -> Value:
    """A resize as TFLite computes it in f32.

    Each product and sum is computed in f64 and rounded to f32.  This gives the results of f32, even
    if a multiply and an add are fused.
    """
    axes = []
    for axis, (extent, size) in enumerate(known, 1):
        aligned = how == "align_corners" and size > 1
        by, to = (extent - 1, size - 1) if aligned else (extent, size)
        step = np.float32(by) / np.float32(to)
        position = np.arange(size, dtype=np.float32)
        half = np.float32(0.5)
        position = (position + half) * step - half if how == "half_pixel" else position * step
        low = np.maximum(np.floor(position), 0).astype(np.int64)
        high = np.minimum(np.ceil(position).astype(np.int64), extent - 1)
        after = (position - low.astype(np.float32)).reshape(-1, *[1] * (3 - axis))
        axes.append((low, high, np.float32(1) - after, after))

    def single_precision(v: Value) -> Value:
        return v.cast(f32).cast(f64)

    y, x_ = axes
    result: Value | None = None
    for column in (0, 1):
        for row in (0, 1):
            part = n.add(Gather(2), n.add(Gather(1), x, n.const(y[row])), n.const(x_[column]))
            part = single_precision(part.cast(f64) * n.const(y[2 + row], f64))
            part = single_precision(part * n.const(x_[2 + column], f64))
            result = part if result is None else single_precision(result + part)
    assert result is not None
    return n.add(Trunc(), single_precision(result + 0.5)).cast(i32).cast(u8)
