"""Conversions between floats and quantised numbers, and arithmetic of quantised tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tilesmith.frontend.common.arithmetic import rounded_away
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.fixed_point import (
    centred,
    fused,
    is_word,
    power_of_two,
    rounding_shift,
    scaled,
    scales,
    single,
    stored,
)
from tilesmith.frontend.tflite.model import Tensor
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import FORMS, quantized_op, tflite_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, i8, i16, i32, u8
from tilesmith.ops import elementwise as ew
from tilesmith.ops.base import Op
from tilesmith.ops.functions import clip


def _along_axis(n: TfliteNode, x: Value, tensor: Tensor) -> tuple[Value, Value]:
    """The scales and zero points of a tensor in shapes that broadcast to x."""
    q, rank = n.quantization(tensor), x.type.rank
    axis = n.axis(q.axis, rank) if rank else 0
    shape = () if q.is_single else (len(q.scales), *[1] * (rank - axis - 1))
    return n.const(q.scales.reshape(shape)), n.const(q.zero_points.reshape(shape), i32)


@quantized_op("QUANTIZE")
def quantize(n: TfliteNode) -> Result:
    x, tensor = n.input(0), n.output_tensor()
    to = tensor.dtype
    if x.dtype is not f32:
        return _requantize(n)
    if not to.is_int or to.bits > 16:
        n.unsupported(f"a result of type {to}; integers of at most 16 bits are supported")
    scale, zero = _along_axis(n, x, tensor)
    # The limits of +-2^20 lie far outside of the result's range, so they don't change it.  Within
    # them, the sum with the zero point is exact.
    steps = clip(rounded_away(x / scale), -(2.0**20), 2.0**20).cast(i32)
    return clip(steps + zero, int(to.min), int(to.max)).cast(to)


def _requantize(n: TfliteNode) -> Value:
    (source, to) = n.input_tensor(0), n.output_tensor()
    allowed = {i16: (i8, i16, i32), i32: (i8, i16), i8: (u8, i8, i16), u8: (u8, i8, i16)}
    if to.dtype not in allowed.get(source.dtype, ()):
        n.unsupported(f"requantisation of {source.dtype} to {to.dtype}")
    factor = single(n, source)[0] / single(n, to)[0]
    return stored(n, scaled(n, centred(n, 0), factor))


@quantized_op("DEQUANTIZE")
def dequantize(n: TfliteNode) -> Result:
    x = n.input(0)
    if n.output_tensor().dtype is not f32 or x.dtype.bits > 16:
        n.unsupported(f"a result of type {n.output_tensor().dtype} from {x.type}")
    scale, zero = _along_axis(n, x, n.input_tensor(0))
    return (x.cast(i32) - zero).cast(f32) * scale


@tflite_op("FAKE_QUANT")
def fake_quant(n: TfliteNode) -> Result:
    if n.option("narrow_range"):
        n.unsupported("a narrow range")
    bits, single_ = n.option("num_bits"), np.float32
    if not 2 <= bits <= 16:
        n.bad(f"option 'num_bits': expected 2 to 16, found {bits}")
    low, high = single_(n.option("min")), single_(n.option("max"))
    most = single_((1 << bits) - 1)
    scale = (high - low) / most
    if not (np.isfinite(scale) and scale > 0):
        n.bad(f"expected a range, found {low} to {high}")
    zero = single_(np.floor(np.clip(-low / scale, 0, most) + single_(0.5)))
    first, last = -zero * scale, (most - zero) * scale
    x = clip(n.input(0), float(first), float(last)) - float(first)
    return rounded_away(x * float(single_(1) / scale)) * float(scale) + float(first)


def _sum(n: TfliteNode, make: Callable[[], Op]) -> Result:
    """Sums and differences: both operands are rescaled to twice the larger scale."""
    a, b, y = scales(n)
    if is_word(n.output_tensor()) and n.option("pot_scale_int16"):
        powers = [power_of_two(s) for s in (a, b, y)]
        if None not in powers:
            return _sum_of_shifted(n, make, [int(p or 0) for p in powers])
    bits = 15 if is_word(n.output_tensor()) else 20
    twice = 2 * max(a, b)
    left = n.const(1 << bits, i32)
    x = [scaled(n, centred(n, i) * left, s / twice) for i, s in enumerate((a, b))]
    return stored(n, scaled(n, n.add(make(), *x), twice / ((1 << bits) * y)), fused(n))


def _sum_of_shifted(n: TfliteNode, make: Callable[[], Op], powers: list[int]) -> Value:
    """A sum of numbers whose scales are powers of two."""
    x = []
    for i, power in enumerate(powers[:2]):
        bits = powers[2] - power
        if not 0 <= bits < 32:
            n.bad(f"expected a scale of at most 2^{powers[2]} for input {i + 1}, found 2^{power}")
        x.append(rounding_shift(n, centred(n, i), bits))
    return stored(n, n.add(make(), *x), fused(n))


FORMS.register("ADD")(partial(_sum, make=ew.Add))
FORMS.register("SUB")(partial(_sum, make=ew.Sub))


@quantized_op("MUL")
def multiply(n: TfliteNode) -> Result:
    a, b, y = map(np.float32, scales(n))
    return stored(n, scaled(n, centred(n, 0) * centred(n, 1), float(a * b / y)), fused(n))


@quantized_op("SQUARED_DIFFERENCE")
def squared_difference(n: TfliteNode) -> Result:
    a, b, y = scales(n)
    twice, left = 2 * max(a, b), n.const(1 << 7, i32)
    p, q = (scaled(n, centred(n, i) * left, s / twice) for i, s in enumerate((a, b)))
    squares = (p - q) * (p - q)
    factor = twice * twice / float(np.float32(1 << 14) * np.float32(y))
    return stored(n, scaled(n, squares, factor))


_COMPARISONS: dict[str, Callable[[], Op]] = {
    "EQUAL": ew.Equal,
    "GREATER": ew.Greater,
    "GREATER_EQUAL": ew.GreaterEqual,
    "LESS": ew.Less,
    "LESS_EQUAL": ew.LessEqual,
    "NOT_EQUAL": ew.NotEqual,
}


def _comparison(n: TfliteNode, make: Callable[[], Op]) -> Result:
    """A comparison of real numbers: both operands are scaled to a common unit.  TFLite compares
    16-bit integers as they are stored, even if their scales differ.
    """
    if is_word(n.input_tensor(0)) and make not in (ew.Equal, ew.NotEqual):
        return n.add(make(), n.input(0), n.input(1))
    factors = [single(n, n.input_tensor(i))[0] for i in range(2)]
    if max(factors) >= 1:
        n.unsupported(f"comparisons of tensors with scales of at least 1, here {max(factors)}")
    left = n.const(1 << 8, i32)
    x = [scaled(n, centred(n, i) * left, s) for i, s in enumerate(factors)]
    return n.add(make(), *x)


for _name, _make in _COMPARISONS.items():
    FORMS.register(_name)(partial(_comparison, make=_make))
