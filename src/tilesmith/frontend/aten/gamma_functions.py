"""The logarithm of the gamma function, and its derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.aten.series import Series, of_floats, polynomial
from tilesmith.graph.nodes import Value
from tilesmith.ops import elementwise as ew
from tilesmith.ops.functions import apply, log, maximum, rint, sin, where

_NEAR = Series(0.75, 2.25, 13, (
    0.50318365680086508, -0.12106206737250127, 0.020910425358552458, -4.1779929893163503e-3,
    9.0026302392085756e-4, -2.0287927285893476e-4, 4.7072066182774115e-5,
    -1.1145551722345646e-5, 2.6786471398085192e-6, -6.5117508679775983e-7,
    1.597447652327773e-7, -3.9480178213314518e-8, 9.8180269319616202e-9,
    -2.4544790124852742e-9, 6.1641128490150106e-10, -1.5542026666279419e-10,
    3.932483431425504e-11, -9.9811360197078059e-12, 2.5404212358724417e-12,
    -6.4822307812564357e-13, 1.6578060134627767e-13, -4.2485899866836554e-14,
    1.0908893848029689e-14, -2.8059106111865753e-15, 7.2287734726985413e-16,
    -1.8650921549196398e-16, 4.818744278140676e-17,
))  # fmt: skip
"""lgamma(x) / ((x - 1) (x - 2))."""

_STIRLING = (
    1 / 12,
    -1 / 360,
    1 / 1260,
    -1 / 1680,
    1 / 1188,
    -691 / 360360,
    1 / 156,
    -3617 / 122400,
)
"""Coefficients of lgamma(x) in odd powers of 1 / x (Abramowitz and Stegun, 6.1.41)."""
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""Coefficients of log(x) - 1 / (2 x) - digamma(x) in even powers of 1 / x (6.3.18)."""
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""Coefficients of trigamma(x) - 1 / x - 1 / (2 x^2) in odd powers of 1 / x from x^-3 (6.4.12)."""


def _lgamma(x: Value) -> Value:
    """log |gamma(x)|.

    From 0.75 to 2.25, around its zeros 1 and 2, it is a series times (x - 1) (x - 2).  The
    recurrence moves other arguments below 8 to that interval.  Above 8, Stirling's series is used.
    Below -0.25, the reflection formula is used.  For x > 0 the error is at most 3 ulp in f32 and
    f64.  Near zeros at x < 0 the result is a difference, so only the absolute error is small.
    """
    size = abs(x)
    is_low = x < -0.25
    positive = where(is_low, size, x)
    # From (-0.25, 0.75), take one recurrence step up.  From (2.25, 8), take several steps down.
    # `steps` is the product of the factors, so that one logarithm is enough.
    is_small = positive < 0.75
    argument = where(is_small, positive + 1.0, positive)
    steps = where(is_small, abs(positive), 1.0)
    for _ in range(6):
        is_there = argument < 2.25
        lower = argument - 1.0
        steps = where(is_there, steps, steps * lower)
        argument = where(is_there, argument, lower)
    logarithm = log(steps)
    logarithm = where(is_small, -logarithm, logarithm)
    near = (argument - 1.0) * (argument - 2.0) * _NEAR.at(argument) + logarithm
    big = maximum(positive, 8.0)
    inverse = 1.0 / big
    tail = inverse * polynomial(inverse * inverse, _STIRLING)
    # (x - 1/2) (log(x) - 1) overflows at larger x than its expanded terms
    far = (big - 0.5) * (log(big) - 1.0) + (tail + (0.5 * math.log(2 * math.pi) - 0.5))
    result = where(positive < 8.0, near, far)
    fraction = x - rint(x)
    sine = abs(sin(fraction * math.pi))
    turned = -log(sine * (size * (1 / math.pi))) - result
    turned = where(fraction.equals(0.0), math.inf, turned)
    result = where(is_low, turned, result)
    return where(apply(ew.IsInf(), x), math.inf, result)


def _digamma(x: Value) -> Value:
    """The derivative of lgamma.  The recurrence raises x to 10, then an asymptotic series is used.
    Below 0, the reflection formula is used.  Values near the zeros are differences, so the error is
    a few ulp of the largest term, as in PyTorch.
    """
    is_low = x < 0.0
    argument, total = _raised(where(is_low, 1.0 - x, x), lambda at: 1.0 / at)
    inverse = 1.0 / argument
    square = inverse * inverse
    tail = square * polynomial(square, _DIGAMMA) + inverse * 0.5
    result = (log(argument) - tail) - total
    fraction = (x - apply(ew.Trunc(), x)) * math.pi
    turned = result - math.pi / apply(ew.Tan(), fraction)
    turned = where(fraction.equals(0.0), math.nan, turned)  # the function has a pole here
    result = where(is_low, turned, result)
    return where(x.equals(0.0), -1.0 / x, result)


def _trigamma(x: Value) -> Value:
    """The derivative of digamma, by the same steps.  The error is at most 6 ulp in f32 and f64."""
    is_low = x < 0.5
    argument, total = _raised(where(is_low, 1.0 - x, x), lambda at: 1.0 / (at * at))
    inverse = 1.0 / argument
    square = inverse * inverse
    result = inverse + square * 0.5 + square * inverse * polynomial(square, _TRIGAMMA) + total
    fraction = x - rint(x)
    sine = sin(fraction * math.pi) / math.pi
    return where(is_low, 1.0 / (sine * sine) - result, result)


def _raised(x: Value, term: Callable[[Value], Value]) -> tuple[Value, Value]:
    """`x` increased by steps of 1 to at least 10, and the sum of `term` over the values before each
    step.  `x` must not be negative.
    """
    total = where(x < 10.0, term(x), 0.0)
    for _ in range(9):
        x = where(x < 10.0, x + 1.0, x)
        total = where(x < 10.0, total + term(x), total)
    return where(x < 10.0, x + 1.0, x), total


aten_op("aten.lgamma.default", "aten.special_gammaln.default")(partial(of_floats, formula=_lgamma))
aten_op("aten.digamma.default", "aten.special_digamma.default", "aten.special_psi.default")(
    partial(of_floats, formula=_digamma)
)


@aten_op("aten.polygamma.default", "aten.special_polygamma.default")
def polygamma(n_: AtenNode, n: int, self: Value) -> Value:
    """The derivatives of digamma of order 0 and 1."""
    if n not in (0, 1):
        n_.unsupported(f"expected the order 0 or 1, found {n}")
    return of_floats(n_, self, formula=_trigamma if n else _digamma)
