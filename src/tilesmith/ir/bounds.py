"""Bounds of integer expressions over a box of variables: numeric intervals and symbolic ends.

Region inference uses `eliminate` to find the elements of a tensor that are read in some loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .affine import affine_form, combined, factors_of, from_affine, scaled
from .context import Context
from .expr import (
    Binary,
    Broadcast,
    Cast,
    Const,
    Expr,
    ExprLike,
    Ramp,
    Select,
    Var,
    as_expr,
    cast,
    const,
    free_vars,
    maximum,
    minimum,
)
from .interval import Interval
from .simplify import EMPTY, can_prove, interval, simplify

__all__ = ["Bounds", "Interval", "eliminate", "interval"]

Bounds = tuple[Expr, Expr]
"""Inclusive ends."""


def eliminate(
    e: Expr, ranges: Mapping[Var, tuple[ExprLike, ExprLike]], ctx: Context = EMPTY
) -> Bounds | None:
    """The minimum and maximum of the integer `e` while each Var of `ranges` runs over its inclusive
    range.

    The ends are simplified expressions of the other Vars, and every value of `e` lies between them.
    They may be wider than needed, but are exact for affine sums where each Var occurs in one term.
    A range may mention other Vars of `ranges` (not in a circle).  For an empty range the ends have
    no meaning.  None if no bounds are known, as for an index read from memory or a division
    by a variable.
    """
    box = {v: (as_expr(lo), as_expr(hi)) for v, (lo, hi) in ranges.items()}
    inner = ctx
    for v in _outermost_first(box):
        inner = inner.with_var(v, *box[v])
    walker = _Eliminator(box, ctx, inner)
    bounds = walker.of(simplify(e, inner))
    return None if bounds is None else (simplify(bounds[0], ctx), simplify(bounds[1], ctx))


def _outermost_first(box: Mapping[Var, Bounds]) -> list[Var]:
    """The Vars in an order in which each range mentions only earlier Vars."""
    order: dict[Var, None] = {}

    def visit(v: Var, above: tuple[Var, ...]) -> None:
        if v in order or any(v is x for x in above):
            return
        for end in box[v]:
            for other in sorted(free_vars(end) & box.keys(), key=lambda x: x.name):
                visit(other, (*above, v))
        order[v] = None

    for v in box:
        visit(v, ())
    return list(order)


class _Eliminator:
    """Computes bounds from operands to users, and caches them by node."""

    def __init__(self, box: Mapping[Var, Bounds], ctx: Context, inner: Context) -> None:
        self.box, self.ctx, self.inner = box, ctx, inner
        self.position = {v: i for i, v in enumerate(_outermost_first(box))}
        self.found: dict[Expr, Bounds | None] = {}

    def of(self, e: Expr) -> Bounds | None:
        if e not in self.found:
            self.found[e] = (e, e) if not (free_vars(e) & self.box.keys()) else self._compute(e)
        return self.found[e]

    def _compute(self, e: Expr) -> Bounds | None:
        if e.dtype.is_int and e.lanes == 1:
            form = affine_form(e)
            if e not in form[0]:
                return self._sum(form)
        rule = _RULES.get(type(e))
        bounds = None if rule is None else rule(self, e)
        return self._numeric(e) if bounds is None else bounds

    def _numeric(self, e: Expr) -> Bounds | None:
        values = self.inner.interval(e)
        if (
            values.lo is None
            or values.hi is None
            or abs(values.lo) > 1 << 40
            or abs(values.hi) > 1 << 40
        ):
            return None
        return const(values.lo, e.dtype), const(values.hi, e.dtype)

    def var(self, e: Expr) -> Bounds | None:
        assert isinstance(e, Var)
        lo, hi = self.box[e]
        low, high = self.of(simplify(lo, self.inner)), self.of(simplify(hi, self.inner))
        return None if low is None or high is None else (low[0], high[1])

    def _sum(self, form: tuple[dict[Expr, int], int]) -> Bounds | None:
        """Bounds of an affine sum.  Each atom is replaced by its lower or upper end, as the sign of
        its coefficient requires.  Inner Vars are replaced first, since their ends mention outer
        ones.
        """
        lo = self._end(form, low=True)
        hi = self._end(form, low=False)
        return None if lo is None or hi is None else (lo, hi)

    def _end(self, form: tuple[dict[Expr, int], int], low: bool) -> Expr | None:
        for _ in range(len(self.box) + 1):
            inner_first = sorted(
                (v for v in form[0] if v in self.box),
                key=lambda v: -self.position[v],  # type: ignore[index]
            )
            if not inner_first:
                break
            v = inner_first[0]
            k = form[0][v]
            end = self.box[v][0 if (k > 0) == low else 1]  # type: ignore[index]
            rest = ({a: c for a, c in form[0].items() if a is not v}, form[1])
            form = combined(rest, scaled(self.inner.affine(end), k))
        total: tuple[dict[Expr, int], int] = ({}, form[1])
        for atom, k in form[0].items():
            if free_vars(atom) & self.box.keys():
                bounds = self.of(atom)
                if bounds is None:
                    return None
                total = combined(total, affine_form(bounds[0 if (k > 0) == low else 1]), k)
            else:
                total = combined(total, ({atom: k}, 0))
        return from_affine(*total)

    def binary(self, e: Expr) -> Bounds | None:
        assert isinstance(e, Binary)
        rule = _OPERATIONS.get(e.op)
        return None if rule is None else rule(self, e)

    def floordiv(self, e: Binary) -> Bounds | None:
        a = self.of(e.a)
        if a is None or not self._positive(e.b):
            return None
        return self._clamped(e, (a[0] // e.b, a[1] // e.b))

    def floormod(self, e: Binary) -> Bounds | None:
        a = self.of(e.a)
        if not self._positive(e.b):
            return None
        whole = (const(0, e.dtype), simplify(e.b - 1, self.ctx))
        if a is None:
            return whole
        # if both ends have the same quotient, so have all values between, and `%` keeps the order
        if can_prove(a[0] // e.b == a[1] // e.b, self.ctx):
            return simplify(a[0] % e.b, self.ctx), simplify(a[1] % e.b, self.ctx)
        if can_prove(const(0, e.dtype) <= a[0], self.ctx):
            return whole[0], simplify(minimum(whole[1], a[1]), self.ctx)
        return whole

    def product(self, e: Binary) -> Bounds | None:
        """Bounds of a product with one varying factor; the constant factors must be nonnegative."""
        factors = factors_of(e)
        moving = [f for f in factors if free_vars(f) & self.box.keys()]
        fixed = [f for f in factors if not free_vars(f) & self.box.keys()]
        if len(moving) != 1 or not all(self._nonnegative(f) for f in fixed):
            return None
        bounds = self.of(moving[0])
        if bounds is None:
            return None
        lo, hi = bounds
        for f in fixed:
            lo, hi = lo * f, hi * f
        return simplify(lo, self.ctx), simplify(hi, self.ctx)

    def extremum(self, e: Binary) -> Bounds | None:
        a, b = self.of(e.a), self.of(e.b)
        if a is not None and b is not None:
            return self._clamped(e, (Binary(e.op, a[0], b[0]), Binary(e.op, a[1], b[1])))
        return None

    def select(self, e: Expr) -> Bounds | None:
        assert isinstance(e, Select)
        a, b = self.of(e.if_true), self.of(e.if_false)
        if a is None or b is None:
            return None
        if not free_vars(e.cond) & self.box.keys():
            lo, hi = Select(e.cond, a[0], b[0]), Select(e.cond, a[1], b[1])
        else:
            lo, hi = minimum(a[0], b[0]), maximum(a[1], b[1])
        return simplify(lo, self.ctx), simplify(hi, self.ctx)

    def cast(self, e: Expr) -> Bounds | None:
        assert isinstance(e, Cast)
        source = e.a.dtype
        if not (source.is_int and e.type.is_int):
            return None
        widens = e.type.min <= source.min and source.max <= e.type.max
        if not (widens or self.inner.interval(e.a).fits(e.type)):
            return None
        a = self.of(e.a)
        return None if a is None else (cast(a[0], e.type), cast(a[1], e.type))

    def ramp(self, e: Expr) -> Bounds | None:
        assert isinstance(e, Ramp)
        step = self.inner.interval(e.stride)
        last = simplify(e.base + e.stride * const(e.size - 1, e.dtype), self.inner)
        ends = (e.base, last)
        if step.hi is not None and step.hi <= 0:
            ends = (last, e.base)
        elif step.lo is None or step.lo < 0:
            return None
        lo, hi = self.of(simplify(ends[0], self.inner)), self.of(ends[1])
        return None if lo is None or hi is None else (lo[0], hi[1])

    def broadcast(self, e: Expr) -> Bounds | None:
        assert isinstance(e, Broadcast)
        return self.of(e.value)

    def _clamped(self, e: Expr, bounds: Bounds) -> Bounds:
        return simplify(bounds[0], self.ctx), simplify(bounds[1], self.ctx)

    def _positive(self, e: Expr) -> bool:
        if type(e) is Const:
            return e.value > 0
        return not (free_vars(e) & self.box.keys()) and can_prove(const(1, e.dtype) <= e, self.ctx)

    def _nonnegative(self, e: Expr) -> bool:
        return can_prove(const(0, e.dtype) <= e, self.ctx)


_OPERATIONS: dict[str, Callable[[_Eliminator, Binary], Bounds | None]] = {
    "floordiv": _Eliminator.floordiv, "floormod": _Eliminator.floormod, "mul": _Eliminator.product,
    "min": _Eliminator.extremum, "max": _Eliminator.extremum,
}  # fmt: skip

_RULES: dict[type, Callable[[_Eliminator, Expr], Bounds | None]] = {
    Var: _Eliminator.var, Binary: _Eliminator.binary, Select: _Eliminator.select,
    Cast: _Eliminator.cast, Ramp: _Eliminator.ramp, Broadcast: _Eliminator.broadcast,
}  # fmt: skip
