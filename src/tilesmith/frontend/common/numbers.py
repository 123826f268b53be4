"""Formulas of an importer that a run computes: arithmetic of tensors, written like numbers.

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


def _operation(
    make: Callable[[], Op], *, swap: bool = False
) -> Callable[[Numbers, Operand], Numbers]:
    """A method: an operator of this and another operand; `swap`: of the other and this one."""

    def apply(self: Numbers, other: Operand) -> Numbers:
        return self._apply(make(), *((other, self) if swap else (self, other)))

    return apply


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """A tensor in a formula; operands broadcast, and constants take its element type.

    n: the node that is imported.
    value: the tensor.
    """

    n: NodeContext
    value: Value

    @staticmethod
    def of(n: NodeContext, value: Value, dtype: DType = i64) -> Numbers:
        """A tensor of any shape as a list of `dtype`."""
        if value.dtype is not dtype:
            value = value.cast(dtype)
        if value.type.rank != 1:
            value = value.reshape(-1)
        return Numbers(n, value)

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    def _apply(self, op: Op, *operands: Operand) -> Numbers:
        values = (x.value if isinstance(x, Numbers) else self._constant(x) for x in operands)
        return Numbers(self.n, self.n.builder.add(op, *values))

    def _constant(self, x: Operand) -> Value:
        return self.n.const(x, self.dtype)

    __add__, __radd__ = _operation(ew.Add), _operation(ew.Add, swap=True)
    __sub__, __rsub__ = _operation(ew.Sub), _operation(ew.Sub, swap=True)
    __mul__, __rmul__ = _operation(ew.Mul), _operation(ew.Mul, swap=True)

    __truediv__, __rtruediv__ = _operation(ew.Div), _operation(ew.Div, swap=True)

    def __neg__(self) -> Numbers:
        return self._apply(ew.Neg(), self)

    def __abs__(self) -> Numbers:
        return self._apply(ew.Abs(), self)

    divided = __truediv__
    """The quotient; of integers rounded toward zero, of those by 0 any."""
    modulo = _operation(ew.Mod)
    """The remainder, with the sign of the divisor."""
    least, most = _operation(ew.Min), _operation(ew.Max)
    equals, below = _operation(ew.Equal), _operation(ew.Less)
    both, either = _operation(ew.LogicalAnd), _operation(ew.LogicalOr)

    def clipped(self, low: Operand, high: Operand) -> Numbers:
        """At least `low`, and at most `high`, which wins."""
        return self.most(low).least(high)

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
        return Numbers(self.n, self.n.builder.add(Gather(0), self.value, self.n.const(places, i64)))

    def shaped(self, *dims: int) -> Numbers:
        return Numbers(self.n, self.n.builder.add(shape.Reshape(dims), self.value))

    def summed(self, axis: int, make: Callable[..., Op] = reduce.ReduceSum) -> Numbers:
        """Reduced along `axis`, which vanishes."""
        return Numbers(self.n, self.n.builder.add(make((axis,), False), self.value))

    def joined(self, *others: Numbers) -> Numbers:
        """This list and others, one after the other."""
        values = (self.value, *(o.value for o in others))
        return Numbers(self.n, self.n.builder.add(Concat(0), *values)) if others else self
