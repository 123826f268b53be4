"""Tables of functions of quantised numbers, as TFLite's kernels make them.

A function of bytes has 256 entries.  For a function of words (16-bit integers), TFLite interpolates
between 513 entries; here a table has all 65,536 results.  Functions in f32 are computed in f64 and
rounded, which is what a good mathematical library gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilesmith.frontend.tflite.fixed_point import away, every, quantize_multiplier
from tilesmith.ir.dtypes import DType, i8, i16, i32

Function = Callable[[np.ndarray], np.ndarray]
"""A function of f32 numbers."""

Scale = tuple[float, int]
"""A scale and a zero point."""

f4 = np.float32


def in_double(f: Function) -> Function:
    """`f` computed in f64, with its result in f32."""

    def rounded(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return f(x.astype(np.float64)).astype(f4)

    return rounded


def of_bytes(f: Function, dtype: DType, x: Scale, y: Scale) -> np.ndarray:
    """The table of a function of f32 numbers for integers of 8 bits."""
    real = f4(x[0]) * (every(dtype) - x[1]).astype(f4)
    steps = away(f(real) * (f4(1) / f4(y[0]))) + f4(y[1])
    # a float beyond 32 bits becomes the smallest i32
    steps = np.where(np.abs(steps) < 2**31, steps, -(2.0**31)).astype(np.int64)
    return np.clip(steps, int(dtype.min), int(dtype.max)).astype(dtype.numpy)


def of_words(f: Function, x: Scale, y: Scale, real: Any = f4) -> np.ndarray:
    """The table of a function of words.

    real: the type of floats in which TFLite computes its samples.
    """
    low, high = int(i16.min), int(i16.max)
    first, last = (real(x[0]) * real(v - x[1]) for v in (low, high))
    least, most = (real(y[0]) * real(v - y[1]) for v in (low, high))
    step, steps = (last - first) / real(512), np.arange(512).astype(real)
    factor = real(high - low + 1) / (most - least)
    here, middle, after = (
        f(v.astype(real)).astype(real)
        for v in (first + steps * step, first + steps * step + step / real(2),
                  first + (steps + real(1)) * step)
    )  # fmt: skip
    sample = away(here * factor)
    between = away((after * factor + sample) / real(2))
    samples = sample - away((between - away(middle * factor)) / real(2))
    end = away(f(np.array([last], real)).astype(real) * factor)
    return interpolated(np.clip(np.append(samples, end), low, high))


def interpolated(samples: np.ndarray) -> np.ndarray:
    """Results for all words, by TFLite's interpolation between 513 samples."""
    samples, q = samples.astype(np.int64), every(i16)
    index = 256 + (q >> 7)
    slope = samples[index + 1] - samples[index]
    return (samples[index] + ((slope * (q & 127) + 64) >> 7)).astype(np.int16)


def _sigmoid_samples() -> np.ndarray:
    """Samples of the sigmoid at 0, 1 / 24, 2 / 24, ..., in units of 2^-16.

    Linear interpolation between two samples has an error in the middle.  Half of this error is
    added to the first of the two samples.  The last sample, 2^16 - 1, stands for 1.
    """
    here, middle, after = (2**16 / (1 + np.exp(-(np.arange(256) + d) / 24)) for d in (0, 0.5, 1))
    samples = np.round(here + (middle - (here + after) / 2) / 2).astype(np.int64)
    samples[-1] = 2**16 - 1
    return samples


def sigmoid_of_words(multiplier: int, shift: int) -> np.ndarray:
    """The table of a sigmoid of words.

    multiplier, shift: a word times multiplier / 2^shift is in units of 1 / (3 * 4096).
    """
    x = (every(i16) * multiplier + (1 << shift >> 1)) >> shift
    size = np.abs(x)
    result = np.where(size >> 9 >= 255, 0x7FFF << 10, _between(size, 9))
    result = np.where(x >= 0, result + (1 << 9), (1 << 25) - result + (1 << 9) - 1)
    return (result >> 10).astype(np.int16)


def tanh_of_words(multiplier: int, shift: int) -> np.ndarray:
    """The table of a hyperbolic tangent of words, from samples of the sigmoid."""
    x = (every(i16) * multiplier + (1 << shift >> 1)) >> shift
    size = np.abs(x)
    result = np.where(size >> 8 >= 255, 0xFFFF << 8, _between(size, 8))
    result = np.where(x >= 0, result - (1 << 23) + (1 << 7), -result + (1 << 23) + (1 << 7) - 1)
    return (result >> 8).astype(np.int16)


def _between(x: np.ndarray, bits: int) -> np.ndarray:
    """Interpolate samples of the sigmoid by the lowest `bits` bits of x."""
    table = _sigmoid_samples()
    index = np.minimum(x >> bits, 254)
    slope = table[index + 1] - table[index]
    return (table[index] << bits) + (x & ((1 << bits) - 1)) * slope


