"""ONNX's operators whose result is as long as a computed number says: ranges, windows, filters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilesmith.frontend.common.lists import joined, listed
from tilesmith.frontend.onnx.computed import along
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f64, i64
from tilesmith.ops.functions import ceil, cos, exp, floor, log, maximum, where

_MOST = 1 << 40
"""Beyond every extent."""


def ranged(n: OnnxNode, start: Value, limit: Value, delta: Value) -> Value:
    """start, start + delta and so on, up to but not including limit."""
    dtype = start.dtype
    wide = i64 if dtype.is_int else f64
    first, end, step = (listed(v, wide) for v in (start, limit, delta))
    if wide is i64:
        up = where(step < 0, step + 1, step - 1)
        count = (end - first + up) / step
        wrong = step.equals(0)
    else:
        steps = ceil((end - first) / step)
        count = steps.cast(i64)
        wrong = ~(steps < _MOST)  # too long, or no number
    (length,) = n.measured(maximum(count, 0), zero=wrong.cast(i64))
    return (n.positions(length).cast(wide) * step + first).cast(dtype)


def window(
    n: OnnxNode, size: Value, is_periodic: bool, coefficients: Sequence[float], dtype: DType
) -> Value:
    """a0 - a1 cos(2 pi i / m) + a2 cos(4 pi i / m) for a computed size."""
    points = listed(size)
    (length,) = n.measured(points)
    m = maximum(points if is_periodic else points - 1, 1).cast(f64)
    angle = (n.positions(length).cast(f64) * (2 * math.pi)) / m
    a0, a1, a2 = coefficients
    value = a0 - cos(angle) * a1
    if a2:
        value = value + cos(angle * 2.0) * a2
    return value.cast(dtype)


def mel_filters(n: OnnxNode, sizes: Sequence[Value], edges: Sequence[Value], dtype: DType) -> Value:
    """The matrix of triangular filters for computed (bins, length, rate) and edges in Hz."""
    bins, length, rate = (listed(v) for v in sizes)
    low, high = (listed(v, f64) for v in edges)
    rows, columns = n.measured(joined(length / 2 + 1, bins))
    first, last = (log(edge / 700.0 + 1.0) * (2595 / math.log(10)) for edge in (low, high))
    width = (last - first) / (bins + 2).cast(f64)

    def corner(offset: int) -> Value:
        mel = (n.positions(columns) + offset).cast(f64) * width + first
        hertz = (exp(mel * (math.log(10) / 2595)) - 1.0) * 700.0
        place = floor((length + 1).cast(f64) * hertz / rate.cast(f64))
        return along(place, 1, 2)

    start, centre, end = (corner(i) for i in range(3))
    bin_of = along(n.positions(rows).cast(f64), 0, 2)
    up = where(start < centre, (bin_of - start) / maximum(centre - start, 1.0), bin_of * 0.0 + 1.0)
    down = (end - bin_of) / maximum(end - centre, 1.0)
    zero = bin_of * 0.0
    rising = where((start < bin_of + 1.0) & (bin_of < centre + 1.0), up, zero)
    falls = (centre < bin_of + 1.0) & (bin_of < end)
    return where(falls, down, rising).cast(dtype)
