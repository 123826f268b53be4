"""Walking and rebuilding statements.

Rebuilding keeps identity: a statement without changed parts is the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tilesmith.ir.expr import Expr, same
from tilesmith.support.errors import InternalError

from . import nodes
from .nodes import Buffer, Stmt, seq

ExprMap = Callable[[Expr], Expr]
StmtMap = Callable[[Stmt], Stmt]

_WITH_BODY = (
    nodes.For, nodes.Allocate, nodes.LetStmt, nodes.WaveReduce, nodes.Tensorize, nodes.AsyncGroup,
)  # fmt: skip


def children(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside."""
    if isinstance(stmt, _WITH_BODY):
        return (stmt.body,)
    if isinstance(stmt, nodes.Seq):
        return stmt.stmts
    if isinstance(stmt, nodes.If):
        return (stmt.then,) if stmt.otherwise is None else (stmt.then, stmt.otherwise)
    return ()


def own_exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of the statement itself, not those of statements inside it.

    Of an allocation: the extents that are expressions.
    """
    if isinstance(stmt, nodes.Store):
        return (
            (*stmt.indices, stmt.value)
            if stmt.mask is None
            else (*stmt.indices, stmt.value, stmt.mask)
        )
    if isinstance(stmt, nodes.For):
        return (stmt.start, stmt.extent)
    if isinstance(stmt, (nodes.If, nodes.Assert)):
        return (stmt.cond,)
    if isinstance(stmt, (nodes.LetStmt, nodes.WaveReduce, nodes.Evaluate)):
        return (stmt.value,)
    if isinstance(stmt, nodes.Allocate):
        return tuple(d for d in stmt.buffer.shape if isinstance(d, Expr))
    return ()


def walk(stmt: Stmt) -> Iterator[Stmt]:
    """`stmt` and all statements inside it, outer before inner, in order."""
    stack = [stmt]
    while stack:
        s = stack.pop()
        yield s
        stack.extend(reversed(children(s)))


def exprs(stmt: Stmt) -> Iterator[Expr]:
    """The top expressions of `stmt` and of all statements inside it, in order of execution."""
    for s in walk(stmt):
        yield from own_exprs(s)


def map_stmt(stmt: Stmt, f_expr: ExprMap | None = None, f_stmt: StmtMap | None = None) -> Stmt:
    """`stmt` rebuilt from the inside out: `f_expr` maps each top expression, `f_stmt` each rebuilt
    statement.

    Buffers stay the same objects (extents of allocations are not mapped).  An `f_stmt` that
    replaces an `Allocate` must also replace the loads and stores of its buffer.
    """
    new = _map_parts(stmt, f_expr, f_stmt)
    return new if f_stmt is None else f_stmt(new)


def _map_parts(stmt: Stmt, f_expr: ExprMap | None, f_stmt: StmtMap | None) -> Stmt:
    def sub(s: Stmt) -> Stmt:
        return map_stmt(s, f_expr, f_stmt)

    def ex(e: Expr) -> Expr:
        return e if f_expr is None else f_expr(e)

    return rebuild(stmt, sub, ex)


def rebuild(stmt: Stmt, sub: StmtMap, ex: ExprMap) -> Stmt:
    """`stmt` with `sub` applied to the statements inside and `ex` to its own expressions."""
    if isinstance(stmt, nodes.Store):
        indices = tuple([ex(i) for i in stmt.indices])
        value = ex(stmt.value)
        mask = None if stmt.mask is None else ex(stmt.mask)
        if value is stmt.value and mask is stmt.mask and same(indices, stmt.indices):
            return stmt
        return nodes.Store(stmt.buffer, indices, value, mask)
    if isinstance(stmt, nodes.For):
        start, extent, body = ex(stmt.start), ex(stmt.extent), sub(stmt.body)
        if start is stmt.start and extent is stmt.extent and body is stmt.body:
            return stmt
        return nodes.For(stmt.var, start, extent, stmt.kind, body)
    if isinstance(stmt, nodes.Seq):
        stmts = tuple([sub(s) for s in stmt.stmts])
        return stmt if stmts == stmt.stmts else seq(*stmts)
    if isinstance(stmt, nodes.If):
        cond, then = ex(stmt.cond), sub(stmt.then)
        otherwise = None if stmt.otherwise is None else sub(stmt.otherwise)
        if cond is stmt.cond and then is stmt.then and otherwise is stmt.otherwise:
            return stmt
        return nodes.If(cond, then, otherwise, stmt.likely)
    if isinstance(stmt, nodes.LetStmt):
        value, body = ex(stmt.value), sub(stmt.body)
        return (
            stmt
            if value is stmt.value and body is stmt.body
            else nodes.LetStmt(stmt.var, value, body)
        )
    if isinstance(stmt, nodes.WaveReduce):
        value, body = ex(stmt.value), sub(stmt.body)
        same_parts = value is stmt.value and body is stmt.body
        return stmt if same_parts else replace(stmt, value=value, body=body)
    if isinstance(stmt, nodes.Tensorize):
        body = sub(stmt.body)
        return stmt if body is stmt.body else nodes.Tensorize(stmt.intrinsic, body)
    if isinstance(stmt, nodes.Allocate):
        body = sub(stmt.body)
        return stmt if body is stmt.body else nodes.Allocate(stmt.buffer, body)
    if isinstance(stmt, nodes.AsyncGroup):
        body = sub(stmt.body)
        return stmt if body is stmt.body else nodes.AsyncGroup(body)
    if isinstance(stmt, (nodes.Barrier, nodes.Wait)):
        return stmt
    if isinstance(stmt, nodes.Evaluate):
        value = ex(stmt.value)
        return stmt if value is stmt.value else nodes.Evaluate(value)
    if isinstance(stmt, nodes.Assert):
        cond = ex(stmt.cond)
        return stmt if cond is stmt.cond else nodes.Assert(cond, stmt.message)
    raise InternalError(f"expected a statement, found {type(stmt).__name__}")


def written(stmt: Stmt) -> set[Buffer]:
    """The buffers that statements inside store to."""
    return {s.buffer for s in walk(stmt) if isinstance(s, nodes.Store)}
