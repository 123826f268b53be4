"""Elementwise operators: each output element depends on the elements at its own place in the
inputs.

A class states `element`, the scalar expression, and `numpy`, its meaning; broadcasting and types
follow. Fusion may rely on `isinstance(op, Elementwise)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType, bool_, f64
from tilesmith.ir.expr import Expr, cast, const, select
from tilesmith.ir.intrinsics import INTRINSICS, call
from tilesmith.te import tensor as te

from . import rules
from .base import Op


@dataclass(frozen=True)
class Elementwise(Op, abstract=True):
    """Base of the elementwise operators: `arity` inputs of kinds `kinds` and, if `same`, of one
    dtype.
    """

    arity: ClassVar[int] = 1
    kinds: ClassVar[tuple[str, ...]] = rules.FLOATS
    same: ClassVar[bool] = True

    element: ClassVar[Callable[..., Expr]]
    """The output element for the input elements."""
    numpy: ClassVar[Callable[..., Any]]
    """The same, on arrays."""

    def check(self, *inputs: te.Tensor) -> None:
        rules.check_count(self.name, inputs, self.arity)
        if self.same:
            rules.check_same_dtype(self.name, inputs)
        for x in inputs:
            rules.check_kind(self.name, x, self.kinds)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        self.check(*inputs)
        shape = rules.broadcast_shapes(self.name, *(x.shape for x in inputs))
        return te.compute(
            shape,
            lambda *i: self.element(*(rules.broadcast_load(x, i, shape) for x in inputs)),
            self.name,
        )

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(self.numpy(*inputs))


@dataclass(frozen=True)
class _Function(Elementwise, abstract=True):
    """An intrinsic function of floats."""

    function: ClassVar[str]

    def element(self, x: Expr) -> Expr:
        return call(self.function, x)

    def numpy(self, x: np.ndarray) -> Any:
        return np.asarray(INTRINSICS[self.function].evaluate(x)).astype(x.dtype, copy=False)


@dataclass(frozen=True)
class Exp(_Function):
    """e to the power x."""

    function: ClassVar[str] = "exp"


@dataclass(frozen=True)
class Log(_Function):
    """Natural logarithm."""

    function: ClassVar[str] = "log"


@dataclass(frozen=True)
class Log1p(_Function):
    """log(1 + x), exact for small x."""

    function: ClassVar[str] = "log1p"


@dataclass(frozen=True)
class Sqrt(_Function):
    """Square root; NaN below 0."""

    function: ClassVar[str] = "sqrt"


@dataclass(frozen=True)
class Rsqrt(_Function):
    """1 / sqrt(x)."""

    function: ClassVar[str] = "rsqrt"


@dataclass(frozen=True)
class Erf(_Function):
    """The error function."""

    function: ClassVar[str] = "erf"


@dataclass(frozen=True)
class Sin(_Function):
    """Sine of x in radians."""

    function: ClassVar[str] = "sin"


@dataclass(frozen=True)
class Cos(_Function):
    """Cosine of x in radians."""

    function: ClassVar[str] = "cos"


@dataclass(frozen=True)
class Tan(_Function):
    """Tangent of x in radians."""

    function: ClassVar[str] = "tan"


@dataclass(frozen=True)
class Asin(_Function):
    """Inverse sine, in radians."""

    function: ClassVar[str] = "asin"


@dataclass(frozen=True)
class Acos(_Function):
    """Inverse cosine, in radians."""

    function: ClassVar[str] = "acos"


@dataclass(frozen=True)
class Atan(_Function):
    """Inverse tangent, in radians."""

    function: ClassVar[str] = "atan"


@dataclass(frozen=True)
class Sinh(_Function):
    """Hyperbolic sine."""

    function: ClassVar[str] = "sinh"


@dataclass(frozen=True)
class Cosh(_Function):
    """Hyperbolic cosine."""

    function: ClassVar[str] = "cosh"


@dataclass(frozen=True)
class Tanh(_Function):
    """Hyperbolic tangent."""

    function: ClassVar[str] = "tanh"


@dataclass(frozen=True)
class Asinh(_Function):
    """Inverse hyperbolic sine."""

    function: ClassVar[str] = "asinh"


@dataclass(frozen=True)
class Acosh(_Function):
    """Inverse hyperbolic cosine."""

    function: ClassVar[str] = "acosh"


@dataclass(frozen=True)
class Atanh(_Function):
    """Inverse hyperbolic tangent."""

    function: ClassVar[str] = "atanh"


@dataclass(frozen=True)
class Floor(_Function):
    """The largest integer not above x, as a float."""

    function: ClassVar[str] = "floor"


@dataclass(frozen=True)
class Ceil(_Function):
    """The smallest integer not below x, as a float."""

    function: ClassVar[str] = "ceil"


@dataclass(frozen=True)
class Trunc(_Function):
    """Toward zero."""

    function: ClassVar[str] = "trunc"


@dataclass(frozen=True)
class Round(_Function):
    """To the nearest integer, ties to even."""

    function: ClassVar[str] = "round"


@dataclass(frozen=True)
class Reciprocal(Elementwise):
    """1 / x."""

    def element(self, x: Expr) -> Expr:
        return 1.0 / x

    def numpy(self, x: np.ndarray) -> Any:
        return x.dtype.type(1) / x


@dataclass(frozen=True)
class Neg(Elementwise):
    """-x; integers wrap around."""

    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def element(self, x: Expr) -> Expr:
        return -x

    def numpy(self, x: np.ndarray) -> Any:
        return np.negative(x)


@dataclass(frozen=True)
class Abs(Elementwise):
    """Absolute value; the smallest integer of a type is its own, as in two's complement."""

    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def element(self, x: Expr) -> Expr:
        if x.dtype.is_float:
            return call("abs", x)
        return ir.maximum(x, -x) if x.dtype.kind == "int" else x

    def numpy(self, x: np.ndarray) -> Any:
        return np.abs(x)


