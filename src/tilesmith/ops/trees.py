"""Ensembles of decision trees, as a walk through one table of nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import f32, f64, i32, i64, u8
from tilesmith.ir.expr import Expr, cast, const, select
from tilesmith.ir.intrinsics import call
from tilesmith.ir.types import TensorType
from tilesmith.loop.builder import LoopBuilder
from tilesmith.loop.nodes import Func

from . import rules
from .base import Op

_COMBINE = {"sum": np.sum, "min": np.min, "max": np.max}


@dataclass(frozen=True)
class TreeEnsemble(Op):
    """The sum (minimum, maximum) of the leaves that rows of x reach in all trees.

    Inputs, where T is f32 or f64: x T[rows, features]; root i32[trees]; for each node feature
    i32[n], limit T[n], missing u8[n], yes i32[n] and no i32[n]; weight T[n, outputs].  The next
    node is `yes` where x[feature] <= limit, or x[feature] is NaN and missing is 1.  A leaf is its
    own next node, so that all walks take `depth` steps, without a branch.

    depth: steps of every walk.
    has_missing: whether NaN has a side of its own at some node.
    combine: "sum", "min" or "max" of the weights; without a tree 0, infinity or -infinity.
    """

    depth: int
    has_missing: bool = False
    combine: str = "sum"
    heavy_reference = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 8)
        if self.combine not in _COMBINE:
            rules.reject(self.name, f"one of {', '.join(_COMBINE)}", self.combine)
        x, root, feature, limit, missing, yes, no, weight = types
        n = feature.shape
        wanted = (x.dtype, i32, i32, x.dtype, u8, i32, i32, x.dtype)
        fits = tuple(t.dtype for t in types) == wanted and x.rank == weight.rank == 2
        fits = fits and x.dtype in (f32, f64)
        if not fits or root.rank != 1 or {t.shape for t in (limit, missing, yes, no)} != {n}:
            rules.reject(self.name, "rows and a table of nodes", ", ".join(map(str, types)))
        return (TensorType(x.dtype, (x.shape[0], weight.shape[1])),)

    def loops(self, *types: TensorType) -> Func:
        names = ("x", "root", "feature", "limit", "missing", "yes", "no", "weight")
        (result,) = self.infer(*types)
        rows, outputs = types[0].shape[0], types[-1].static_shape[1]
        b = LoopBuilder(self.name)
        x, root, feature, limit, missing, yes, no, weight = map(b.input, names, types)
        y = b.output("y", result)
        start = {"sum": 0.0, "min": np.inf, "max": -np.inf}[self.combine]
        with b.independent(rows, "r") as r:
            total = b.scratch(
                "total", result.dtype, (outputs,), "stack" if outputs > 1 else "register"
            )
            with b.loop(outputs, "k") as k:
                total[k] = const(start, result.dtype)
            with b.loop(types[1].static_shape[0], "t") as t:
                node = b.variable("node", root[t])
                with b.loop(self.depth, "d"):
                    at = b.let("at", cast(node.value, i64))
                    value = b.let("value", x[r, cast(feature[at], i64)])
                    is_yes = value <= limit[at]
                    if self.has_missing:
                        is_yes = is_yes | (call("isnan", value) & (missing[at] > 0))
                    node.value = select(is_yes, yes[at], no[at])
                leaf = b.let("leaf", cast(node.value, i64))
                with b.loop(outputs, "k") as k:
                    total[k] = self._combined(total[k], weight[leaf, k])
            with b.loop(outputs, "k") as k:
                y[r, k] = total[k]
        return b.finish()

    def _combined(self, a: Expr, b: Expr) -> Expr:
        if self.combine == "sum":
            return a + b
        return ir.minimum(a, b) if self.combine == "min" else ir.maximum(a, b)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, root, feature, limit, missing, yes, no, weight = inputs
        rows = np.arange(len(x))[:, None]
        node = np.broadcast_to(root, (len(x), len(root)))
        for _ in range(self.depth):
            value = x[rows, feature[node]]
            is_yes = (value <= limit[node]) | (np.isnan(value) & (missing[node] > 0))
            node = np.where(is_yes, yes[node], no[node])
        return np.asarray(_COMBINE[self.combine](weight[node], axis=1), x.dtype)
