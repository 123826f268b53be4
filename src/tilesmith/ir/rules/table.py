"""The table of rules by kind of node, and by operation for `Unary` and `Binary`."""

from __future__ import annotations

from typing import Any

from .. import expr as ir
from ..context import Context, Rule
from ..dtypes import i64
from ..expr import Binary, Expr, Unary
from . import index, logic, value, vector

INDEX: dict[str, Rule] = {
    "add": index.sums, "sub": index.sums, "mul": index.sums,
    "floordiv": index.floordiv, "floormod": index.floormod,
    "truncdiv": index.trunc, "truncmod": index.trunc,
    "min": index.extremum, "max": index.extremum,
}  # fmt: skip
"""Operations on i64 scalars; the others use `value.scalar_binary`."""


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
    """`rule`, followed by a lookup in the facts: a bool load or call may have been assumed."""

    def apply(e: Any, ctx: Context) -> Expr:
        result = rule(e, ctx)
        return logic.lookup(result, ctx) if ctx.known and result.dtype.is_bool else result

    return apply


RULES: dict[type, Rule] = {
    ir.Var: _known(index.var),
    ir.Const: lambda e, ctx: e,
    ir.Unary: _unary,
    ir.Binary: _binary,
    ir.Compare: logic.compare,
    ir.Select: logic.select,
    ir.Cast: _known(value.cast),
    ir.Load: _known(value.load),
    ir.Call: _known(value.call),
    ir.Ramp: vector.ramp,
    ir.Broadcast: vector.broadcast,
    ir.Let: value.let,
    ir.VectorReduce: vector.vector_reduce,
}
"""The rules by kind of node.  For other kinds only the operands are simplified (`Context`)."""
