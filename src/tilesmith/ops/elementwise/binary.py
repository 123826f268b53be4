"""Operators of several tensors: arithmetic, comparison, logic, bits, selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import bool_, f64
from tilesmith.ir.expr import Expr, cast, select
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

    Integers are computed in f64, as in ONNX Runtime.
    """

    same: ClassVar[bool] = False

    def element(self, a: Expr, b: Expr) -> Expr:
        if a.dtype.is_float:
            if b.dtype.is_float and b.dtype.bits > a.dtype.bits:
                return cast(call("pow", cast(a, b.dtype), b), a.dtype)
            return call("pow", a, cast(b, a.dtype))
        return cast(call("pow", cast(a, f64), cast(b, f64)), a.dtype)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


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
