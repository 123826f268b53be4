"""The simplifier: rewrites an expression to a smaller one of the same value.

`simplify(e, ctx)` works bottom-up with rules in tables indexed by node kind and operation
(`ir.rules`), memoised by node in the `Context`, which holds what is known where the expression
stands.

What is assumed and what is kept
- Integers of type i64 made of Vars, constants and values of narrower types are *index arithmetic*:
  they are taken not to overflow.  Where an i64 value comes from memory, only what holds modulo
  2**64 is used, unless its interval shows that nothing overflows.
- Floats keep their value bit by bit (NaN payloads aside): `x * 1`, `x / 1`, `x - 0`, `x + -0.0` and
  folding in the dtype, but not `x + 0` (changes -0.0) nor `x * 0` (NaN, infinities, signs).
- An integer division by zero is undefined, so a rule may assume that it does not happen.
- A rule never moves a `Load` out of the branch of a `Select` that guards it.
"""

from __future__ import annotations

from . import interval as iv
from .affine import Affine, affine_form, combined, from_affine, product, scaled
from .dtypes import bool_, i64
from .expr import Binary, Compare, Const, Expr, ExprLike, Unary, Var, as_expr, const, post_order
from .interval import Interval
from .prove import interval_of, is_index, nonnegative, sum_interval
from .rules import RULES

_MEMO_LIMIT = 1 << 17  # entries of the long-lived empty context; emptied when full


