"""Shapes that only a run knows, where the program has made sure that they fit.

Whether two symbolic extents are equal, or one of them is 1, can't always be said when a model is
compiled.  A measure in front of these operators has checked it (`graph.measure`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Expr, ExprLike, as_expr
from tilesmith.ir.types import Dim, same_dim
from tilesmith.te import tensor as te

from . import rules
from .base import Op


@dataclass(frozen=True)
class Reinterpret(Op):
    """The elements in row-major order under another shape, of as many elements in every run."""

    shape: tuple[Dim, ...]

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)

        if any(same_dim(d, 0) for d in (*x.shape, *self.shape)):  # any index will do
            return te.compute(self.shape, lambda *i: x[(as_expr(0),) * x.rank], self.name)

        def source(*index: Expr) -> Expr:
            flat = ir.as_expr(0)
            for i, stride in zip(index, rules.strides_of(self.shape), strict=True):
                flat = flat + i * stride
            at: list[ExprLike] = []
            for extent, stride in zip(x.shape, rules.strides_of(x.shape), strict=True):
                # an extent of 0 never divides: then there is no element
                at.append(flat // _positive(stride) % _positive(extent))
            return x[tuple(at)]

        return te.compute(self.shape, source, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return inputs[0].reshape([rules.static(self.name, d, "an extent") for d in self.shape])


@dataclass(frozen=True)
class Stretch(Op):
    """The input broadcast to `shape`, of the same rank: in every run each of its extents is 1 or
    that of the result.
    """

    shape: tuple[Dim, ...]

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        if len(self.shape) != x.rank:
            rules.reject(self.name, f"{x.rank} extents", rules.shape_text(self.shape))

        def at(i: Expr, extent: Dim, wanted: Dim) -> ExprLike:
            if same_dim(extent, wanted):
                return i
            return ir.minimum(i, as_expr(extent) - 1)

        return te.compute(
            self.shape, lambda *i: x[tuple(map(at, i, x.shape, self.shape))], self.name
        )

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        shape = [rules.static(self.name, d, "an extent") for d in self.shape]
        return np.broadcast_to(inputs[0], shape)


def _positive(d: Dim) -> Dim:
    return max(d, 1) if isinstance(d, int) else ir.maximum(d, 1)
