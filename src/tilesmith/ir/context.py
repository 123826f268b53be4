"""Facts that hold where an expression is evaluated, and simplification under these facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from . import interval as iv
from .affine import Affine, affine_form, combined, from_affine, product, scaled
from .dtypes import i64
from .expr import Binary, Compare, Const, Expr, ExprLike, Unary, Var, as_expr, post_order, same
from .interval import Interval
from .prove import Facts, interval_of, is_index, nonnegative, sum_interval
from .subjects import Subjects, about_indices, depends_on_indices

_MEMO_LIMIT = 1 << 17
"""Upper bound on the entries of a context's memo; a full memo is emptied."""

_MOST_REVISITS = 256
"""Upper bound on repeated simplifications of selects under other conditions; see `Nest`."""

Rule: TypeAlias = "Callable[[Any, Context], Expr]"


class Nest:
    """State that a context shares with contexts that assume further conditions.

    A branch of a `Select` is simplified in a context of its own.  Selects that share operands would
    be simplified once for every path to them: 2**n times for n nested selects.  So selects that
    were reached often enough are simplified under the facts of `base` alone.

    base: the context with only the facts that hold in all these contexts.
    seen: the selects that were simplified in any of these contexts.
    revisits: number of repeated simplifications of selects in `seen`.
    subjects: the data-dependent conditions and integers in an expression.
    """

    __slots__ = ("base", "revisits", "seen", "subjects")

    def __init__(self, base: Context) -> None:
        self.base = base
        self.seen: set[Expr] = set()
        self.revisits = 0
        self.subjects = Subjects()


