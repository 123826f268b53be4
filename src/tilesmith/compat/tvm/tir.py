"""TVM's `tir`: functions of expressions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tilesmith import te
from tilesmith.ir.dtypes import DType
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Expr, as_expr, binary, const
from tilesmith.te import abs, all, any, if_then_else, intrinsics, power
from tilesmith.te.intrinsics import *  # noqa: F403

from ..names import refusing
from . import ir_builder

__all__ = [
    "EQ", "And", "Cast", "Max", "Min", "Not", "Or", "Select", "abs", "all", "any", "const",
    "decl_buffer", "div",
    "floordiv", "floormod", "fmod", "if_then_else", "indexdiv", "indexmod", "ir_builder", "max",
    "min", "power", "truncdiv", "truncmod",
]  # fmt: skip
__all__ += intrinsics.__all__


def max(a: Any, b: Any) -> Expr:
    return te.maximum(a, b)


def min(a: Any, b: Any) -> Expr:
    return te.minimum(a, b)


def And(a: Any, b: Any) -> Expr:
    return te.all(a, b)


def Or(a: Any, b: Any) -> Expr:
    return te.any(a, b)


def Not(a: Expr) -> Expr:
    return ~a


def EQ(a: Any, b: Any) -> Expr:
    return as_expr(a) == as_expr(b)  # type: ignore[return-value]  # expressions compare as expressions


Max, Min = max, min


def Select(condition: Expr, true_value: Any, false_value: Any) -> Expr:
    """One of two values.  Both may be evaluated."""
    return te.select(condition, true_value, false_value)


def Cast(dtype: str | DType, value: Any) -> Expr:
    return te.cast(value, to_dtype(dtype))


def floordiv(a: Any, b: Any) -> Expr:
    return as_expr(a) // b


def floormod(a: Any, b: Any) -> Expr:
    return as_expr(a) % b


indexdiv, indexmod = floordiv, floormod


def div(a: Any, b: Any) -> Expr:
    """The quotient.  A quotient of integers is rounded toward zero, as in C."""
    a = as_expr(a)
    return a / b if a.dtype.is_float else truncdiv(a, b)


def truncdiv(a: Any, b: Any) -> Expr:
    """The quotient of integers, rounded toward zero."""
    return binary("truncdiv", a, b)


def truncmod(a: Any, b: Any) -> Expr:
    """The remainder of `truncdiv`; its sign is that of `a`."""
    return binary("truncmod", a, b)


def fmod(a: Any, b: Any) -> Expr:
    """The exact remainder of floats, with the sign of `a`."""
    return binary("truncmod", a, b)


def decl_buffer(
    shape: Any, dtype: str | DType = "float32", name: str = "buffer", **layout: Any
) -> SimpleNamespace:
    """The description of an operand, for `te.decl_tensor_intrin`, which takes operands as they lie
    in memory.
    """
    return SimpleNamespace(shape=shape, dtype=dtype, name=name, **layout)


ELSEWHERE = {
    **dict.fromkeys(
        ("call_llvm_intrin", "call_llvm_pure_intrin", "reinterpret"),
        "tilesmith.te.decl_tensor_intrin, whose code calls LLVM's intrinsics",
    ),
    "ceildiv": "(a + b - 1) // b",
    "transform": "tilesmith.te.lower, which has passes of its own",
    "call_intrin": "the function by name: tilesmith.te.call",
    "call_extern": "tilesmith.te.extern",
    "call_pure_extern": "the function by name, such as tvm.tir.exp",
    "call_packed": "tilesmith.te.extern",
    "Schedule": "te.create_schedule",
    "Var": "te.var(name)",
}
"""What to use for names of TVM."""

__getattr__ = refusing("tir", ELSEWHERE)
