"""Rules for scalar i64 arithmetic: sums, floor division and remainder, min and max.

Sums are handled as affine forms.  The division rules rest on two identities for integers, c, d > 0:
`(c·A + r) // c == A + r // c` and `(g·A + r) // (g·d) == (A + r // g) // d`, and on the
corresponding ones for remainders.
"""

from __future__ import annotations

from functools import reduce
from math import gcd

from ..affine import Affine, affine_form, combined, factors_of, product, scaled, sort_key
from ..context import Context
from ..expr import Binary, Const, Expr, Var, const, reads_memory
from ..fold import fold_binary
from ..interval import Interval


def sums(e: Expr, ctx: Context) -> Expr:
    """`add`, `sub`, `neg` and `mul` become one canonical affine sum."""
    return ctx.build(joined(ctx.affine(e), ctx))


def joined(form: Affine, ctx: Context) -> Affine:
    """The sum after `_rejoin` and `_distribute`, which combine its terms."""
    if any(type(a) is Binary for a in form[0]) and (len(form[0]) > 1 or form[1]):
        return _distribute(_rejoin(form, ctx), ctx)
    return form


def _rejoin(form: Affine, ctx: Context) -> Affine:
    """`(x // c) * c + x % c -> x` and `((x // c) % d) * c + x % c -> x % (c * d)`.

    The first rule also applies if simplification has removed a remainder inside the `x` of `x % c`
    but not inside the other `x`.  Both terms may have a common factor, which may be symbolic.
    """
    changed = True
    while changed:
        changed = False
        for atom, k in form[0].items():
            if type(atom) is Binary and atom.op == "mul":
                joined = _rejoined_product(form, atom, k)
                if joined is not None:
                    form, changed = joined, True
                    break
            if type(atom) is not Binary or atom.op != "floormod":
                continue
            x, c = atom.a, atom.b
            if type(c) is not Const:
                quotient = Binary("floordiv", x, c)
                # if the divisor is a sum, the product may be distributed over several terms
                partner = _spread(quotient, affine_form(c))
                rest = combined(form, partner, -k)
                if any(a in rest[0] for a in partner[0]):
                    continue
                form = _swap(rest, (atom,), scaled(affine_form(x), k))
                changed = True
                break
            terms, rest = affine_form(ctx.simplify(Binary("floordiv", x, c)))
            if len(terms) != 1 or rest:
                continue
            [(quotient, one)] = terms.items()
            if one != 1:
                continue
            if form[0].get(quotient) == k * int(c.value):
                form = _swap(form, (atom, quotient), scaled(affine_form(x), k))
                changed = True
                break
            for other, weight in form[0].items():
                if (
                    type(other) is Binary and other.op == "floormod" and other.a is quotient
                    and type(other.b) is Const and weight == k * int(c.value)
                ):  # fmt: skip
                    whole = Binary("floormod", x, const(int(c.value) * int(other.b.value)))
                    by = scaled(affine_form(ctx.simplify(whole)), k)
                    form = _swap(form, (atom, other), by)
                    changed = True
                    break
                if (
                    type(other) is Binary and other.op == "floordiv" and other.b is c
                    and weight == k * int(c.value) and _equal_remainders(other.a, x, int(c.value))
                ):  # fmt: skip
                    form = _swap(form, (atom, other), scaled(affine_form(other.a), k))
                    changed = True
                    break
            if changed:
                break
    return form


def _equal_remainders(x: Expr, short: Expr, c: int) -> bool:
    """True if the rule for `floormod` simplifies `x % c` to `short % c`."""
    terms, constant = affine_form(x)
    reduced = {a: n for a, n in terms.items() if n % c}, constant % c
    return _without_inner_remainders(reduced, c) == affine_form(short)


def _spread(atom: Expr, by: Affine) -> Affine:
    """`atom * by`, term by term."""
    terms = {product(atom, a): n for a, n in by[0].items()}
    return ({**terms, atom: by[1]} if by[1] else terms), 0


