"""The element types of results, by ATen's rules.

Tensors of rank 1 or more take precedence over tensors of rank 0, and these over Python numbers.  An
operand of lower precedence has an effect only if its kind is higher.  In ascending order, the kinds
are bool, integer, float.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, bf16, bool_, f16, f32, i8, i16, i32, i64, u8
from tilesmith.ir.expr import Expr

Number: TypeAlias = "int | float | bool | Expr"
"""A Python number; a symbolic size is an integer."""

Operand: TypeAlias = "Value | Number"

_RANKS = {"bool": 0, "int": 1, "uint": 1, "float": 2}
_SIGNED = (i8, i16, i32, i64)


def number_type(x: Operand) -> DType:
    """The element type of a Python number.  A number that a run computes is given as a `Value`."""
    if isinstance(x, Value):
        return f32 if x.dtype.is_float else x.dtype
    if isinstance(x, bool):
        return bool_
    return f32 if isinstance(x, float) else i64


def promoted_types(a: DType, b: DType) -> DType:
    """The smallest type that can represent both types, as `torch.promote_types`."""
    if a is b:
        return a
    low, high = sorted((a, b), key=lambda d: (_RANKS[d.kind], d.bits))
    if _RANKS[low.kind] < _RANKS[high.kind]:
        return high
    if high.is_float:
        return f32 if {low, high} == {f16, bf16} else high
    if low.kind == high.kind:
        return high
    unsigned, signed = (low, high) if low.kind == "uint" else (high, low)
    if signed.bits > unsigned.bits:
        return signed
    return i16 if unsigned is u8 else next((s for s in _SIGNED if s.bits > unsigned.bits), i64)


def result_type(operands: Iterable[Operand], numbers: Collection[Value] = ()) -> DType:
    """The common element type of operands, as `torch.result_type`.

    numbers: those values among the operands that stand for Python numbers.
    """
    # By category: tensors of rank 1 or more, tensors of rank 0, numbers.
    by_category: list[DType | None] = [None, None, None]
    for x in operands:
        if isinstance(x, Value) and x not in numbers:
            category, dtype = 0 if x.type.rank else 1, x.dtype
        else:
            category, dtype = 2, number_type(x)
        before = by_category[category]
        by_category[category] = dtype if before is None else promoted_types(before, dtype)
    result: DType | None = None
    for lower in by_category:
        if result is None:
            result = lower
        elif lower is not None and _RANKS[lower.kind] > _RANKS[result.kind]:
            result = promoted_types(result, lower)
    assert result is not None
    return result