@dataclass(frozen=True)
class Sign(Elementwise):
    """-1, 0 or 1; NaN stays NaN."""

    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS

    def element(self, x: Expr) -> Expr:
        return select(x > 0, 1, select(x < 0, const(-1, x.dtype), x))

    def numpy(self, x: np.ndarray) -> Any:
        return np.sign(x)


@dataclass(frozen=True)
class Identity(Elementwise):
    """x itself."""

    kinds: ClassVar[tuple[str, ...]] = rules.ANY

    def element(self, x: Expr) -> Expr:
        return x

    def numpy(self, x: np.ndarray) -> Any:
        return x


@dataclass(frozen=True)
class Cast(Elementwise):
    """Conversion to `to`: floats truncate toward zero to integers, to bool it is `!= 0`."""

    to: DType
    kinds: ClassVar[tuple[str, ...]] = rules.ANY

    def element(self, x: Expr) -> Expr:
        return cast(x, self.to)

    def numpy(self, x: np.ndarray) -> Any:
        return x.astype(self.to.numpy)


@dataclass(frozen=True)
class Clip(Elementwise):
    """Limits x to `min`..`max` (None: no limit); NaN stays NaN, and `max` wins when the limits
    cross.
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


@dataclass(frozen=True)
class IsNan(Elementwise):
    """Whether x is NaN."""

    def element(self, x: Expr) -> Expr:
        return call("isnan", x)

    def numpy(self, x: np.ndarray) -> Any:
        return np.isnan(x)


@dataclass(frozen=True)
class IsInf(Elementwise):
    """Whether x is an infinity of a sign asked for."""

    detect_negative: bool = True
    detect_positive: bool = True

    def element(self, x: Expr) -> Expr:
        if self.detect_negative and self.detect_positive:
            return call("isinf", x)
        conds = []
        if self.detect_negative:
            conds.append(x.equal(float("-inf")))
        if self.detect_positive:
            conds.append(x.equal(float("inf")))
        return ir.any_of(*conds)

    def numpy(self, x: np.ndarray) -> Any:
        result = np.zeros(x.shape, np.bool_)
        if self.detect_negative:
            result |= np.isneginf(x.astype(np.float32) if x.dtype.kind == "V" else x)
        if self.detect_positive:
            result |= np.isposinf(x.astype(np.float32) if x.dtype.kind == "V" else x)
        return result


@dataclass(frozen=True)
class LogicalNot(Elementwise):
    """`not` of bools."""

    kinds: ClassVar[tuple[str, ...]] = rules.BOOLS

    def element(self, x: Expr) -> Expr:
        return ir.Unary("not", x)

    def numpy(self, x: np.ndarray) -> Any:
        return np.logical_not(x)


@dataclass(frozen=True)
class BitwiseNot(Elementwise):
    """All bits of an integer inverted."""

    kinds: ClassVar[tuple[str, ...]] = rules.INTEGERS

    def element(self, x: Expr) -> Expr:
        return ir.Unary("not", x)

    def numpy(self, x: np.ndarray) -> Any:
        return np.bitwise_not(x)


@dataclass(frozen=True)
class _Binary(Elementwise, abstract=True):
    """Two broadcast inputs of one dtype."""

    arity: ClassVar[int] = 2
    kinds: ClassVar[tuple[str, ...]] = rules.NUMBERS


@dataclass(frozen=True)
class Add(_Binary):
    """a + b."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return a + b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.add(a, b)


@dataclass(frozen=True)
class Sub(_Binary):
    """a - b."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return a - b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.subtract(a, b)


@dataclass(frozen=True)
class Mul(_Binary):
    """a * b."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return a * b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.multiply(a, b)


