"""Hoist loop-invariant conditions out of loops.

    for i in range(n):                if m > 4:
        if m > 4: S(i)        ->          for i in range(n): S(i)

If the loop's body has other statements beside the `if`, the loop gets two versions.  The body must
then be small (`VERSION_LIMIT` stores) and have few invariant conditions (`CONDITION_LIMIT`).  In
each version, other conditions that follow from the value of this condition are decided too.  So n
guards of a tile's rows make n + 1 versions, not all combinations.

Invariant arithmetic stays in the loop: code generation computes shared subexpressions once, and
LLVM hoists loop invariants well.  Allocations stay too.  Their memory is planned at compile time,
so they cost nothing.  A longer live range would only enlarge the workspace.
"""

from __future__ import annotations

from tilesmith.ir.expr import Const, Expr, post_order
from tilesmith.ir.intrinsics import needs_guard
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.ir.simplify import EMPTY, Context

from ..nodes import For, Func, If, Seq, Stmt, Store, seq
from ..visit import rebuild_through, walk

VERSION_LIMIT = 16
"""Upper bound on the stores of a loop body that gets two versions for an invariant condition."""

CONDITION_LIMIT = 8
"""Upper bound on the number of different invariant conditions in a loop body, if the loop gets two
versions.
"""


def hoist(func: Func) -> Func:
    """`func` with invariant conditions moved outward; the same object if there are none."""
    body = _hoist_conditions(func.body)
    return func.with_body(body)


def _hoist_conditions(stmt: Stmt) -> Stmt:
    new = rebuild_through(stmt, _hoist_conditions, lambda e: e)
    if not isinstance(new, For):
        return new
    while isinstance(new, For):
        invariant = _invariant_if(new)
        if invariant is None:
            return new
        whole, alone = invariant
        if alone:
            then = _with_body(new, whole.then)
            otherwise = None if whole.otherwise is None else _with_body(new, whole.otherwise)
        else:
            stores = sum(isinstance(s, Store) for s in walk(new.body))
            if stores > VERSION_LIMIT or _conditions(new) > CONDITION_LIMIT:
                return new
            then = _with_body(new, _choose(new.body, whole, True))
            rest = _choose(new.body, whole, False)
            is_empty = isinstance(rest, Seq) and not rest.stmts
            otherwise = None if is_empty else _with_body(new, rest)
        if otherwise is not None:
            otherwise = _hoist_conditions(otherwise)
        return If(whole.cond, _hoist_conditions(then), otherwise, whole.likely)
    return new


def _with_body(loop: For, body: Stmt) -> Stmt:
    return For(loop.var, loop.start, loop.extent, loop.kind, body)


def _invariant_if(loop: For) -> tuple[If, bool] | None:
    """A loop-invariant `If` in the body, and whether it is the whole body; None without one."""
    body = loop.body
    if isinstance(body, If):
        return (body, True) if _is_invariant(body.cond, loop) else None
    if isinstance(body, Seq) and not LOOP_KINDS[loop.kind].is_threaded:
        for s in body.stmts:
            if isinstance(s, If) and _is_invariant(s.cond, loop):
                return s, False
    return None


def _conditions(loop: For) -> int:
    """Number of different invariant conditions of `If`s in the body."""
    assert isinstance(loop.body, Seq)
    conds = {s.cond for s in loop.body.stmts if isinstance(s, If) and _is_invariant(s.cond, loop)}
    return len(conds)


def _is_invariant(cond: Expr, loop: For) -> bool:
    return not any(n is loop.var or needs_guard(n) for n in post_order(cond))


def _choose(body: Stmt, chosen: If, value: bool) -> Stmt:
    """The body where the condition of `chosen` is `value`.  Conditions that follow from this are
    decided too.
    """
    assert isinstance(body, Seq)
    known = EMPTY.assuming(chosen.cond if value else ~chosen.cond)
    parts: list[Stmt] = []
    for s in body.stmts:
        holds = _decided(s, chosen, value, known)
        if isinstance(s, If) and holds is not None:
            branch = s.then if holds else s.otherwise
            if branch is not None:
                parts.append(branch)
        else:
            parts.append(s)
    return seq(*parts)


def _decided(stmt: Stmt, chosen: If, value: bool, known: Context) -> bool | None:
    """The value of a statement's condition; None if it is not known, or if there is no
    condition.
    """
    if not isinstance(stmt, If):
        return None
    if stmt.cond is chosen.cond:  # the simplifier may fail to prove this
        return value
    cond = known.simplify(stmt.cond)
    return bool(cond.value) if isinstance(cond, Const) else None
