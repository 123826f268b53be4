"""The table of rules by kind of node, and by operation for `Unary` and `Binary`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..dtypes import i64
from ..expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Let,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    VectorReduce,
)
from . import index, logic, value, vector

if TYPE_CHECKING:
    from ..simplify import Context

Rule = Callable[[Any, "Context"], Expr]

INDEX: dict[str, Rule] = {
    "add": index.sums, "sub": index.sums, "mul": index.sums,
    "floordiv": index.floordiv, "floormod": index.floormod,
    "truncdiv": index.trunc, "truncmod": index.trunc,
    "min": index.extremum, "max": index.extremum,
}  # fmt: skip
"""Operations on i64 scalars; the others follow `value.scalar_binary`."""


def _binary(e: Binary, ctx: Context) -> Expr:
    dtype = e.a.dtype
    if dtype.is_bool and e.op in ("and", "or"):
        return logic.lookup(logic.connective(e, ctx), ctx)
    if e.a.lanes > 1:
        return vector.binary(e, ctx)
    if dtype is i64:
        return INDEX.get(e.op, value.scalar_binary)(e, ctx)
    return value.scalar_binary(e, ctx)


def _unary(e: Unary, ctx: Context) -> Expr:
    if e.op == "not":
        return logic.lookup(logic.not_(e, ctx), ctx)
    return index.sums(e, ctx) if e.dtype is i64 and e.lanes == 1 else value.neg(e, ctx)


def _known(rule: Rule) -> Rule:
    """`rule`, then the facts: a bool load or call may have been assumed."""

    def apply(e: Any, ctx: Context) -> Expr:
        result = rule(e, ctx)
        return logic.lookup(result, ctx) if ctx.known and result.dtype.is_bool else result

    return apply


RULES: dict[type, Rule] = {
    Var: _known(index.var),
    Const: lambda e, ctx: e,
    Unary: _unary,
    Binary: _binary,
    Compare: logic.compare,
    Select: logic.select,
    Cast: _known(value.cast),
    Load: _known(value.load),
    Call: _known(value.call),
    Ramp: vector.ramp,
    Broadcast: vector.broadcast,
    Let: value.let,
    VectorReduce: vector.vector_reduce,
}
