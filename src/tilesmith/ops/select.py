"""Operators that select elements: how many they find is a result of its own.

The elements found come first in a result that has room for all; the rest is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_, f32, i64
from tilesmith.ir.expr import Expr, as_expr, cast, const, maximum, minimum, select
from tilesmith.ir.types import Dim, TensorType
from tilesmith.loop.builder import Array, LoopBuilder
from tilesmith.loop.nodes import Func
from tilesmith.te import tensor as te

from . import rules
from .base import Op


class NonZero(Op):
    """The positions of the elements other than 0, i64 [rank, elements] in row-major order, and
    their number, i64 [1].
    """

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
        found = b.variable("found", const(0))
        with b.nest(types[0].shape, "i") as i:
            e = cast(x[i], f32) if types[0].dtype.is_storage else x[i]
            with b.when(e if e.dtype is bool_ else e != const(0, e.dtype)):
                for axis, at in enumerate(i):
                    places[const(axis), found.value] = at
                found.value = found.value + 1
        count[0] = found.value
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        (x,) = inputs
        found = np.argwhere(x).T
        places = np.zeros((x.ndim, x.size), np.int64)
        places[:, : found.shape[1]] = found
        return places, np.array([found.shape[1]])


@dataclass(frozen=True)
class Leading(Op):
    """The first `count` elements along the last axis, which has as many in every run."""

    count: Dim

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        extent, zero = x.shape[-1], const(0, x.dtype)

        def element(*i: Expr) -> Expr:
            if extents.is_at_most(self.count, extent):
                return x[i]
            return te.if_then_else(i[-1] < extent, x[i], zero)  # no kernel knows that it is true

        return te.compute((*x.shape[:-1], self.count), element, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return inputs[0][..., : rules.static(self.name, self.count, "the count")]


class RowRanks(Op):
    """The place of each row of x [rows, columns] among the rows in lexicographic order, i64 [rows];
    of equal rows the first one comes first.
    """

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
                # 1 where row s comes first, 2 where row r does, 0 while they are equal
                found = b.variable("found", const(0))
                with b.loop(columns, "c") as c, b.when(found.value == const(0)):
                    found.value = select(x[s, c] < x[r, c], const(1),
                                         select(x[r, c] < x[s, c], const(2), const(0)))  # fmt: skip
                first = (found.value == const(1)) | ((found.value == const(0)) & (s < r))
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


@dataclass(frozen=True)
class NonMaxSuppression(Op):
    """Boxes without those that overlap a better one of their class by more than a threshold.

    Inputs: boxes f32 [batch, boxes, 4], scores f32 [batch, classes, boxes], their order from the
    best i64 [batch, classes, boxes], the most boxes of a class i64 [1], thresholds of the overlap
    and of the score f32 [1] each.  Results: (batch, class, box) of those selected, i64
    [batch * classes * boxes, 3], and their number, i64 [1].

    centred: a box is (x of the centre, y, width, height), else (y, x, y, x) of two opposite
        corners.
    """

    centred: bool = False

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 6)
        boxes, scores, order = types[:3]
        if boxes.rank != 3 or scores.rank != 3 or boxes.dtype is not f32:
            rules.reject(self.name, "f32 boxes [B,N,4] and scores [B,C,N]", f"{boxes}, {scores}")
        wanted = (boxes.shape[0], scores.shape[1], boxes.shape[1])
        fits = rules.equal_shapes(self.name, scores.shape, wanted)
        if not fits or not rules.equal_shapes(self.name, order.shape, wanted):
            rules.reject(self.name, f"scores {rules.shape_text(wanted)}", scores)
        if not rules.equal(self.name, boxes.shape[2], 4):
            rules.reject(self.name, "four numbers for each box", boxes)
        return TensorType(i64, (rules.product(wanted), 3)), TensorType(i64, (1,))

    def loops(self, *types: TensorType) -> Func:
        results = self.infer(*types)
        b = LoopBuilder(self.name)
        names = ("boxes", "scores", "order", "most", "overlap", "least")
        given = [b.input(name, t) for name, t in zip(names, types, strict=True)]
        boxes, scores, order, most, overlap, least = given
        selected, count = b.output("selected", results[0]), b.output("count", results[1])
        with b.independent_nest(results[0].shape, "z") as z:
            selected[z] = const(0)
        batch, classes, candidates = types[1].shape
        found = b.variable("found", const(0))
        with b.nest((batch, classes), "c") as (image, kind):
            begin = b.let("begin", found.value)
            with b.loop(candidates, "k") as k:
                box = b.let("box", order[image, kind, k])
                # The order holds boxes only; analyses don't know that.
                box = minimum(maximum(box, 0), _last(candidates))
                is_good = scores[image, kind, box] > least[0]
                with b.when(is_good & (found.value - begin < most[0])):
                    keeps = b.variable("keeps", const(1))
                    with b.loop(found.value - begin, "j") as j:
                        other = minimum(maximum(selected[begin + j, 2], 0), _last(candidates))
                        with b.when(self._covers(boxes, image, box, other, overlap[0])):
                            keeps.value = const(0)
                    with b.when(keeps.value > 0):
                        for column, number in enumerate((image, kind, box)):
                            selected[found.value, const(column)] = number
                        found.value = found.value + 1
        count[0] = found.value
        return b.finish()

    def _covers(self, boxes: Array, image: Expr, a: Expr, b: Expr, overlap: Expr) -> Expr:
        """Whether two boxes share more than `overlap` of what they cover."""
        lows, highs = zip(*(self._sides(boxes, image, box) for box in (a, b)), strict=True)
        zero = const(0.0, f32)
        sides = [maximum(minimum(p, q) - maximum(r, s), zero)
                 for p, q, r, s in zip(*highs, *lows, strict=True)]  # fmt: skip
        shared = sides[0] * sides[1]
        areas = [(h[0] - lo[0]) * (h[1] - lo[1]) for lo, h in zip(lows, highs, strict=True)]
        return shared > overlap * (areas[0] + areas[1] - shared)

    def _sides(
        self, boxes: Array, image: Expr, box: Expr
    ) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
        """The low and the high ends of a box, along both axes."""
        e = [boxes[image, box, const(i)] for i in range(4)]
        if self.centred:
            half = [cast(v, f32) / const(2.0, f32) for v in e[2:]]
            return (e[0] - half[0], e[1] - half[1]), (e[0] + half[0], e[1] + half[1])
        pairs = ((e[0], e[2]), (e[1], e[3]))
        low, high = (tuple(f(p, q) for p, q in pairs) for f in (minimum, maximum))
        return (low[0], low[1]), (high[0], high[1])

    def reference(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        boxes, scores, order, most, overlap, least = inputs
        found: list[tuple[int, int, int]] = []
        for image, kind in np.ndindex(*scores.shape[:2]):
            kept: list[int] = []
            for box in order[image, kind]:
                if not scores[image, kind, box] > least[0] or len(kept) >= most[0]:
                    continue
                if not any(self._covered(boxes[image], box, k, overlap[0]) for k in kept):
                    kept.append(int(box))
            found += [(image, kind, k) for k in kept]
        selected = np.zeros((scores.size, 3), np.int64)
        if found:
            selected[: len(found)] = found
        return selected, np.array([len(found)])

    def _covered(self, boxes: np.ndarray, a: int, b: int, overlap: np.float32) -> bool:
        corners = []
        for box in (boxes[a], boxes[b]):
            middle, size = box[:2], box[2:] / np.float32(2)
            ends = (middle - size, middle + size) if self.centred else (box[:2], box[2:])
            corners.append((np.minimum(*ends), np.maximum(*ends)))
        (low_a, high_a), (low_b, high_b) = corners
        sides = np.maximum(np.minimum(high_a, high_b) - np.maximum(low_a, low_b), 0)
        areas = np.prod(high_a - low_a) + np.prod(high_b - low_b)
        shared = np.prod(sides)
        return bool(shared > overlap * (areas - shared))


def _last(count: Dim) -> Expr:
    return const(count - 1) if isinstance(count, int) else count - 1
