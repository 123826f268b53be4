"""Linear algebra on matrices: determinants and systems of equations."""

from __future__ import annotations

import numpy as np

from tilesmith.ir import extents
from tilesmith.ir.expr import Expr, cast, const
from tilesmith.ir.intrinsics import call
from tilesmith.ir.types import Dim, TensorType, same_dim
from tilesmith.loop.builder import Array, LoopBuilder
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
                chosen = _pivot_row(b, a, rows, k)
                with b.when(chosen != k):
                    product.value = -product.value
                    with b.loop(rows - k, "j", start=k) as j:
                        _exchange(b, a, k, chosen, j)
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


class Solve(Op):
    """The solutions x of a @ x = b: a [..., M, M], b [..., M, K] -> [..., M, K].

    Gaussian elimination with the largest element of each column as its pivot; 16-bit floats are
    computed in f32.  A singular matrix, where a pivot is 0, raises ModelError at run time.
    """

    heavy_reference = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 2)
        a, b = types
        rules.check_kind(self.name, a, rules.FLOATS)
        if a.dtype is not b.dtype:
            rules.reject(self.name, f"two tensors of {a.dtype}", b)
        if a.rank < 2 or not same_dim(a.shape[-1], a.shape[-2]):
            rules.reject(self.name, "square matrices of floats", a)
        if not rules.equal_shapes(self.name, a.shape[:-1], b.shape[:-1]):
            rules.reject(self.name, f"as many rows and matrices as {a}", b)
        return (b,)

    def loops(self, *types: TensorType) -> Func:
        *batch, rows, columns = types[1].shape
        dtype = types[0].dtype
        wide = rules.accumulator(dtype)
        b = LoopBuilder(self.name)
        matrix, right = b.input("a", types[0]), b.input("b", types[1])
        result = b.output("x", types[1])
        room = extents.larger(rows, 1)
        with b.independent_nest(batch, "n") as n:
            a = b.scratch("left", wide, (room, room))
            x = b.scratch("right", wide, (room, extents.larger(columns, 1)))
            with b.nest((rows, rows), "i") as i:
                a[i] = rules.widen(matrix[(*n, *i)])
            with b.nest((rows, columns), "i") as i:
                x[i] = rules.widen(right[(*n, *i)])
            with b.loop(rows, "k") as k:
                chosen = _pivot_row(b, a, rows, k)
                with b.when(chosen != k):
                    with b.loop(rows - k, "j", start=k) as j:
                        _exchange(b, a, k, chosen, j)
                    with b.loop(columns, "j") as j:
                        _exchange(b, x, k, chosen, j)
                b.check(a[k, k] != 0, "expected invertible matrices, found a singular one")
                with b.loop(rows - 1 - k, "i", start=k + 1) as i:
                    factor = b.let("factor", a[i, k] / a[k, k])
                    with b.loop(rows - 1 - k, "j", start=k + 1) as j:
                        a[i, j] = a[i, j] - factor * a[k, j]
                    with b.loop(columns, "j") as j:
                        x[i, j] = x[i, j] - factor * x[k, j]
            with b.loop(rows, "l") as done, b.loop(columns, "j") as j:
                k = rows - 1 - done
                solution = b.let("found", x[k, j] / a[k, k])
                x[k, j] = solution
                with b.loop(k, "i") as i:
                    x[i, j] = x[i, j] - a[i, k] * solution
            with b.nest((rows, columns), "i") as i:
                result[(*n, *i)] = cast(x[i], dtype)
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        a, b = (x.astype(np.float64) for x in inputs)
        try:
            return np.linalg.solve(a, b).astype(inputs[1].dtype)
        except np.linalg.LinAlgError:
            rules.reject(self.name, "invertible matrices", "a singular one")


def _pivot_row(b: LoopBuilder, a: Array, rows: Dim, k: Expr) -> Expr:
    """The row with the largest magnitude in column k, among rows k and following."""
    best = b.variable("best", k)
    with (
        b.loop(rows - 1 - k, "i", start=k + 1) as i,
        b.when(call("abs", a[i, k]) > call("abs", a[best.value, k])),
    ):
        best.value = i
    return b.let("chosen", best.value)


def _exchange(b: LoopBuilder, a: Array, k: Expr, other: Expr, j: Expr) -> None:
    """Exchange the elements of rows k and `other` in column j."""
    kept = b.let("kept", a[k, j])
    a[k, j] = a[other, j]
    a[other, j] = kept
