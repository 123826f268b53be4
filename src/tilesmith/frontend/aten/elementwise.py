"""Arithmetic, comparisons and functions of single elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Number, Operand
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.common.arithmetic import angle, expm1, floor_quotient, logarithm
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, bool_, i32
from tilesmith.ir.expr import Expr
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops.base import Op
from tilesmith.ops.divisor import Divisor
from tilesmith.ops.rules import broadcast_shapes


def _function(n: AtenNode, self: Value, make: Callable[[], Op]) -> Value:
    """A function of floats, applied to a tensor; integers become f32."""
    return n.add(make(), n.floating(self))


for _name, _make in {
    "exp": ew.Exp, "log": ew.Log, "log1p": ew.Log1p, "sqrt": ew.Sqrt, "rsqrt": ew.Rsqrt,
    "erf": ew.Erf, "sin": ew.Sin, "cos": ew.Cos, "tan": ew.Tan, "asin": ew.Asin, "acos": ew.Acos,
    "atan": ew.Atan, "sinh": ew.Sinh, "cosh": ew.Cosh, "tanh": ew.Tanh, "asinh": ew.Asinh,
    "acosh": ew.Acosh, "atanh": ew.Atanh, "reciprocal": ew.Reciprocal,
}.items():  # fmt: skip
    aten_op(f"aten.{_name}.default")(partial(_function, make=_make))


def _formula(n: AtenNode, self: Value, formula: Callable[[Value], Value]) -> Value:
    return formula(n.floating(self))


for _name, _of in {
    "log2": partial(logarithm, base=2), "log10": partial(logarithm, base=10), "expm1": expm1,
}.items():  # fmt: skip
    aten_op(f"aten.{_name}.default")(partial(_formula, formula=_of))


def _rounding(n: AtenNode, self: Value, make: Callable[[], Op]) -> Value:
    return n.add(make(), self) if self.dtype.is_float else self


for _name, _make in {
    "floor": ew.Floor, "ceil": ew.Ceil, "trunc": ew.Trunc, "round": ew.Round,
}.items():  # fmt: skip
    aten_op(f"aten.{_name}.default")(partial(_rounding, make=_make))


@aten_op("aten.round.decimals")
def round_decimals(n: AtenNode, self: Value, decimals: int = 0) -> Value:
    if not self.dtype.is_float:
        return self
    ten = n.tensor(10.0 ** abs(decimals), self.dtype)
    there, back = (ew.Mul(), ew.Div()) if decimals >= 0 else (ew.Div(), ew.Mul())
    return n.add(back, fn.rint(n.add(there, self, ten)), ten)


@aten_op("aten.neg.default")
def neg(n: AtenNode, self: Value) -> Value:
    return -self


def _number_function(n: AtenNode, self: Value, make: Callable[[], Op]) -> Value:
    """A function of numbers, applied to a tensor; bools stay unchanged."""
    return self if self.dtype.is_bool else n.add(make(), self)


aten_op("aten.abs.default")(partial(_number_function, make=ew.Abs))


@aten_op("aten.sign.default", "aten.sgn.default")
def sign(n: AtenNode, self: Value) -> Value:
    """The sign as -1, 0 or 1; 0 for NaN."""
    result = _number_function(n, self, ew.Sign)
    if not self.dtype.is_float:
        return result
    return fn.where(fn.is_nan(self), 0, result)


@aten_op("aten.isnan.default")
def isnan(n: AtenNode, self: Value) -> Value:
    return _only_float(n, self, lambda: fn.is_nan(self), False)


@aten_op("aten.isinf.default")
def isinf(n: AtenNode, self: Value) -> Value:
    return _only_float(n, self, lambda: n.add(ew.IsInf(), self), False)


@aten_op("aten.isfinite.default")
def isfinite(n: AtenNode, self: Value) -> Value:
    def test() -> Value:
        special = fn.is_nan(self) | n.add(ew.IsInf(), self)
        return ~special

    return _only_float(n, self, test, True)


def _only_float(n: AtenNode, x: Value, test: Callable[[], Value], otherwise: bool) -> Value:
    return test() if x.dtype.is_float else n.full(otherwise, x.type.shape, bool_)


# Arithmetic


@aten_op("aten.add.Tensor", "aten.add.Scalar")
def add(n: AtenNode, self: Operand, other: Operand, alpha: Number = 1) -> Value:
    return _sum(n, self, other, alpha, ew.Add())


@aten_op("aten.sub.Tensor", "aten.sub.Scalar")
def sub(n: AtenNode, self: Operand, other: Operand, alpha: Number = 1) -> Value:
    return _sum(n, self, other, alpha, ew.Sub())


@aten_op("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(n: AtenNode, self: Operand, other: Operand, alpha: Number = 1) -> Value:
    return _sum(n, other, self, alpha, ew.Sub())


def _sum(n: AtenNode, a: Operand, b: Operand, alpha: Number, op: Op) -> Value:
    x, y = n.common(a, b)
    if x.dtype.is_bool:
        if not n.number(alpha, "alpha"):
            y = y & False
        return x | y
    if not isinstance(alpha, (int, float)) or alpha != 1:
        y = y * alpha
    return n.add(op, x, y)


@aten_op("aten.mul.Tensor", "aten.mul.Scalar")
def mul(n: AtenNode, self: Operand, other: Operand) -> Value:
    x, y = n.common(self, other)
    return n.add(ew.LogicalAnd() if x.dtype.is_bool else ew.Mul(), x, y)


@aten_op("aten.ldexp.Tensor")
def ldexp(n: AtenNode, self: Value, other: Value) -> Value:
    """`self` times two to the power `other`.  Integers become f32."""
    return mul(n, self, power(n, 2.0, other))


@aten_op("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def div(n: AtenNode, self: Operand, other: Operand) -> Value:
    return n.add(ew.Div(), *n.common(self, other, floating=True))


@aten_op("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(n: AtenNode, self: Operand, other: Operand, rounding_mode: str | None) -> Value:
    if rounding_mode is None:
        return div(n, self, other)
    return floor_divide(n, self, other) if rounding_mode == "floor" else _truncated(n, self, other)


def _division(n: AtenNode, a: Operand, b: Operand) -> tuple[Value, Value]:
    """Dividend and divisor in their common type.  A run refuses an integer division by 0, as
    PyTorch does.
    """
    x, y = n.common(a, b)
    is_known = isinstance(b, (int, float)) and int(b) != 0
    if not y.dtype.is_int or is_known:
        return x, y
    shape = broadcast_shapes(n.target, x.type.shape, y.type.shape)
    return x, n.add(Divisor(), n.expand(y, shape))


def _truncated(n: AtenNode, a: Operand, b: Operand) -> Value:
    x, y = _division(n, a, b)
    if not x.dtype.is_float:
        return x / y
    return n.add(ew.Trunc(), x / y)


@aten_op("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(n: AtenNode, self: Operand, other: Operand) -> Value:
    x, y = _division(n, self, other)
    if not x.dtype.is_float:
        return floor_quotient(n, x, y)
    # As in C++ and Python, the remainder is exact, so (x - rest) / y is nearly an integer.
    zero, one, half = (n.tensor(v, x.dtype) for v in (0, 1, 0.5))
    rest = n.add(ew.Mod(True), x, y)
    whole = (x - rest) / y
    apart = (y < zero) ^ (rest < zero)
    lower = apart & rest.differs(zero)
    whole = fn.where(lower, whole - one, whole)
    floored = fn.floor(whole)
    above = whole - floored > half
    floored = fn.where(above, floored + one, floored)
    by_zero = y.equals(zero)
    return fn.where(by_zero, x / y, floored)


@aten_op("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(n: AtenNode, self: Operand, other: Operand) -> Value:
    return n.add(ew.Mod(), *_division(n, self, other))


@aten_op("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(n: AtenNode, self: Operand, other: Operand) -> Value:
    return n.add(ew.Mod(True), *_division(n, self, other))


@aten_op("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def power(n: AtenNode, self: Operand, exponent: Operand) -> Value:
    x, y = n.common(self, exponent)
    if x.dtype.is_bool:  # 0 ** 1 is the only power that is False
        return x | ~y
    if isinstance(exponent, (int, float)) and exponent in (2, 0.5, 1):
        if exponent == 1:
            return x
        return x * x if exponent == 2 else fn.sqrt(n.floating(x))
    return x**y


@aten_op("aten.atan2.default")
def atan2(n: AtenNode, self: Value, other: Value) -> Value:
    return angle(n, *n.common(self, other, floating=True))


# Comparisons and logic


def _comparison(n: AtenNode, self: Operand, other: Operand, make: Callable[[], Op]) -> Value:
    a, b = n.common(self, other)
    if a.dtype.is_bool and not isinstance(make(), (ew.Equal, ew.NotEqual)):
        a, b = n.cast(a, i32), n.cast(b, i32)
    return n.add(make(), a, b)


for _name, _make in {
    "eq": ew.Equal, "ne": ew.NotEqual, "lt": ew.Less, "le": ew.LessEqual, "gt": ew.Greater,
    "ge": ew.GreaterEqual,
}.items():  # fmt: skip
    aten_op(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(partial(_comparison, make=_make))


def _logical(n: AtenNode, self: Operand, other: Operand, make: Callable[[], Op]) -> Value:
    return n.add(make(), n.truth(self), n.truth(other))


for _name, _make in {
    "and": ew.LogicalAnd, "or": ew.LogicalOr, "xor": ew.LogicalXor,
}.items():  # fmt: skip
    aten_op(f"aten.logical_{_name}.default")(partial(_logical, make=_make))


@aten_op("aten.logical_not.default")
def logical_not(n: AtenNode, self: Value) -> Value:
    return ~n.truth(self)


def _bitwise(
    n: AtenNode, self: Operand, other: Operand, make: Callable[[], Op], of_bools: Callable[[], Op]
) -> Value:
    a, b = n.common(self, other)
    return n.add(of_bools() if a.dtype.is_bool else make(), a, b)


for _name, _make, _bools in (
    ("and", ew.BitwiseAnd, ew.LogicalAnd),
    ("or", ew.BitwiseOr, ew.LogicalOr),
    ("xor", ew.BitwiseXor, ew.LogicalXor),
):
    aten_op(
        *(f"aten.bitwise_{_name}.{kind}" for kind in ("Tensor", "Scalar", "Scalar_Tensor")),
        *(f"aten.__{_name}__.{kind}" for kind in ("Tensor", "Scalar")),
    )(partial(_bitwise, make=_make, of_bools=_bools))


@aten_op("aten.bitwise_not.default")
def bitwise_not(n: AtenNode, self: Value) -> Value:
    return n.add(ew.LogicalNot() if self.dtype.is_bool else ew.BitwiseNot(), self)


@aten_op("aten.maximum.default", "aten.max.other")
def maximum(n: AtenNode, self: Operand, other: Operand) -> Value:
    a, b = n.common(self, other)
    return n.add(ew.LogicalOr() if a.dtype.is_bool else ew.Max(), a, b)


@aten_op("aten.minimum.default", "aten.min.other")
def minimum(n: AtenNode, self: Operand, other: Operand) -> Value:
    a, b = n.common(self, other)
    return n.add(ew.LogicalAnd() if a.dtype.is_bool else ew.Min(), a, b)


@aten_op("aten.clamp.default", "aten.clamp.Tensor")
def clamp(
    n: AtenNode, self: Value, min: Operand | None = None, max: Operand | None = None
) -> Value:
    dtype = n.result_type(*(x for x in (self, min, max) if x is not None))
    x = n.cast(self, dtype)
    if not (dtype.is_bool or any(isinstance(limit, (Value, Expr)) for limit in (min, max))):
        low, high = (None if v is None else n.number(v, "a limit") for v in (min, max))
        return fn.clip(x, low, high)
    if min is not None:
        x = maximum(n, x, n.tensor(min, dtype))
    return x if max is None else minimum(n, x, n.tensor(max, dtype))


@aten_op("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(n: AtenNode, self: Value, min: Operand) -> Value:
    return clamp(n, self, min)


@aten_op("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(n: AtenNode, self: Value, max: Operand) -> Value:
    return clamp(n, self, None, max)


@aten_op("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(n: AtenNode, condition: Value, self: Operand, other: Operand) -> Value:
    return n.add(ew.Where(), n.truth(condition), *n.common(self, other))


@aten_op("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(n: AtenNode, self: Value, mask: Value, value: Operand) -> Value:
    return fn.where(n.truth(mask), value, self)


@aten_op("prims.convert_element_type.default")
def convert_element_type(n: AtenNode, a: Value, dtype: DType) -> Value:
    """A conversion to `dtype`.  Traces with symbolic sizes convert numbers by this call."""
    return n.cast(a, dtype)


@aten_op("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout")
def to_dtype(n: AtenNode, self: Operand, dtype: DType | None = None, *placement: object) -> Value:
    """A tensor converted to `dtype`.  As in PyTorch, `self` may also be a number."""
    return n.tensor(self, dtype)
