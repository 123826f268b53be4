"""Operators of one tensor that are not intrinsic functions: signs, types, bounds, tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType, f8e8m0, f32, u8, u32
from tilesmith.ir.expr import Expr, cast, const, select
from tilesmith.ir.intrinsics import call
from tilesmith.ir.storage import convert_array
from tilesmith.ops import rules
from tilesmith.te import tensor as te

from .base import Elementwise


class Reciprocal(Elementwise):
    """1 / x."""

    def element(self, x: Expr) -> Expr:
        return 1.0 / x

    def numpy(self, x: np.ndarray) -> Any:
        return x.dtype.type(1) / x


class Neg(Elementwise):
    """-x; integers wrap around."""

    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def element(self, x: Expr) -> Expr:
        return -x

    def numpy(self, x: np.ndarray) -> Any:
        return np.negative(x)


class Abs(Elementwise):
    """Absolute value.  The smallest integer of a signed type stays negative (two's complement)."""

    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def element(self, x: Expr) -> Expr:
        if x.dtype.is_float:
            return call("abs", x)
        return ir.maximum(x, -x) if x.dtype.kind == "int" else x

    def numpy(self, x: np.ndarray) -> Any:
        return np.abs(x)


class Sign(Elementwise):
    """-1, 0 or 1; NaN stays NaN."""

    has_steps: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def element(self, x: Expr) -> Expr:
        return select(x > 0, 1, select(x < 0, const(-1, x.dtype), x))

    def numpy(self, x: np.ndarray) -> Any:
        return np.sign(x)


class Identity(Elementwise):
    """x itself."""

    kinds: ClassVar[tuple[str, ...]] = rules.ANY

    def element(self, x: Expr) -> Expr:
        return x

    def numpy(self, x: np.ndarray) -> Any:
        return x


class StopGradient(Identity):
    """x itself, which counts as a constant in differentiation."""


@dataclass(frozen=True)
class Cast(Elementwise):
    """Conversion to `to`.  Floats are truncated to integers.  Numbers become bools by `!= 0`."""

    has_steps: ClassVar[bool] = True
    to: DType
    kinds: ClassVar[tuple[str, ...]] = rules.ANY

    def element(self, x: Expr) -> Expr:
        return cast(x, self.to)

    def numpy(self, x: np.ndarray) -> Any:
        return convert_array(x, self.to)


@dataclass(frozen=True)
class CastE8M0(Elementwise):
    """Conversion to f8e8m0, the powers of two from 2^-127 to 2^127; signs are dropped.

    mode: rounding of a number between two powers of two: `up`, `down` or `nearest` (ties round up).
    saturate: whether numbers outside of the range become its limits; otherwise they become NaN.
    """

    name: ClassVar[str] = "cast_e8m0"
    mode: str = "up"
    saturate: bool = True
    modes: ClassVar[tuple[str, ...]] = ("up", "down", "nearest")

    def check(self, *inputs: te.Tensor) -> None:
        super().check(*inputs)
        if inputs[0].dtype is not f32:
            rules.reject(self.name, "an input of element type f32", str(inputs[0].dtype))

    def element(self, x: Expr) -> Expr:
        magnitude = call("bitcast", x, dtype=u32) & 0x7FFFFFFF
        last, denormal_last = {
            "up": (0x7FFFFF, 0x400000), "down": (0, 0x7FFFFF), "nearest": (0x400000, 0x5FFFFF)
        }[self.mode]  # fmt: skip
        small = cast(ir.compare("lt", denormal_last, magnitude), u32)
        code = select(magnitude < 0x00800000, small, (magnitude + last) >> 23)
        if self.saturate:
            code = select(ir.compare("lt", 0x7F800000, magnitude), 0xFF, ir.minimum(code, 0xFE))
        else:
            code = select(magnitude < 0x00400000, 0xFF, ir.minimum(code, 0xFF))
        return call("bitcast", cast(code, u8), dtype=f8e8m0)

    def numpy(self, x: np.ndarray) -> Any:
        # frexp: a mantissa in [0.5, 1) and an exponent
        mantissa, exponent = np.frexp(np.abs(x.astype(np.float64)))
        above = {"up": mantissa > 0.5, "down": mantissa > 1, "nearest": mantissa >= 0.75}[self.mode]
        power = np.where(np.isinf(x), 999, np.where(x == 0, -999, exponent - 1 + above))
        code = np.clip(power + 127, 0, 0xFE)
        if not self.saturate:
            code = np.where((power > 127) | (np.abs(x) < 2.0**-127), 0xFF, code)
        return np.where(np.isnan(x), 0xFF, code).astype(np.uint8).view(f8e8m0.numpy)


@dataclass(frozen=True)
class Bitcast(Elementwise):
    """The bits of x read as type `to`, which has the same width."""

    to: DType
    kinds: ClassVar[tuple[str, ...]] = rules.ANY

    def check(self, *inputs: te.Tensor) -> None:
        super().check(*inputs)
        source = inputs[0].dtype
        if self.to.bits != source.bits or self.to.is_bool or source.is_bool:
            rules.reject(self.name, f"a type of numbers as wide as {inputs[0].dtype}", self.to)

    def element(self, x: Expr) -> Expr:
        return call("bitcast", x, dtype=self.to)

    def numpy(self, x: np.ndarray) -> Any:
        return np.ascontiguousarray(x).view(self.to.numpy).reshape(x.shape)


@dataclass(frozen=True)
class Clip(Elementwise):
    """Limits x to `min`..`max` (None: no limit).  NaN stays NaN.  If `min` > `max`, the result is
    `max`.
    """

    min: float | int | None = None
    max: float | int | None = None
    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def element(self, x: Expr) -> Expr:
        if self.min is not None:
            x = ir.maximum(x, const(self.min, x.dtype))
        if self.max is not None:
            x = ir.minimum(x, const(self.max, x.dtype))
        return x

    def numpy(self, x: np.ndarray) -> Any:
        scalar = x.dtype.type
        if self.min is not None:
            x = np.maximum(x, scalar(self.min))
        if self.max is not None:
            x = np.minimum(x, scalar(self.max))
        return x


class IsNan(Elementwise):
    """Whether x is NaN."""

    def element(self, x: Expr) -> Expr:
        return call("isnan", x)

    def numpy(self, x: np.ndarray) -> Any:
        return np.isnan(x)


@dataclass(frozen=True)
class IsInf(Elementwise):
    """Whether x is an infinity, of either sign by default.

    detect_negative: whether minus infinity counts.
    detect_positive: whether plus infinity counts.
    """

    detect_negative: bool = True
    detect_positive: bool = True

    def element(self, x: Expr) -> Expr:
        if self.detect_negative and self.detect_positive:
            return call("isinf", x)
        conds = []
        if self.detect_negative:
            conds.append(x == float("-inf"))
        if self.detect_positive:
            conds.append(x == float("inf"))
        # always false, but reads x, because a kernel must read all of its inputs
        return ir.any_of(*conds) if conds else x < x

    def numpy(self, x: np.ndarray) -> Any:
        result = np.zeros(x.shape, np.bool_)
        if self.detect_negative:
            result |= np.isneginf(x.astype(np.float32) if x.dtype.kind == "V" else x)
        if self.detect_positive:
            result |= np.isposinf(x.astype(np.float32) if x.dtype.kind == "V" else x)
        return result


class _Not(Elementwise, abstract=True):
    def element(self, x: Expr) -> Expr:
        return ir.Unary("not", x)

    def numpy(self, x: np.ndarray) -> Any:
        return np.invert(x)


class LogicalNot(_Not):
    """`not` of bools."""

    kinds: ClassVar[tuple[str, ...]] = rules.BOOLS


class BitwiseNot(_Not):
    """All bits of an integer inverted."""

    kinds: ClassVar[tuple[str, ...]] = rules.INTEGERS
