"""SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION and DIV of quantised tensors, in gemmlowp's fixed point.

A number in units of 2^(b - 31) has b integer bits.  Exponential functions of differences of bytes
are tables.  A run computes all that depends on the sum of a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite import tables
from tilesmith.frontend.tflite.fixed_point import (
    centred,
    fused,
    looked_up,
    quantize_multiplier,
    scaled,
    single,
    stored,
)
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import quantized_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f64, i8, i16, i32, i64, u8
from tilesmith.ops.elementwise import Bitcast, BitShift
from tilesmith.ops.fixed_point import DoublingHighMul, RoundingShift
from tilesmith.ops.functions import clip, maximum, minimum, where
from tilesmith.ops.gather import Gather

_SUM_BITS = 12
"""The integer bits of sums of exponential functions."""

_DIFFERENCE_BITS = 5
"""The integer bits of differences from the largest number of a row."""

_SQRT_HALF, _SQRT_SQRT_HALF, _LOG_2 = 1518500250, 1805811301, 1488522236


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Fixed-point operations on i32 tensors of a node."""

    n: TfliteNode

    def word(self, v: Value | int) -> Value:
        return self.n.const(v, i32) if isinstance(v, int) else v

    def times(self, a: Value | int, b: Value | int) -> Value:
        return self.n.add(DoublingHighMul(), self.word(a), self.word(b))

    def right(self, x: Value, bits: Value | int) -> Value:
        return self.n.add(RoundingShift(), x, self.word(bits))

    def up(self, x: Value, bits: Value | int) -> Value:
        """x * 2^bits, saturating."""
        return clip(self.left(x.cast(i64), bits), int(i32.min), int(i32.max)).cast(i32)

    def left(self, x: Value, bits: Value | int) -> Value:
        """x * 2^bits, wrapping around."""
        count = self.n.const(bits, x.dtype) if isinstance(bits, int) else bits.cast(x.dtype)
        return self.n.add(BitShift("left"), x, self.n.expand(count, x.type.shape))

    def zeros(self, x: Value) -> Value:
        """The number of leading zero bits of i32 numbers, as i32."""
        whole = x.cast(i64) & self.n.const(2**32 - 1, i64)
        bits = self.n.add(Bitcast(i64), whole.cast(f64))
        exponent = self.n.add(
            BitShift("right"), bits, self.n.expand(self.n.const(52, i64), x.type.shape)
        )
        return self.n.const(32, i32) - maximum(exponent - 1022, 0).cast(i32)

    def half_sum(self, a: Value, b: int) -> Value:
        """(a + b) / 2, rounded up.  The sum is positive."""
        total = a.cast(i64) + (b + 1)
        return self.n.add(
            BitShift("right"), total, self.n.expand(self.n.const(1, i64), a.type.shape)
        ).cast(i32)

    def inverse(self, x: Value) -> Value:
        """1 / (1 + x) by Newton's method.  x is from 0 to 1 and has no integer bits."""
        half = self.half_sum(x, int(i32.max))
        y = self.times(half, -1010580540) + 1515870810  # 48 / 17 - half * 32 / 17
        for _ in range(3):
            y = y + self.up(self.times(y, -self.times(half, y) + (1 << 29)), 2)
        return self.up(y, 1)

    def log(self, x: Value) -> Value:
        """The logarithm of x, at least 1.  x has `_SUM_BITS` integer bits, the result has
        `_DIFFERENCE_BITS`.
        """
        accumulated = _DIFFERENCE_BITS + 1
        zeros = self.zeros(x)
        a = self.up(self.times(self.up(x, zeros - 1), _SQRT_HALF), 1)
        a_power = self.up(-zeros + _SUM_BITS, 31 - accumulated) + (1 << (29 - accumulated))
        room = self.zeros(self.times(x, _SQRT_HALF)) - 1
        b = self.up(x, room)
        b_power = self.up(-room + _SUM_BITS, 31 - accumulated) - (1 << (29 - accumulated))
        r, power = minimum(a, b), maximum(a_power, b_power)
        p, q = self.half_sum(r, _SQRT_SQRT_HALF), (r - _SQRT_SQRT_HALF) * 2
        square = self.times(q, q)
        above = self.times(q, r) + self.times(self.times(q, square), 117049297)
        inner = q + self.times(square, 127690142) + 1057819769
        below = self.times(p, inner) + self.times(q, 638450708)
        share = self.times(self.right(above, accumulated), self.inverse(below))
        return self.up(self.times(power, _LOG_2) + share, 1)

    def inverse_root(self, x: Value) -> tuple[Value, Value]:
        """1 / sqrt(x) as a multiplier without integer bits, and a right shift."""
        is_large = x >= (1 << 29)
        v = where(is_large, self.n.add(BitShift("right"), x, self.full(2, x)), x)
        room = self.n.add(BitShift("right"), self.zeros(v) - 1, self.full(1, x)) - 1
        shift = is_large.cast(i32) + 11 - room
        v = self.left(v, room * 2)
        whole = self.n.add(BitShift("right"), v, self.full(1, x))
        half = self.right(whole, 1)
        y = self.full(1 << 28, x)
        for _ in range(5):
            cube = self.up(self.times(self.times(y, y), y), 6)
            y = self.up(self.times(y, (1 << 28) + (1 << 27)) - self.times(half, cube), 3)
        y = self.left(self.times(y, _SQRT_HALF), maximum(-shift, 0))
        is_tiny = x <= 1
        return where(is_tiny, int(i32.max), y), where(is_tiny, 0, maximum(shift, 0))

    def full(self, number: int, like: Value) -> Value:
        return self.n.expand(self.word(number), like.type.shape)


