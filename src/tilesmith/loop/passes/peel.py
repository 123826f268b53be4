"""Peel: split loops such that guards are provably true in the part that runs most often.

    for io in range(4):                        for io in range(3):
        for ii in unrolled(16):                    for ii in unrolled(16):
            if io * 16 + ii < 50: S(io, ii)   ->       S(io, ii)
                                               for ii in unrolled(2): S(3, ii)

A guard is a comparison `sum >= 0` from one of three sources:

- a conjunct of a likely `If`;
- a conjunct of the condition of a `Select` that protects a load (padding, a concatenation);
- the comparison in a minimum or maximum, if this is part of a load's index and differs between
  vector lanes (a border that is repeated or reflected).  Inside the border the load is then a plain
  vector load.

The variables of loops between the split loop and the guard are eliminated: their ranges give the
minimum of the sum.  Then one atom (a term that is no sum itself) and a constant remain, or a longer
sum that is fixed outside the body.  The atom is the loop's variable, or an expression with known
bounds such as `p % 4`, where `p` is the variable of a fused loop.

- If the atom is the variable of a serial loop, the loop is cut into up to three loops: before,
  main, after (padding has a guard on both sides).  The parts before and after are peeled again.  If
  such a part runs once, its inner loops get constant extents.
- A parallel loop stays one loop, to keep the load balanced.  Its body becomes `if <main>: ... else:
  ...`.  The same is done if guards depend on several atoms, or on an atom that is not a loop's
  variable.
- If the length of the tail is known at run time only, the `else` branch gets versions (`tails`).
- Code growth is bounded.  The size of a kernel is its number of stores after unrolling.  No split
  increases it beyond the maximum of three times the original size and `FREE_SIZE`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir.affine import Affine, from_affine
from tilesmith.ir.context import Context
from tilesmith.ir.expr import Compare, Const, Expr, Unary, Var, const, symbols
from tilesmith.ir.interval import Interval, make
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.ir.simplify import EMPTY

from ..facts import in_loop, inside
from ..nodes import For, Func, If, Seq, Stmt, seq
from ..visit import rebuild_through
from .guards import Guards, SplitGuard, is_fixed, renamed, unrolled_size
from .simplify import simplify_stmt
from .tails import tail_versions

FREE_SIZE = 256
"""Size of a kernel (stores after unrolling) up to which it may always grow."""


def peel(func: Func) -> Func:
    """`func` with loops split along their guards; the same object if there are none."""
    if not Guards().collect(func.body):
        return func
    size = unrolled_size(func.body)
    extents = frozenset(p for p in func.params if isinstance(p, Var))
    peeler = _Peeler(max(3 * size, FREE_SIZE) - size, extents)
    body = peeler.stmt(func.body, EMPTY)
    return func.with_body(body)


@dataclass(frozen=True, slots=True)
class _Range:
    """The range of an atom's values for which a guard is true.

    guard: the guard.
    low, high: first and last value.
    """

    guard: SplitGuard
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class _Split:
    """A range of an atom's values for which guards are true in all iterations of the inner loops.

    atom: the expression whose values are split.
    low, high: first and last value.
    ranges: the guards that are true in the range, each with its own range.
    """

    atom: Expr
    low: int
    high: int
    ranges: tuple[_Range, ...]


class _Peeler:
    def __init__(self, budget: int, extents: frozenset[Var]) -> None:
        self.budget = budget
        self.extents = extents  # symbolic extents
        self.guards = Guards()

    def stmt(self, stmt: Stmt, ctx: Context) -> Stmt:
        if not self.guards.collect(stmt):
            return stmt
        if isinstance(stmt, For):
            return self.loop(stmt, ctx)
        inner = inside(ctx, stmt)
        return rebuild_through(stmt, lambda s: self.stmt(s, inner), lambda e: e)

    def loop(self, stmt: For, ctx: Context) -> Stmt:
        if stmt.kind == "vectorized":  # guards become masks in such a loop
            return stmt
        inner = in_loop(ctx, stmt)
        if (
            LOOP_KINDS[stmt.kind].is_ordered
            and isinstance(stmt.start, Const)
            and isinstance(stmt.extent, Const)
        ):
            split = self.split_for(stmt.body, inner, stmt.var)
            if split is not None:
                return self.cut(stmt, split, ctx)
        # Unrolling turns guards that depend only on this loop's variable into constants.
        if stmt.kind == "unrolled":
            body = self.stmt(stmt.body, inner)
        else:
            body = self.body(stmt.body, inner, stmt.var)
        return (
            stmt if body is stmt.body else For(stmt.var, stmt.start, stmt.extent, stmt.kind, body)
        )

    def body(self, stmt: Stmt, ctx: Context, var: Var) -> Stmt:
        """The body of the loop over `var`.  If possible, the body gets versions along an atom that
        mentions `var`.  Otherwise the loops inside it are peeled.
        """
        split = self.split_for(stmt, ctx, None, var)
        if split is not None:
            return self.version(stmt, split, ctx, var)
        condition = self.condition_for(stmt, ctx, var)
        if condition is not None:
            return self.version_on(stmt, *condition, ctx, var)
        return self.stmt(stmt, ctx)

    # --- what to split

    def split_for(
        self, body: Stmt, ctx: Context, wanted: Expr | None, mentions: Var | None = None
    ) -> _Split | None:
        """The split of `body` with the most guards.  It splits along the atom `wanted`, or along an
        atom that mentions `mentions` and that no statement changes.  None if there is no such
        split, or if the budget is too small.
        """
        size = unrolled_size(body)
        if size > self.budget:
            return None
        bound = self.guards.bound(body)
        inner = self.inside(body, ctx)
        by_atom: dict[Expr, list[_Range]] = {}
        for guard in self.guards.collect(body):
            reduced = _eliminate(guard.form, bound, inner)
            if reduced is None or len(reduced[0]) != 1:
                continue
            [(atom, k)], constant = reduced[0].items(), reduced[1]
            if wanted is not None and atom is not wanted:
                continue
            if mentions is not None and not (mentions in symbols(atom) and is_fixed(atom)):
                continue
            bounds = ctx.interval(atom)
            if bounds.lo is None or bounds.hi is None:
                continue
            low, high = bounds.lo, bounds.hi
            if k > 0:
                low = max(low, -(constant // k))
            else:
                high = min(high, constant // -k)
            if low <= high and (low > bounds.lo or high < bounds.hi):
                by_atom.setdefault(atom, []).append(_Range(guard, low, high))
        best: _Split | None = None
        for atom, entries in by_atom.items():
            split = _intersection(atom, entries)
            if best is None or len(split.ranges) > len(best.ranges):
                best = split
        return best

    def condition_for(self, body: Stmt, ctx: Context, var: Var) -> tuple[SplitGuard, Affine] | None:
        """A guard that is decided outside `body`, and a sum that mentions `var`.  Where the sum is
        at least 0, the guard is true in all of `body`.
        """
        guards = self.guards.collect(body)
        if not guards or unrolled_size(body) > self.budget:
            return None
        bound = self.guards.bound(body)
        inner = self.inside(body, ctx)
        for guard in sorted(guards, key=lambda g: not g.likely):
            reduced = _eliminate(guard.form, bound, inner)
            if reduced is None or not any(var in symbols(atom) for atom in reduced[0]):
                continue
            if not all(is_fixed(atom) for atom in reduced[0]):
                continue
            values = ctx.sum_interval(reduced)
            if values.hi is not None and values.hi < 0:
                continue  # the guard is never true: a split gains nothing
            return guard, reduced
        return None

    def inside(self, body: Stmt, ctx: Context) -> Context:
        """`ctx` with the ranges of the variables of loops in `body`."""
        for v, (low, high) in self.inner_ranges(body, ctx).items():
            ctx = ctx.with_interval(v, make(low, high))
        return ctx

    def inner_ranges(self, body: Stmt, ctx: Context) -> dict[Var, tuple[int, int]]:
        """Variable of a loop in `body` -> its range.  Variables of unknown range are absent."""
        ranges: dict[Var, tuple[int, int]] = {}
        for loop in self.guards.loops(body):
            start, count = ctx.interval(loop.start), ctx.interval(loop.extent)
            if start.lo is None or start.hi is None or count.hi is None:
                continue
            low, high = start.lo, max(start.hi + count.hi - 1, start.lo)
            before = ranges.get(loop.var, (low, high))  # copies of a loop share `var`
            ranges[loop.var] = (min(low, before[0]), max(high, before[1]))
        return ranges

    # --- how to split

    def cut(self, stmt: For, split: _Split, ctx: Context) -> Stmt:
        """Up to three loops in sequence, over consecutive ranges of the variable of `stmt`."""
        assert isinstance(stmt.start, Const) and isinstance(stmt.extent, Const)
        first, end = int(stmt.start.value), int(stmt.start.value) + int(stmt.extent.value)
        self.budget -= unrolled_size(stmt.body)
        if split.low > first and split.high + 1 < end:
            self.budget -= unrolled_size(stmt.body)
        known = {r.guard.node: r.guard.held for r in split.ranges}
        parts: list[Stmt] = []
        ranges = (
            (split.low, split.high + 1, known),
            (first, split.low, {}),
            (split.high + 1, end, {}),
        )
        # The main part is made first, since it takes precedence in the budget.
        for low, high, facts in ranges:
            if low < high:
                parts.append(self.part(stmt, low, high, facts, ctx))
            else:
                parts.append(Seq(()))
        main, before, after = parts
        return seq(before, main, after)

    def part(self, stmt: For, low: int, high: int, known: dict[Expr, Expr], ctx: Context) -> Stmt:
        var = Var(stmt.var.name, stmt.var.type)
        body = renamed(renamed(stmt.body, known), {stmt.var: var})
        simple = simplify_stmt(For(var, const(low), const(high - low), stmt.kind, body), ctx)
        return Seq(()) if simple is None else self.stmt(simple, ctx)

    def version(self, stmt: Stmt, split: _Split, ctx: Context, var: Var) -> Stmt:
        """`if atom <= high: ... else: ...`, and inside it the same for the lower end.

        Each call handles one end.  Each branch then has new bounds of the atom.  An atom with a
        single possible value is replaced by this number.
        """
        atom, bounds = split.atom, ctx.interval(split.atom)
        assert bounds.lo is not None and bounds.hi is not None
        if split.high < bounds.hi:
            cond = Compare("le", atom, const(split.high))
            decided = [r.guard for r in split.ranges if r.low <= bounds.lo]
            rest_values = split.high + 1, bounds.hi
        else:
            cond = Compare("le", const(split.low), atom)
            decided = [r.guard for r in split.ranges]
            rest_values = bounds.lo, split.low - 1
        self.budget -= unrolled_size(stmt)
        main_ctx, rest_ctx = ctx.assuming(cond), ctx.assuming(Unary("not", cond))
        main = self.simplified(renamed(stmt, {g.node: g.held for g in decided}), main_ctx)
        # The main part is made first, since it runs most often.
        main = self.again(main, main_ctx, var, bounds, atom)
        if rest_values[0] == rest_values[1]:
            rest = renamed(stmt, {atom: const(rest_values[0])})
            rest = self.stmt(self.simplified(rest, rest_ctx), rest_ctx)
        else:
            rest = self.again(self.simplified(stmt, rest_ctx), rest_ctx, var, bounds, atom)
        return If(cond, main, None if _is_nothing(rest) else rest)

    def again(self, stmt: Stmt, ctx: Context, var: Var, before: Interval, atom: Expr) -> Stmt:
        if ctx.interval(atom) == before:  # no new facts would give the same split again
            return self.stmt(stmt, ctx)
        return self.body(stmt, ctx, var)

    def version_on(
        self, stmt: Stmt, guard: SplitGuard, form: Affine, ctx: Context, var: Var
    ) -> Stmt:
        """`if form >= 0: <guard is true> else: ...`."""
        self.budget -= unrolled_size(stmt)
        cond: Expr = Compare("le", const(0), from_affine(*form))
        known: dict[Expr, Expr] = {}
        if form == guard.form:
            known[guard.node] = guard.failed
            if guard.held is const(True):
                cond = guard.node
        main_ctx, rest_ctx = ctx.assuming(cond), ctx.assuming(Unary("not", cond))
        main = self.simplified(renamed(stmt, {guard.node: guard.held}), main_ctx)
        rest = self.simplified(renamed(stmt, known) if known else stmt, rest_ctx)
        if guard.likely and any(not symbols(a).isdisjoint(self.extents) for a in form[0]):
            rest = tail_versions(rest, rest_ctx, self.extents, self.budget)
        main = self.body(main, main_ctx, var)
        # If `form` is only a minimum of the guard's sum, `body` would find the same split again.
        rest = self.body(rest, rest_ctx, var) if known else self.stmt(rest, rest_ctx)
        return If(cond, main, rest if not _is_nothing(rest) else None)

    def simplified(self, stmt: Stmt, ctx: Context) -> Stmt:
        simple = simplify_stmt(stmt, ctx)
        return Seq(()) if simple is None else simple


def _is_nothing(stmt: Stmt) -> bool:
    return isinstance(stmt, Seq) and not stmt.stmts


def _eliminate(form: Affine, inner: frozenset[Var], ctx: Context) -> Affine | None:
    """The minimum of `form` over all values of the variables `inner`; None if it is unknown."""
    left: dict[Expr, int] = {}
    constant = form[1]
    for atom, k in form[0].items():
        if not symbols(atom).isdisjoint(inner):
            bounds = ctx.interval(atom)
            end = bounds.lo if k > 0 else bounds.hi
            if end is None:
                return None
            constant += k * end
            continue
        left[atom] = k
    return left, constant


def _intersection(atom: Expr, ranges: list[_Range]) -> _Split:
    """The split along `atom` in which the most important guards are true together: likely ones come
    first, then those with wide ranges.
    """
    first, *others = sorted(ranges, key=lambda r: (not r.guard.likely, r.low - r.high))
    low, high, held = first.low, first.high, [first]
    for r in others:
        if max(low, r.low) <= min(high, r.high):
            low, high = max(low, r.low), min(high, r.high)
            held.append(r)
    return _Split(atom, low, high, tuple(held))
