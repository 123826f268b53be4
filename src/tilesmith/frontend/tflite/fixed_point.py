"""TFLite's arithmetic on quantised numbers: real scales become integers and shifts.

A result is an integer times a multiplier of 31 bits and a power of two, rounded twice, as TFLite's
kernels compute it.  Sums of 64 bits take a multiplier of 15 bits and round once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilesmith.frontend.common.arithmetic import rounded_away
from tilesmith.frontend.common.multipliers import quantize_multiplier
from tilesmith.frontend.tflite.activations import FUSED
from tilesmith.frontend.tflite.model import Tensor
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f32, f64, i16, i32, i64, u8
from tilesmith.ops.elementwise import BitShift
from tilesmith.ops.fixed_point import DoublingHighMul, RoundingShift
from tilesmith.ops.functions import clip
from tilesmith.ops.gather import Gather

_RANGES: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_0_TO_1": (0.0, 1.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}
"""The least and the largest real number that an activation function gives."""


def scaled(n: TfliteNode, x: Value, real: float | Sequence[float]) -> Value:
    """Integers x [..., C], i32 or i64, times a real factor or a factor per channel; gives i32."""
    factors = list(real) if isinstance(real, Sequence) else [real]
    if not all(map(math.isfinite, factors)):
        n.bad(f"expected finite ratios of scales, found {factors}")
    pairs = [quantize_multiplier(f) for f in factors]
    if any(not -31 <= s <= 30 for _, s in pairs):
        n.unsupported(f"a ratio of scales of {max(factors)}")
    multipliers, shifts = (
        np.array(v).reshape(-1 if isinstance(real, Sequence) else ())
        for v in zip(*pairs, strict=True)
    )
    if x.dtype is i64:
        return _scaled_sums(n, x, multipliers, shifts)
    if (shifts > 0).any():
        x = x * n.const(1 << np.maximum(shifts, 0), i32)
    return rounding_shift(n, high_product(n, x, multipliers), np.maximum(-shifts, 0))


def _scaled_sums(n: TfliteNode, x: Value, multipliers: np.ndarray, shifts: np.ndarray) -> Value:
    if (shifts > 7).any():
        n.unsupported("a ratio of scales of 128 or more for sums of 64 bits")
    reduced = np.where(multipliers < 0x7FFF0000, (multipliers + (1 << 15)) >> 16, 0x7FFF)
    bits = 15 - shifts
    x = x * n.const(reduced, i64) + n.const(np.int64(1) << (bits - 1), i64)
    return n.add(BitShift("right"), x, n.expand(n.const(bits, i64), x.type.shape)).cast(i32)


def high_product(n: TfliteNode, x: Value, multiplier: int | np.ndarray) -> Value:
    """Integers of type i32 times a multiplier that stands for `multiplier / 2^31`."""
    may_saturate = bool(np.any(np.equal(multiplier, int(i32.min))))
    return n.add(DoublingHighMul(may_saturate), x, n.const(multiplier, i32))


def rounding_shift(n: TfliteNode, x: Value, bits: int | np.ndarray) -> Value:
    """Integers of type i32 divided by 2^bits, where ties round away from zero."""
    return n.add(RoundingShift(), x, n.const(bits, i32)) if np.any(bits) else x


def centred(n: TfliteNode, index: int, to: DType = i32) -> Value:
    """The integers of an input minus their zero point."""
    q = n.quantization(n.input_tensor(index))
    if not q.is_single:
        n.unsupported(f"input number {index + 1} with a scale for each index of an axis")
    return less(n, n.input(index), q.zero_point, to)


def less(n: TfliteNode, x: Value, zero: int, to: DType = i32) -> Value:
    """`x` minus the zero point `zero`, in type `to`."""
    wide = x.cast(to)
    return wide - n.const(zero, to) if zero else wide


def stored(
    n: TfliteNode, y: Value, activation: str = "NONE", tensor: Tensor | None = None
) -> Value:
    """The operator's result for integers `y` without zero point, after a fused activation.

    tensor: the declaration of the result; by default the first output's.
    """
    tensor = n.output_tensor() if tensor is None else tensor
    zero = single(n, tensor)[1]
    if zero:
        y = y + n.const(zero, y.dtype)
    return clip(y, *limits(n, activation, tensor)).cast(tensor.dtype)


def restored(n: TfliteNode, index: int) -> Value:
    """An input converted to the result's scale and zero point.

    If these differ, the input must be u8, as in TFLite, which converts it in f32.  Here each step
    is computed in f64 and rounded to f32.  This gives TFLite's results, even if a multiply and an
    add are fused.
    """
    x, tensor, result = n.input(index), n.input_tensor(index), n.output_tensor()
    if tensor.is_stored_as(result):
        return x
    if x.dtype is not u8:
        n.bad(f"input number {index + 1}: expected the scale and zero point of the result")
    (scale, zero), (y, y_zero) = single(n, tensor), single(n, result)
    factor = np.float32(scale) * (np.float32(1) / np.float32(y))
    steps = (x.cast(f64) * float(factor)).cast(f32).cast(f64) + float(np.float32(-zero) * factor)
    whole = clip(rounded_away(steps.cast(f32)), -(2.0**20), 2.0**20).cast(i32)
    return clip(whole + n.const(y_zero, i32), 0, 255).cast(u8)


def limits(n: TfliteNode, activation: str, tensor: Tensor) -> tuple[int, int]:
    """The least and the largest stored integer that a fused activation function gives."""
    scale, zero = single(n, tensor)
    low, high = int(tensor.dtype.min), int(tensor.dtype.max)

    def at(real: float) -> int:
        steps = np.float32(real) / np.float32(scale)
        if not abs(steps) < 2**31:
            n.bad(f"tensor {tensor.name!r}: expected a scale of usual size, found {scale}")
        return zero + int(away(steps))

    if activation not in _RANGES:
        n.unsupported(f"fused activation function {activation} of a quantised tensor")
    least, most = _RANGES[activation]
    low = low if least is None else max(low, at(least))
    high = high if most is None else min(high, at(most))
    return low, high


def fused(n: TfliteNode) -> str:
    """The name of the operator's fused activation function."""
    return n.choice("fused_activation_function", FUSED)