class Context:
    """Facts that hold where an expression stands; immutable (each method gives a new context).

    Facts: bounds of Vars (numeric intervals and symbolic ends), linear inequalities, and conditions
    known to be true or false.  Results are cached in the context, so one context should serve a
    whole loop body.
    """

    __slots__ = (
        "_assumed",
        "_intervals",
        "_memo",
        "_proofs",
        "_sums",
        "bounds",
        "facts",
        "known",
        "symbolic",
    )  # fmt: skip

    def __init__(self) -> None:
        self.bounds: dict[Expr, Interval] = {}
        """Numeric intervals of Vars and of other atoms."""
        self.symbolic: dict[Var, tuple[Expr | None, Expr | None]] = {}
        """Inclusive ends of a Var that are not plain numbers; later Vars may depend on earlier
        ones.
        """
        self.facts: tuple[Affine, ...] = ()
        """Affine sums known to be >= 0 that `bounds` can't say."""
        self.known: dict[Expr, bool] = {}
        """Conditions (simplified) with their value."""
        self._clear()

    def _clear(self) -> None:
        self._memo: dict[Expr, Expr] = {}
        self._sums: dict[Expr, Affine] = {}
        self._intervals: dict[Expr, Interval] = {}
        self._assumed: dict[Expr, Context] = {}
        self._proofs: dict[object, bool] = {}

    def _copy(self) -> Context:
        new = Context.__new__(Context)
        new.bounds, new.symbolic = dict(self.bounds), dict(self.symbolic)
        new.facts, new.known = self.facts, dict(self.known)
        new._clear()
        return new

    def with_var(self, var: Var, lo: ExprLike, hi: ExprLike) -> Context:
        """Adds `lo <= var <= hi`; the ends may be expressions of other Vars."""
        low, high = self.simplify(as_expr(lo)), self.simplify(as_expr(hi))
        new = self._copy()
        new.bounds[var] = iv.make(self.interval(low).lo, self.interval(high).hi)
        new.symbolic.pop(var, None)
        if type(low) is not Const or type(high) is not Const:
            new.symbolic[var] = (
                None if type(low) is Const else low,
                None if type(high) is Const else high,
            )
        return new

    def with_interval(self, var: Var, values: Interval) -> Context:
        """Adds what is known of the values of `var` as numbers."""
        new = self._copy()
        new.bounds[var] = values
        return new

    def assuming(self, cond: Expr) -> Context:
        """Adds that the scalar bool `cond` is true."""
        found = self._assumed.get(cond)
        if found is None:
            simple = self.simplify(cond)
            found = self
            if type(simple) is not Const:
                found = self._copy()
                found._learn(simple, True)
            self._assumed[cond] = found
        return found

    def _learn(self, cond: Expr, value: bool) -> None:
        self.known[cond] = value
        if type(cond) is Unary and cond.op == "not":
            self._learn(cond.a, not value)
        elif type(cond) is Binary and cond.op == ("and" if value else "or"):
            self._learn(cond.a, value)
            self._learn(cond.b, value)
        elif type(cond) is Compare and cond.a.dtype is i64 and cond.lanes == 1:
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
        """Records `form >= 0`."""
        terms, k = form
        if len(terms) == 1:
            [(atom, c)] = terms.items()
            # c·atom >= -k
            fact = iv.make(-(k // c), None) if c > 0 else iv.make(None, k // -c)
            self.bounds[atom] = iv.intersect(interval_of(atom, self), fact)
            self._intervals.clear()
        self.facts = (*self.facts, form)

    def _learn_residue(self, cond: Compare) -> None:
        """Records `x % c == r` as the stride of x."""
        mod, rest = cond.a, cond.b
        if (
            type(mod) is Binary and mod.op == "floormod"
            and type(mod.b) is Const and type(rest) is Const and mod.b.value > 0
        ):  # fmt: skip
            fact = iv.make(None, None, int(mod.b.value), int(rest.value))
            self.bounds[mod.a] = iv.intersect(interval_of(mod.a, self), fact)
            self._intervals.clear()

    def simplify(self, e: Expr) -> Expr:
        """`e` in simplest form under these facts; the same object when it is so already."""
        found = self._memo.get(e)
        if found is not None:
            return found
        rule = RULES.get(type(e), _rebuild)
        result = rule(e, self)
        memo = self._memo
        if len(memo) > _MEMO_LIMIT:
            self._clear()
            memo = self._memo
        if result is not e and result not in memo:
            # what a rule returns may allow another one; every rule makes the expression smaller or
            # more canonical
            for _ in range(8):
                again = RULES.get(type(result), _rebuild)(result, self)
                if again is result:
                    break
                result = again
        memo[e] = result
        memo[result] = result
        return result

    def affine(self, e: Expr) -> Affine:
        """The affine sum of a scalar i64 `e`, its atoms simplified.  Shared: do not change it."""
        found = self._sums.get(e)
        if found is not None:
            return found
        if type(e) is Const:
            form: Affine = ({}, int(e.value))
        elif type(e) is Binary and e.op in ("add", "sub"):
            form = combined(self.affine(e.a), self.affine(e.b), 1 if e.op == "add" else -1)
        elif type(e) is Binary and e.op == "mul":
            form = self._product(self.affine(e.a), self.affine(e.b))
        elif type(e) is Unary and e.op == "neg":
            form = scaled(self.affine(e.a), -1)
        else:
            form = affine_form(self.simplify(e))
        self._sums[e] = form
        return form

    def _product(self, a: Affine, b: Affine) -> Affine:
        if not a[0]:
            return scaled(b, a[1])
        if not b[0]:
            return scaled(a, b[1])
        if len(b[0]) > 1 or b[1]:
            a, b = b, a
        if len(b[0]) > 1 or b[1] or (len(a[0]) + (a[1] != 0) > 1 and not self.is_exact(a)):
            return {product(from_affine(*a), from_affine(*b)): 1}, 0
        # a symbolic extent times an index: distribute, so that equal terms meet
        [(factor, k)] = b[0].items()
        result: Affine = ({factor: a[1] * k} if a[1] else {}, 0)
        for atom, c in a[0].items():
            result = combined(result, ({product(atom, factor): c * k}, 0))
        return result

    def build(self, form: Affine) -> Expr:
        """The canonical expression of an affine sum of simplified atoms."""
        return from_affine(form[0], form[1])

    def interval(self, e: Expr) -> Interval:
        """What values the integer or bool `e` may take (any lane of it)."""
        return interval_of(e, self)

    def sum_interval(self, form: Affine) -> Interval:
        """The interval of an affine sum taken as a mathematical integer."""
        return sum_interval(form, self)

    def is_exact(self, form: Affine) -> bool:
        """True when the sum, of type i64, does not overflow: it is index arithmetic, or its
        interval says so.
        """
        return all(is_index(a) for a in form[0]) or sum_interval(form, self).fits(i64)

    def nonnegative(self, form: Affine) -> bool:
        """True when `form >= 0` can be shown (a sum that does not overflow)."""
        return nonnegative(form, self)


def _rebuild(e: Expr, ctx: Context) -> Expr:
    """Simplifies the children only: for kinds that have no rules (te's reductions)."""
    children = e.children
    new = tuple(ctx.simplify(c) for c in children)
    return e if all(a is b for a, b in zip(new, children)) else e.with_children(new)


EMPTY = Context()
"""No facts."""


def simplify(e: Expr, ctx: Context = EMPTY) -> Expr:
    """`e` in simplest form where the facts of `ctx` hold; the same object when nothing changes."""
    try:
        return ctx.simplify(e)
    except RecursionError:
        # a chain of operations deeper than Python's stack: go bottom-up without recursion
        from_below(e, ctx)
        return ctx.simplify(e)


def from_below(e: Expr, ctx: Context) -> None:
    """Simplifies every sub-expression, leaves first, so that each step finds its operands done."""
    for node in post_order(e):
        ctx.simplify(node)


def can_prove(cond: Expr, ctx: Context = EMPTY) -> bool:
    """True when the bool `cond` is shown to hold (in all lanes)."""
    if cond.dtype is not bool_:
        raise TypeError(f"a condition is a bool, got {cond.dtype}: {cond}")
    return is_true(simplify(cond, ctx))


def is_true(e: Expr) -> bool:
    """True for the literal `true` and its broadcasts."""
    return e is const(True) or (
        not isinstance(e, (Const, Var)) and getattr(e, "value", None) is const(True)
    )


def interval(e: Expr, ctx: Context = EMPTY) -> Interval:
    """The values that the integer `e` may take: ends, stride and offset."""
    return interval_of(e, ctx)
