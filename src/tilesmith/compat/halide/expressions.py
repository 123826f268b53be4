"""Halide's expressions over Tilesmith's: operators with Halide's promotion of types.

Coordinates have the type Int(32).  Tilesmith computes them in 64 bits; where 32 bits do not hold a
value, Halide's language leaves the result undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NoReturn

import numpy as np

from tilesmith.ir import dtypes
from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType, bool_
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Const, const
from tilesmith.ir.intrinsics import call
from tilesmith.support.arguments import checked
from tilesmith.support.errors import ExpressionError

from .element_types import Type, as_type, promoted

__all__ = [
    "Expr", "Var", "abs", "absd", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cast", "ceil",
    "clamp", "cos", "cosh", "erf", "exp", "f16", "f32", "f64", "fast_exp", "fast_inverse",
    "fast_inverse_sqrt", "fast_log", "fast_pow", "floor", "i8", "i8_sat", "i16", "i16_sat", "i32",
    "i32_sat", "i64", "is_inf", "is_nan", "lerp", "likely", "likely_if_innermost", "log", "max",
    "min", "mux", "pow", "round", "saturating_cast", "select", "sin", "sinh", "sqrt", "tan", "tanh",
    "trunc", "u8", "u8_sat", "u16", "u16_sat", "u32", "u64",
]  # fmt: skip


_Operator = Callable[[Any, Any], "Expr"]


def _both(operation: _Operator) -> tuple[_Operator, _Operator]:
    """The operator of two operands, and the one with the operands exchanged."""
    return (lambda a, b: operation(a, b)), (lambda b, a: operation(a, b))


class Operators:
    """Python's operators on values, and on objects that stand for one."""

    __hash__ = object.__hash__
    __array_ufunc__ = None

    def __bool__(self) -> NoReturn:
        raise ExpressionError(
            f"{self!r} has no truth value while the program is made; use hl.select, or & and | "
            "of conditions"
        )

    __add__, __radd__ = _both(lambda a, b: binary("add", a, b))
    __sub__, __rsub__ = _both(lambda a, b: binary("sub", a, b))
    __mul__, __rmul__ = _both(lambda a, b: binary("mul", a, b))
    __truediv__, __rtruediv__ = _both(lambda a, b: divided(a, b))
    __floordiv__, __rfloordiv__ = _both(lambda a, b: floor(divided(a, b)))
    __mod__, __rmod__ = _both(lambda a, b: remainder(a, b))
    __and__, __rand__ = _both(lambda a, b: binary("and", a, b))
    __or__, __ror__ = _both(lambda a, b: binary("or", a, b))
    __xor__, __rxor__ = _both(lambda a, b: binary("xor", a, b))
    __lshift__, __rlshift__ = _both(lambda a, b: shifted("shl", a, b))
    __rshift__, __rrshift__ = _both(lambda a, b: shifted("shr", a, b))
    __pow__, __rpow__ = _both(lambda a, b: pow(a, b))
    __lt__, __gt__ = _both(lambda a, b: compared("lt", a, b))
    __le__, __ge__ = _both(lambda a, b: compared("le", a, b))

    def __neg__(self) -> Expr:
        e = as_expr(self)
        return Expr(-e.ir, e.is_coordinate)

    def __invert__(self) -> Expr:
        e = as_expr(self)
        return Expr(~e.ir, e.is_coordinate)

    def __eq__(self, other: Any) -> Expr:  # type: ignore[override]  # an expression, not a bool
        return compared("eq", self, other)

    def __ne__(self, other: Any) -> Expr:  # type: ignore[override]  # an expression, not a bool
        return compared("ne", self, other)


class Expr(Operators):
    """A value; `Expr()` is none, for bounds that are not stated.

    ir: the expression.
    is_coordinate: whether `ir` has 64 bits and stands for a value of 32 bits.
    """

    ir: ir.Expr
    is_coordinate: bool = False

    def __init__(self, value: Any = None, is_coordinate: bool = False) -> None:
        if value is None:
            return
        if isinstance(value, ir.Expr):
            self.ir, self.is_coordinate = value, is_coordinate
        else:
            made = as_expr(value)
            self.ir, self.is_coordinate = made.ir, made.is_coordinate

    def defined(self) -> bool:
        return hasattr(self, "ir")

    @property
    def dtype(self) -> DType:
        return dtypes.i32 if self.is_coordinate else self.ir.dtype

    def type(self) -> Type:
        return Type(self.dtype)

    def __repr__(self) -> str:
        return f"<Expr of type {self.dtype}: {self.ir}>" if self.defined() else "<Expr of no value>"