def _rejoined_product(form: Affine, atom: Binary, k: int) -> Affine | None:
    """`(x // c) * c * n + (x % c) * n -> x * n`, where `atom` is the second product."""
    factors = factors_of(atom)
    for i, f in enumerate(factors):
        if type(f) is not Binary or f.op != "floormod":
            continue
        rest = reduce(product, (*factors[:i], *factors[i + 1 :]))
        partner, by = product(Binary("floordiv", f.a, f.b), rest), k
        if type(f.b) is Const:
            by *= int(f.b.value)
        else:
            partner = product(partner, f.b)
        if form[0].get(partner) == by:
            terms, constant = affine_form(f.a)
            whole: Affine = ({product(a, rest): n for a, n in terms.items()}, 0)
            whole = combined(whole, ({rest: 1}, 0), constant) if constant else whole
            return _swap(form, (atom, partner), scaled(whole, k))
    return None


def _swap(form: Affine, gone: tuple[Expr, ...], by: Affine) -> Affine:
    kept = {a: k for a, k in form[0].items() if not any(a is g for g in gone)}
    return combined((kept, form[1]), by)


def _distribute(form: Affine, ctx: Context) -> Affine:
    """`min(a, b) - a -> min(0, b - a)`, if an operand then becomes a constant."""
    for atom, k in form[0].items():
        if type(atom) is not Binary or atom.op not in ("min", "max") or abs(k) != 1:
            continue
        rest = ({a: c for a, c in form[0].items() if a is not atom}, form[1])
        parts = [combined(rest, affine_form(x), k) for x in (atom.a, atom.b)]
        if all(p[0] for p in parts) or not all(map(ctx.is_exact, (*parts, form))):
            continue
        op = atom.op if k > 0 else "max" if atom.op == "min" else "min"
        return affine_form(ctx.simplify(Binary(op, ctx.build(parts[0]), ctx.build(parts[1]))))
    return form


def block(values: Interval, size: int) -> int | None:
    """The q with `size * q <= v < size * (q + 1)` for all values; None if there is none."""
    if values.lo is None or values.hi is None or values.lo // size != values.hi // size:
        return None
    return values.lo // size


