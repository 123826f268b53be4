"""ONNX's operators whose result is as long as a computed number says: ranges, windows, filters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilesmith.frontend.common.numbers import Numbers
from tilesmith.frontend.onnx.computed import along, iota
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f64, i64
from tilesmith.ops import elementwise as ew

_MOST = 1 << 40
"""Beyond every extent."""


def ranged(n: OnnxNode, start: Value, limit: Value, delta: Value) -> Value:
    """start, start + delta and so on, up to but not including limit."""
    dtype = start.dtype
    wide = i64 if dtype.is_int else f64
    first, end, step = (Numbers.of(n, v, wide) for v in (start, limit, delta))
    if wide is i64:
        up = step.below(0).chooses(step + 1, step - 1)
        count = (end - first + up).divided(step)
        wrong = step.equals(0)
    else:
        steps = (end - first).divided(step).mapped(ew.Ceil())
        count = steps.cast(i64)
        wrong = steps.below(_MOST).mapped(ew.LogicalNot())  # too long, or no number
    (length,) = n.measured(count.most(0).value, zero=wrong.cast(i64).value)
    return (iota(n, length).cast(wide) * step + first).cast(dtype).value


def window(
    n: OnnxNode, size: Value, is_periodic: bool, coefficients: Sequence[float], dtype: DType
) -> Value:
    """a0 - a1 cos(2 pi i / m) + a2 cos(4 pi i / m) for a computed size."""
    given = Numbers.of(n, size)
    (length,) = n.measured(given.value)
    m = (given if is_periodic else given - 1).most(1).cast(f64)
    angle = (iota(n, length).cast(f64) * (2 * math.pi)).divided(m)
    a0, a1, a2 = coefficients
    value = a0 - angle.mapped(ew.Cos()) * a1
    if a2:
        value = value + (angle * 2.0).mapped(ew.Cos()) * a2
    return value.cast(dtype).value


def mel_filters(n: OnnxNode, sizes: Sequence[Value], edges: Sequence[Value], dtype: DType) -> Value:
    """The matrix of triangular filters for computed (bins, length, rate) and edges in Hz."""
    bins, length, rate = (Numbers.of(n, v) for v in sizes)
    low, high = (Numbers.of(n, v, f64) for v in edges)
    rows, columns = n.measured((length.divided(2) + 1).joined(bins).value)
    first, last = (
        (edge.divided(700.0) + 1.0).mapped(ew.Log()) * (2595 / math.log(10)) for edge in (low, high)
    )
    width = (last - first).divided((bins + 2).cast(f64))

    def corner(offset: int) -> Numbers:
        mel = (iota(n, columns) + offset).cast(f64) * width + first
        hertz = ((mel * (math.log(10) / 2595)).mapped(ew.Exp()) - 1.0) * 700.0
        place = ((length + 1).cast(f64) * hertz).divided(rate.cast(f64)).mapped(ew.Floor())
        return along(place, 1, 2)

    start, centre, end = (corner(i) for i in range(3))
    at = along(iota(n, rows).cast(f64), 0, 2)
    up = start.below(centre).chooses(
        (at - start).divided((centre - start).most(1.0)), at * 0.0 + 1.0
    )
    down = (end - at).divided((end - centre).most(1.0))
    zero = at * 0.0
    rising = start.below(at + 1.0).both(at.below(centre + 1.0)).chooses(up, zero)
    falls = centre.below(at + 1.0).both(at.below(end))
    return falls.chooses(down, rising).cast(dtype).value


def places_of(n: OnnxNode, x: Value) -> Numbers:
    """`OnnxNode.places` as numbers."""
    return Numbers(n, n.places(x))
