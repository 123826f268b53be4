"""Solutions for the equality of two extents: by solving for one symbol, or else by trial."""

from __future__ import annotations

from itertools import combinations

from tilesmith.ir.affine import affine_form, from_affine
from tilesmith.ir.expr import Binary, Const, Expr, Var, as_expr, free_vars, substitute
from tilesmith.ir.sizes import Sizes
from tilesmith.ir.symbols import as_dim, expected, symbol, symbols_of, value_of
from tilesmith.ir.types import Dim, same_dim

_TRIED = 1024
"""The largest size that is tried: few images and sequences with a fixed size are larger."""

_TOGETHER = 4
"""Upper bound on the symbols in two extents.  Beyond it, no sizes are tried."""


def replacement(a: Dim, b: Dim) -> dict[Expr, Expr] | None:
    """Replacements for symbols.  With them `a` equals `b`, or equals `b` at the symbols' new
    expected sizes.  None if neither is possible.
    """
    return solved(a, b) or fitting(a, b)


def solved(a: Dim, b: Dim) -> dict[Expr, Expr] | None:
    """Replacements for symbols with which `a` equals `b`; None if no solution is found."""
    if isinstance(a, Var) and isinstance(b, Var):
        return _joined(a, b)
    for var, other in ((a, b), (b, a)):
        if isinstance(var, Var) and (limited := _limited(var, other)) is not None:
            return limited
    for var, value in ((a, b), (b, a)):
        if isinstance(var, Var) and var not in free_vars(as_expr(value)):
            return {var: as_expr(value)}
    terms, constant = affine_form(as_expr(a) - b)
    for var, k in reversed(terms.items()):
        others = {t: -c // k for t, c in terms.items() if t is not var}
        exact = all(c % k == 0 for c in (*terms.values(), constant))
        if isinstance(var, Var) and exact and not any(var in free_vars(t) for t in others):
            return {var: from_affine(others, -constant // k)}
    return _same_form(a, b)


def _limited(var: Var, other: Dim) -> dict[Expr, Expr] | None:
    """A replacement of `var` by a symbol with a smaller range, if `other` is min(var, number) or
    max(var, number); else None.
    """
    if not isinstance(other, Binary) or other.op not in ("min", "max"):
        return None
    ends = [e for e in (other.a, other.b) if isinstance(e, Const)]
    if not ends or all(e is not var for e in (other.a, other.b)):
        return None
    sizes, end = _sizes(var), int(ends[0].value)
    low = max(sizes.low, end) if other.op == "max" else sizes.low
    high = min(sizes.high, end) if other.op == "min" else sizes.high
    if low > high:
        return None
    return {var: symbol(var.name, low, high, min(max(sizes.expected, low), high))}


def _same_form(a: Dim, b: Dim) -> dict[Expr, Expr] | None:
    """Replacements of two symbols by one that make the extents equal.  For example, m and n are
    replaced if the extents are (m + 1) // 2 and (n + 1) // 2.
    """
    left, right = (free_vars(as_expr(d)) for d in (a, b))
    for x in sorted(left - right, key=lambda v: v.name):
        for y in sorted(right - left, key=lambda v: v.name):
            joint = _joined(x, y)
            if joint is not None and same_dim(
                *(as_dim(substitute(as_expr(d), joint)) for d in (a, b))
            ):
                return joint
    return None


def _joined(a: Var, b: Var) -> dict[Expr, Expr] | None:
    """Replacements of two symbols by one, whose range is the intersection of theirs."""
    x, y = _sizes(a), _sizes(b)
    low, high = max(x.low, y.low), min(x.high, y.high)
    if low > high:
        return None
    both = symbol(a.name, low, high, min(max(x.expected, low), high))
    return {a: both, b: both}


def _sizes(var: Var) -> Sizes:
    assert var.sizes is not None
    return var.sizes


def fitting(a: Dim, b: Dim) -> dict[Expr, Expr] | None:
    """Replacements of symbols by symbols with other expected sizes, at which `a` equals `b`.  None
    if no such sizes are found, or if the extents are already equal at the expected sizes.

    As many symbols as possible get one common size, since images are mostly square.  The chosen
    size is the solution that is divisible by the highest power of two.
    """
    symbols = symbols_of((a, b))
    usual = {s: expected(s) for s in symbols}
    is_odd = len(symbols) > _TOGETHER or any(s.sizes is None for s in symbols)
    if is_odd or _are_equal(a, b, usual):
        return None
    for count in range(len(symbols), 0, -1):
        for chosen in combinations(symbols, count):
            low = max(_sizes(s).low for s in chosen)
            high = min(*(_sizes(s).high for s in chosen), _TRIED)
            tried = ((n, usual | dict.fromkeys(chosen, n)) for n in range(low, high + 1))
            fit = [n for n, sizes in tried if _are_equal(a, b, sizes)]
            if fit:
                size = max(fit, key=lambda n: (n & -n, n))
                return {s: symbol(s.name, _sizes(s).low, _sizes(s).high, size) for s in chosen}
    return None


def _are_equal(a: Dim, b: Dim, sizes: dict[Var, int]) -> bool:
    try:
        return value_of(a, sizes) == value_of(b, sizes)
    except ValueError:  # a division by zero
        return False
