"""Probabilities of classes, computed from probabilities for pairs of classes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Expr, const
from tilesmith.ir.types import TensorType, same_dim
from tilesmith.loop.builder import Array, LoopBuilder
from tilesmith.loop.nodes import Func

from . import rules
from .base import Op

_ROUNDS = 100
"""Upper bound on the rounds of the iteration, which usually needs few."""


@dataclass(frozen=True)
class PairwiseCoupling(Op):
    """The probabilities p of `classes` classes that best fit the probabilities for pairs of
    classes.

    Input: f32[rows, pairs], the probability of i against j for each pair i < j of classes, in
    lexicographic order.  Output: f32[rows, classes].  The result minimises the sum of (r[j,i] p[i]
    - r[i,j] p[j])^2 (T.-F. Wu, C.-J. Lin and R. C. Weng, "Probability Estimates for Multi-class
    Classification by Pairwise Coupling", algorithm 2), until no component is further than 0.005 /
    classes from its optimum, as LIBSVM and ONNX Runtime do.

    classes: number of classes, at least 2.
    """

    classes: int
    heavy_reference = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 1)
        x, pairs = types[0], self.classes * (self.classes - 1) // 2
        fits = self.classes > 1 and x.rank == 2 and x.dtype is f32 and same_dim(x.shape[1], pairs)
        if not fits:
            rules.reject(self.name, f"f32[rows, {pairs}]", x)
        return (TensorType(f32, (x.shape[0], self.classes)),)

    def loops(self, *types: TensorType) -> Func:
        (result,) = self.infer(*types)
        k, zero = self.classes, const(0.0, f32)
        b = LoopBuilder(self.name)
        x, y = b.input("x", types[0]), b.output("y", result)
        with b.independent(types[0].shape[0], "row") as row:
            q = b.scratch("q", f32, (k, k), "stack")
            p, qp = b.scratch("p", f32, (k,), "stack"), b.scratch("qp", f32, (k,), "stack")
            self._fill(b, x, q, row)
            with b.loop(k, "i") as i:
                p[i] = const(1.0 / k, f32)
            is_going = b.variable("is_going", const(1))
            with b.loop(_ROUNDS), b.when(is_going.value > 0):
                pqp, error = b.variable("pqp", zero), b.variable("error", zero)
                with b.loop(k, "i") as i:
                    total = b.variable("total", zero)
                    with b.loop(k, "j") as j:
                        total.value = total.value + q[i, j] * p[j]
                    qp[i] = total.value
                    pqp.value = pqp.value + p[i] * total.value
                with b.loop(k, "i") as i:
                    apart = qp[i] - pqp.value
                    error.value = ir.maximum(error.value, ir.maximum(apart, zero - apart))
                with b.when(error.value < 0.005 / k):
                    is_going.value = const(0)
                with b.otherwise():
                    self._descend(b, q, p, qp, pqp.value)
            with b.loop(k, "i") as i:
                y[row, i] = p[i]
        return b.finish()

    def _fill(self, b: LoopBuilder, x: Array, q: Array, row: Expr) -> None:
        """Compute the matrix `q` of the quadratic form."""
        with b.loop(self.classes, "i") as i:
            q[i, i] = const(0.0, f32)
        pair = b.variable("pair", const(0))
        with b.loop(self.classes, "i") as i, b.loop(self.classes - 1 - i, "d") as d:
            j = b.let("j", i + 1 + d)
            of_i = b.let("of_i", x[row, pair.value])
            of_j = b.let("of_j", 1.0 - of_i)
            q[i, i] = q[i, i] + of_j * of_j
            q[j, j] = q[j, j] + of_i * of_i
            q[i, j] = 0.0 - of_i * of_j
            q[j, i] = q[i, j]
            pair.value = pair.value + 1

    def _descend(self, b: LoopBuilder, q: Array, p: Array, qp: Array, start: Expr) -> None:
        """Run one round: set each component to its optimum, then divide all by their sum."""
        pqp = b.variable("now", start)
        with b.loop(self.classes, "i") as i:
            step = b.let("step", (pqp.value - qp[i]) / q[i, i])
            size = b.let("size", step + 1.0)
            p[i] = p[i] + step
            pqp.value = (pqp.value + step * (step * q[i, i] + 2.0 * qp[i])) / size / size
            with b.loop(self.classes, "j") as j:
                qp[j] = (qp[j] + step * q[i, j]) / size
                p[j] = p[j] / size

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        (x,), k = inputs, self.classes
        return np.array([self._row(r) for r in x], np.float32).reshape(-1, k)

    def _row(self, pairs: np.ndarray) -> np.ndarray:
        k, one = self.classes, np.float32(1)
        r = np.zeros((k, k), np.float32)
        for (i, j), of_i in zip(combinations(range(k), 2), pairs, strict=True):
            r[i, j], r[j, i] = of_i, one - of_i
        q = -r * r.T + np.diag((r * r).sum(axis=0))
        p = np.full(k, one / k, np.float32)
        for _ in range(_ROUNDS):
            qp = q @ p
            pqp = p @ qp
            if np.abs(qp - pqp).max() < 0.005 / k:
                break
            for i in range(k):
                step = (pqp - qp[i]) / q[i, i]
                p[i] += step
                pqp = (pqp + step * (step * q[i, i] + 2 * qp[i])) / (1 + step) / (1 + step)
                qp = (qp + step * q[i]) / (1 + step)
                p /= 1 + step
        return p
