"""Ensembles of decision trees, as a walk through one table of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import f32, f64, i32, i64, u8
from tilesmith.ir.expr import Expr, as_expr, cast, const
from tilesmith.ir.intrinsics import call
from tilesmith.ir.simplify import simplify
from tilesmith.ir.types import TensorType
from tilesmith.loop.builder import Array, LoopBuilder, Variable
from tilesmith.loop.nodes import Func

from . import rules
from .base import Op

_COMBINE = {"sum": np.sum, "min": np.min, "max": np.max}

WALKS = 8
"""Number of trees that are walked at the same time, to hide the latency of the loads in each step.
"""
STEPS = 4
"""Number of steps that each walk takes before a test finds out whether any walk still moves."""
ROWS = 8
"""Number of rows that walk through a group of trees before the next trees are read."""


@dataclass(frozen=True)
class TreeEnsemble(Op):
    """The sum (minimum, maximum) of the leaves that rows of x reach in all trees.

    Inputs, where T is f32 or f64: x T[rows, features]; root i32[trees]; for each node feature
    i32[n], limit T[n], missing u8[n] and next i32[n]; weight T[n, outputs].  The next node is `next
    + 1` where x[feature] <= limit, or x[feature] is NaN and missing is 1, else `next`.  A leaf is
    its own `next`.  Its limit is NaN, so no comparison is true, and a walk stays at the leaf
    without a branch.

    depth: upper bound on the steps of a walk.
    has_missing: whether `missing` is 1 for some node.
    combine: "sum", "min" or "max" of the weights; without trees the result is 0, infinity or
        -infinity.
    """

    depth: int
    has_missing: bool = False
    combine: str = "sum"
    heavy_reference = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 7)
        if self.combine not in _COMBINE:
            rules.reject(self.name, f"one of {', '.join(_COMBINE)}", self.combine)
        x, root, feature, limit, missing, to, weight = types
        n = feature.shape
        wanted = (x.dtype, i32, i32, x.dtype, u8, i32, x.dtype)
        fits = tuple(t.dtype for t in types) == wanted and x.rank == weight.rank == 2
        fits = fits and x.dtype in (f32, f64)
        if not fits or root.rank != 1 or {t.shape for t in (limit, missing, to)} != {n}:
            rules.reject(self.name, "rows and a table of nodes", ", ".join(map(str, types)))
        return (TensorType(x.dtype, (x.shape[0], weight.shape[1])),)

    def loops(self, *types: TensorType) -> Func:
        (result,) = self.infer(*types)
        rows, outputs = types[0].shape[0], types[-1].static_shape[1]
        trees = types[1].static_shape[0]
        b = LoopBuilder(self.name)
        x, root, *nodes, weight = map(
            b.input, ("x", "root", "feature", "limit", "missing", "next", "weight"), types
        )
        y = b.output("y", result)
        start = {"sum": 0.0, "min": np.inf, "max": -np.inf}[self.combine]
        together = min(rows, ROWS) if isinstance(rows, int) else ROWS
        blocks = (as_expr(rows) + (together - 1)) // together
        with b.independent(simplify(blocks), "block") as block:
            first = b.let("first", block * together)
            total = b.scratch("total", result.dtype, (together, outputs), "stack")
            with b.nest((together, outputs), "k") as walks_at:
                total[walks_at] = const(start, result.dtype)
            done = 0
            for walks in (WALKS, 1):
                groups = (trees - done) // walks
                if not groups:
                    continue
                with (
                    b.loop(groups, "g") as g,
                    b.loop(together, "r") as r,
                    b.when(first + r < rows),
                ):
                    tree = b.let("tree", done + g * walks)
                    walks_at = [b.variable("at", cast(root[tree + t], i64)) for t in range(walks)]
                    self._walk(b, x, nodes, walks_at, first + r)
                    for walk in walks_at:
                        with b.loop(outputs, "k") as k:
                            total[r, k] = self._combined(total[r, k], weight[walk.value, k])
                done += groups * walks
            with b.loop(together, "r") as r, b.when(first + r < rows), b.loop(outputs, "k") as k:
                y[first + r, k] = total[r, k]
        return b.finish()

    def _walk(
        self, b: LoopBuilder, x: Array, nodes: Sequence[Array], walks: Sequence[Variable], row: Expr
    ) -> None:
        """Move all walks of a row to their leaves."""
        feature, limit, missing, to = nodes
        moves = b.variable("moves", const(True))
        with b.loop(-(-self.depth // STEPS), "s"), b.when(moves.value):
            with b.loop(min(STEPS, self.depth), "d"):
                for walk in walks:
                    node = b.let("node", walk.value)
                    value = b.let("value", x[row, cast(feature[node], i64)])
                    is_below = value <= limit[node]
                    if self.has_missing:
                        is_below = is_below | (call("isnan", value) & (missing[node] > 0))
                    walk.value = cast(to[node], i64) + cast(is_below, i64)
            ahead = [cast(to[walk.value], i64) != walk.value for walk in walks]
            moves.value = ir.any_of(*ahead)

    def _combined(self, a: Expr, b: Expr) -> Expr:
        if self.combine == "sum":
            return a + b
        return ir.minimum(a, b) if self.combine == "min" else ir.maximum(a, b)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, root, feature, limit, missing, to, weight = inputs
        rows = np.arange(len(x))[:, None]
        node = np.broadcast_to(root, (len(x), len(root)))
        for _ in range(self.depth):
            value = x[rows, feature[node]]
            node = to[node] + ((value <= limit[node]) | (np.isnan(value) & (missing[node] > 0)))
        return np.asarray(_COMBINE[self.combine](weight[node], axis=1), x.dtype)
