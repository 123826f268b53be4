"""Functions of values of a graph under construction, for formulas: `where(x > 0, x, exp(x) - 1)`.

Each function adds one operator to the graph that contains the values.  Numbers and arrays among the
operands become constants with the element type of the first tensor that is not a condition.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr
from tilesmith.support.errors import InternalError

from . import elementwise as ew
from .base import GraphBuilder, Op
from .sizes import Extents

_NUMBERS = (bool, int, float, list, tuple, np.ndarray, np.generic, Expr)
"""Types of operands that are not tensors."""


Operand: TypeAlias = Any
"""A tensor, a number, an array or an extent."""


def apply(op: Op, *operands: Operand, dtype: DType | None = None) -> Any:
    """The result of `op` on `operands`.  Operands that are not tensors become tensors of `dtype`
    (default: the type of the first tensor).

    Raises InternalError if no operand belongs to an unfinished graph.
    """
    tensors = [x for x in operands if not isinstance(x, _NUMBERS)]
    builder = next((b for b in (x.builder for x in tensors) if b is not None), None)
    if builder is None:
        raise InternalError(
            f"{op.name}: expected an operand of a graph under construction, found {operands}; "
            "add the operator with the builder"
        )
    if len(tensors) < len(operands):
        to: DType = dtype or tensors[0].type.dtype
        operands = tuple(
            _tensor(builder, x, to) if isinstance(x, _NUMBERS) else x for x in operands
        )
    return builder.add(op, *operands)


def _tensor(builder: GraphBuilder, x: Any, dtype: DType) -> Any:
    """A number, an array or an extent as a tensor."""
    if not isinstance(x, Expr):
        return builder.constant(np.asarray(x, dtype.numpy))
    extent = builder.add(Extents((x,), ()))
    return extent if dtype is extent.type.dtype else builder.add(ew.Cast(dtype), extent)


def where(condition: Any, then: Operand, otherwise: Operand) -> Any:
    """`then` where `condition` holds, elsewhere `otherwise`.  One of the two must be a tensor."""
    typed = otherwise if isinstance(then, _NUMBERS) else then
    return apply(ew.Where(), condition, then, otherwise, dtype=typed.type.dtype)


def maximum(a: Operand, b: Operand) -> Any:
    return apply(ew.Max(), a, b)


def minimum(a: Operand, b: Operand) -> Any:
    return apply(ew.Min(), a, b)


def clip(x: Any, low: float | None, high: float | None) -> Any:
    """`x` limited to `low`..`high`, numbers that are known at compile time; None: no limit."""
    return apply(ew.Clip(low, high), x)


def clamp(x: Any, low: Operand, high: Operand) -> Any:
    """`x` limited to `low`..`high`; if `low` > `high`, the result is `high`."""
    return minimum(maximum(x, low), high)


def exp(x: Any) -> Any:
    return apply(ew.Exp(), x)


def log(x: Any) -> Any:
    return apply(ew.Log(), x)


def log1p(x: Any) -> Any:
    return apply(ew.Log1p(), x)


def sqrt(x: Any) -> Any:
    return apply(ew.Sqrt(), x)


def rsqrt(x: Any) -> Any:
    return apply(ew.Rsqrt(), x)


def reciprocal(x: Any) -> Any:
    return apply(ew.Reciprocal(), x)


def tanh(x: Any) -> Any:
    return apply(ew.Tanh(), x)


def erf(x: Any) -> Any:
    return apply(ew.Erf(), x)


def sin(x: Any) -> Any:
    return apply(ew.Sin(), x)


def cos(x: Any) -> Any:
    return apply(ew.Cos(), x)


def floor(x: Any) -> Any:
    return apply(ew.Floor(), x)


def ceil(x: Any) -> Any:
    return apply(ew.Ceil(), x)


def rint(x: Any) -> Any:
    """`x` rounded to whole numbers, ties to even."""
    return apply(ew.Round(), x)


def is_nan(x: Any) -> Any:
    return apply(ew.IsNan(), x)
