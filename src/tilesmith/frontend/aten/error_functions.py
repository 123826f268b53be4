"""The complementary error function, accurate to the last digits even where it is tiny."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, f64
from tilesmith.ops import elementwise as ew
from tilesmith.ops.base import Op
from tilesmith.ops.functions import where

_SERIES = (
    -6.513268598908547e-01, 6.4196979235649026e-01, 1.9476473204185836e-02,
    -9.561514786808631e-03, -9.46595344482036e-04, 3.66839497852761e-04, 4.2523324806907e-05,
    -2.0278578112534e-05, -1.624290004647e-06, 1.303655835580e-06, 1.5626441722e-08,
    -8.5238095915e-08, 6.529054439e-09, 5.059343495e-09, -9.91364156e-10, -2.27365122e-10,
    9.6467911e-11, 2.394038e-12, -6.886027e-12, 8.94487e-13, 3.13092e-13, -1.12708e-13,
    3.81e-16, 7.106e-15, -1.523e-15, -9.4e-17, 1.21e-16, -2.8e-17,
)  # fmt: skip
"""Coefficients of log(erfc(z) exp(z^2) / t) in Chebyshev's polynomials of 2 t - 1, where t = 2 / (2
+ z) (Press et al., Numerical Recipes, 3rd edition, section 6.2.2).
"""
_TERMS = {f32: 12, f64: 28}
_LARGEST = 28.0
"""Argument from which on erfc is 0 in f64."""


@aten_op("aten.erfc.default", "aten.special_erfc.default")
def erfc(n: AtenNode, self: Value) -> Value:
    """1 - erf(x) near 0.  Elsewhere that difference would cancel, so the result is t exp(-z^2 +
    series), where z = |x|.

    exp multiplies the rounding error of z^2 by z^2.  So z^2 is computed as w^2 + (z - w) (z + w),
    where w is a multiple of 1/16 and w^2 is exact.
    """
    floats = n.floating(self)
    x = floats if floats.dtype is f64 else n.cast(floats, f32)

    def of(op: Op, *operands: Value | float) -> Value:
        return n.add(op, *(n.tensor(v, x.dtype) for v in operands))

    z = of(ew.Min(), of(ew.Abs(), x), _LARGEST)
    t = of(ew.Div(), 2.0, of(ew.Add(), z, 2.0))
    argument = of(ew.Sub(), of(ew.Mul(), t, 2.0), 1.0)
    series = reduce(
        lambda sum_, c: of(ew.Add(), of(ew.Mul(), sum_, argument), c), _powers(_TERMS[x.dtype])
    )
    w = of(ew.Mul(), of(ew.Round(), of(ew.Mul(), z, 16.0)), 0.0625)
    rest = of(ew.Mul(), of(ew.Sub(), z, w), of(ew.Add(), z, w))
    main = of(ew.Exp(), of(ew.Neg(), of(ew.Mul(), w, w)))
    tail = of(ew.Mul(), of(ew.Mul(), t, main), of(ew.Exp(), of(ew.Sub(), series, rest)))
    is_negative = x < 0.0
    tail = where(is_negative, of(ew.Sub(), 2.0, tail), tail)
    is_far = of(ew.Abs(), x) > 0.5  # the comparison is false for NaN
    near = of(ew.Sub(), 1.0, of(ew.Erf(), x))
    return n.cast(where(is_far, tail, near), floats.dtype)


_CENTRAL = (
    (-0.140543331, 0.914624893, -1.645349621, 0.886226899),
    (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0),
)
_TAIL = ((1.641345311, 3.429567803, -1.624906493, -1.970840454), (1.637067800, 3.543889200, 1.0))
"""Numerator and denominator of the initial value for |y| above 0.5, the highest power first."""


@aten_op("aten.erfinv.default")
def erfinv(n: AtenNode, self: Value) -> Value:
    """The inverse of erf: an initial value by rational functions, then Newton steps.  Near 0 the
    steps use erf.  Elsewhere they use erfc, since 1 - |y| is exact there and erf(x) is not.
    """
    floats = n.floating(self)
    y = floats if floats.dtype is f64 else n.cast(floats, f32)

    def of(op: Op, *operands: Value | float) -> Value:
        return n.add(op, *(n.tensor(v, y.dtype) for v in operands))

    def polynomial(terms: Sequence[float], at: Value) -> Value:
        start = of(ew.Add(), of(ew.Mul(), at, terms[0]), terms[1])
        return reduce(lambda sum_, c: of(ew.Add(), of(ew.Mul(), sum_, at), c), terms[2:], start)

    def slope(x: Value) -> Value:
        return of(ew.Mul(), of(ew.Exp(), of(ew.Neg(), of(ew.Mul(), x, x))), 2 / math.sqrt(math.pi))

    size = of(ew.Abs(), y)
    near, rest = of(ew.Mul(), size, size), of(ew.Sub(), 1.0, size)
    x = of(ew.Mul(), size, of(ew.Div(), *(polynomial(t, near) for t in _CENTRAL)))
    far = of(ew.Sqrt(), of(ew.Neg(), of(ew.Log(), of(ew.Mul(), rest, 0.5))))
    z = of(ew.Div(), *(polynomial(t, far) for t in _TAIL))
    for _ in range(2):
        x = of(ew.Sub(), x, of(ew.Div(), of(ew.Sub(), of(ew.Erf(), x), size), slope(x)))
        z = of(ew.Add(), z, of(ew.Div(), of(ew.Sub(), erfc(n, z), rest), slope(z)))
    root = where(size > 0.5, z, x)
    is_one = size.equals(1.0)
    root = where(is_one, math.inf, root)
    return n.cast(of(ew.Mul(), of(ew.Sign(), y), root), floats.dtype)


def _powers(count: int) -> Sequence[float]:
    """The series' first `count` terms as a polynomial: coefficients, the highest power first."""
    return np.polynomial.chebyshev.cheb2poly(_SERIES[:count])[::-1].tolist()
