"""Walking and rebuilding statements.

Rebuilding keeps identity: a statement without changed parts is the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

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
    done: list[Stmt] = []  # the rebuilt statements whose parent waits for them
    waiting: list[tuple[Stmt, Iterator[Expr] | None]] = [(stmt, None)]
    while waiting:
        s, mapped = waiting.pop()
        inside = children(s)
        own: ExprMap = _same if f_expr is None else f_expr
        if inside and mapped is None:
            exprs = () if isinstance(s, nodes.Allocate) else own_exprs(s)
            waiting.append((s, iter([own(e) for e in exprs])))
            waiting += [(x, None) for x in reversed(inside)]
            continue
        if mapped is not None:
            own = _taken(mapped)
        first = len(done) - len(inside)
        new = rebuild(s, _taken(iter(done[first:])), own)
        del done[first:]
        done.append(new if f_stmt is None else f_stmt(new))
    return done[0]


T = TypeVar("T")


def _taken(values: Iterator[T]) -> Callable[[T], T]:
    """A function that gives the values one by one, in the place of what it is given."""
    return lambda _: next(values)


def _same(e: Expr) -> Expr:
    return e


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


def rebuild_through(stmt: Stmt, sub: StmtMap, ex: ExprMap, passed: StmtMap = lambda s: s) -> Stmt:
    """As `rebuild`, through allocations and sequences: `sub` is applied to the statements inside of
    `stmt` that are neither, however many allocations are around them (a kernel of a thousand stages
    has a thousand of them), and `passed` to those that are, rebuilt.
    """

    def is_passed(s: Stmt) -> bool:
        return isinstance(s, (nodes.Allocate, nodes.Seq))

    done: list[Stmt] = []
    waiting = [(s, False) for s in reversed(children(stmt))]
    if not any(is_passed(s) for s, _ in waiting):
        return rebuild(stmt, sub, ex)
    mapped = iter(() if isinstance(stmt, nodes.Allocate) else [ex(e) for e in own_exprs(stmt)])
    while waiting:
        s, is_open = waiting.pop()
        if not is_passed(s):
            done.append(sub(s))
        elif not is_open:
            waiting.append((s, True))
            waiting += [(x, False) for x in reversed(children(s))]
        else:
            first = len(done) - len(children(s))
            new = rebuild(s, _taken(iter(done[first:])), _same)
            del done[first:]
            done.append(passed(new))
    return rebuild(stmt, _taken(iter(done)), _taken(mapped))


def left_through(
    stmt: Stmt, sub: Callable[[Stmt], Stmt | None], is_passed: Callable[[Stmt], bool]
) -> Stmt | None:
    """What `sub` leaves of the statements in a sequence or an allocation: of those inside of
    further ones, however deep, for which `is_passed` holds.  None if nothing is left.
    """
    done: list[Stmt | None] = []
    waiting = [(stmt, False)]
    while waiting:
        s, is_open = waiting.pop()
        if is_open:
            first = len(done) - len(children(s))
            parts = done[first:]
            del done[first:]
            done.append(_of_parts(s, parts))
        elif isinstance(s, (nodes.Allocate, nodes.Seq)) and (s is stmt or is_passed(s)):
            waiting.append((s, True))
            waiting += [(x, False) for x in reversed(children(s))]
        else:
            done.append(sub(s))
    return done[0]


def _of_parts(stmt: Stmt, parts: list[Stmt | None]) -> Stmt | None:
    """A sequence or an allocation of what is left."""
    left = [p for p in parts if p is not None]
    if not left:
        return None
    if len(left) == len(parts) and all(a is b for a, b in zip(left, children(stmt), strict=True)):
        return stmt
    return nodes.Allocate(stmt.buffer, left[0]) if isinstance(stmt, nodes.Allocate) else seq(*left)


def written(stmt: Stmt) -> set[Buffer]:
    """The buffers that statements inside store to."""
    return {s.buffer for s in walk(stmt) if isinstance(s, nodes.Store)}