def hard_swish(dtype: DType, x: Scale, y: Scale) -> np.ndarray:
    """The table of x * relu6(x + 3) / 6, by TFLite's arithmetic of 16 bits."""
    fine = f4(1 / 128) * f4(x[0])
    out, out_shift = _short_multiplier(float(fine / f4(y[0])))
    relu, relu_shift = _short_multiplier(float(fine / f4(3 / 32768)))
    v = (every(dtype) - x[1]) * 128
    scaled = high_product(v, out, 15)
    gate = v
    if relu_shift > 0:
        gate = np.clip(gate << (relu_shift - 1), int(i16.min), int(i16.max))
    gate = high_product(gate, relu, 15)
    if relu_shift > 0:
        gate = np.clip(gate * 2, int(i16.min), int(i16.max))
    gate = (rounding_shift(gate, max(-relu_shift, 0)) + (1 << 15)) >> 1
    product = np.sign(gate * scaled) * (np.abs(gate * scaled) >> 15)
    result = rounding_shift(product, -out_shift) + y[1]
    return np.clip(result, int(dtype.min), int(dtype.max)).astype(dtype.numpy)


def _short_multiplier(real: float) -> tuple[int, int]:
    """A multiplier of 15 bits and a shift."""
    multiplier, shift = quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, 0x7FFF), shift


def high_product(a: Any, b: Any, bits: int = 31) -> Any:
    """a * b / 2^bits of integers, rounded to the nearest; ties round up; saturating."""
    return np.minimum((a * b + (1 << (bits - 1))) >> bits, (1 << bits) - 1)


def rounding_shift(x: Any, bits: Any) -> Any:
    """x / 2^bits of integers, rounded to the nearest; ties round away from zero."""
    half = (1 << np.asarray(bits, np.int64)) >> 1
    return np.sign(x) * ((np.abs(x) + half) >> bits)


def by_pair(x: Any, multiplier: int, shift: int) -> Any:
    """Integers times multiplier * 2^(shift - 31), rounded twice."""
    return rounding_shift(high_product(x << max(shift, 0), multiplier), max(-shift, 0))


def fixed_exp(x: np.ndarray, integer_bits: int = 5) -> np.ndarray:
    """The exponential function of numbers of at most 0, in units of 2^-31, as gemmlowp computes it.

    x: in units of 2^(integer_bits - 31).
    """
    fraction = 31 - integer_bits
    quarter = 1 << (fraction - 2)
    part = (x & (quarter - 1)) - quarter
    a = np.clip(part << integer_bits, int(i32.min), int(i32.max)) + (1 << 28)
    a2 = high_product(a, a)
    a3, a4 = high_product(a2, a), high_product(a2, a2)
    series = high_product(rounding_shift(a4, 2) + a3, 715827883) + a2
    center = 1895147668  # exp(-1 / 8), the centre of the series
    result = center + high_product(a + rounding_shift(series, 1), center)
    rest = part - x
    for bit in range(-2, integer_bits):
        factor = math.floor(math.exp(-(2.0**bit)) * 2.0**31 + 0.5)
        is_set = (rest >> (fraction + bit)) & 1
        result = np.where(is_set == 1, high_product(result, factor), result)
    return np.where(x == 0, int(i32.max), result)


def inverse_root(value: int) -> tuple[int, int]:
    """1 / sqrt(value) as a multiplier and a shift, as TFLite computes them."""
    if value <= 1:
        return int(i32.max), 0
    shift = 11
    while value >= 1 << 29:
        value, shift = value // 4, shift + 1
    pairs = (31 - value.bit_length()) // 2 - 1
    shift, value = shift - pairs, value << (2 * pairs)
    half = rounding_shift(value >> 1, 1)
    x = 1 << 28
    for _ in range(5):
        cube = _up(high_product(high_product(x, x), x), 6)
        x = _up(high_product((1 << 28) + (1 << 27), x) - high_product(half, cube), 3)
    x = int(high_product(x, 1518500250))
    return (x << -shift, 0) if shift < 0 else (x, -shift)


def _up(x: Any, bits: int) -> Any:
    return np.clip(np.asarray(x) << bits, int(i32.min), int(i32.max))


def reciprocal_root(x: Scale, y: Scale) -> np.ndarray:
    """The table of 1 / sqrt(x) for signed bytes; numbers below 0 give the largest number."""
    factor, factor_shift = quantize_multiplier(1.0 / float(np.sqrt(f4(x[0])) * f4(y[0])))
    table = np.full(256, int(i8.max), np.int64)
    for i, q in enumerate(every(i8) - x[1]):
        if q > 0:
            multiplier, shift = inverse_root(int(q))
            one = by_pair(np.int64(1), multiplier, shift + 20)
            table[i] = by_pair(one, factor, factor_shift - 20) + y[1]
    return np.clip(table, int(i8.min), int(i8.max)).astype(np.int8)