def _scaling(n: TfliteNode, beta: float) -> tuple[int, int, int]:
    """The multiplier and shift that scale differences of bytes, and the least difference whose
    exponential is not 0.
    """
    scale = single(n, n.input_tensor(0))[0]
    if not scale * beta > 0:
        n.bad(f"expected a positive scale times beta, found {scale} * {beta}")
    # The format's reference kernel ends the process for a factor of at most 1.  At 2 the exponents
    # of a row differ by 8e-6 at most, so smaller factors give the same result.
    real = min(max(beta * scale * 2.0 ** (31 - _DIFFERENCE_BITS), 2.0), 2.0**31 - 1)
    multiplier, shift = quantize_multiplier(real)
    most = ((1 << _DIFFERENCE_BITS) - 1) * 2.0 ** (31 - _DIFFERENCE_BITS - shift)
    return multiplier, shift, -math.floor(most)


def _differences(n: TfliteNode) -> Value:
    """Each number minus the largest number of its row: at most 0, as i32."""
    x = n.input(0).cast(i32)
    return x - x.max((-1,), True)


_RANGE = np.arange(-255, 1, dtype=np.int64)
"""All differences of two bytes that are at most 0."""


def _at(n: TfliteNode, table: np.ndarray, differences: Value) -> Value:
    return n.add(Gather(0), n.const(table.astype(np.int32)), differences + 255)


def _exponentials(n: TfliteNode, beta: float) -> tuple[Value, np.ndarray, np.ndarray, int]:
    """The parts of a row's exponential functions.

    They are: each number minus the largest number of its row; a table of the scaled values of all
    possible differences; a table of their exponentials; and the least difference whose exponential
    is not 0.
    """
    multiplier, shift, least = _scaling(n, beta)
    wide = (_RANGE << shift).astype(np.int32).astype(np.int64)
    units = tables.high_product(wide, multiplier)
    exp = np.where(least <= _RANGE, tables.fixed_exp(np.minimum(units, 0)), 0)
    return _differences(n), units, exp, least


def _row_sums(n: TfliteNode, exp: np.ndarray, differences: Value) -> Value:
    terms = tables.rounding_shift(exp, _SUM_BITS)
    return _at(n, terms, differences).sum((-1,), True)


@quantized_op("SOFTMAX")
def softmax(n: TfliteNode) -> Result:
    x, to = n.input(0), n.output_tensor().dtype
    if x.dtype is i16 and to is i16:
        return _softmax_of_words(n)
    if to not in {i8: (i8, i16), u8: (u8, i16)}.get(x.dtype, ()):
        n.unsupported(f"a result of type {to} of an input {x.type}")
    f = _Fixed(n)
    differences, _, exp, _ = _exponentials(n, n.option("beta"))
    sums = _row_sums(n, exp, differences)
    zeros = f.zeros(sums)
    rest = f.left(sums.cast(i64) & n.const(2**32 - 1, i64), zeros) - n.const(1 << 31, i64)
    factor = f.inverse(rest.cast(i32))
    bits = -zeros + (_SUM_BITS + 31 - to.bits)
    steps = f.right(f.times(factor, _at(n, exp, differences)), bits)
    # If a row's sum is 512 or more, the shift exceeds 31 bits.  Each result is then below half a
    # step, so it becomes 0.
    return _limited(where(bits > 31, 0, steps) + int(to.min), to)


