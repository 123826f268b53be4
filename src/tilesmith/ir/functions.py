"""The pure functions of `Call`, with their meaning in NumPy.

One table serves the printer and parser, the verifier, the interpreter, the reference evaluator and
code generation.  Code generation expands most functions into arithmetic (`codegen.math`), and calls
the C mathematics library for rare functions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dtypes import DType, bool_, i64, u32
from .threefry import threefry_word


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A function.  All arguments have one dtype.  The result has it, too, except for `returns_bool`
    and `bitcast`.

    name: its name.
    arity: number of arguments.
    evaluate: its meaning in NumPy.
    returns_bool: whether the result is a bool (isnan).
    libm: its name in the C mathematics library, for f64; the name for f32 ends in an additional
        "f".  None if that library lacks the function.
    of_floats: whether it is defined on floats only.
    only: the single type on which it is defined; None if it is defined on several.
    """

    name: str
    arity: int
    evaluate: Callable[..., Any]
    returns_bool: bool = False
    libm: str | None = None
    of_floats: bool = False
    only: DType | None = None

    def takes(self, dtype: DType) -> bool:
        """Whether the function is defined on arguments of this type."""
        if self.only is not None:
            return dtype is self.only
        is_fit = dtype.is_float or not self.of_floats
        return self.name == "bitcast" or (is_fit and not dtype.is_storage)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _reference_erf(x: Any) -> Any:
    x = np.asarray(x)
    return _erf(x.astype(np.float64)).astype(x.dtype)


def _pow(x: Any, y: Any) -> Any:
    x = np.asarray(x)
    return (
        np.power(x.astype(np.float64), y).astype(x.dtype) if x.dtype.kind == "f" else np.power(x, y)
    )


def _place(index: Any, extent: Any, _position: Any) -> Any:
    is_inside = (-extent <= index) & (index < extent)
    return np.where(is_inside, np.where(index < 0, index + extent, index), 0)


def _overflow(op: str) -> Intrinsic:
    """A function of two integers: whether the exact result of `op` does not fit their type."""
    exact = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}[op]

    def evaluate(a: Any, b: Any) -> Any:
        limits = np.iinfo(np.asarray(a).dtype)
        result = exact(np.asarray(a).astype(object), np.asarray(b).astype(object))
        return (result < limits.min) | (result > limits.max)

    return Intrinsic(f"{op}_overflows", 2, evaluate, returns_bool=True, only=i64)


def _unary(name: str, f: Callable[[Any], Any], libm: str = "") -> Intrinsic:
    """A function of one float."""
    return Intrinsic(name, 1, f, libm=libm or name, of_floats=True)


def _whole(name: str, f: Callable[[Any], Any], libm: str = "") -> Intrinsic:
    """A function of one number of any type; only `abs` changes integers."""
    return Intrinsic(name, 1, f, libm=libm or name)


INTRINSICS: dict[str, Intrinsic] = {
    i.name: i
    for i in (
        _unary("exp", np.exp), _unary("exp2", np.exp2),
        _unary("log", np.log), _unary("log1p", np.log1p),
        _unary("sqrt", np.sqrt), Intrinsic("rsqrt", 1, lambda x: 1 / np.sqrt(x), of_floats=True),
        _unary("erf", _reference_erf),
        _unary("sin", np.sin), _unary("cos", np.cos), _unary("tan", np.tan),
        _unary("asin", np.arcsin), _unary("acos", np.arccos), _unary("atan", np.arctan),
        _unary("sinh", np.sinh), _unary("cosh", np.cosh), _unary("tanh", np.tanh),
        _unary("asinh", np.arcsinh), _unary("acosh", np.arccosh), _unary("atanh", np.arctanh),
        _whole("abs", np.abs, "fabs"), _whole("floor", np.floor), _whole("ceil", np.ceil),
        _whole("trunc", np.trunc),
        _whole("round", np.rint, "rint"),  # to nearest, ties to even
        Intrinsic("pow", 2, _pow, libm="pow"),  # also defined for integers
        Intrinsic("fma", 3, lambda a, b, c: a * b + c),
        Intrinsic("threefry", 4, threefry_word, only=u32),  # arguments: a counter and a key
        Intrinsic("isnan", 1, np.isnan, returns_bool=True),
        Intrinsic("isinf", 1, np.isinf, returns_bool=True),
        *map(_overflow, ("add", "sub", "mul")),
        Intrinsic("check_index", 3, _place, only=i64),  # see `intrinsics.checked_index`
        Intrinsic("bitcast", 1, None),  # type: ignore[arg-type]  # needs the result type: the interpreter's own case
    )
}  # fmt: skip


def result_type(name: str, first: DType | None) -> DType | None:
    """The type of a call whose text states no type, derived from the type of its first argument."""
    known = INTRINSICS.get(name)
    return bool_ if known is not None and known.returns_bool else first
