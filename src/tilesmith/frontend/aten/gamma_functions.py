"""The logarithm of the gamma function, and its derivatives."""

from __future__ import annotations

import math

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.aten.series import Numbers, Series
from tilesmith.graph.nodes import Value
from tilesmith.ops import elementwise as ew

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
"""Of lgamma(x) in odd powers of 1 / x (Abramowitz and Stegun, 6.1.41)."""
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""Of log(x) - 1 / (2 x) - digamma(x) in even powers of 1 / x (6.3.18)."""
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""Of trigamma(x) - 1 / x - 1 / (2 x^2) in odd powers of 1 / x, from the third (6.4.12)."""


@aten_op("aten.lgamma.default", "aten.special_gammaln.default")
def lgamma(n: AtenNode, self: Value) -> Value:
    """log |gamma(x)|.

    Near its zeros 1 and 2 it is a series times (x - 1) (x - 2).  Up to 8 the recurrence leads
    there, above 8 Stirling's series serves, and below 0 the reflection.  For x > 0 the error is at
    most 3 ulp in f32 and f64.  For x < 0 it is that of 1 near the zeros, which are differences.
    """
    m = Numbers.of(n, self)
    x = m.given
    size = m.abs(x)
    is_low = m.less(x, -0.25)
    positive = m.where(is_low, size, x)
    # (-0.25, 0.75) by one step up, (2.25, 8) by steps down; one logarithm of all of them
    is_small = m.less(positive, 0.75)
    at = m.where(is_small, m.add(positive, 1.0), positive)
    steps = m.where(is_small, m.abs(positive), m.number(1.0))
    for _ in range(6):
        is_above = m.not_less(at, 2.25)
        lower = m.sub(at, 1.0)
        steps = m.where(is_above, m.mul(steps, lower), steps)
        at = m.where(is_above, lower, at)
    logarithm = m.log(steps)
    logarithm = m.where(is_small, m.neg(logarithm), logarithm)
    zeros = m.mul(m.sub(at, 1.0), m.sub(at, 2.0))
    near = m.add(m.mul(zeros, _NEAR.at(m, at)), logarithm)
    big = m.max(positive, 8.0)
    inverse = m.div(1.0, big)
    tail = m.mul(inverse, m.polynomial(m.mul(inverse, inverse), _STIRLING))
    # (x - 1/2) (log(x) - 1) leaves the range later than its parts would
    far = m.add(
        m.mul(m.sub(big, 0.5), m.sub(m.log(big), 1.0)),
        m.add(tail, 0.5 * math.log(2 * math.pi) - 0.5),
    )
    found = m.where(m.less(positive, 8.0), near, far)
    fraction = m.sub(x, m.unary(ew.Round(), x))
    sine = m.abs(m.unary(ew.Sin(), m.mul(fraction, math.pi)))
    turned = m.sub(m.neg(m.log(m.mul(sine, m.mul(size, 1 / math.pi)))), found)
    turned = m.where(m.equal(fraction, 0.0), math.inf, turned)
    found = m.where(is_low, turned, found)
    return m.result(m.where(m.unary(ew.IsInf(), x), math.inf, found))


@aten_op("aten.digamma.default", "aten.special_digamma.default", "aten.special_psi.default")
def digamma(n: AtenNode, self: Value) -> Value:
    """The derivative of lgamma: the recurrence up to 10, then the asymptotic series; below 0 the
    reflection.  The error is a few ulp of the largest term, as in PyTorch: its zeros are
    differences.
    """
    m = Numbers.of(n, self)
    x = m.given
    is_low = m.less(x, 0.0)
    at = m.where(is_low, m.sub(1.0, x), x)
    total = m.number(0.0)
    for _ in range(10):
        is_small = m.less(at, 10.0)
        total = m.where(is_small, m.add(total, m.div(1.0, at)), total)
        at = m.where(is_small, m.add(at, 1.0), at)
    inverse = m.div(1.0, at)
    square = m.mul(inverse, inverse)
    tail = m.add(m.mul(square, m.polynomial(square, _DIGAMMA)), m.mul(inverse, 0.5))
    found = m.sub(m.sub(m.log(at), tail), total)
    fraction = m.mul(m.sub(x, m.unary(ew.Trunc(), x)), math.pi)
    turned = m.sub(found, m.div(math.pi, m.unary(ew.Tan(), fraction)))
    is_pole = m.equal(fraction, 0.0)
    found = m.where(is_low, m.where(is_pole, m.number(math.nan), turned), found)
    return m.result(m.where(m.equal(x, 0.0), m.div(-1.0, x), found))


@aten_op("aten.polygamma.default", "aten.special_polygamma.default")
def polygamma(n_: AtenNode, n: int, self: Value) -> Value:
    """The derivatives of digamma of order 0 and 1."""
    if n == 0:
        return digamma(n_, self)
    if n != 1:
        n_.unsupported(f"expected the order 0 or 1, found {n}")
    return _trigamma(n_, self)


def _trigamma(n: AtenNode, x: Value) -> Value:
    """The derivative of digamma, in the same steps; the error is at most 6 ulp in f32 and f64."""
    m = Numbers.of(n, x)
    x = m.given
    is_low = m.less(x, 0.5)
    at = m.where(is_low, m.sub(1.0, x), x)
    total = m.number(0.0)
    for _ in range(10):
        is_small = m.less(at, 10.0)
        total = m.where(is_small, m.add(total, m.div(1.0, m.mul(at, at))), total)
        at = m.where(is_small, m.add(at, 1.0), at)
    inverse = m.div(1.0, at)
    square = m.mul(inverse, inverse)
    tail = m.mul(m.mul(square, inverse), m.polynomial(square, _TRIGAMMA))
    found = m.add(m.add(m.add(inverse, m.mul(square, 0.5)), tail), total)
    fraction = m.sub(x, m.unary(ew.Round(), x))
    sine = m.div(m.unary(ew.Sin(), m.mul(fraction, math.pi)), math.pi)
    return m.result(m.where(is_low, m.sub(m.div(1.0, m.mul(sine, sine)), found), found))