_NAMED: dict[str, ir.Var] = {}
"""The variable of each name: two `Var`s of one name are one variable."""

PURE: set[ir.Expr] = set()
"""The variables of our IR that stand for a `Var`; all others belong to reduction domains."""


class Var(Expr):
    """A dimension of a Func, or a loop that a schedule makes.  Vars with one name are the same."""

    def __init__(self, name: str = "") -> None:
        label = name or f"v{len(_NAMED)}"
        if label not in _NAMED:
            _NAMED[label] = ir.Var(label, dtypes.i64)
            PURE.add(_NAMED[label])
        super().__init__(_NAMED[label], is_coordinate=True)
        self._name = label

    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<Var {self._name}>"


def as_expr(value: Any) -> Expr:
    """`value` as an expression: a whole number is an Int(32), another number a Float(32).  Raises
    ExpressionError for objects that are no values.
    """
    if isinstance(value, Expr):
        if value.defined():
            return value
        raise ExpressionError("expected a value, found Expr(), which stands for none")
    if hasattr(value, "__as_halide__"):
        return value.__as_halide__()
    if isinstance(value, np.generic):
        return Expr(const(value.item(), to_dtype(value.dtype)))
    if isinstance(value, bool):
        return Expr(const(value, bool_))
    if isinstance(value, int):
        return Expr(const(value, dtypes.i64), is_coordinate=True)
    if isinstance(value, float):
        return Expr(const(value, dtypes.f32))
    if isinstance(value, ir.Expr):
        return Expr(value)
    raise ExpressionError(f"expected an expression or a number, found {value!r}")


def of_type(e: Expr, dtype: DType) -> Expr:
    """`e` converted to `dtype`.  A coordinate that becomes an i32 stays in 64 bits."""
    if e.dtype is dtype:
        return e
    if e.is_coordinate and not isinstance(e.ir, Const) and not dtype.is_int:
        return Expr(ir.cast(ir.cast(e.ir, dtypes.i32), dtype))
    return Expr(ir.cast(e.ir, dtype))


def value_of(e: Expr) -> ir.Expr:
    """The expression of `e` with the type that it has in memory."""
    return ir.cast(e.ir, dtypes.i32) if e.is_coordinate else e.ir


def index_of(value: Any) -> ir.Expr:
    """`value` as an index.  Raises ExpressionError if it is no integer."""
    e = as_expr(value)
    if not e.dtype.is_int:
        raise ExpressionError(f"a coordinate is an integer, found {e!r}; cast it to Int(32)")
    return ir.cast(e.ir, dtypes.i64)


def fits(number: int | float, dtype: DType) -> bool:
    """Whether a value of type `dtype` can be `number`; fractions of a float type are rounded."""
    if dtype.is_float:
        try:
            given = float(number)
        except OverflowError:
            return False
        with np.errstate(over="ignore"):
            made = dtype.numpy.type(given)
        return bool(np.isfinite(made)) or not math.isfinite(given)
    return isinstance(number, int) and not dtype.is_bool and dtype.min <= number <= dtype.max


def matched(a: Any, b: Any) -> tuple[ir.Expr, ir.Expr, bool]:
    """Both operands in one type, and whether this is that of coordinates.  A number takes the type
    of the other operand if the type holds it.
    """
    a, b = (n if type(n) in (int, float) else as_expr(n) for n in (a, b))
    for one, other in ((a, b), (b, a)):
        if type(one) in (int, float) and isinstance(other, Expr) and fits(one, other.dtype):
            typed = const(one, other.ir.dtype)
            x, y = (typed, other.ir) if one is a else (other.ir, typed)
            return x, y, other.is_coordinate
    x, y = as_expr(a), as_expr(b)
    dtype = promoted(x.dtype, y.dtype)
    if dtype is dtypes.i32 and (x.is_coordinate or y.is_coordinate):
        return ir.cast(x.ir, dtypes.i64), ir.cast(y.ir, dtypes.i64), True
    return of_type(x, dtype).ir, of_type(y, dtype).ir, False


def binary(op: str, a: Any, b: Any) -> Expr:
    x, y, is_coordinate = matched(a, b)
    return Expr(ir.binary(op, x, y), is_coordinate)


def compared(op: str, a: Any, b: Any) -> Expr:
    x, y, _ = matched(a, b)
    return Expr(ir.compare(op, x, y))


