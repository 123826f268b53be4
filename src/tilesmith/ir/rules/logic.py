"""Rules for conditions: comparisons, `and`, `or`, `not`, and `Select`."""

from __future__ import annotations

from math import gcd

from ..affine import Affine, affine_form, combined, from_affine, scaled, sort_key
from ..context import Context
from ..dtypes import bool_, i64
from ..expr import Binary, Broadcast, Compare, Const, Expr, Select, Unary, const
from ..fold import fold_compare
from .index import joined, separate
from .lanes import lane

TRUE, FALSE = const(True), const(False)
_NEGATED = {"eq": "ne", "ne": "eq"}


def compare(e: Compare, ctx: Context) -> Expr:
    if e.a.lanes > 1:
        return _vector_compare(e, ctx)
    if e.a.dtype is i64:
        result = _index_compare(e, ctx)
    else:
        a, b = ctx.simplify(e.a), ctx.simplify(e.b)
        if type(a) is Const and type(b) is Const:
            return fold_compare(e.op, a, b)
        if e.a.dtype.is_bool:
            result = _bool_compare(e, a, b)
        else:
            result = _plain_compare(e, a, b, ctx)
    return lookup(result, ctx)


def lookup(cond: Expr, ctx: Context) -> Expr:
    """The literal for a condition that the facts decide."""
    if ctx.known:
        value = ctx.known.get(cond)
        if value is None and type(cond) is Compare:
            value = ctx.known.get(negated(cond, ctx))
            value = None if value is None else not value
        if value is not None and cond.lanes == 1:
            return const(value)
    return cond


def _bool_compare(e: Compare, a: Expr, b: Expr) -> Expr:
    if e.op in ("eq", "ne"):
        if type(a) is Const:
            a, b = b, a
        if type(b) is Const:
            return a if bool(b.value) is (e.op == "eq") else negation(a)
        if a is b:
            return const(e.op == "eq")
    return e if a is e.a and b is e.b else Compare(e.op, a, b)


def _plain_compare(e: Compare, a: Expr, b: Expr, ctx: Context) -> Expr:
    """Comparison without arithmetic on the operands: floats, and integers that may wrap around."""
    if not a.dtype.is_float:
        if a is b:
            return const(e.op in ("eq", "le"))
        decided = _by_interval(e.op, a, b, ctx)
        if decided is not None:
            return const(decided)
        if e.op in ("eq", "ne") and type(a) is Const:
            a, b = b, a
    return e if a is e.a and b is e.b else Compare(e.op, a, b)


def _by_interval(op: str, a: Expr, b: Expr, ctx: Context) -> bool | None:
    """The value of a comparison of integers (in every lane) if the intervals of the operands decide
    the comparison; else None.
    """
    x, y = ctx.interval(a), ctx.interval(b)
    below = x.hi is not None and y.lo is not None and x.hi < y.lo
    above = x.lo is not None and y.hi is not None and x.lo > y.hi
    if op in ("eq", "ne"):
        if x.is_constant and x == y:
            return op == "eq"
        step = gcd(x.stride, y.stride)
        apart = (x.offset - y.offset) % step != 0 if step else x.offset != y.offset
        return op == "ne" if below or above or apart else None
    if below or (op == "le" and x.hi is not None and y.lo is not None and x.hi <= y.lo):
        return True
    if above or (op == "lt" and x.lo is not None and y.hi is not None and x.lo >= y.hi):
        return False
    return None


def _index_compare(e: Compare, ctx: Context) -> Expr:
    left, right = ctx.affine(e.a), ctx.affine(e.b)
    if not (ctx.is_exact(left) and ctx.is_exact(right)):
        return _plain_compare(e, ctx.simplify(e.a), ctx.simplify(e.b), ctx)
    # the sums may contain terms that can be joined again, such as x // c * c + x % c
    difference = joined(combined(right, left, -1), ctx)
    if e.op in ("eq", "ne"):
        result = _equality(e.op, difference, ctx)
    else:
        result = inequality(combined(difference, ({}, -(e.op == "lt"))), ctx)
    if result is None:  # moving terms to the other side could overflow
        result = _plain_compare(e, ctx.simplify(e.a), ctx.simplify(e.b), ctx)
    return result


