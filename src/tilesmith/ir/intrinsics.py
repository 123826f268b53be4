"""The pure functions of `Call`, with their meaning in NumPy.

One table serves the verifier, the interpreter, the reference evaluator and code generation.  The
latter expands most of them into arithmetic (`codegen.math`) and leaves rare ones to the C
mathematics library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dtypes import DType, bool_
from .expr import Broadcast, Call, Expr, ExprLike, as_expr
from .threefry import threefry_word


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A function.  Arguments have one dtype; the result has it too, except for `returns_bool` and
    `bitcast`.

    name: its name.
    arity: number of arguments.
    evaluate: its meaning in NumPy.
    returns_bool: the result is a bool (isnan).
    libm: its name in the C mathematics library for f64; f32 adds an "f".  None if it has none.
    """

    name: str
    arity: int
    evaluate: Callable[..., Any]
    returns_bool: bool = False
    libm: str | None = None


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _reference_erf(x: Any) -> Any:
    x = np.asarray(x)
    return _erf(x.astype(np.float64)).astype(x.dtype)


def _pow(x: Any, y: Any) -> Any:
    x = np.asarray(x)
    return (
        np.power(x.astype(np.float64), y).astype(x.dtype) if x.dtype.kind == "f" else np.power(x, y)
    )


def _unary(name: str, f: Callable[[Any], Any], libm: str = "") -> Intrinsic:
    return Intrinsic(name, 1, f, libm=libm or name)


INTRINSICS: dict[str, Intrinsic] = {
    i.name: i
    for i in (
        _unary("exp", np.exp), _unary("exp2", np.exp2),
        _unary("log", np.log), _unary("log1p", np.log1p),
        _unary("sqrt", np.sqrt), Intrinsic("rsqrt", 1, lambda x: 1 / np.sqrt(x)),
        _unary("erf", _reference_erf),
        _unary("sin", np.sin), _unary("cos", np.cos), _unary("tan", np.tan),
        _unary("asin", np.arcsin), _unary("acos", np.arccos), _unary("atan", np.arctan),
        _unary("sinh", np.sinh), _unary("cosh", np.cosh), _unary("tanh", np.tanh),
        _unary("asinh", np.arcsinh), _unary("acosh", np.arccosh), _unary("atanh", np.arctanh),
        _unary("abs", np.abs, "fabs"), _unary("floor", np.floor), _unary("ceil", np.ceil),
        _unary("trunc", np.trunc),
        _unary("round", np.rint, "rint"),  # to nearest, ties to even
        Intrinsic("pow", 2, _pow, libm="pow"),
        Intrinsic("fma", 3, lambda a, b, c: a * b + c),
        Intrinsic("threefry", 4, threefry_word),  # of a counter and a key, u32 both
        Intrinsic("isnan", 1, np.isnan, returns_bool=True),
        Intrinsic("isinf", 1, np.isinf, returns_bool=True),
        Intrinsic("bitcast", 1, None),  # type: ignore[arg-type]  # needs the result type: the interpreter's own case
    )
}  # fmt: skip


def call(name: str, *args: ExprLike, dtype: DType | None = None) -> Expr:
    """`Call` of a known intrinsic; only `bitcast` needs `dtype`.  Raises KeyError for unknown
    names.
    """
    intrinsic = INTRINSICS[name]
    exprs = [as_expr(a) for a in args[:1]]
    exprs += [as_expr(a, exprs[0]) for a in args[1:]]
    lanes = max(e.lanes for e in exprs)
    exprs = [Broadcast(e, lanes) if e.lanes < lanes else e for e in exprs]
    if len(exprs) != intrinsic.arity:
        raise TypeError(f"{name} takes {intrinsic.arity} arguments, got {len(exprs)}")
    return Call(name, tuple(exprs), bool_ if intrinsic.returns_bool else dtype or exprs[0].dtype)
