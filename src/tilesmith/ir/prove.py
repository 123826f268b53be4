"""Proofs about integers for the simplifier: intervals of expressions, and `sum >= 0`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd
from typing import TypeAlias

from . import expr as ir
from . import interval as iv
from .affine import Affine, affine_form, combined, product, scaled
from .dtypes import i64
from .expr import Binary, Const, Expr, Unary, Var, post_order
from .interval import Interval


class Facts:
    """Facts that hold at one place; `ir.prove` derives others from them.

    bounds: numeric intervals of Vars and of other atoms.
    symbolic: the inclusive ends of a Var's range, with None for an end that is a number.  Ends may
        use Vars that were added earlier.
    inequalities: affine sums that are >= 0 although `bounds` doesn't imply it.
    known: simplified conditions and their values.
    intervals, proofs: results of `ir.prove` under these facts.
    """

    __slots__ = ("bounds", "inequalities", "intervals", "known", "proofs", "symbolic")

    def __init__(self) -> None:
        self.bounds: dict[Expr, Interval] = {}
        self.symbolic: dict[Var, tuple[Expr | None, Expr | None]] = {}
        self.inequalities: tuple[Affine, ...] = ()
        self.known: dict[Expr, bool] = {}
        self.intervals: dict[Expr, Interval] = {}
        self.proofs: dict[object, bool] = {}

    def affine(self, e: Expr) -> Affine:
        """The affine sum of a scalar i64 `e`.  The caller must not change it."""
        return affine_form(e)


_MAX_DEPTH = 6  # steps of substitution in one proof
_CACHE_LIMIT = 1 << 18
_index: dict[Expr, bool] = {}


def is_index(e: Expr) -> bool:
    """True for index arithmetic, which can't overflow: i64 operations on Vars, literals and values
    of narrower types.
    """
    known = _index.get(e)
    if known is not None:
        return known
    kind = type(e)
    if kind is Var or kind is Const:
        result = True
    elif isinstance(e, ir.Cast):
        source = e.a.dtype
        narrow = source.is_bool or (source.is_int and source.bits <= 32)
        result = e.type is i64 and (narrow or (source is i64 and is_index(e.a)))
    elif kind is ir.Compare or (e.dtype.is_bool and kind is not ir.Select):
        result = True  # a bool can't overflow, whatever it compares
    elif kind in (ir.Load, ir.Call, ir.Let) or e.dtype is not i64:
        result = False
    else:
        try:
            result = all(map(is_index, e.children))
        # deeper than Python's stack: put the results for the operands into the cache first
        except RecursionError:
            for node in post_order(e):
                if node is not e:
                    is_index(node)
            result = all(map(is_index, e.children))
    if len(_index) > _CACHE_LIMIT:
        _index.clear()
    _index[e] = result
    return result


def sum_interval(form: Affine, facts: Facts) -> Interval:
    """The interval of an affine sum as a mathematical integer (no wrapping)."""
    total = iv.constant(form[1])
    for atom, k in form[0].items():
        total = iv.add(total, iv.scale(interval_of(atom, facts), k))
    return total


def interval_of(e: Expr, facts: Facts) -> Interval:
    """The possible values of an integer or bool (in any lane) under `facts`."""
    if type(e) is Const:
        return iv.constant(int(e.value)) if not e.type.is_float else iv.TOP
    cache = facts.intervals
    values = cache.get(e)
    if values is None:
        try:
            values = _compute(e, facts)
        # deeper than Python's stack: put the results for the operands into the cache first
        except RecursionError:
            for node in post_order(e):
                if node is not e and node.dtype.is_int:
                    interval_of(node, facts)
            values = _compute(e, facts)
        known = facts.bounds.get(e)
        if known is not None:
            values = iv.intersect(values, known)
            if values.lo is not None and values.hi is not None and values.lo > values.hi:
                values = known  # the facts contradict each other: this code never runs
        cache[e] = values
    return values


def _compute(e: Expr, facts: Facts) -> Interval:
    dtype = e.dtype
    if dtype.is_bool:
        return iv.BOOL
    if not dtype.is_int:
        return iv.TOP
    rule = _INTERVALS.get(type(e))
    if dtype is i64 and e.lanes == 1 and type(e) in (Binary, Unary):
        form = affine_form(e)
        if e not in form[0]:
            return _wrapped(sum_interval(form, facts), e)
    return _wrapped(rule(e, facts), e) if rule else iv.of_dtype(dtype)


def _wrapped(values: Interval, e: Expr) -> Interval:
    """`values`, or all values of the type if an operation may have wrapped around."""
    dtype = e.dtype
    if dtype is not i64 or not is_index(e):
        return values if values.fits(dtype) else iv.of_dtype(dtype)
    # Index arithmetic does not overflow.  So a bound outside of the type says nothing: it is
    # dropped, and the other bound is kept.
    lo, hi, *steps = values
    return iv.make(
        None if lo is not None and lo < dtype.min else lo,
        None if hi is not None and hi > dtype.max else hi,
        *steps,
    )


def _binary(e: Binary, facts: Facts) -> Interval:
    rule = _OPERATIONS.get(e.op)
    if rule is None:
        return iv.TOP
    return rule(interval_of(e.a, facts), interval_of(e.b, facts))


def _bit_and(a: Interval, b: Interval) -> Interval:
    ends = [x.hi for x in (a, b) if x.lo is not None and x.lo >= 0 and x.hi is not None]
    return iv.make(0, min(ends)) if ends else iv.TOP


def _shift_right(a: Interval, b: Interval) -> Interval:
    return (
        iv.floordiv(a, iv.constant(1 << b.offset))
        if b.is_constant and 0 <= b.offset < 64
        else iv.TOP
    )


def _shift_left(a: Interval, b: Interval) -> Interval:
    return iv.scale(a, 1 << b.offset) if b.is_constant and 0 <= b.offset < 64 else iv.TOP


def _trunc(f):  # type: ignore[no-untyped-def]  # a small adapter for the two operations below
    def rule(a: Interval, b: Interval) -> Interval:
        both = a.lo is not None and a.lo >= 0 and b.lo is not None and b.lo > 0
        return f(a, b) if both else iv.TOP

    return rule


_OPERATIONS = {
    "add": iv.add, "sub": iv.sub, "mul": iv.mul, "floordiv": iv.floordiv, "floormod": iv.floormod,
    "truncdiv": _trunc(iv.floordiv), "truncmod": _trunc(iv.floormod),
    "min": iv.minimum, "max": iv.maximum, "and": _bit_and, "shr": _shift_right, "shl": _shift_left,
}  # fmt: skip


def _cast(e: ir.Cast, facts: Facts) -> Interval:
    if e.a.dtype.is_float:
        return iv.of_dtype(e.type)
    return interval_of(e.a, facts)


def _select(e: ir.Select, facts: Facts) -> Interval:
    return iv.union(interval_of(e.if_true, facts), interval_of(e.if_false, facts))


def _ramp(e: ir.Ramp, facts: Facts) -> Interval:
    lanes = iv.Interval(0, e.size - 1)
    step = interval_of(e.stride, facts)
    if step.is_constant:
        return iv.add(interval_of(e.base, facts), iv.scale(lanes, step.offset))
    return iv.add(interval_of(e.base, facts), iv.mul(step, lanes))


def _vector_reduce(e: ir.VectorReduce, facts: Facts) -> Interval:
    a = interval_of(e.a, facts)
    if e.op in ("min", "max"):
        return a
    if e.op == "add":
        n = e.a.lanes // e.size
        return iv.make(None if a.lo is None else a.lo * n, None if a.hi is None else a.hi * n)
    return iv.TOP


def _call(e: ir.Call, facts: Facts) -> Interval:
    if e.name == "abs":
        a = interval_of(e.args[0], facts)
        if a.lo is not None and a.hi is not None:
            return iv.make(0 if a.lo <= 0 <= a.hi else min(abs(a.lo), abs(a.hi)), max(-a.lo, a.hi))
    if e.name == "check_index":
        extent = interval_of(e.args[1], facts).hi
        return iv.make(0, None if extent is None else max(extent - 1, 0))
    return iv.TOP


def _unary(e: Unary, facts: Facts) -> Interval:
    a = interval_of(e.a, facts)
    return iv.scale(a, -1) if e.op == "neg" else iv.sub(iv.constant(-1), a)


def _var(e: Var, facts: Facts) -> Interval:
    if e.sizes is not None:
        return iv.make(e.sizes.low, e.sizes.high)
    return iv.TOP if e.dtype is i64 else iv.of_dtype(e.dtype)


_INTERVALS = {
    Var: _var,
    Unary: _unary,
    Binary: _binary,
    ir.Select: _select,
    ir.Cast: _cast,
    ir.Ramp: _ramp,
    ir.Broadcast: lambda e, facts: interval_of(e.value, facts),
    ir.VectorReduce: _vector_reduce,
    ir.Call: _call,
}


# --- proofs ---


def nonnegative(form: Affine, facts: Facts) -> bool:
    """True if `form >= 0` can be proved; the sum must not overflow.

    Numeric intervals are tried first.  For dependent values, each atom is then replaced by an end
    of its range that makes the sum smaller: a symbolic end of a Var, the operand of a min or max,
    `x` for `c * (x // c)`.  Known inequalities are subtracted, to a small depth.
    """
    low = _low(form, facts)
    if low is not None and low >= 0:
        return True
    if not form[0]:
        return False
    key = _key(form)
    is_proved = facts.proofs.get(key)
    if is_proved is None:
        facts.proofs[key] = False  # a proof must not use itself
        is_proved = facts.proofs[key] = _search(form, facts, _MAX_DEPTH, {})
    return is_proved


_Key: TypeAlias = tuple[frozenset[tuple[Expr, int]], int]


def _key(form: Affine) -> _Key:
    return frozenset(form[0].items()), form[1]


def _search(form: Affine, facts: Facts, depth: int, failed: dict[_Key, int]) -> bool:
    """Whether at most `depth` steps prove `form >= 0`.

    failed: the sums of this search with the number of steps that did not prove them.  Steps
        commute, so the search reaches the same sum in many ways.
    """
    low = _low(form, facts)
    if low is not None and low >= 0:
        return True
    if depth == 0 or not form[0]:
        return False
    key = _key(form)
    if failed.get(key, 0) >= depth:
        return False
    if _step(form, facts, depth - 1, failed):
        return True
    failed[key] = depth
    return False


def _low(form: Affine, facts: Facts) -> int | None:
    """The lower end of `sum_interval`, the only one that a search needs."""
    terms, total = form
    for atom, k in terms.items():
        values = interval_of(atom, facts)
        end = values.lo if k > 0 else values.hi
        if end is None:
            return None
        total += k * end
    return total


def _step(form: Affine, facts: Facts, depth: int, failed: dict[_Key, int]) -> bool:
    """Whether one step reduces `form >= 0` to sums that at most `depth` more steps prove."""
    terms = form[0]
    for fact in facts.inequalities:
        # form - n * fact >= 0 implies form >= 0; tried for facts that share an atom with form
        shared = [terms[a] // k for a, k in fact[0].items() if a in terms and terms[a] * k > 0]
        if shared:
            rest = combined(form, fact, -max(min(shared), 1))
            low = _low(rest, facts)
            if low is not None and low >= 0:
                return True
            if len(rest[0]) < len(terms) and _search(rest, facts, depth, failed):
                return True
    for atom, k in terms.items():
        if type(atom) is not Binary:
            continue
        if atom.op in ("min", "max"):
            without = ({a: c for a, c in terms.items() if a is not atom}, form[1])
            parts = (facts.affine(atom.a), facts.affine(atom.b))
            both = (atom.op == "min") == (
                k > 0
            )  # the sum is the minimum of two sums: both must be >= 0
            proofs = (_search(combined(without, p, k), facts, depth, failed) for p in parts)
            if both:
                return all(proofs)
            if any(proofs):
                return True
            # Twice min(a, b) is at most a + b.  This sum is simpler if b = c - a.
            total = combined(*parts)
            twice = combined(scaled(without, 2), total, k)
            is_simpler = len(total[0]) < len(parts[0][0]) + len(parts[1][0])
            return is_simpler and _search(twice, facts, depth, failed)
        if (
            atom.op == "floordiv" and not any(n % k for n in terms.values())
            and _is_positive_divisor(atom.b, facts) and _is_exact(atom.a, facts)
        ):  # fmt: skip
            # k·(x // y) <= k·r + c is x // y <= r + c // k, which is x < (r + c // k + 1)·y;
            # k·(x // y) + k·r + c >= 0 is x // y >= -(r + c // k), so x + (r + c // k)·y >= 0
            size = abs(k)
            quotients = {a: n // size for a, n in terms.items() if a is not atom}
            rest = _times((quotients, form[1] // size + (k < 0)), affine_form(atom.b))
            bound = combined(rest, affine_form(atom.a), 1 if k > 0 else -1)
            if k < 0:
                bound = combined(bound, ({}, -1))
            if _search(bound, facts, depth, failed):
                return True
        if atom.op == "mul" and any(
            _search(_replaced(form, atom, k, at_end, facts), facts, depth, failed)
            for at_end in _products_at_ends(atom, k, facts)
        ):
            return True
        by_symbol = atom.op == "floormod" and type(atom.b) is not Const
        if by_symbol and k < 0 and _is_positive_divisor(atom.b, facts):  # x % y <= y - 1
            last = combined(affine_form(atom.b), ({}, -1))
            if _search(_replaced(form, atom, k, last, facts), facts, depth, failed):
                return True
        if (
            atom.op == "floordiv" and type(atom.b) is Const and atom.b.value > 0
            and _is_exact(atom.a, facts)
        ):  # fmt: skip
            without = ({a: n for a, n in terms.items() if a is not atom}, form[1])
            for x, c in ((affine_form(atom.a), int(atom.b.value)), *_inner_quotients(atom, terms)):
                bound = combined(x, ({}, 1 - c)) if k > 0 else x  # x - c + 1 <= c·(x // c) <= x
                times = c // gcd(k, c)
                whole = combined(scaled(without, times), bound, times * k // c)
                if _search(whole, facts, depth, failed):
                    return True
    if facts.symbolic:
        # Inner loops first: their bounds mention outer variables.
        for var in reversed(facts.symbolic):
            k = terms.get(var)
            if k is None:
                continue
            end = facts.symbolic[var][0 if k > 0 else 1]
            if end is not None:
                rest = _replaced(form, var, k, affine_form(end), facts)
                return _search(rest, facts, depth, failed)
    return False


def _inner_quotients(atom: Binary, terms: Mapping[Expr, int]) -> Iterator[tuple[Affine, int]]:
    """`x // (c·d)` as quotients `(y + k) // c`, where `y` is another term and `x // d == y + k`."""
    assert isinstance(atom.b, Const)
    for y in terms:
        if type(y) is not Binary or y.op != "floordiv" or type(y.b) is not Const or y is atom:
            continue
        d = int(y.b.value)
        rest, apart = combined(affine_form(atom.a), affine_form(y.a), -1)
        if d > 1 and atom.b.value % d == 0 and not rest and apart % d == 0:
            yield ({y: 1}, apart // d), int(atom.b.value) // d


def _products_at_ends(atom: Binary, k: int, facts: Facts) -> Iterator[Affine]:
    """The product with one factor replaced by an end of its range: the end that makes `k` times the
    product smaller.  The other factor, such as the extent that multiplies an index, is not
    negative.
    """
    for factor, other in ((atom.a, atom.b), (atom.b, atom.a)):
        low = interval_of(other, facts).lo
        if low is None or low < 0:
            continue
        values = interval_of(factor, facts)
        number = values.lo if k > 0 else values.hi
        ends = facts.symbolic.get(factor) if type(factor) is Var else None
        end = ends[0 if k > 0 else 1] if ends else None
        if end is not None:
            yield _times(affine_form(end), affine_form(other))
        elif number is not None:
            yield scaled(affine_form(other), number)


def _is_positive_divisor(e: Expr, facts: Facts) -> bool:
    """True if the divisor `e` is positive.  No divisor is 0, so it suffices that `e` is not
    negative.
    """
    low = interval_of(e, facts).lo
    return low is not None and low >= 0


def _is_exact(e: Expr, facts: Facts) -> bool:
    """Whether `e` does not wrap around.  Then it equals its affine form as a mathematical sum."""
    return is_index(e) or sum_interval(affine_form(e), facts).fits(e.dtype)


def _times(form: Affine, by: Affine) -> Affine:
    """The product of two sums."""
    total = scaled(by, form[1]) if form[1] else ({}, 0)
    for a, k in form[0].items():
        if by[1]:
            total = combined(total, ({a: 1}, 0), k * by[1])
        for b, n in by[0].items():
            total = combined(total, ({product(a, b): 1}, 0), k * n)
    return total


def _replaced(form: Affine, atom: Expr, k: int, by: Affine, facts: Facts) -> Affine:
    without = ({a: c for a, c in form[0].items() if a is not atom}, form[1])
    return combined(without, scaled(by, k))
