"""Products of f32 inputs and stored weights of bytes.  A run quantises the inputs by their range.

Each row, or image, has a scale of its own.  It also has a zero point if the weights have several
scales or an option of the operator asks for it.  Sums are integers, results are f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilesmith.frontend.common.arithmetic import rounded_away
from tilesmith.frontend.tflite.contractions import rows_of
from tilesmith.frontend.tflite.convolutions import depthwise, finished, plain
from tilesmith.frontend.tflite.fixed_point import single
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, f64, i8, i32, int4
from tilesmith.ops import matmul as mm
from tilesmith.ops.functions import clip, maximum, minimum, where

_Quantised = tuple[Value, Value, Value | None]
"""Quantised bytes, their scales, and their zero points (i32; None if all are 0)."""


def is_hybrid(n: TfliteNode) -> bool:
    """Whether the input is f32 and the weights are integers."""
    return n.input(0).dtype is f32 and n.input(1).dtype in (i8, int4)


def _symmetric(n: TfliteNode, x: Value, axes: Sequence[int]) -> _Quantised:
    """Quantise x to -127 to 127 by the largest magnitude along `axes`."""
    span = abs(x).max(axes, True)
    is_zero = span <= 0
    inverse = where(is_zero, 0.0, n.const(127.0, f32) / where(is_zero, 1.0, span))
    q = clip(rounded_away(x * inverse), -127.0, 127.0).cast(i8)
    return q, where(is_zero, 1.0, span / 127.0), None


def _asymmetric(n: TfliteNode, x: Value, axes: Sequence[int]) -> _Quantised:
    """Quantise x to -128 to 127 by its range along `axes`, extended to contain 0."""
    low = minimum(x.min(axes, True), 0.0).cast(f64)
    high = maximum(x.max(axes, True), 0.0).cast(f64)
    is_zero = (high - low) <= 0
    scale = where(is_zero, 1.0, (high - low) / 255.0)
    below, above = low / scale, high / scale
    point = where(abs(below) + 128.0 < abs(above) + 127.0, -below - 128.0, -above + 127.0)
    point = where(is_zero, 0.0, clip(rounded_away(point), -128.0, 127.0))
    scale = scale.cast(f32)
    inverse = n.const(1.0, f32) / scale
    # Each step is computed in f64 and rounded to f32.  This gives the results of f32, even if a
    # multiply and an add are fused.
    steps = (x.cast(f64) * inverse.cast(f64)).cast(f32).cast(f64) + point
    q = clip(rounded_away(steps.cast(f32)), -128.0, 127.0).cast(i8)
    return q, scale, point.cast(i32)


def _weight_scales(n: TfliteNode) -> np.ndarray:
    """The scales of the weights: one, or one for each channel of the result."""
    q = n.quantization(n.input_tensor(1))
    if q.zero_points.any():
        n.unsupported("weights with a zero point for an f32 input")
    return q.scales[:1] if (q.scales == q.scales[0]).all() else q.scales


def _result(n: TfliteNode, sums: Value, scales: np.ndarray, scale: Value) -> Value:
    factors = n.const(scales.reshape(()) if len(scales) == 1 else scales)
    return finished(n, sums.cast(f32) * factors * scale, n.optional(2))


def convolution(n: TfliteNode, is_depthwise: bool) -> Value:
    """A convolution; each image is quantised by itself."""
    scales = _weight_scales(n)
    with_zero = is_depthwise or len(scales) > 1
    q, scale, zero = (_asymmetric if with_zero else _symmetric)(n, n.input(0), (1, 2, 3))

    def centre(v: Value) -> Value:
        wide = v.cast(i32)
        return wide if zero is None else wide - zero

    form = depthwise if is_depthwise else plain
    return _result(n, form(n, q, n.input(1).cast(i32), centre), scales, scale)


def fully_connected(n: TfliteNode) -> Value:
    """Rows times weights [O, I]; each row is quantised by itself."""
    x, w, scales = n.input(0), n.input(1), _weight_scales(n)
    q, scale, zero = _rows(n)(n, rows_of(n, x, w), (-1,))
    rows = q.cast(i32) if zero is None else q.cast(i32) - zero
    sums = n.add(mm.MatMul(transpose_b=True), rows, w.cast(i32))
    return _result(n, sums, scales, scale)


def _rows(n: TfliteNode) -> Callable[[TfliteNode, Value, Sequence[int]], _Quantised]:
    return _asymmetric if n.option("asymmetric_quantize_inputs") else _symmetric


def batch_matmul(n: TfliteNode) -> Value:
    """A product with weights of one scale; each row is quantised by itself."""
    scale_y, point = single(n, n.input_tensor(1))
    if point:
        n.unsupported("weights with a zero point for an f32 input")
    x = n.input(0)
    if n.option("adj_x"):
        rank = x.type.rank
        x = x.transpose(*range(rank - 2), rank - 1, rank - 2)
    q, scale, zero = _rows(n)(n, x, (-1,))
    rows = q.cast(i32) if zero is None else q.cast(i32) - zero
    sums = n.add(mm.MatMul(transpose_b=bool(n.option("adj_y"))), rows, n.input(1).cast(i32))
    return sums.cast(f32) * (scale * scale_y)
