"""Special functions as formulas, computed in f32 or f64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, f64


def of_floats(n: AtenNode, self: Value, *, formula: Callable[[Value], Value]) -> Value:
    """The result of a call, computed by a formula.  f64 is computed in f64, and other floats in
    f32.  Integers become f32.
    """
    x = n.floating(self)
    floats = x if x.dtype is f64 else n.cast(x, f32)
    return n.cast(formula(floats), x.dtype)


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """A polynomial in `x` by Horner's rule, from two or more coefficients, the constant first."""
    total = x * coefficients[-1] + coefficients[-2]
    for c in coefficients[-3::-1]:
        total = total * x + c
    return total


@dataclass(frozen=True, slots=True)
class Series:
    """A function approximated by Chebyshev polynomials on an interval; the coefficients were
    computed with 50 digits.

    low, high: the interval.
    short: number of coefficients that f32 needs.
    coefficients: coefficients for f64, as for NumPy's `chebval`.
    """

    low: float
    high: float
    short: int
    coefficients: tuple[float, ...]

    def at(self, x: Value) -> Value:
        """The value for `x` inside the interval, by Clenshaw's recurrence."""
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        t = (x - middle) * (1 / half)
        twice = t + t
        count = self.short if x.dtype is f32 else len(self.coefficients)
        first: Value | float = self.coefficients[count - 1]
        second: Value | float = 0.0
        for c in self.coefficients[count - 2 : 0 : -1]:
            first, second = twice * first - second + c, first
        return t * first - second + self.coefficients[0]
