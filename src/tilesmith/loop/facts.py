"""Facts that hold inside a statement: the range of a loop's variable, the condition of a branch.

A bound or condition that reads memory is true at the moment of its evaluation.  It need not hold
inside a statement that writes to this memory.
"""

from __future__ import annotations

from typing import TypeGuard

from tilesmith.ir.context import Context
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Binary, Expr, all_of, const, reached, reads_memory, symbols

from .nodes import For, If, LetStmt, Stmt
from .visit import written


def conjuncts(cond: Expr) -> list[Expr]:
    """The conditions whose conjunction is `cond`, each once."""
    parts = reached([cond], lambda e: (e.b, e.a) if _is_and(e) else ())
    return [e for e in parts if not _is_and(e)]


def _is_and(e: Expr) -> TypeGuard[Binary]:
    return isinstance(e, Binary) and e.op == "and"


def lasts(e: Expr, stmt: Stmt) -> bool:
    """Whether `stmt` can't change the value of `e`."""
    return not reads_memory(e) or symbols(e).isdisjoint(written(stmt))


def in_loop(ctx: Context, loop: For) -> Context:
    """The facts that hold in the body of a loop."""
    last = loop.start + loop.extent - const(1)
    ends = (loop.start, last)
    if all(lasts(e, loop.body) for e in ends):
        return ctx.with_var(loop.var, *ends)
    values = ctx.with_var(loop.var, *ends).bounds[loop.var]
    return ctx.with_interval(loop.var, values)


def in_branch(ctx: Context, cond: Expr, branch: Stmt) -> Context:
    """The facts that hold in a branch, which runs if the scalar `cond` is true."""
    if lasts(cond, branch):
        return ctx.assuming(cond)
    return ctx.assuming(all_of(*(c for c in conjuncts(cond) if lasts(c, branch))))


def inside(ctx: Context, stmt: Stmt) -> Context:
    """The facts that hold in the body of a loop or let, or in the branch of an `If` with one
    branch.
    """
    if isinstance(stmt, For):
        return in_loop(ctx, stmt)
    if isinstance(stmt, LetStmt) and stmt.value.dtype is i64 and stmt.value.lanes == 1:
        return ctx.with_interval(stmt.var, ctx.interval(stmt.value))
    if isinstance(stmt, If) and stmt.otherwise is None:
        return in_branch(ctx, stmt.cond, stmt.then)
    return ctx