def separate(form: Affine, size: int, ctx: Context) -> tuple[int, Affine, Affine, int] | None:
    """Split a sum into `g * A + r`, where g > 1 divides `size` and `g * q <= r < g * (q + 1)`.

    Returns g, A, r and q for the largest g.
    """
    terms, k = form
    for g in sorted({gcd(size, c) for c in terms.values()}, reverse=True):
        if g == 1:
            break
        rest = ({a: c for a, c in terms.items() if c % g}, k)
        q = block(ctx.sum_interval(rest), g)
        multiple: Affine = ({a: c // g for a, c in terms.items() if c % g == 0}, 0)
        if q is not None and ctx.is_exact(combined(multiple, ({}, q))):
            return g, multiple, rest, q
    return None


def floordiv(e: Binary, ctx: Context) -> Expr:
    a, b = ctx.simplify(e.a), ctx.simplify(e.b)
    if type(b) is not Const:
        return _symbolic_division(e, a, b, ctx)
    c = int(b.value)
    if type(a) is Const:
        return _or_same(fold_binary("floordiv", a, b), e, a, b)
    if c == 1:
        return a
    form = affine_form(a)
    if c <= 0 or not ctx.is_exact(form):
        return _same(e, a, b)
    q = block(ctx.sum_interval(form), c)
    if q is not None:
        return const(q)
    whole = ({x: k // c for x, k in form[0].items() if k % c == 0}, form[1] // c)
    rest: Affine = ({x: k for x, k in form[0].items() if k % c}, form[1] % c)
    if not rest[0]:
        return ctx.build(whole)
    if not ctx.is_exact(rest):
        return _same(e, a, b)
    q = block(ctx.sum_interval(rest), c)
    if q is not None:
        return ctx.build(combined(whole, ({}, q)))
    quotient = _nested_division(rest, c, ctx)
    if quotient is None:
        parts = separate(rest, c, ctx)
        if parts is not None:
            g, multiple, _, q = parts
            quotient = Binary("floordiv", ctx.build(combined(multiple, ({}, q))), const(c // g))
    if quotient is not None:
        return ctx.simplify(ctx.build(combined(whole, affine_form(ctx.simplify(quotient)))))
    if not whole[0] and not whole[1]:
        return _same(e, a, b)
    return ctx.build(combined(whole, ({Binary("floordiv", ctx.build(rest), b): 1}, 0)))


def _nested_division(rest: Affine, c: int, ctx: Context) -> Expr | None:
    """`(x // d + k) // c -> (x + k·d) // (c·d)` and `(x % (c·d)) // c -> (x // c) % d`."""
    if len(rest[0]) != 1:
        return None
    [(atom, k)] = rest[0].items()
    if k != 1 or type(atom) is not Binary or type(atom.b) is not Const:
        return None
    d = int(atom.b.value)
    if d <= 0:
        return None
    if atom.op == "floordiv":
        x = combined(affine_form(atom.a), ({}, rest[1] * d))
        return Binary("floordiv", ctx.build(x), const(c * d)) if ctx.is_exact(x) else None
    if atom.op == "floormod" and rest[1] == 0 and d % c == 0:
        return Binary("floormod", Binary("floordiv", atom.a, const(c)), const(d // c))
    return None


def floormod(e: Binary, ctx: Context) -> Expr:
    a, b = ctx.simplify(e.a), ctx.simplify(e.b)
    if type(b) is not Const:
        return _symbolic_remainder(e, a, b, ctx)
    c = int(b.value)
    if type(a) is Const:
        return _or_same(fold_binary("floormod", a, b), e, a, b)
    if c in (1, -1):
        return const(0)
    form = affine_form(a)
    if c <= 0 or not ctx.is_exact(form):
        return _same(e, a, b)
    values = ctx.sum_interval(form)
    q = block(values, c)
    if q is not None:
        return ctx.build(combined(form, ({}, -q * c)))
    if values.stride % c == 0:  # the dividend is a multiple of c
        return const(values.offset % c)
    rest: Affine = ({x: k for x, k in form[0].items() if k % c}, form[1] % c)
    if not ctx.is_exact(rest):
        return _same(e, a, b)
    flat = _without_inner_remainders(rest, c)
    rest = flat if ctx.is_exact(flat) else rest
    q = block(ctx.sum_interval(rest), c)
    if q is not None:
        return ctx.simplify(ctx.build(combined(rest, ({}, -q * c))))
    if rest == form:
        parts = separate(rest, c, ctx)
        if parts is None:
            return _same(e, a, b)
        g, multiple, low, q = parts
        high = Binary("floormod", ctx.build(combined(multiple, ({}, q))), const(c // g))
        return ctx.simplify(
            ctx.build(combined(combined(low, ({}, -g * q)), affine_form(ctx.simplify(high)), g))
        )
    return ctx.simplify(Binary("floormod", ctx.build(rest), b))


def _without_inner_remainders(form: Affine, c: int) -> Affine:
    """`(k·(x % m) + r) % c -> (k·x + r) % c` where c divides k·m."""
    for atom, k in form[0].items():
        if type(atom) is Binary and atom.op == "floormod" and type(atom.b) is Const:
            m = int(atom.b.value)
            if m > 0 and k * m % c == 0:
                terms, constant = _swap(form, (atom,), scaled(affine_form(atom.a), k))
                reduced = ({a: n for a, n in terms.items() if n % c}, constant % c)
                return _without_inner_remainders(reduced, c)
    return form


def _symbolic_division(e: Binary, a: Expr, n: Expr, ctx: Context) -> Expr:
    """`(i·n + r) // n -> i` where 0 <= r < n is known."""
    parts = _multiples(affine_form(a), n, ctx)
    if parts is None:
        return _same(e, a, n)
    return ctx.simplify(ctx.build(parts[0]))


def _symbolic_remainder(e: Binary, a: Expr, n: Expr, ctx: Context) -> Expr:
    """`(i·n + r) % n -> r` where 0 <= r < n is known."""
    parts = _multiples(affine_form(a), n, ctx)
    if parts is None:
        return _same(e, a, n)
    return ctx.simplify(ctx.build(parts[1]))


def _multiples(form: Affine, n: Expr, ctx: Context) -> tuple[Affine, Affine] | None:
    divisor = affine_form(n)
    if not (ctx.is_exact(form) and ctx.is_exact(divisor)):
        return None
    quotient: Affine = ({}, 0)
    rest: Affine = form
    if len(divisor[0]) == 1 and divisor[1] == 0:
        factors = factors_of(n)
        for atom, k in form[0].items():
            left = list(factors_of(atom))
            if all(_remove(left, f) for f in factors):
                other = ({left[0]: k}, 0) if left else ({}, k)
                for f in left[1:]:
                    [(base, _)] = other[0].items()
                    other = ({product(base, f): k}, 0)
                quotient = combined(quotient, other)
                rest = ({a: c for a, c in rest[0].items() if a is not atom}, rest[1])
    below = combined(combined(divisor, rest, -1), ({}, -1))
    if ctx.is_exact(rest) and ctx.nonnegative(rest) and ctx.nonnegative(below):
        return quotient, rest
    return None


def _remove(items: list[Expr], item: Expr) -> bool:
    for n, other in enumerate(items):
        if other is item:
            del items[n]
            return True
    return False


def extremum(e: Binary, ctx: Context) -> Expr:
    """`min` and `max`: removes operands that can't be the result, and orders the others."""
    operands: dict[Expr, None] = {}
    if reads_memory(e):  # chains of loads stay nested: a longer chain shares a shorter chain
        operands = dict.fromkeys((ctx.simplify(e.a), ctx.simplify(e.b)))
        stack = []
    else:
        stack = [e.b, e.a]
    while stack:
        node = stack.pop()
        if type(node) is Binary and node.op == e.op:
            stack += [node.b, node.a]
            continue
        node = ctx.simplify(node)
        if type(node) is Binary and node.op == e.op:
            stack += [node.b, node.a]
        else:
            operands[node] = None
    kept: list[Expr] = []
    for x in operands:
        if any(_never_beyond(e.op, y, x, ctx) for y in kept):
            continue
        kept = [y for y in kept if not _never_beyond(e.op, x, y, ctx)]
        kept.append(x)
    kept.sort(key=lambda x: (type(x) is Const, sort_key(x)))
    result = kept[0]
    for x in kept[1:]:
        result = Binary(e.op, result, x)
    return result


def _never_beyond(op: str, x: Expr, y: Expr, ctx: Context) -> bool:
    """True if x is never the worse choice: x <= y for min, x >= y for max."""
    if op == "max":
        x, y = y, x
    a, b = affine_form(x), affine_form(y)
    if ctx.is_exact(a) and ctx.is_exact(b):
        return ctx.nonnegative(combined(b, a, -1))
    hi, lo = ctx.interval(x).hi, ctx.interval(y).lo
    return hi is not None and lo is not None and hi <= lo


def trunc(e: Binary, ctx: Context) -> Expr:
    """`truncdiv` and `truncmod` become floor division if neither operand can be negative."""
    a, b = ctx.simplify(e.a), ctx.simplify(e.b)
    if type(a) is Const and type(b) is Const:
        return _or_same(fold_binary(e.op, a, b), e, a, b)
    low_a, low_b = ctx.interval(a).lo, ctx.interval(b).lo
    if low_a is not None and low_b is not None and low_a >= 0 and low_b > 0:
        return ctx.simplify(Binary(e.op.replace("trunc", "floor"), a, b))
    if b is const(1):
        return a if e.op == "truncdiv" else const(0)
    return _same(e, a, b)


def var(e: Var, ctx: Context) -> Expr:
    """A Var with one possible value becomes that value."""
    known = ctx.bounds.get(e)
    if known is not None and known.is_constant and e.lanes == 1 and e.dtype.is_int:
        return const(known.offset, e.dtype)
    ends = ctx.symbolic.get(e)
    if ends is not None and ends[0] is not None and ends[0] is ends[1]:
        return ends[0]
    return e


def _or_same(folded: Const | None, e: Binary, a: Expr, b: Expr) -> Expr:
    return _same(e, a, b) if folded is None else folded


def _same(e: Binary, a: Expr, b: Expr) -> Expr:
    return e if a is e.a and b is e.b else Binary(e.op, a, b)