def inequality(form: Affine, ctx: Context) -> Expr | None:
    """`form >= 0` as a literal or a canonical comparison; None if its sides could overflow."""
    terms, k = form
    if not terms:
        return const(k >= 0)
    values = ctx.sum_interval(form)
    if values.lo is not None and values.lo >= 0:
        return TRUE
    if values.hi is not None and values.hi < 0:
        return FALSE
    if ctx.nonnegative(form):
        return TRUE
    if (ctx.inequalities or ctx.symbolic) and ctx.nonnegative(combined(scaled(form, -1), ({}, -1))):
        return FALSE
    divisor = gcd(*terms.values())
    if divisor > 1:  # d·A + k >= 0 is A + floor(k / d) >= 0
        return inequality(({a: c // divisor for a, c in terms.items()}, k // divisor), ctx)
    if len(terms) > 1:
        largest = max(abs(c) for c in terms.values())
        for size in {largest, *map(abs, terms.values())} - {1}:
            parts = separate(form, size, ctx)
            if parts is not None and parts[1][0]:
                _, multiple, _, q = parts
                return inequality(combined(multiple, ({}, q)), ctx)
    return _canonical_le(terms, k, ctx)


def _canonical_le(terms: dict[Expr, int], k: int, ctx: Context) -> Expr | None:
    """`sum(terms) + k >= 0` as a comparison whose two sides have only positive coefficients."""
    more = {a: c for a, c in terms.items() if c > 0}
    less = {a: -c for a, c in terms.items() if c < 0}
    if not less:
        return _sides("le", ({}, -k), (more, 0), ctx)
    # less <= more + k, that is less < more + k + 1
    if k + 1 >= 0 or not more:
        return _sides("lt", (less, 0), (more, k + 1), ctx)
    return _sides("lt", (less, -(k + 1)), (more, 0), ctx)


def _sides(op: str, left: Affine, right: Affine, ctx: Context) -> Expr | None:
    """The comparison of two sums; None if a side may overflow."""
    if not (ctx.is_exact(left) and ctx.is_exact(right)):
        return None
    return Compare(op, from_affine(*left), from_affine(*right))


def _equality(op: str, form: Affine, ctx: Context) -> Expr | None:
    terms, k = form
    equal = const(op == "eq")
    differ = const(op != "eq")
    if not terms:
        return equal if k == 0 else differ
    values = ctx.sum_interval(form)
    if not values.contains(0):
        return differ
    if values.is_constant:
        return equal
    if ctx.inequalities or ctx.symbolic:
        if ctx.nonnegative(combined(form, ({}, -1))):
            return differ
        opposite = scaled(form, -1)
        if ctx.nonnegative(combined(opposite, ({}, -1))):
            return differ
        if ctx.nonnegative(form) and ctx.nonnegative(opposite):
            return equal
    divisor = gcd(*terms.values())
    if divisor > 1:
        if k % divisor:
            return differ
        terms, k = {a: c // divisor for a, c in terms.items()}, k // divisor
    lead = min(terms, key=lambda a: (-abs(terms[a]), sort_key(a)))
    if terms[lead] < 0:
        terms, k = {a: -c for a, c in terms.items()}, -k
    more = {a: c for a, c in terms.items() if c > 0}
    less = {a: -c for a, c in terms.items() if c < 0}
    if less and k > 0:
        return _sides(op, (more, k), (less, 0), ctx)
    return _sides(op, (more, 0), (less, -k), ctx)


def _vector_compare(e: Compare, ctx: Context) -> Expr:
    a, b = ctx.simplify(e.a), ctx.simplify(e.b)
    lanes = a.lanes
    if type(a) is Broadcast and type(b) is Broadcast:
        return Broadcast(ctx.simplify(Compare(e.op, a.value, b.value)), lanes)
    if a.dtype.is_int or a.dtype.is_bool:
        if a is b:
            return Broadcast(const(e.op in ("eq", "le")), lanes)
        decided = _by_interval(e.op, a, b, ctx)
        if decided is None and a.dtype is i64 and e.op in ("lt", "le"):
            decided = _by_lanes(e.op, a, b, ctx)
        if decided is not None:
            return Broadcast(const(decided), lanes)
    return e if a is e.a and b is e.b else Compare(e.op, a, b)


def _by_lanes(op: str, a: Expr, b: Expr, ctx: Context) -> bool | None:
    """The value of a comparison of ramps: an inequality holds in all lanes if it holds in the first
    and the last one.
    """
    values = []
    for i in (0, a.lanes - 1):
        x, y = lane(a, i), lane(b, i)
        if x is None or y is None:
            return None
        values.append(ctx.simplify(Compare(op, x, y)))
    if values[0] is values[1] and type(values[0]) is Const:
        return bool(values[0].value)
    return None


def negation(cond: Expr) -> Expr:
    """`not cond` with the `not` pushed into integer comparisons."""
    if type(cond) is Const and cond.type is bool_:
        return const(not cond.value)
    if type(cond) is Unary and cond.op == "not":
        return cond.a
    if type(cond) is Compare:
        if cond.op in _NEGATED:
            return Compare(_NEGATED[cond.op], cond.a, cond.b)
        if not cond.a.dtype.is_float:
            return Compare("le" if cond.op == "lt" else "lt", cond.b, cond.a)
    if type(cond) is Broadcast:
        return Broadcast(negation(cond.value), cond.size)
    return Unary("not", cond)


def negated(cond: Expr, ctx: Context) -> Expr:
    """The negation of a simplified condition in canonical form, without use of facts."""
    other = negation(cond)
    if (
        type(other) is Compare
        and other.a.dtype is i64
        and other.lanes == 1
        and other.op in ("lt", "le")
    ):
        left, right = affine_form(other.a), affine_form(other.b)
        if ctx.is_exact(left) and ctx.is_exact(right):
            terms, k = combined(right, left, -1)
            canonical = _canonical_le(terms, k - 1 if other.op == "lt" else k, ctx)
            return other if canonical is None else canonical
    return other


def not_(e: Unary, ctx: Context) -> Expr:
    a = ctx.simplify(e.a)
    if not a.dtype.is_bool:
        if type(a) is Const:
            return const(~int(a.value), a.type)
        if type(a) is Unary and a.op == "not":
            return a.a
        return e if a is e.a else Unary("not", a)
    result = negation(a)
    if type(result) is Unary:
        return e if result.a is e.a else result
    return ctx.simplify(result)


def connective(e: Binary, ctx: Context) -> Expr:
    """`and` / `or` of bools: literals, repetitions, opposites, implied inequalities."""
    absorbing, neutral = (FALSE, TRUE) if e.op == "and" else (TRUE, FALSE)
    lanes = e.lanes
    parts: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = [e.b, e.a]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if not (type(node) is Binary and node.op == e.op):
            node = ctx.simplify(node)
        if type(node) is Binary and node.op == e.op:
            stack += [node.b, node.a]
            continue
        scalar = node.value if type(node) is Broadcast else node
        if scalar is absorbing:
            return _spread(absorbing, lanes)
        if scalar is not neutral:
            parts[node] = None
    if not parts:
        return _spread(neutral, lanes)
    for p in parts:
        if negated(p, ctx) in parts or negation(p) in parts:
            return _spread(absorbing, lanes)
    kept = list(parts)
    if len(kept) > 1 and lanes == 1:
        merged = _merge_inequalities(e.op, kept, ctx)
        if merged is None:
            return absorbing
        kept = merged
    result = kept[0]
    for p in kept[1:]:
        result = Binary(e.op, result, p)
    return result


def _merge_inequalities(op: str, parts: list[Expr], ctx: Context) -> list[Expr] | None:
    """Of inequalities over the same sum, keep only the strictest (`and`) or the loosest (`or`).
    None if the inequalities decide the result of `op`.
    """
    best: dict[frozenset[tuple[Expr, int]], tuple[int, Expr]] = {}
    dropped: set[Expr] = set()
    for p in parts:
        if type(p) is not Compare or p.op not in ("lt", "le") or p.a.dtype is not i64:
            continue
        left, right = affine_form(p.a), affine_form(p.b)
        if not (ctx.is_exact(left) and ctx.is_exact(right)):
            continue
        terms, k = combined(right, left, -1)
        k -= p.op == "lt"
        key = frozenset(terms.items())
        opposite = best.get(frozenset((a, -c) for a, c in terms.items()))
        # terms >= -k and terms <= other: no value is left, or with `or` every value is covered
        if opposite is not None and (
            (op == "and" and -k > opposite[0]) or (op == "or" and -k <= opposite[0] + 1)
        ):
            return None
        tightest = best.get(key)
        if tightest is None:
            best[key] = (k, p)
        elif (k < tightest[0]) == (op == "and"):
            dropped.add(tightest[1])
            best[key] = (k, p)
        else:
            dropped.add(p)
    return [p for p in parts if p not in dropped]


def _spread(value: Expr, lanes: int) -> Expr:
    return value if lanes == 1 else Broadcast(value, lanes)


def select(e: Select, ctx: Context) -> Expr:
    other = ctx.revisited(e)
    if other is not None:
        return other.simplify(e)
    cond = ctx.simplify(e.cond)
    if type(cond) is Broadcast:
        cond = cond.value
    if type(cond) is Const:
        return ctx.simplify(e.if_true if cond.value else e.if_false)
    yes, no = e.if_true, e.if_false
    if type(cond) is Unary and cond.op == "not":
        cond, yes, no = cond.a, no, yes
    if cond.lanes == 1:
        yes, no = ctx.branch(yes, cond), ctx.branch(no, negation(cond))
    else:
        yes, no = ctx.simplify(yes), ctx.simplify(no)
    if yes is no:
        return yes
    if type(yes) is Select and yes.cond is cond:
        yes = yes.if_true
    if type(no) is Select and no.cond is cond:
        no = no.if_false
    if e.dtype.is_bool and cond.lanes == yes.lanes:
        if yes is TRUE and no is FALSE:
            return cond
        if yes is FALSE and no is TRUE:
            return ctx.simplify(Unary("not", cond))
    if type(yes) is Broadcast and type(no) is Broadcast and cond.lanes == 1:
        return Broadcast(ctx.simplify(Select(cond, yes.value, no.value)), yes.size)
    if cond is e.cond and yes is e.if_true and no is e.if_false:
        return e
    return Select(cond, yes, no)