def shifted(op: str, a: Any, b: Any) -> Expr:
    """A shift by a number of bits, by a negative number in the other direction; the result has the
    type of `a`.
    """
    x, bits = as_expr(a), as_expr(b)
    if bits.dtype.kind != "int":
        return Expr(ir.binary(op, x.ir, ir.cast(bits.ir, x.ir.dtype)), x.is_coordinate)
    other = "shr" if op == "shl" else "shl"
    size = ir.cast(ir.absolute(bits.ir), x.ir.dtype)
    forth, back = ir.binary(op, x.ir, size), ir.binary(other, x.ir, size)
    return Expr(ir.select(bits.ir < 0, back, forth), x.is_coordinate)


def divided(a: Any, b: Any) -> Expr:
    """The quotient.  That of integers leaves a remainder of at least 0, and is 0 for `b` of 0."""
    x, y, is_coordinate = matched(a, b)
    if x.dtype.is_float:
        return Expr(x / y)
    if isinstance(y, Const):
        if y.value == 0:
            return Expr(const(0, x.dtype), is_coordinate)
        quotient = x // y if y.value > 0 else -(x // -y)
        return Expr(quotient, is_coordinate)
    quotient = x // ir.select(y == 0, 1, y)
    if y.dtype.kind == "int":
        quotient = ir.select(y < 0, -(x // ir.select(y < 0, -y, 1)), quotient)
    return Expr(ir.select(y == 0, 0, quotient), is_coordinate)


def remainder(a: Any, b: Any) -> Expr:
    """The remainder of `divided`, from 0 to before the absolute value of `b`; 0 for `b` of 0."""
    x, y, is_coordinate = matched(a, b)
    if x.dtype.is_float:
        return Expr(x - y * call("floor", x / y))
    if isinstance(y, Const):
        zero = const(0, x.dtype)
        size = const(-y.value if y.value < 0 else y.value, y.dtype)
        return Expr(x % size if y.value else zero, is_coordinate)
    size = ir.absolute(y) if y.dtype.kind == "int" else y
    return Expr(ir.select(y == 0, 0, x % ir.select(y == 0, 1, size)), is_coordinate)


def cast(t: Any, e: Any) -> Expr:
    """`e` converted to type `t`."""
    return Expr(value_of(of_type(as_expr(e), as_type(t).dtype)))


def saturating_cast(t: Any, e: Any) -> Expr:
    """`e` clamped to the range of type `t`, then converted."""
    x, d = as_expr(e), as_type(t).dtype
    if d.is_float:
        return cast(t, x)
    if x.dtype.is_float:  # the largest integer may have no float of its own
        last = float(np.nextafter(x.dtype.numpy.type(d.max), x.dtype.numpy.type(0)))
        return select(x > last, Expr(const(d.max, d)), cast(t, clamp(x, float(d.min), last)))
    low, high = sorted([d.min, d.max, x.dtype.min, x.dtype.max])[1:3]  # where both ranges meet
    return cast(t, clamp(x, low, high))


def _converter(name: str, convert: Callable[[Any, Any], Expr] = cast) -> Callable[[Any], Expr]:
    dtype = Type(to_dtype(name))
    return lambda e: convert(dtype, e)


i8, i16, i32, i64 = map(_converter, ("i8", "i16", "i32", "i64"))
u8, u16, u32, u64 = map(_converter, ("u8", "u16", "u32", "u64"))
f16, f32, f64 = map(_converter, ("f16", "f32", "f64"))


u8_sat, u16_sat, i8_sat, i16_sat, i32_sat = (
    _converter(name, saturating_cast) for name in ("u8", "u16", "i8", "i16", "i32")
)


def select(cond: Any, if_true: Any, if_false: Any, *more: Any) -> Expr:
    """`if_true` where `cond` holds, else `if_false`; with more operands, the value after the first
    condition that holds, else the last one.  Both values may be tuples.
    """
    if more:
        if_false = select(if_false, *more)
    if isinstance(if_true, tuple):
        if not isinstance(if_false, tuple) or len(if_false) != len(if_true):
            raise ExpressionError(
                f"select: expected two tuples of one length, found {if_true!r} and {if_false!r}"
            )
        pairs = zip(if_true, if_false, strict=True)
        return tuple(select(cond, a, b) for a, b in pairs)  # type: ignore[return-value]
    a, b, is_coordinate = matched(if_true, if_false)
    return Expr(ir.select(as_expr(cond).ir, a, b), is_coordinate)


@checked(ExpressionError)
def mux(index: Any, values: Sequence[Any]) -> Expr:
    """The value of number `index`, or the last one if there is no such value."""
    if not values:
        raise ExpressionError("mux: expected values to choose from, found none")
    *first, last = values
    made = as_expr(last)
    for n, value in reversed(list(enumerate(first))):
        made = select(as_expr(index) == n, value, made)
    return made


def _folded(op: str) -> Callable[..., Expr]:
    def fold(*operands: Any) -> Expr:
        if not operands:
            raise ExpressionError(f"{op}: expected operands, found none")
        return as_expr(reduce(lambda x, y: binary(op, x, y), operands))

    fold.__name__ = op
    fold.__doc__ = f"The {op}imum of the operands."
    return fold


min, max = _folded("min"), _folded("max")


def clamp(e: Any, low: Any, high: Any) -> Expr:
    """`e`, but at least `low` and at most `high`, in the type of `e`.  Raises ExpressionError for
    bounds that this type does not hold.
    """
    x = as_expr(e)
    for n in (low, high):
        if not (type(n) in (int, float) and fits(n, x.dtype)):
            bound = as_expr(n)
            if promoted(x.dtype, bound.dtype) is not x.dtype:
                raise ExpressionError(
                    f"clamp of {x.dtype}: expected bounds that this type holds, found {n!r} of "
                    f"type {bound.dtype}; cast one of them"
                )
    return max(min(x, high), low)


def lerp(zero: Any, one: Any, weight: Any) -> Expr:
    """`zero * (1 - weight) + one * weight` of floats."""
    a, b, _ = matched(zero, one)
    w = as_expr(weight)
    if not (a.dtype.is_float and w.dtype.is_float):
        raise ExpressionError(f"lerp of {a.dtype} by {w.dtype}: expected floats; cast first")
    w = of_type(w, a.dtype).ir
    return Expr(a * (1.0 - w) + b * w)


def abs(e: Any) -> Expr:
    """The absolute value; unsigned for a signed integer."""
    x = as_expr(e)
    size = ir.absolute(value_of(x))
    return Expr(ir.cast(size, f"u{x.dtype.bits}") if x.dtype.kind == "int" else size)


def absd(a: Any, b: Any) -> Expr:
    """The absolute difference; unsigned for integers."""
    x, y, is_coordinate = matched(a, b)
    made = Expr(ir.select(x < y, y - x, x - y), is_coordinate)
    bits = made.dtype.bits
    return Expr(ir.cast(value_of(made), f"u{bits}")) if made.dtype.kind == "int" else made


def _float_of(value: Any) -> ir.Expr:
    e = as_expr(value)
    return e.ir if e.dtype.is_float else of_type(e, dtypes.f32).ir


def _function(name: str) -> Callable[[Any], Expr]:
    def function(e: Any) -> Expr:
        return Expr(call(name, _float_of(e)))

    function.__name__ = name
    function.__doc__ = f"The {name} of `e`; an integer is converted to Float(32)."
    return function


exp, log, sqrt, sin, cos, tan = map(_function, ("exp", "log", "sqrt", "sin", "cos", "tan"))
asin, acos, atan, sinh, cosh = map(_function, ("asin", "acos", "atan", "sinh", "cosh"))
tanh, asinh, acosh, atanh, erf = map(_function, ("tanh", "asinh", "acosh", "atanh", "erf"))
ceil, round, trunc, is_nan = map(_function, ("ceil", "round", "trunc", "isnan"))
is_inf, fast_exp, fast_log = map(_function, ("isinf", "exp", "log"))
fast_inverse_sqrt = _function("rsqrt")
_floor = _function("floor")


def floor(e: Any) -> Expr:
    """The largest whole number up to `e`; an integer is returned as it is."""
    x = as_expr(e)
    return _floor(x) if x.dtype.is_float else x


def pow(base: Any, exponent: Any) -> Expr:
    """`base` to the power `exponent`, a float."""
    x, n = _float_of(base), as_expr(exponent)
    return Expr(ir.power(x, of_type(n, x.dtype).ir))


fast_pow = pow


def fast_inverse(e: Any) -> Expr:
    """1 / `e`, correctly rounded."""
    return Expr(1.0 / _float_of(e))


def likely(e: Any) -> Expr:
    """`e`; the hint has no effect."""
    return as_expr(e)


likely_if_innermost = likely
