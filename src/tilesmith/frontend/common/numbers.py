"""Formulas of an importer that a run computes: arithmetic of small tensors, written like numbers.

What is known when the model is compiled is computed then (`FoldingBuilder`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, i64
from tilesmith.ops import elementwise as ew
from tilesmith.ops import reduce, shape
from tilesmith.ops.base import Op
from tilesmith.ops.gather import Gather
from tilesmith.ops.slicing import Concat

from .node import NodeContext

Operand: TypeAlias = "Numbers | int | float | Sequence[int] | Sequence[float] | np.ndarray"


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """A small tensor in a formula; operands broadcast, and constants take its element type.

    n: the node that is imported.
    value: the tensor.
    """

    n: NodeContext
    value: Value

    @staticmethod
    def of(n: NodeContext, value: Value, dtype: DType = i64) -> Numbers:
        """A tensor of any shape as a list of `dtype`."""
        if value.dtype is not dtype:
            value = n.add(ew.Cast(dtype), value)
        if value.type.rank != 1:
            value = n.add(shape.Reshape((-1,)), value)
        return Numbers(n, value)

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    def _apply(self, op: Op, *operands: Operand) -> Numbers:
        values = (x.value if isinstance(x, Numbers) else self._constant(x) for x in operands)
        return Numbers(self.n, self.n.builder.share(op, *values))

    def _constant(self, x: Operand) -> Value:
        return self.n.const(x, self.dtype)

    def __add__(self, other: Operand) -> Numbers:
        return self._apply(ew.Add(), self, other)

    def __radd__(self, other: Operand) -> Numbers:
        return self._apply(ew.Add(), other, self)

    def __sub__(self, other: Operand) -> Numbers:
        return self._apply(ew.Sub(), self, other)

    def __rsub__(self, other: Operand) -> Numbers:
        return self._apply(ew.Sub(), other, self)

    def __mul__(self, other: Operand) -> Numbers:
        return self._apply(ew.Mul(), self, other)

    def __rmul__(self, other: Operand) -> Numbers:
        return self._apply(ew.Mul(), other, self)

    def __neg__(self) -> Numbers:
        return self._apply(ew.Neg(), self)

    def divided(self, by: Operand) -> Numbers:
        """The quotient; of integers rounded toward zero, of those by 0 any."""
        return self._apply(ew.Div(), self, by)

    def modulo(self, by: Operand) -> Numbers:
        """The remainder, with the sign of `by`."""
        return self._apply(ew.Mod(), self, by)

    def least(self, other: Operand) -> Numbers:
        return self._apply(ew.Min(), self, other)

    def most(self, other: Operand) -> Numbers:
        return self._apply(ew.Max(), self, other)

    def clipped(self, low: Operand, high: Operand) -> Numbers:
        """At least `low`, and at most `high`, which wins."""
        return self.most(low).least(high)

    def equals(self, other: Operand) -> Numbers:
        return self._apply(ew.Equal(), self, other)

    def below(self, other: Operand) -> Numbers:
        return self._apply(ew.Less(), self, other)

    def both(self, other: Operand) -> Numbers:
        return self._apply(ew.LogicalAnd(), self, other)

    def either(self, other: Operand) -> Numbers:
        return self._apply(ew.LogicalOr(), self, other)

    def chooses(self, then: Operand, otherwise: Operand) -> Numbers:
        """`then` where this bool holds; one of the two must be `Numbers`."""
        typed = next(x for x in (then, otherwise) if isinstance(x, Numbers))
        a, b = (x if isinstance(x, Numbers) else Numbers(self.n, typed._constant(x))
                for x in (then, otherwise))  # fmt: skip
        return self._apply(ew.Where(), self, a, b)

    def cast(self, dtype: DType) -> Numbers:
        return self if self.dtype is dtype else self._apply(ew.Cast(dtype), self)

    def mapped(self, op: Op) -> Numbers:
        """Another operator of one operand."""
        return self._apply(op, self)

    def __getitem__(self, at: int | Sequence[int]) -> Numbers:
        """The elements of a list with these numbers, as a list."""
        places = [at] if isinstance(at, int) else [*at]
        return Numbers(
            self.n, self.n.builder.share(Gather(0), self.value, self.n.const(places, i64))
        )

    def shaped(self, *dims: int) -> Numbers:
        return Numbers(self.n, self.n.builder.share(shape.Reshape(dims), self.value))

    def summed(self, axis: int, make: Callable[..., Op] = reduce.ReduceSum) -> Numbers:
        """Reduced along `axis`, which vanishes."""
        return Numbers(self.n, self.n.builder.share(make((axis,), False), self.value))

    def joined(self, *others: Numbers) -> Numbers:
        """This list and others, one after the other."""
        values = (self.value, *(o.value for o in others))
        return Numbers(self.n, self.n.builder.share(Concat(0), *values)) if others else self
