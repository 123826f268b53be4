"""Operators that select elements, and return the number of selected elements as another result.

The first result is large enough for all elements.  The selected ones come first; the rest is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_, f32, i64
from tilesmith.ir.expr import Expr, as_expr, cast, const, select
from tilesmith.ir.types import Dim, TensorType
from tilesmith.loop.builder import LoopBuilder
from tilesmith.loop.nodes import Func
from tilesmith.te import tensor as te

from . import rules
from .base import Op


class NonZero(Op):
    """Indices of nonzero elements in row-major order, i64 [rank, elements]; the number, i64 [1]."""

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 1)
        if not types[0].rank:
            rules.reject(self.name, "a tensor of rank 1 or more", types[0])
        size = rules.product(types[0].shape)
        return TensorType(i64, (types[0].rank, size)), TensorType(i64, (1,))

    def loops(self, *types: TensorType) -> Func:
        results = self.infer(*types)
        b = LoopBuilder(self.name)
        x = b.input("x", types[0])
        places, count = b.output("places", results[0]), b.output("count", results[1])
        with b.independent_nest(results[0].shape, "z") as z:
            places[z] = const(0)
        count_so_far = b.variable("found", const(0))
        with b.nest(types[0].shape, "i") as i:
            e = cast(x[i], f32) if types[0].dtype.is_storage else x[i]
            with b.when(e if e.dtype is bool_ else e != const(0, e.dtype)):
                for axis, position in enumerate(i):
                    places[const(axis), count_so_far.value] = position
                count_so_far.value = count_so_far.value + 1
        count[0] = count_so_far.value
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        (x,) = inputs
        positions = np.argwhere(x).T
        places = np.zeros((x.ndim, x.size), np.int64)
        places[:, : positions.shape[1]] = positions
        return places, np.array([positions.shape[1]])


@dataclass(frozen=True)
class Leading(Op):
    """The first `count` elements along the last axis, which has at least `count` in each run."""

    count: Dim

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        extent, zero = x.shape[-1], const(0, x.dtype)

        def element(*i: Expr) -> Expr:
            if extents.is_at_most(self.count, extent):
                return x[i]
            # The condition is always true, but the compiler can't prove it.
            return te.if_then_else(i[-1] < extent, x[i], zero)

        return te.compute((*x.shape[:-1], self.count), element, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return inputs[0][..., : rules.static(self.name, self.count, "the count")]


class RowRanks(Op):
    """Ranks i64 [rows] of the rows of x [rows, columns] in stable lexicographic order."""

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 1)
        if types[0].rank != 2 or types[0].dtype.kind not in rules.NUMBERS:
            rules.reject(self.name, "rows of numbers", types[0])
        return (TensorType(i64, types[0].shape[:1]),)

    def loops(self, *types: TensorType) -> Func:
        rows, columns = types[0].shape
        b = LoopBuilder(self.name)
        x, ranks = b.input("x", types[0]), b.output("ranks", *self.infer(*types))
        with b.independent(as_expr(rows), "r") as r:
            rank = b.variable("rank", const(0))
            with b.loop(rows, "s") as s:
                # 1 if row s comes first, 2 if row r comes first, 0 while both are equal
                order = b.variable("found", const(0))
                with b.loop(columns, "c") as c, b.when(order.value == const(0)):
                    order.value = select(x[s, c] < x[r, c], const(1),
                                         select(x[r, c] < x[s, c], const(2), const(0)))  # fmt: skip
                first = (order.value == const(1)) | ((order.value == const(0)) & (s < r))
                with b.when(first):
                    rank.value = rank.value + 1
            ranks[r] = rank.value
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        (x,) = inputs
        rows = [tuple(row) for row in x.tolist()]
        order = sorted(range(len(rows)), key=rows.__getitem__)
        ranks = np.zeros(len(rows), np.int64)
        ranks[order] = range(len(rows))
        return ranks
