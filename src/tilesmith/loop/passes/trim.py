"""Trim: cut a loop at the iteration where a guard changes, if outer loops determine the iteration.

    for k in range(64):                        for k in range(0, i * 8 + 1):
        for r in unrolled(8):                      for r in unrolled(8):
            C[r] = C[r] + select(                      C[r] = C[r] + A[i * 8 + r, k]
                k <= i * 8 + r,         ->     for k in range(i * 8 + 1, i * 8 + 8):
                A[i * 8 + r, k], 0)                for r in unrolled(8):
                                                       C[r] = C[r] + select(k <= i * 8 + r, ...

A guard is defined as in `peel`: a sum that must be at least 0.  Here the sum is the loop's variable
times a constant, plus a rest that depends on outer and inner variables.  The minimum and maximum of
the rest over the inner loops divide the loop into three ranges: the guard is true for all inner
iterations, for some, or for none.  The third range is omitted if its iterations would only combine
a reduction with its identity.  Otherwise the guard is replaced by false in this range.  `peel`
handles constant bounds.  Loops of few iterations, such as those over the window of a convolution,
are not cut.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import Affine, from_affine
from tilesmith.ir.context import Context
from tilesmith.ir.expr import Expr, Var, const, maximum, minimum, post_order
from tilesmith.ir.interval import make
from tilesmith.ir.operations import REDUCTIONS
from tilesmith.ir.simplify import EMPTY, simplify

from ..facts import conjuncts, in_loop, inside
from ..nodes import For, Func, If, Seq, Stmt, Store, seq
from ..visit import rebuild_through
from .guards import Guards, SplitGuard, is_fixed, renamed
from .simplify import simplify_stmt
from .vectorize import identity

FEWEST = 16
"""Lower bound on the iterations of a loop that is cut."""
DEPTH = 2
"""Upper bound on the guards along which one loop is cut.  A band has two guards."""


def trim(func: Func) -> Func:
    """`func` (stage "flat") with loops cut along their guards; the same object if none is cut."""
    trimmer = _Trimmer()
    if not trimmer.guards.collect(func.body):
        return func
    body = trimmer.stmt(func.body, EMPTY)
    return func.with_body(body)


@dataclass(frozen=True, slots=True)
class _Cut:
    """The ranges (start, end) of a loop in which a guard has different values.

    guard: the guard.
    always: where the guard is true for all inner iterations.
    sometimes: where the guard may be true for some inner iterations.
    never: where the guard is true for no inner iteration.
    """

    guard: SplitGuard
    always: tuple[Expr, Expr]
    sometimes: tuple[Expr, Expr]
    never: tuple[Expr, Expr]


class _Trimmer:
    def __init__(self) -> None:
        self.guards = Guards()
        self.lanes: set[Expr] = set()
        """Variables of enclosing vectorised loops.  A bound must not depend on them, since it would
        differ between lanes.
        """

    def stmt(self, stmt: Stmt, ctx: Context) -> Stmt:
        if not self.guards.collect(stmt):
            return stmt
        if isinstance(stmt, For):
            if stmt.kind == "serial" and self._is_long(stmt):
                return self.loop(stmt, ctx, DEPTH)
            if stmt.kind == "vectorized":
                self.lanes.add(stmt.var)
        inner = inside(ctx, stmt)
        return rebuild_through(stmt, lambda s: self.stmt(s, inner), lambda e: e)

    def _is_long(self, stmt: For) -> bool:
        return isinstance(stmt.extent, ir.Const) and int(stmt.extent.value) >= FEWEST

    def loop(self, stmt: For, ctx: Context, depth: int) -> Stmt:
        inner = in_loop(ctx, stmt)
        cut = self._cut(stmt, ctx, inner) if depth else None
        if cut is None:
            body = self.stmt(stmt.body, inner)
            if body is stmt.body:
                return stmt
            return For(stmt.var, stmt.start, stmt.extent, stmt.kind, body)
        yes: dict[Expr, Expr] = {cut.guard.node: const(True)}
        no: dict[Expr, Expr] = {cut.guard.node: const(False)}
        parts = [
            (cut.always[0], self._part(stmt, cut.always, yes, ctx, depth - 1)),
            (cut.sometimes[0], self._part(stmt, cut.sometimes, {}, ctx, 0)),
        ]
        if not _is_idle(stmt.body, cut.guard.node):
            parts.append((cut.never[0], self._part(stmt, cut.never, no, ctx, depth - 1)))
        if cut.always[0] is not stmt.start:
            parts.reverse()
        return seq(*(p for _, p in parts))

    def _part(
        self,
        stmt: For,
        ends: tuple[Expr, Expr],
        known: dict[Expr, Expr],
        ctx: Context,
        depth: int,
    ) -> Stmt:
        var = Var(stmt.var.name, stmt.var.type)
        start, end = ends
        values: dict[Expr, Expr] = {**known, stmt.var: var}
        piece = For(var, start, simplify(end - start, ctx), stmt.kind, stmt.body)
        simple = simplify_stmt(renamed(piece, values), ctx)
        if simple is None:
            return Seq(())
        return self.loop(simple, ctx, depth) if isinstance(simple, For) else simple

    def _cut(self, stmt: For, ctx: Context, inner: Context) -> _Cut | None:
        bound = self.guards.bound(stmt.body)
        below = inner
        for loop in self.guards.loops(stmt.body):
            first, count = below.interval(loop.start), below.interval(loop.extent)
            if first.lo is None or first.hi is None or count.hi is None:
                return None
            below = below.with_interval(loop.var, make(first.lo, first.hi + count.hi - 1))
        for guard in self.guards.collect(stmt.body):
            if guard.held is not const(True):
                continue  # the guard is a clamp of an index, not a predicate
            k, ends = _rest(guard.form, stmt.var, bound, below)
            if k == 0 or ends is None:
                continue
            least, greatest = (from_affine(*e) for e in ends)
            if isinstance(least, ir.Const) or not self.lanes.isdisjoint(post_order(least)):
                continue
            low, high = stmt.start, stmt.start + stmt.extent

            def clamped(e: Expr, low: Expr = low, high: Expr = high) -> Expr:
                return simplify(minimum(maximum(e, low), high), ctx)

            if k < 0:  # -k * var <= rest
                first = clamped(least // const(-k) + 1)
                last = clamped(greatest // const(-k) + 1)
                return _Cut(guard, (low, first), (first, last), (last, high))
            first = clamped((const(k - 1) - greatest) // const(k))
            last = clamped((const(k - 1) - least) // const(k))
            return _Cut(guard, (last, high), (first, last), (low, first))
        return None


def _rest(
    form: Affine, var: Var, inner: frozenset[Var], ctx: Context
) -> tuple[int, tuple[Affine, Affine] | None]:
    """The factor of `var` in `form`, and the minimum and maximum of the rest over the variables
    `inner`.  `(0, None)` if these are not known.
    """
    outer: dict[Expr, int] = {}
    low = high = form[1]
    for atom, k in form[0].items():
        if atom is var:
            continue
        mentioned = {n for n in post_order(atom) if isinstance(n, Var)}
        if var in mentioned or not is_fixed(atom):
            return 0, None
        if mentioned & inner:
            bounds = ctx.interval(atom)
            if bounds.lo is None or bounds.hi is None:
                return 0, None
            low += k * (bounds.lo if k > 0 else bounds.hi)
            high += k * (bounds.hi if k > 0 else bounds.lo)
        else:
            outer[atom] = k
    return form[0].get(var, 0), ((outer, low), (outer, high))


def _is_idle(stmt: Stmt, cond: Expr) -> bool:
    """Whether `stmt` changes nothing if `cond` is false.

    That is so if `cond` guards all stores, or if `stmt` only combines accumulators with the
    identity.  (Adding 0 would change an accumulator of -0 to 0, but sums start from 0 and so are
    never -0.)
    """
    if isinstance(stmt, Seq):
        return all(_is_idle(s, cond) for s in stmt.stmts)
    if isinstance(stmt, For):
        return _is_idle(stmt.body, cond)
    if isinstance(stmt, If):
        if stmt.otherwise is None and cond in set(conjuncts(stmt.cond)):
            return True
        return _is_idle(stmt.then, cond) and (
            stmt.otherwise is None or _is_idle(stmt.otherwise, cond)
        )
    if not isinstance(stmt, Store) or not isinstance(stmt.value, ir.Binary):
        return False
    a, b = stmt.value.a, stmt.value.b
    if not isinstance(b, ir.Select):
        a, b = b, a
    updates = (
        isinstance(a, ir.Load) and a.buffer is stmt.buffer and ir.same(a.indices, stmt.indices)
    )
    if not updates or not isinstance(b, ir.Select) or cond not in set(conjuncts(b.cond)):
        return False
    op, none = stmt.value.op, b.if_false
    if op not in REDUCTIONS:
        return False
    return none is identity(op, none.dtype) or (op == "add" and none is const(0, none.dtype))
