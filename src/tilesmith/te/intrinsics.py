"""The mathematical functions of `ir.intrinsics` on expressions, under the names of TVM's TE."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.ir.expr import Expr, ExprLike, as_expr, const
from tilesmith.ir.intrinsics import call

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "exp2",
    "floor", "isinf", "isnan", "log", "log1p", "round", "rsqrt", "sigmoid", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
]  # fmt: skip


def _unary(name: str) -> Callable[[ExprLike], Expr]:
    def function(x: ExprLike) -> Expr:
        return call(name, x)

    function.__name__ = name
    function.__doc__ = f"The intrinsic `{name}` of `x`, element by element."
    return function


exp, exp2, log, log1p = _unary("exp"), _unary("exp2"), _unary("log"), _unary("log1p")
sqrt, rsqrt, erf = _unary("sqrt"), _unary("rsqrt"), _unary("erf")
sin, cos, tan = _unary("sin"), _unary("cos"), _unary("tan")
asin, acos, atan = _unary("asin"), _unary("acos"), _unary("atan")
sinh, cosh, tanh = _unary("sinh"), _unary("cosh"), _unary("tanh")
asinh, acosh, atanh = _unary("asinh"), _unary("acosh"), _unary("atanh")
floor, ceil = _unary("floor"), _unary("ceil")
trunc, round = _unary("trunc"), _unary("round")  # te.round rounds ties to even
isnan, isinf = _unary("isnan"), _unary("isinf")


def sigmoid(x: ExprLike) -> Expr:
    """The logistic function 1 / (1 + exp(-x))."""
    e = as_expr(x)
    one = const(1, e.dtype)
    return one / (one + call("exp", -e))
