"""Operators whose shapes are known only at run time, when the program has checked them.

At compile time it is not always known whether two symbolic extents are equal, or whether one of
them is 1.  A measure before these operators checks that at run time (`graph.measure`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Expr, ExprLike, as_expr, const
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.types import Dim, same_dim
from tilesmith.te import tensor as te

from . import rules
from .base import Op
from .slicing import bordered


@dataclass(frozen=True)
class Reinterpret(Op):
    """The elements in row-major order under another shape, of the same size in every run."""

    shape: tuple[Dim, ...]

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)

        # Without elements any index is valid.
        if any(same_dim(d, 0) for d in (*x.shape, *self.shape)):
            return te.compute(self.shape, lambda *i: x[(as_expr(0),) * x.rank], self.name)

        def source(*index: Expr) -> Expr:
            flat = ir.as_expr(0)
            for i, stride in zip(index, rules.strides_of(self.shape), strict=True):
                flat = flat + i * stride
            indices: list[ExprLike] = []
            for extent, stride in zip(x.shape, rules.strides_of(x.shape), strict=True):
                # An extent of 0 can't be a divisor, and then there are no elements to read.
                indices.append(flat // _positive(stride) % _positive(extent))
            return x[tuple(indices)]

        return te.compute(self.shape, source, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return inputs[0].reshape([rules.static(self.name, d, "an extent") for d in self.shape])


@dataclass(frozen=True)
class Stretch(Op):
    """The input broadcast to `shape` of the same rank.  In a run its extents are 1 or `shape`'s."""

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


@dataclass(frozen=True)
class Window(Op):
    """The elements at `starts[a] + steps[a] * i` along each axis a, for i in 0..`sizes[a]` - 1.

    mode: elements outside the input: "constant" (`value`), "reflect", "edge" or "wrap", as for
        `Pad`; "inside": no run reads outside the input.
    value: value of the elements outside in mode "constant".
    """

    starts: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    steps: tuple[int, ...]
    mode: str = "inside"
    value: float | int | bool = 0.0

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        if not len(self.starts) == len(self.sizes) == len(self.steps) == x.rank:
            rules.reject(self.name, f"a start, a size and a step for {x.rank} axes", str(self))
        is_whole = [
            same_dim(start, 0) and step == 1 and same_dim(size, extent)
            for start, size, step, extent in zip(
                self.starts, self.sizes, self.steps, x.shape, strict=True
            )
        ]
        mode = "edge" if self.mode == "inside" else self.mode
        borders = [None if whole else (LARGEST, LARGEST) for whole in is_whole]

        ends = [
            (as_expr(start), start + step * (as_expr(size) - 1))
            for start, step, size in zip(self.starts, self.steps, self.sizes, strict=True)
        ]
        reach = [(a, b) if s > 0 else (b, a) for (a, b), s in zip(ends, self.steps, strict=True)]

        def body(*index: Expr) -> Expr:
            own = [
                i if whole else i * step + start
                for i, start, step, whole in zip(
                    index, self.starts, self.steps, is_whole, strict=True
                )
            ]
            if mode != "constant":
                return bordered(x, own, mode, borders, reach)
            inside = [
                condition
                for i, extent, whole in zip(own, x.shape, is_whole, strict=True)
                if not whole
                for condition in (i >= 0, i < as_expr(extent))
            ]
            if not inside:
                return x[tuple(own)]
            return te.if_then_else(ir.all_of(*inside), x[tuple(own)], const(self.value, x.dtype))

        return te.compute(self.sizes, body, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        (x,) = inputs
        inside = np.ones((), bool)
        for a, (start, size, step) in enumerate(zip(self.starts, self.sizes, self.steps)):
            extent = inputs[0].shape[a]
            first, count = (rules.static(self.name, d, "a number") for d in (start, size))
            indices = first + step * np.arange(count)
            here = (indices >= 0) & (indices < extent)
            inside = inside & here.reshape(-1, *[1] * (x.ndim - a - 1))
            if self.mode == "wrap":
                indices = indices % max(extent, 1)
            elif self.mode == "reflect":
                indices = (extent - 1) - np.abs((extent - 1) - indices % max(2 * (extent - 1), 1))
            if not extent:  # all elements are outside
                x = np.zeros((*x.shape[:a], count, *x.shape[a + 1 :]), x.dtype)
                continue
            x = np.take(x, np.clip(indices, 0, extent - 1), a)
        if self.mode != "constant":
            return x
        return np.where(inside, x, np.asarray(self.value).astype(x.dtype))


def _positive(d: Dim) -> Dim:
    return max(d, 1) if isinstance(d, int) else ir.maximum(d, 1)
