"""Arithmetic on extents, which are numbers or symbolic.  Results are in simplest form, so that
equal extents are one object.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce

from .affine import affine_form, combined, factors_of, from_affine
from .affine import product as atoms_product
from .expr import Const, Expr, as_expr, maximum, minimum
from .interval import Interval
from .simplify import interval, simplify
from .symbols import as_dim
from .types import Dim, same_dim


def product(dims: Iterable[Dim]) -> Dim:
    """The product of extents; a number if all extents are numbers."""
    number, symbolic = 1, None
    for d in dims:
        if isinstance(d, int):
            number *= d
        else:
            symbolic = d if symbolic is None else symbolic * d
    if symbolic is None or number == 0:
        return number
    return as_dim(symbolic * number if number != 1 else symbolic)


def total(dims: Iterable[Dim]) -> Dim:
    """The sum of extents; a number if all extents are numbers."""
    number, symbolic = 0, None
    for d in dims:
        if isinstance(d, int):
            number += d
        else:
            symbolic = d if symbolic is None else symbolic + d
    return number if symbolic is None else as_dim(symbolic + number if number else symbolic)


def difference(a: Dim, b: Dim) -> Dim:
    """`a - b`."""
    return total((a, product((b, -1))))


def strides_of(shape: Sequence[Dim]) -> list[Dim]:
    """Row-major strides in elements."""
    return [product(shape[i + 1 :]) for i in range(len(shape))]


def smaller(a: Dim, b: Dim) -> Dim:
    """The minimum."""
    return as_dim(minimum(as_expr(a), b))


def larger(a: Dim, b: Dim) -> Dim:
    """The maximum."""
    return as_dim(maximum(as_expr(a), b))


def values_of(d: Dim) -> Interval:
    """The possible values of the extent."""
    return interval(as_expr(d))


def decided(condition: Expr) -> bool | None:
    """The value of a condition for all sizes; None if it depends on them."""
    simple = simplify(condition)
    return bool(simple.value) if isinstance(simple, Const) else None


def is_at_most(a: Dim, b: Dim) -> bool:
    """Whether `a <= b` for all sizes."""
    return decided(as_expr(a) <= b) is True


def are_equal(a: Dim, b: Dim) -> bool | None:
    """Whether two extents are equal; None if that depends on the sizes."""
    if same_dim(a, b):
        return True
    return None if values_of(difference(a, b)).contains(0) else False


def factored(d: Dim) -> tuple[int, Counter[Expr]]:
    """An extent as a number times expressions that are not products."""
    if isinstance(d, int):
        return d, Counter()
    terms, constant = affine_form(d)
    if len(terms) == 1 and constant == 0:
        [(atom, number)] = terms.items()
        return number, Counter(factors_of(atom))
    number = math.gcd(constant, *terms.values())
    factors = {atom: Counter(factors_of(atom)) for atom in terms}
    common = Counter[Expr]() if constant else reduce(lambda a, b: a & b, factors.values())
    if number == 1 and not common:
        return 1, Counter([d])
    rest = ({}, constant // number)
    for atom, k in terms.items():
        left = [*(factors[atom] - common).elements()]
        part = ({reduce(atoms_product, left): k // number}, 0) if left else ({}, k // number)
        rest = combined(rest, part)
    return number, common + Counter([from_affine(*rest)])


def reduced(whole: Dim, part: Dim) -> tuple[Dim, Dim]:
    """Both extents without their common factors that are never 0.  The rounded-down quotient stays
    the same.
    """
    number, symbolic = factored(whole)
    divisor, others = factored(part)
    shared = Counter({e: k for e, k in (symbolic & others).items() if is_at_most(1, e)})
    by = math.gcd(number, divisor)
    if not shared and by <= 1:
        return whole, part
    return (
        product((number // by, *(symbolic - shared).elements())),
        product((divisor // by, *(others - shared).elements())),
    )


def quotient(whole: Dim, part: Dim) -> Dim | None:
    """`whole // part` where `part` divides `whole` for all sizes; None where that is not known."""
    number, symbolic = factored(whole)
    divisor, gone = factored(part)
    if gone - symbolic or divisor == 0 or number % divisor:
        return None
    return product((number // divisor, *(symbolic - gone).elements()))
