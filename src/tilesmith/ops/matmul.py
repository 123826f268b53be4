"""Contractions: matmul, and gemm as in ONNX.

A contraction is one reduce stage whose body is the product of its operands; strategies look for
this form.  16-bit floats are accumulated in f32 and rounded by a separate stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr
from tilesmith.ir.types import Dim
from tilesmith.te import tensor as te

from . import rules
from .base import GraphBuilder, Op


@dataclass(frozen=True)
class MatMul(Op):
    """Matrix product over the last two axes; leading (batch) axes broadcast.  A vector loses its
    axis, as in NumPy.

    transpose_a: whether a is stored [..., k, m].
    transpose_b: whether b is stored [..., n, k].
    to: element type of the sums and of the result, with which operands may have any types.  None:
        the common type of the operands.  16-bit floats are added in f32 and rounded.
    """

    name: ClassVar[str] = "matmul"
    transpose_a: bool = False
    transpose_b: bool = False
    to: DType | None = None

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 2)
        a, b = inputs
        rules.check_factors(self.name, a, b, self.to)
        if a.rank == 0 or b.rank == 0:
            rules.reject(self.name, "inputs of rank 1 or more", "a scalar")
        m, ka = _matrix_axes(a.shape, self.transpose_a, is_left=True)
        n, kb = _matrix_axes(b.shape, self.transpose_b, is_left=False)
        if not rules.equal(self.name, ka, kb):
            rules.reject(
                self.name,
                "equal inner dimensions",
                f"{rules.shape_text(a.shape)} and {rules.shape_text(b.shape)}",
            )
        batch = rules.broadcast_shapes(self.name, a.shape[:-2], b.shape[:-2])
        shape = (*batch, *m, *n)
        k = te.reduce_axis(ka, "k")

        def body(*index: Expr) -> Expr:
            lead, rest = index[: len(batch)], list(index[len(batch) :])
            row = rest.pop(0) if m else None
            column = rest.pop(0) if n else None
            at_a = _element_index(a.shape, lead, batch, row, k.var, self.transpose_a)
            at_b = _element_index(b.shape, lead, batch, column, k.var, not self.transpose_b)
            factors = rules.widen(a[at_a], self.to), rules.widen(b[at_b], self.to)
            return te.sum(factors[0] * factors[1], axis=k)

        names = [f"b{i}" for i in range(len(batch))] + ["m"] * len(m) + ["n"] * len(n)
        return rules.narrow(te.compute(shape, body, self.name, names), self.to or a.dtype)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        a, b = (rules.widen_array(i, self.to) for i in inputs)
        if self.transpose_a and a.ndim > 1:
            a = np.swapaxes(a, -1, -2)
        if self.transpose_b and b.ndim > 1:
            b = np.swapaxes(b, -1, -2)
        product = np.asarray(np.matmul(a, b))
        return product if self.to else product.astype(inputs[0].dtype, copy=False)


def _matrix_axes(
    shape: tuple[Dim, ...], transposed: bool, is_left: bool
) -> tuple[tuple[Dim, ...], Dim]:
    """The matrix dimension that the result keeps (none for a vector), and the inner dimension."""
    if len(shape) == 1:
        return (), shape[0]
    inner_is_last = is_left != transposed
    return (shape[-2:-1], shape[-1]) if inner_is_last else (shape[-1:], shape[-2])


def _element_index(
    shape: tuple[Dim, ...],
    lead: tuple[Expr, ...],
    batch: tuple[Dim, ...],
    kept: Expr | None,
    k: Expr,
    inner_first: bool,
) -> tuple[Any, ...]:
    if kept is None:  # a vector
        return (k,)
    own = rules.broadcast_index(shape[:-2], lead, batch)
    return (*own, k, kept) if inner_first else (*own, kept, k)


@dataclass(frozen=True)
class Gemm(Op):
    """alpha * a @ b + beta * c for matrices; c is optional and broadcasts.

    alpha, beta: factors.
    transpose_a: whether a is stored [k, m].
    transpose_b: whether b is stored [n, k].
    """

    alpha: float = 1.0
    beta: float = 1.0
    transpose_a: bool = False
    transpose_b: bool = False

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 2, 3)
        for x in inputs[:2]:
            if x.type.rank != 2:
                rules.reject(self.name, "matrices", x.type)
        y = b.add(MatMul(self.transpose_a, self.transpose_b), *inputs[:2])
        if self.alpha != 1.0:
            y = y * self.alpha
        if len(inputs) == 3 and self.beta != 0.0:
            c = inputs[2]
            if self.beta != 1.0:
                c = c * self.beta
            y = y + c
        return y

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        a, b, *c = map(rules.exact, inputs)
        factor = a.dtype.type
        y = factor(self.alpha) * (
            (a.T if self.transpose_a else a) @ (b.T if self.transpose_b else b)
        )
        return (y + factor(self.beta) * c[0] if c else y).astype(inputs[0].dtype)