def _limited(x: Value, to: DType) -> Value:
    return clip(x, int(to.min), int(to.max)).cast(to)


def _softmax_of_words(n: TfliteNode) -> Value:
    f, span = _Fixed(n), 65535
    real = float(np.float32(single(n, n.input_tensor(0))[0]) * np.float32(n.option("beta")))
    exp = tables.of_words(np.exp, (10.0 / span, int(i16.max)), (2.0 / span, 0), np.float64)
    inverse = tables.of_words(
        lambda v: 1.0 / (1.0 + v), (1.0 / span, int(i16.min)), (2.0 / span, 0), np.float64
    )
    place = scaled(n, _differences(n), real / (10.0 / span)) + int(i16.max)
    terms = looked_up(n, _limited(place, i16), exp).cast(i64)
    sums = terms.cast(i32).sum((-1,), True)
    zeros = f.zeros(sums)
    shifted = f.left(sums.cast(i64), zeros - 1) + (1 << 13)
    shifted = n.add(BitShift("right"), shifted, n.expand(n.const(14, i64), sums.type.shape))
    factor = looked_up(n, _limited(shifted - ((1 << 15) + (1 << 16)), i16), inverse)
    bits = (-zeros + 31).cast(i64)
    half = f.left(n.expand(n.const(1, i64), sums.type.shape), bits - 1)
    steps = terms * factor.cast(i64) + half
    steps = n.add(BitShift("right"), steps, n.expand(bits, steps.type.shape))
    return clip(steps, 0, int(i16.max)).cast(i16)


@quantized_op("LOG_SOFTMAX")
def log_softmax(n: TfliteNode) -> Result:
    x, to = n.input(0), n.output_tensor().dtype
    if x.dtype is not to or to not in (i8, u8):
        n.unsupported(f"a result of type {to} of an input {x.type}")
    f = _Fixed(n)
    multiplier, shift, least = _scaling(n, 1.0)
    differences, units, exp, _ = _exponentials(n, 1.0)
    log = f.log(_row_sums(n, exp, differences))
    back, back_shift = quantize_multiplier(2.0 ** (31 - shift) / multiplier)
    limit = f.right(f.times(log + int(i32.min), back), -back_shift)
    limit = maximum(limit, least - 1)
    steps = f.right(_at(n, units, differences) - log, 31 - _DIFFERENCE_BITS - 4) + int(to.max)
    return _limited(where(differences > limit, steps, int(to.min)), to)


@quantized_op("L2_NORMALIZATION")
def l2_normalization(n: TfliteNode) -> Result:
    x, to = n.input(0), n.output_tensor().dtype
    if x.dtype is not to or to not in (i8, u8):
        n.unsupported(f"a result of type {to} of an input {x.type}")
    f, v = _Fixed(n), centred(n, 0)
    multiplier, shift = f.inverse_root((v * v).sum((-1,), True))
    if to is u8:
        return _limited(f.right(f.times(v * 128, multiplier), shift) + 128, to)
    wide = f.left(v, n.expand(maximum(-shift + 7, 0), v.type.shape))
    return _limited(f.right(f.times(wide, multiplier), maximum(shift - 7, 0)), to)


@quantized_op("DIV")
def divide(n: TfliteNode) -> Result:
    """Quotients by reciprocals.  A divisor of 0 gives the zero point; TFLite refuses it."""
    f, a, b = _Fixed(n), centred(n, 0), centred(n, 1)
    x, y, z = (single(n, t)[0] for t in (n.input_tensor(0), n.input_tensor(1), n.output_tensor()))
    multiplier, shift = quantize_multiplier(x / (y * z))
    size = maximum(abs(b), 1)
    zeros = f.zeros(size)
    inverse = f.inverse((f.left(size.cast(i64), zeros) - n.const(1 << 31, i64)).cast(i32))
    top = where(b < 0, -a, a)
    room = f.zeros(where(top < 0, -top - 1, top)) - 1
    product = f.times(f.times(f.left(top, room), inverse), multiplier)
    steps = f.right(product, clip(room - zeros + (31 - shift), 0, 31))
    return stored(n, where(b.equals(0), 0, steps), fused(n))