def single(n: TfliteNode, tensor: Tensor) -> tuple[float, int]:
    """The only scale and zero point of a tensor.  Raises UnsupportedError if there are several."""
    q = n.quantization(tensor)
    if not q.is_single:
        n.unsupported(f"tensor {tensor.name!r} with a scale for each index of an axis")
    if not q.scale > 0:
        n.bad(f"tensor {tensor.name!r}: expected a scale above 0, found {q.scale}")
    return q.scale, q.zero_point


def scales(n: TfliteNode) -> list[float]:
    """The scales of the inputs, then of the first output."""
    tensors = [*(n.input_tensor(i) for i in range(len(n.slots))), n.output_tensor()]
    return [single(n, t)[0] for t in tensors]


def away(x: Any) -> Any:
    """Numbers rounded to integers, in the same type; ties round away from zero."""
    whole = np.trunc(x)
    return whole + (np.abs(x - whole) >= 0.5) * np.sign(x)


def power_of_two(scale: float) -> int | None:
    """The exponent of a scale that is nearly a power of two, by TFLite's f32 arithmetic."""
    one = np.float32(1)
    exponent = np.log(np.float32(scale)) * (one / np.log(np.float32(2)))
    nearest = np.round(exponent)
    return int(nearest) if abs(exponent - nearest) < 1e-3 else None


def looked_up(n: TfliteNode, x: Value, table: np.ndarray) -> Value:
    """Look up integers `x` of 8 or 16 bits in a table.  Its first entry belongs to the smallest
    integer.
    """
    place = x.cast(i32)
    if x.dtype.min:
        place = place + n.const(-int(x.dtype.min), i32)
    return n.add(Gather(0), n.const(table), place)


def every(dtype: DType) -> np.ndarray:
    """All numbers of a type of 8 or 16 bits, ascending."""
    return np.arange(int(dtype.min), int(dtype.max) + 1, dtype=np.int64)


def is_word(tensor: Tensor) -> bool:
    """Whether a tensor holds integers of 16 bits."""
    return tensor.dtype is i16
