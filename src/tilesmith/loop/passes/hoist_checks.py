"""Hoist checks of indices out of loops in which they are invariant.  A row selected by an index is
then copied without a check for each of its vectors.

    for j in range(n):                                   let p = check_index(x[i], m, w * i)
        y[w * i + j] = t[w * check_index(x[i],     ->    for j in range(n):
                                         m, w * i + j)]      y[w * i + j] = t[w * p + j]

The position serves error reports only.  A moved check has the position of the first iteration.  A
check moves only if the first iteration surely makes it, so that the report stays the same.  LLVM
can't move a check, since it may report.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilesmith.ir import expr as ir
from tilesmith.ir.expr import (
    Expr,
    Load,
    Select,
    Var,
    const,
    distinct,
    free_vars,
    post_order,
    reached,
    same,
    substitute,
)
from tilesmith.ir.intrinsics import is_check
from tilesmith.ir.simplify import EMPTY, can_prove

from ..nodes import Allocate, Assert, For, Func, If, LetStmt, Return, Stmt
from ..visit import bound_vars, children, exprs, map_stmt, own_exprs, walk, written

_Key = tuple[Expr, ...]
"""The index and the extent of a check: its value depends only on these."""


def hoist_checks(func: Func) -> Func:
    """`func` with invariant checks of indices moved outward; the same object if there are none."""
    if not any(map(is_check, reached(exprs(func.body)))):
        return func
    return func.with_body(map_stmt(func.body, f_stmt=_hoisted))


def _hoisted(stmt: Stmt) -> Stmt:
    """A loop preceded by its invariant checks; any other statement unchanged."""
    if not isinstance(stmt, For):
        return stmt
    sure = _sure(stmt.body)
    if not sure or any(isinstance(s, (Assert, Return)) for s in walk(stmt.body)):
        return stmt
    inner = list(walk(stmt.body))
    changed = written(stmt.body) | {s.buffer for s in inner if isinstance(s, Allocate)}
    bound = {stmt.var, *(v for s in inner for v in bound_vars(s))}
    nodes = distinct(exprs(stmt.body))
    bound |= {n.var for n in nodes if isinstance(n, ir.Let)}
    names: dict[Expr, Expr] = {}
    lets: list[tuple[Var, Expr]] = []
    for key, check in sure.items():
        first = substitute(check.children[2], {stmt.var: stmt.start})
        moved = check.with_children((*key, first))
        loads = (n for n in post_order(moved) if isinstance(n, Load))
        if not bound.isdisjoint(free_vars(moved)) or any(n.buffer in changed for n in loads):
            continue
        if not can_prove(stmt.extent > 0, EMPTY):
            moved = Select(stmt.extent > 0, moved, const(0))
        var = Var("place", check.dtype)
        lets.append((var, moved))
        names |= {n: var for n in nodes if is_check(n) and same(_key(n), key)}
    if not lets:
        return stmt
    body = map_stmt(stmt.body, lambda e: substitute(e, names))
    result: Stmt = For(stmt.var, stmt.start, stmt.extent, stmt.kind, body)
    for var, value in reversed(lets):
        result = LetStmt(var, value, result)
    return result


def _sure(stmt: Stmt) -> dict[_Key, Expr]:
    """The checks of scalars that `stmt` makes under all conditions, in order, without those in
    inner loops.  For each key the result has the first check.
    """
    done: list[dict[_Key, Expr]] = []
    waiting = [(stmt, False)]
    while waiting:
        s, is_open = waiting.pop()
        inside = () if isinstance(s, For) else children(s)
        if inside and not is_open:
            waiting.append((s, True))
            waiting += [(x, False) for x in reversed(inside)]
            continue
        first = len(done) - len(inside)
        parts = done[first:]
        del done[first:]
        if isinstance(s, If):
            then, *other = parts
            parts = [{k: c for k, c in then.items() if k in other[0]}] if other else []
        checks: dict[_Key, Expr] = {}
        for part in ({_key(c): c for c in reversed(_evaluated(own_exprs(s)))}, *parts):
            checks = part | checks
        done.append(checks)
    return done[0]


def _evaluated(roots: Iterable[Expr]) -> list[Expr]:
    """The checks of scalars that an evaluation of `roots` always makes, whatever branches its
    selects take.
    """
    always = reached(roots, lambda e: e.children[:1] if isinstance(e, Select) else e.children)
    return [e for e in always if is_check(e) and e.lanes == 1]


def _key(check: Expr) -> _Key:
    return check.children[:2]
