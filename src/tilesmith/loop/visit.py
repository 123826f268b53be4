"""Walks over statements and rebuilds them.

Rebuilding keeps identity: a statement without changed parts stays the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

from tilesmith.ir.expr import Expr, Var, same
from tilesmith.ir.grammar import Role, fields_of, fields_with, reader

from . import nodes
from .nodes import Buffer, Stmt, seq

ExprMap = Callable[[Expr], Expr]
StmtMap = Callable[[Stmt], Stmt]
_Reader = Callable[[Stmt], tuple[Any, ...]]


def children(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside `stmt`."""
    return _bodies(type(stmt))(stmt)


def own_exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of the statement itself, not those of statements inside it.

    The expressions of an allocation are its symbolic extents.
    """
    if isinstance(stmt, nodes.Allocate):
        return tuple(d for d in stmt.buffer.shape if isinstance(d, Expr))
    return _operands(type(stmt))(stmt)


def declared(stmt: Stmt) -> tuple[Any, ...]:
    """The variables and buffers that `stmt` declares for the statements inside it."""
    return _binders(type(stmt))(stmt)


def bound_vars(stmt: Stmt) -> tuple[Var, ...]:
    """The variables that `stmt` declares for the statements inside it."""
    return tuple(v for v in declared(stmt) if isinstance(v, Var))


# There is one cache for each role, since these functions run for every statement of every pass.  A
# role as part of the key would be slow: hashing a member of an enumeration calls Python code.
@cache
def _bodies(kind: type[Stmt]) -> _Reader:
    return _reader(kind, Role.BODY)


@cache
def _operands(kind: type[Stmt]) -> _Reader:
    return _reader(kind, Role.OPERAND)


@cache
def _binders(kind: type[Stmt]) -> _Reader:
    return _reader(kind, Role.BINDER)


def _reader(kind: type[Stmt], role: Role) -> _Reader:
    """A function from a statement to the values of its fields with a role, in order."""
    return reader(fields_with(kind, role))


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
    done: list[Stmt] = []  # children of parents that are not rebuilt
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
    """A function that ignores its argument and returns the next value."""
    return lambda _: next(values)


def _same(e: Expr) -> Expr:
    return e


def rebuild(
    stmt: Stmt,
    sub: StmtMap,
    ex: ExprMap,
    bind: Callable[[Any], Any] | None = None,
    refer: Callable[[Buffer], Buffer] | None = None,
) -> Stmt:
    """`stmt` with `sub` applied to the statements directly inside it and `ex` to its own
    expressions, in the order of its fields.

    bind: replaces binders before the statements inside are mapped.  If `bind` is given, the result
        is always a new object, because copies must be new objects.
    refer: replaces the buffer of a store.
    """
    if isinstance(stmt, nodes.Seq):
        stmts = tuple([sub(s) for s in stmt.stmts])
        return stmt if stmts == stmt.stmts else seq(*stmts)
    values: list[Any] = []
    is_new = bind is not None
    for name, role, is_many in _plan(type(stmt)):
        value = getattr(stmt, name)
        values.append(value)
        of: Callable[[Any], Any] | None = None
        if role is Role.OPERAND:
            of = ex
        elif role is Role.BODY:
            of = sub
        elif role is Role.BINDER:
            of = bind
        elif role is Role.REFERENCE:
            of = refer
        if of is None or value is None:
            continue
        if is_many:
            new = tuple([of(v) for v in value])
            if same(new, value):
                continue
        elif (new := of(value)) is value:
            continue
        values[-1], is_new = new, True
    return type(stmt)(*values) if is_new else stmt


@cache
def _plan(kind: type[Stmt]) -> tuple[tuple[str, Role, bool], ...]:
    """The name and role of each field, and whether it is a tuple."""
    return tuple((f.name, f.role, f.is_many) for f in fields_of(kind))


def rebuild_through(stmt: Stmt, sub: StmtMap, ex: ExprMap, passed: StmtMap = lambda s: s) -> Stmt:
    """As `rebuild`, but passes through allocations and sequences, which may be nested arbitrarily
    deeply (a kernel of a thousand stages has a thousand allocations).  `sub` is applied to the
    first statements inside them that are neither.  `passed` is applied to each rebuilt allocation
    and sequence.
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
    """`stmt`, a sequence or an allocation, after `sub` has rewritten or removed the statements
    inside.  Nested sequences and allocations are entered, however deep, if `is_passed` holds for
    them.  None if nothing is left.
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
    """`stmt`, a sequence or an allocation, with its remaining parts; None if there are none."""
    left = [p for p in parts if p is not None]
    if not left:
        return None
    if len(left) == len(parts) and all(a is b for a, b in zip(left, children(stmt), strict=True)):
        return stmt
    return nodes.Allocate(stmt.buffer, left[0]) if isinstance(stmt, nodes.Allocate) else seq(*left)


def written(stmt: Stmt) -> set[Buffer]:
    """The buffers to which `stmt` and statements inside it store."""
    return {s.buffer for s in walk(stmt) if isinstance(s, nodes.Store)}