class Context(Facts):
    """Facts that hold during simplification.  A context is immutable: each method gives a new one.

    rules: the rewriting rule of each kind of node.  A rule simplifies the children with
        `Context.simplify` and returns the simplest form that it knows, or the node itself if there
        is nothing to do.

    Results are cached in the context, so one context should serve a whole loop body.
    """

    __slots__ = ("_assumed", "_learns", "_memo", "_nest", "_rules", "_sums")

    def __init__(self, rules: Mapping[type, Rule], nest: Nest | None = None) -> None:
        super().__init__()
        self._rules = rules
        self._learns = True
        self._clear()
        self._nest = nest or Nest(self)

    def _clear(self) -> None:
        self._memo: dict[Expr, Expr] = {}
        self._sums: dict[Expr, Affine] = {}
        self._assumed: dict[Expr, Context] = {}
        self.intervals, self.proofs = {}, {}

    def _copy(self, nest: Nest | None = None) -> Context:
        new = Context(self._rules, nest)
        new.bounds, new.symbolic = dict(self.bounds), dict(self.symbolic)
        new.inequalities, new.known = self.inequalities, dict(self.known)
        return new

    def with_var(self, var: Var, lo: ExprLike, hi: ExprLike) -> Context:
        """The context with `lo <= var <= hi` added; the ends may be expressions of other Vars."""
        return self.with_box({var: (lo, hi)})

    def with_box(self, box: Mapping[Var, tuple[ExprLike, ExprLike]]) -> Context:
        """The context with the ranges in `box` added.  The ends of these ranges must not mention
        Vars of `box`.
        """
        new = self._copy()
        for var, (lo, hi) in box.items():
            low, high = self.simplify(as_expr(lo)), self.simplify(as_expr(hi))
            new.bounds[var] = iv.make(self.interval(low).lo, self.interval(high).hi)
            new.symbolic.pop(var, None)
            if type(low) is not Const or type(high) is not Const:
                new.symbolic[var] = (
                    None if type(low) is Const else low,
                    None if type(high) is Const else high,
                )
        return new

    def with_interval(self, var: Var, values: Interval) -> Context:
        """The context with a numeric interval of `var` added."""
        new = self._copy(self._nest)
        new.bounds[var] = values
        return new

    def assuming(self, cond: Expr) -> Context:
        """The context in which the scalar bool `cond` is true."""
        if not self._learns:
            return self
        context = self._assumed.get(cond)
        if context is None:
            simple = self.simplify(cond)
            context = self
            if type(simple) is not Const:
                context = self._copy(self._nest)
                context._learn(simple, True)
            self._assumed[cond] = context
        return context

    def branch(self, e: Expr, cond: Expr) -> Expr:
        """`e` simplified under the additional fact `cond`, a scalar bool that is already simplified
        in this context.
        """
        if not about_indices(cond):
            # Most conditions on data say nothing about `e`.  Then `e` needs no context of its own.
            plain = self.simplify(e)
            if not self._nest.subjects.meet(cond, plain):
                return plain
        elif not depends_on_indices(e):
            return self.simplify(e)
        return self.assuming(cond).simplify(e)

    def revisited(self, e: Expr) -> Context | None:
        """The nest's `base` context if the select `e` was reached too often; else None."""
        nest = self._nest
        if e not in nest.seen:
            nest.seen.add(e)
        elif nest.revisits < _MOST_REVISITS:
            nest.revisits += 1
        elif self is not nest.base:
            return nest.base
        return None

    def _learn(self, cond: Expr, value: bool) -> None:
        stack = [(cond, value)]
        while stack:
            cond, value = stack.pop()
            self.known[cond] = value
            if type(cond) is Unary and cond.op == "not":
                stack.append((cond.a, not value))
            elif type(cond) is Binary and cond.op == ("and" if value else "or"):
                stack += ((cond.b, value), (cond.a, value))
            else:
                self._learn_comparison(cond, value)

    def _learn_comparison(self, cond: Expr, value: bool) -> None:
        if type(cond) is Compare and cond.a.dtype is i64 and cond.lanes == 1:
            a, b = affine_form(cond.a), affine_form(cond.b)
            if not (self.is_exact(a) and self.is_exact(b)):
                return
            difference = combined(b, a, -1)
            if cond.op == "le":
                self._learn_sum(difference if value else scaled(combined(difference, ({}, 1)), -1))
            elif cond.op == "lt":
                self._learn_sum(combined(difference, ({}, -1)) if value else scaled(difference, -1))
            elif (cond.op == "eq") is value:
                self._learn_sum(difference)
                self._learn_sum(scaled(difference, -1))
                self._learn_residue(cond)

    def _learn_sum(self, form: Affine) -> None:
        """Record `form >= 0`."""
        terms, k = form
        if len(terms) == 1:
            [(atom, c)] = terms.items()
            # c·atom + k >= 0 bounds the atom
            fact = iv.make(-(k // c), None) if c > 0 else iv.make(None, k // -c)
            self.bounds[atom] = iv.intersect(interval_of(atom, self), fact)
            self.intervals.clear()
            if c > 0 and type(atom) is Binary and atom.op in ("max", "min"):
                self._learn_operands(atom, -(k // c))
        self.inequalities = (*self.inequalities, form)

    def _learn_operands(self, e: Binary, least: int) -> None:
        """Record facts about the operands of `e`, a min or max that is at least `least`.  Both
        operands of a minimum are at least `least`.  If one operand of a maximum is always smaller
        than `least`, the other operand is at least `least`.
        """
        for a, b in ((e.a, e.b), (e.b, e.a)):
            most, form = interval_of(b, self).hi, affine_form(a)
            follows = e.op == "min" or (most is not None and most < least)
            if follows and self.is_exact(form):
                self._learn_sum(combined(form, ({}, -least)))

    def _learn_residue(self, cond: Compare) -> None:
        """Record `x % c == r` as stride c and offset r of the interval of x."""
        mod, rest = cond.a, cond.b
        if (
            type(mod) is Binary and mod.op == "floormod"
            and type(mod.b) is Const and type(rest) is Const and mod.b.value > 0
        ):  # fmt: skip
            fact = iv.make(None, None, int(mod.b.value), int(rest.value))
            self.bounds[mod.a] = iv.intersect(interval_of(mod.a, self), fact)
            self.intervals.clear()

    def simplify(self, e: Expr) -> Expr:
        """`e` in simplest form under these facts; `e` itself if it is already in that form."""
        known = self._memo.get(e)
        if known is not None:
            return known
        try:
            result = self._apply(e)
        except RecursionError:
            result = self._from_below(e)
        memo = self._memo
        if len(memo) > _MEMO_LIMIT:
            self._clear()
            self._nest = Nest(self)
            memo = self._memo
        if result is not e and result not in memo:
            # the result of a rule may allow another rule; every rule makes the expression smaller
            # or more canonical
            for _ in range(8):
                again = self._apply(result)
                if again is result:
                    break
                result = again
        memo[e] = result
        memo[result] = result
        return result

    def _from_below(self, e: Expr) -> Expr:
        """Simplify an expression deeper than Python's stack.  Operands are simplified first, so
        that each step finds their results in the cache.  Meanwhile conditions add no facts, since
        other contexts can't use these results.
        """
        learns, self._learns = self._learns, False
        try:
            for node in post_order(e):
                if node is not e:
                    self.simplify(node)
            return self._apply(e)
        finally:
            self._learns = learns

    def _apply(self, e: Expr) -> Expr:
        rule = self._rules.get(type(e))
        if rule is not None:
            return rule(e, self)
        # Expressions without rules, such as te's reductions: simplify only their children.
        new = tuple(map(self.simplify, e.children))
        return e if same(new, e.children) else e.with_children(new)

    def affine(self, e: Expr) -> Affine:
        """The affine sum of a scalar i64 `e`, with simplified atoms.  The caller must not change
        it.
        """
        known = self._sums.get(e)
        if known is not None:
            return known
        if type(e) is Const:
            form: Affine = ({}, int(e.value))
        elif _terms(e):
            for node in _shared_sums(e, self._sums):  # inner ones first
                self._sums[node] = self._sum(node)
            return self._sums[e]
        elif type(e) is Binary and e.op == "mul":
            form = self._product(self.affine(e.a), self.affine(e.b))
        else:
            form = affine_form(self.simplify(e))
        self._sums[e] = form
        return form

    def _sum(self, e: Expr) -> Affine:
        """The affine sum of arbitrarily nested sums."""
        terms: dict[Expr, int] = {}
        constant = 0
        waiting = [(x, k) for x, k in reversed(_terms(e))]
        while waiting:
            node, k = waiting.pop()
            inner = () if node in self._sums else _terms(node)
            if inner:
                waiting += [(x, k * sign) for x, sign in reversed(inner)]
                continue
            form = self.affine(node)
            constant += k * form[1]
            for atom, c in form[0].items():
                total = terms.get(atom, 0) + k * c
                if total:
                    terms[atom] = total
                else:
                    terms.pop(atom, None)
        return terms, constant

    def _product(self, a: Affine, b: Affine) -> Affine:
        if not a[0]:
            return scaled(b, a[1])
        if not b[0]:
            return scaled(a, b[1])
        if len(b[0]) > 1 or b[1]:
            a, b = b, a
        if len(b[0]) > 1 or b[1] or (len(a[0]) + (a[1] != 0) > 1 and not self.is_exact(a)):
            return {product(from_affine(*a), from_affine(*b)): 1}, 0
        # distribute a symbolic extent over the terms of an index, so that equal terms combine
        [(factor, k)] = b[0].items()
        result: Affine = ({factor: a[1] * k} if a[1] else {}, 0)
        for atom, c in a[0].items():
            result = combined(result, ({product(atom, factor): c * k}, 0))
        return result

    def build(self, form: Affine) -> Expr:
        """The canonical expression of an affine sum of simplified atoms."""
        return from_affine(form[0], form[1])

    def interval(self, e: Expr) -> Interval:
        """The possible values of the integer or bool `e` (in any lane)."""
        return interval_of(e, self)

    def sum_interval(self, form: Affine) -> Interval:
        """The interval of an affine sum as a mathematical integer."""
        return sum_interval(form, self)

    def is_exact(self, form: Affine) -> bool:
        """True if the sum can't overflow: it is index arithmetic, or its interval fits i64."""
        return all(is_index(a) for a in form[0]) or sum_interval(form, self).fits(i64)

    def nonnegative(self, form: Affine) -> bool:
        """True if `form >= 0` can be proved; the sum must not overflow."""
        return nonnegative(form, self)


_SUMS = ("add", "sub", "mul")


def _terms(e: Expr) -> tuple[tuple[Expr, int], ...]:
    """The operands of a sum, or of a multiple of a sum, each with its factor; else empty."""
    if type(e) is Binary and e.op == "add":
        return (e.a, 1), (e.b, 1)
    if type(e) is Binary and e.op == "sub":
        return (e.a, 1), (e.b, -1)
    if type(e) is Binary and e.op == "mul":
        for a, b in ((e.a, e.b), (e.b, e.a)):
            if type(b) is Const and (type(a) is Unary or (type(a) is Binary and a.op in _SUMS)):
                return ((a, int(b.value)),)
    return ((e.a, -1),) if type(e) is Unary and e.op == "neg" else ()


def _shared_sums(e: Expr, known: Mapping[Expr, Affine]) -> list[Expr]:
    """The sums to add up for `e`: the nested sums that occur several times and are not in `known`,
    inner sums first, then `e`.
    """
    uses: dict[Expr, int] = {}
    order: list[Expr] = []
    waiting = [(e, False)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            order.append(node)
            continue
        uses[node] = uses.get(node, 0) + 1
        if uses[node] == 1:
            waiting.append((node, True))
            waiting += [(x, False) for x, _ in _terms(node) if x not in known and _terms(x)]
    return [node for node in order if uses[node] > 1 or node is e]
