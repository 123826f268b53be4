"""Formulas of special functions, written in the element type in which they are computed.

Types of 16 bits are computed in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f32, f64
from tilesmith.ops import elementwise as ew
from tilesmith.ops.base import Op

Term: TypeAlias = "Value | float"
"""A tensor, or a number."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Arithmetic of one element type.

    node: the call that is imported.
    given: its operand, f32 or f64.
    wanted: the element type of the result.
    """

    node: AtenNode
    given: Value
    wanted: DType

    @staticmethod
    def of(n: AtenNode, x: Value) -> Numbers:
        """For the operand of a call; integers are f32."""
        x = n.floating(x)
        return Numbers(n, x if x.dtype is f64 else n.cast(x, f32), x.dtype)

    def result(self, x: Value) -> Value:
        """`x` in the type of the call's result."""
        return self.node.cast(x, self.wanted)

    def number(self, x: Term) -> Value:
        return self.node.tensor(x, self.given.dtype)

    def unary(self, op: Op, x: Term) -> Value:
        return self.node.add(op, self.number(x))

    def binary(self, op: Op, a: Term, b: Term) -> Value:
        return self.node.add(op, self.number(a), self.number(b))

    def add(self, a: Term, b: Term) -> Value:
        return self.binary(ew.Add(), a, b)

    def sub(self, a: Term, b: Term) -> Value:
        return self.binary(ew.Sub(), a, b)

    def mul(self, a: Term, b: Term) -> Value:
        return self.binary(ew.Mul(), a, b)

    def div(self, a: Term, b: Term) -> Value:
        return self.binary(ew.Div(), a, b)

    def max(self, a: Term, b: Term) -> Value:
        return self.binary(ew.Max(), a, b)

    def min(self, a: Term, b: Term) -> Value:
        return self.binary(ew.Min(), a, b)

    def less(self, a: Term, b: Term) -> Value:
        return self.binary(ew.Less(), a, b)

    def not_less(self, a: Term, b: Term) -> Value:
        return self.binary(ew.GreaterEqual(), a, b)

    def equal(self, a: Term, b: Term) -> Value:
        return self.binary(ew.Equal(), a, b)

    def where(self, condition: Value, a: Term, b: Term) -> Value:
        return self.node.add(ew.Where(), condition, self.number(a), self.number(b))

    def abs(self, x: Term) -> Value:
        return self.unary(ew.Abs(), x)

    def neg(self, x: Term) -> Value:
        return self.unary(ew.Neg(), x)

    def log(self, x: Term) -> Value:
        return self.unary(ew.Log(), x)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """The sum of coefficients times powers of `x`, the constant first (Horner's rule)."""
        total = self.number(coefficients[-1])
        for c in coefficients[-2::-1]:
            total = self.add(self.mul(total, x), c)
        return total


@dataclass(frozen=True, slots=True)
class Series:
    """A function by Chebyshev's polynomials on an interval, computed with 50 digits.

    low, high: the interval.
    short: how many of the coefficients f32 needs.
    coefficients: for f64, as numbers that NumPy's `chebval` takes.
    """

    low: float
    high: float
    short: int
    coefficients: tuple[float, ...]

    def at(self, m: Numbers, x: Value) -> Value:
        """Its value where `x` is inside the interval, by Clenshaw's recurrence."""
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        t = m.mul(m.sub(x, middle), 1 / half)
        twice = m.add(t, t)
        count = self.short if x.dtype is f32 else len(self.coefficients)
        first, second = m.number(0.0), m.number(0.0)
        for c in self.coefficients[count - 1 : 0 : -1]:
            first, second = m.add(m.sub(m.mul(twice, first), second), c), first
        return m.add(m.sub(m.mul(t, first), second), self.coefficients[0])
