"""Tensors computed from symbolic dimensions, and from positions along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith.ir.dtypes import DType, i64
from tilesmith.ir.expr import Expr, as_expr, cast, const
from tilesmith.ir.types import Dim
from tilesmith.te import tensor as te

from . import rules
from .base import Op


@dataclass(frozen=True)
class Extents(Op):
    """A tensor whose elements are extents, computed from the sizes of a run.

    elements: the elements in row-major order.
    shape: shape of the tensor.
    dtype: an integer type; elements wrap around at its width.
    """

    elements: tuple[Dim, ...]
    shape: tuple[int, ...]
    dtype: DType = i64

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 0)
        count = rules.product(self.shape)
        if len(self.elements) != count or not self.dtype.is_int:
            rules.reject(self.name, f"{count} integers", f"{len(self.elements)} of {self.dtype}")
        elements = [cast(as_expr(e), self.dtype) for e in self.elements] or [const(0, self.dtype)]

        def choose(low: int, parts: Sequence[Expr], at: Expr) -> Expr:
            """Element number `at`, as a balanced tree of selects.  `parts` holds the elements from
            number `low` on, among them the one that is chosen.
            """
            if len(parts) == 1:
                return parts[0]
            half = len(parts) // 2
            return te.if_then_else(
                at < low + half,
                choose(low, parts[:half], at),
                choose(low + half, parts[half:], at),
            )

        def body(*i: Expr) -> Expr:
            number: Expr = const(0)
            for index, stride in zip(i, rules.strides_of(self.shape), strict=True):
                number = number + index * stride
            return choose(0, elements, number)

        return te.compute(self.shape, body, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        numbers = [rules.static(self.name, e, "an element") for e in self.elements]
        return np.array(numbers, np.int64).astype(self.dtype.numpy).reshape(self.shape)


@dataclass(frozen=True)
class Iota(Op):
    """The numbers from 0 to `count` - 1, as i64."""

    count: Dim

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 0)
        return te.compute((self.count,), lambda i: i, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return np.arange(rules.static(self.name, self.count, "the count"), dtype=np.int64)
