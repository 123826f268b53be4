"""Elementwise operators of several tensors: arithmetic, comparison, logic, bits, selection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import bool_, f64, i64
from tilesmith.ir.expr import Expr, cast, const, select
from tilesmith.ir.intrinsics import call
from tilesmith.ops import rules
from tilesmith.te import tensor as te

from .base import Elementwise


class _Binary(Elementwise, abstract=True):
    """Two broadcast inputs of one dtype."""

    arity: ClassVar[int] = 2
    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS


class Add(_Binary):
    """a + b."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return a + b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.add(a, b)


class Sub(_Binary):
    """a - b."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return a - b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.subtract(a, b)


class Mul(_Binary):
    """a * b."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return a * b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.multiply(a, b)


class Div(_Binary):
    """Division; integers round toward zero, and a division by 0 gives an unspecified integer."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return ir.binary("div" if a.dtype.is_float else "truncdiv", a, b)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        if a.dtype.kind in "iu":
            return (a - np.fmod(a, b)) // b
        return np.divide(a, b)


@dataclass(frozen=True)
class Mod(_Binary):
    """Remainder, with the sign of b; with `fmod` the sign of a (C's fmod and %)."""

    has_steps: ClassVar[bool] = True
    fmod: bool = False

    def element(self, a: Expr, b: Expr) -> Expr:
        if self.fmod:
            return ir.binary("truncmod", a, b)
        if not a.dtype.is_float:
            return a % b
        rest = ir.binary("truncmod", a, b)
        differ = ir.binary("xor", rest < 0.0, b < 0.0)
        return select(ir.all_of(rest != 0.0, differ), rest + b, rest)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.fmod(a, b) if self.fmod else np.mod(a, b)


class Pow(_Binary):
    """a to the power b, in the type of a; b may have another type.

    Powers of integers by integers are exact.  A negative power is 0, except of 1 and -1.  A result
    that exceeds the type wraps around for b < 64 and is unspecified for larger b.  A power by a
    float is computed in f64.
    """

    same: ClassVar[bool] = False

    def element(self, a: Expr, b: Expr) -> Expr:
        if a.dtype.is_float:
            if b.dtype.is_float and b.dtype.bits > a.dtype.bits:
                return cast(call("pow", cast(a, b.dtype), b), a.dtype)
            return call("pow", a, cast(b, a.dtype))
        if b.dtype.is_float:
            return cast(call("pow", cast(a, f64), cast(b, f64)), a.dtype)
        signed = a.dtype.kind == "int"
        zero, one, minus = (const(n, a.dtype) for n in (0, 1, -1 if signed else 1))
        return _whole_power(a, cast(b, i64), zero, one, minus, select)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        if a.dtype.kind not in "iu" or b.dtype.kind not in "iu":
            return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
        zero, one, minus = (a.dtype.type(n) for n in (0, 1, -1 if a.dtype.kind == "i" else 1))
        with np.errstate(over="ignore"):
            return _whole_power(a, b.astype(np.int64), zero, one, minus, np.where)


def _whole_power(
    a: Any, b: Any, zero: Any, one: Any, minus: Any, where: Callable[[Any, Any, Any], Any]
) -> Any:
    """a to the power b, by squaring; a and b are expressions or arrays.

    b: signed integers.
    zero, one, minus: in the type of a; minus is -1, or 1 for an unsigned type.
    where: selects between two expressions, or the elements of two arrays.
    """
    result, square = one, a
    for bit in range(6):
        result = where((b & (1 << bit)) != 0, result * square, result)
        square = square * square if bit < 5 else square
    sign = where((b & 1) != 0, minus, one)
    beyond = where(a == one, one, where(a == minus, sign, zero))
    return where((b & ~63) == 0, result, beyond)


class Min(_Binary):
    """The smaller input; NaN when one is NaN."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return ir.minimum(a, b)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.minimum(a, b)


class Max(_Binary):
    """The larger input; NaN when one is NaN."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return ir.maximum(a, b)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.maximum(a, b)


class Equal(_Binary):
    """a == b; false for NaN."""

    kinds: ClassVar[tuple[str, ...]] = rules.ANY

    def element(self, a: Expr, b: Expr) -> Expr:
        return a == b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.equal(a, b)


class NotEqual(_Binary):
    """a != b; true for NaN."""

    kinds: ClassVar[tuple[str, ...]] = rules.ANY

    def element(self, a: Expr, b: Expr) -> Expr:
        return a != b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.not_equal(a, b)


class Less(_Binary):
    """a < b; false for NaN."""

    has_steps: ClassVar[bool] = True

    def element(self, a: Expr, b: Expr) -> Expr:
        return a < b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.less(a, b)


class LessEqual(_Binary):
    """a <= b; false for NaN."""

    has_steps: ClassVar[bool] = True

    def element(self, a: Expr, b: Expr) -> Expr:
        return a <= b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.less_equal(a, b)


class Greater(_Binary):
    """a > b; false for NaN."""

    has_steps: ClassVar[bool] = True

    def element(self, a: Expr, b: Expr) -> Expr:
        return a > b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.greater(a, b)


class GreaterEqual(_Binary):
    """a >= b; false for NaN."""

    has_steps: ClassVar[bool] = True

    def element(self, a: Expr, b: Expr) -> Expr:
        return a >= b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.greater_equal(a, b)


class _Bits(_Binary, abstract=True):
    """A bit operation, on bools (logical) or integers (bitwise)."""

    operation: ClassVar[str]

    def element(self, a: Expr, b: Expr) -> Expr:
        return ir.binary(self.operation, a, b)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return getattr(np, f"bitwise_{self.operation}")(a, b)


class LogicalAnd(_Bits):
    """`and` of bools."""

    kinds: ClassVar[tuple[str, ...]] = rules.BOOLS
    operation: ClassVar[str] = "and"


class LogicalOr(_Bits):
    """`or` of bools."""

    kinds: ClassVar[tuple[str, ...]] = rules.BOOLS
    operation: ClassVar[str] = "or"


class LogicalXor(_Bits):
    """Exclusive or of bools."""

    kinds: ClassVar[tuple[str, ...]] = rules.BOOLS
    operation: ClassVar[str] = "xor"


class BitwiseAnd(_Bits):
    """`and` of the bits of integers."""

    kinds: ClassVar[tuple[str, ...]] = rules.INTEGERS
    operation: ClassVar[str] = "and"


class BitwiseOr(_Bits):
    """`or` of the bits of integers."""

    kinds: ClassVar[tuple[str, ...]] = rules.INTEGERS
    operation: ClassVar[str] = "or"


class BitwiseXor(_Bits):
    """Exclusive or of the bits of integers."""

    kinds: ClassVar[tuple[str, ...]] = rules.INTEGERS
    operation: ClassVar[str] = "xor"


@dataclass(frozen=True)
class BitShift(_Binary):
    """a shifted by b bits in `direction`, "left" or "right"; 0 when b is the width or more."""

    direction: str
    kinds: ClassVar[tuple[str, ...]] = rules.INTEGERS

    def check(self, *inputs: te.Tensor) -> None:
        super().check(*inputs)
        if self.direction not in ("left", "right"):
            rules.reject(self.name, 'direction "left" or "right"', repr(self.direction))

    def element(self, a: Expr, b: Expr) -> Expr:
        width = a.dtype.bits
        inside = b < width if b.dtype.kind == "uint" else ir.all_of(b >= 0, b < width)
        shifted = ir.binary("shl" if self.direction == "left" else "shr", a, b)
        return select(inside, shifted, 0)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        inside = (b >= 0) & (b < a.dtype.itemsize * 8)
        shift = np.left_shift if self.direction == "left" else np.right_shift
        return np.where(inside, shift(a, np.where(inside, b, 0).astype(b.dtype)), a.dtype.type(0))


class Where(Elementwise):
    """`a` where the bool `cond` holds, else `b`; all three broadcast."""

    arity: ClassVar[int] = 3
    kinds: ClassVar[tuple[str, ...]] = rules.ANY
    same: ClassVar[bool] = False

    def check(self, *inputs: te.Tensor) -> None:
        super().check(*inputs)
        if inputs[0].dtype is not bool_:
            rules.reject(self.name, "a bool condition", inputs[0].dtype)
        rules.check_same_dtype(self.name, inputs[1:])

    def element(self, cond: Expr, a: Expr, b: Expr) -> Expr:
        return select(cond, a, b)

    def numpy(self, cond: np.ndarray, a: np.ndarray, b: np.ndarray) -> Any:
        return np.where(cond, a, b)