@dataclass(frozen=True)
class Div(_Binary):
    """Division; integers round toward zero, by zero it gives an unspecified integer."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return ir.binary("div" if a.dtype.is_float else "truncdiv", a, b)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        if a.dtype.kind in "iu":
            return (a - np.fmod(a, b)) // b
        return np.divide(a, b)


@dataclass(frozen=True)
class Mod(_Binary):
    """Remainder, with the sign of b; with `fmod` the sign of a (C's fmod and %)."""

    fmod: bool = False

    def element(self, a: Expr, b: Expr) -> Expr:
        if self.fmod:
            return ir.binary("truncmod", a, b)
        if not a.dtype.is_float:
            return a % b
        rest = ir.binary("truncmod", a, b)
        differ = ir.binary("xor", rest < 0.0, b < 0.0)
        return select(ir.all_of(rest.not_equal(0.0), differ), rest + b, rest)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.fmod(a, b) if self.fmod else np.mod(a, b)


@dataclass(frozen=True)
class Pow(_Binary):
    """a to the power b in the type of a; b may have another. Integers go through f64, as ONNX
    Runtime does.
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


@dataclass(frozen=True)
class Min(_Binary):
    """The smaller; NaN when one is NaN."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return ir.minimum(a, b)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.minimum(a, b)


@dataclass(frozen=True)
class Max(_Binary):
    """The larger; NaN when one is NaN."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return ir.maximum(a, b)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.maximum(a, b)


@dataclass(frozen=True)
class Equal(_Binary):
    """a == b; false for NaN."""

    kinds: ClassVar[tuple[str, ...]] = rules.ANY

    def element(self, a: Expr, b: Expr) -> Expr:
        return a.equal(b)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.equal(a, b)


@dataclass(frozen=True)
class NotEqual(_Binary):
    """a != b; true for NaN."""

    kinds: ClassVar[tuple[str, ...]] = rules.ANY

    def element(self, a: Expr, b: Expr) -> Expr:
        return a.not_equal(b)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.not_equal(a, b)


@dataclass(frozen=True)
class Less(_Binary):
    """a < b; false for NaN."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return a < b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.less(a, b)


@dataclass(frozen=True)
class LessEqual(_Binary):
    """a <= b; false for NaN."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return a <= b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.less_equal(a, b)


@dataclass(frozen=True)
class Greater(_Binary):
    """a > b; false for NaN."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return a > b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.greater(a, b)


@dataclass(frozen=True)
class GreaterEqual(_Binary):
    """a >= b; false for NaN."""

    def element(self, a: Expr, b: Expr) -> Expr:
        return a >= b

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return np.greater_equal(a, b)


@dataclass(frozen=True)
class _Bits(_Binary, abstract=True):
    """A bit operation, on bools (logical) or integers (bitwise)."""

    operation: ClassVar[str]

    def element(self, a: Expr, b: Expr) -> Expr:
        return ir.binary(self.operation, a, b)

    def numpy(self, a: np.ndarray, b: np.ndarray) -> Any:
        return getattr(np, f"bitwise_{self.operation}")(a, b)


@dataclass(frozen=True)
class LogicalAnd(_Bits):
    """`and` of bools."""

    kinds: ClassVar[tuple[str, ...]] = rules.BOOLS
    operation: ClassVar[str] = "and"


@dataclass(frozen=True)
class LogicalOr(_Bits):
    """`or` of bools."""

    kinds: ClassVar[tuple[str, ...]] = rules.BOOLS
    operation: ClassVar[str] = "or"


@dataclass(frozen=True)
class LogicalXor(_Bits):
    """Exclusive or of bools."""

    kinds: ClassVar[tuple[str, ...]] = rules.BOOLS
    operation: ClassVar[str] = "xor"


@dataclass(frozen=True)
class BitwiseAnd(_Bits):
    """`and` of the bits of integers."""

    kinds: ClassVar[tuple[str, ...]] = rules.INTEGERS
    operation: ClassVar[str] = "and"


@dataclass(frozen=True)
class BitwiseOr(_Bits):
    """`or` of the bits of integers."""

    kinds: ClassVar[tuple[str, ...]] = rules.INTEGERS
    operation: ClassVar[str] = "or"


@dataclass(frozen=True)
class BitwiseXor(_Bits):
    """Exclusive or of the bits of integers."""

    kinds: ClassVar[tuple[str, ...]] = rules.INTEGERS
    operation: ClassVar[str] = "xor"


@dataclass(frozen=True)
class BitShift(_Binary):
    """a shifted by b bits to the `direction` "left" or "right"; a shift by the width or more gives
    0.
    """

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


@dataclass(frozen=True)
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
