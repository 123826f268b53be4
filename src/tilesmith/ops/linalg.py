"""Operators on the values of whole matrices."""

from __future__ import annotations

import numpy as np

from tilesmith.ir import extents
from tilesmith.ir.expr import cast, const
from tilesmith.ir.intrinsics import call
from tilesmith.ir.types import TensorType, same_dim
from tilesmith.loop.builder import LoopBuilder
from tilesmith.loop.nodes import Func

from . import rules
from .base import Op


class Det(Op):
    """The determinants of square matrices, [..., M, M] -> [...].

    Gaussian elimination with the largest element of each column as its pivot; 16-bit floats are
    computed in f32.
    """

    heavy_reference = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 1)
        x = types[0]
        rules.check_kind(self.name, x, rules.FLOATS)
        if x.rank < 2 or not same_dim(x.shape[-1], x.shape[-2]):
            rules.reject(self.name, "square matrices of floats", x)
        return (TensorType(x.dtype, x.shape[:-2]),)

    def loops(self, *types: TensorType) -> Func:
        *batch, rows, _ = types[0].shape
        dtype = types[0].dtype
        wide = rules.accumulator(dtype)
        b = LoopBuilder(self.name)
        x, y = b.input("x", types[0]), b.output("y", *self.infer(*types))
        with b.independent_nest(batch, "n") as n:
            a = b.scratch("a", wide, (extents.larger(rows, 1),) * 2)
            with b.nest((rows, rows), "i") as i:
                a[i] = rules.widen(x[(*n, *i)])
            product = b.variable("product", const(1, wide))
            with b.loop(rows, "k") as k:
                best = b.variable("best", k)
                with (
                    b.loop(rows - 1 - k, "i", start=k + 1) as i,
                    b.when(call("abs", a[i, k]) > call("abs", a[best.value, k])),
                ):
                    best.value = i
                chosen = b.let("chosen", best.value)
                with b.when(chosen != k):
                    product.value = -product.value
                    with b.loop(rows - k, "j", start=k) as j:
                        kept = b.let("kept", a[k, j])
                        a[k, j] = a[chosen, j]
                        a[chosen, j] = kept
                pivot = b.let("pivot", a[k, k])
                product.value = product.value * pivot
                with b.when(pivot != 0.0), b.loop(rows - 1 - k, "i", start=k + 1) as i:
                    factor = b.let("factor", a[i, k] / pivot)
                    with b.loop(rows - 1 - k, "j", start=k + 1) as j:
                        a[i, j] = a[i, j] - factor * a[k, j]
            y[n] = cast(product.value, dtype)
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return np.asarray(np.linalg.det(inputs[0].astype(np.float64))).astype(inputs[0].dtype)
