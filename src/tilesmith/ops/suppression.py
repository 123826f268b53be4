"""Suppression of boxes that overlap better ones.

Few boxes of a detector score high enough to be candidates.  So the candidates of each block of
boxes are counted first.  Then only candidates are sorted, and only as many as needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i32, i64
from tilesmith.ir.expr import Expr, ExprLike, as_expr, cast, const, maximum, minimum, select
from tilesmith.ir.intrinsics import call
from tilesmith.ir.simplify import simplify
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, TensorType
from tilesmith.loop.builder import Array, LoopBuilder
from tilesmith.loop.nodes import Func
from tilesmith.te import tensor as te

from . import rules
from .base import Op

ROWS, COLUMNS = 16, 32
"""Shape of the matrices in which boxes are counted.  A vector counts all columns at once.  Columns
are short, so that few boxes are examined for each candidate.
"""
CHUNK = 16
"""Number of iterations between two tests whether a loop may end early."""


class CountAbove(Op):
    """The number of elements in each column that are larger than a given number.

    The last axis is divided into matrices of ROWS rows and COLUMNS columns; the last matrix may be
    partial.  Inputs: x [..., n] and the number, [1].  Result: i32 [..., matrices, COLUMNS].
    """

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 2)
        x, least = inputs
        rules.check_same_dtype(self.name, inputs)
        if not x.rank or not rules.equal_shapes(self.name, least.shape, (1,)):
            rules.reject(self.name, "a tensor and one number", f"{x.shape}, {least.shape}")
        n = as_expr(x.shape[-1])

        def count(*i: Expr) -> Expr:
            row = te.reduce_axis(ROWS)
            position = _position(i[-2], row, i[-1])
            is_above = cast(x[(*i[:-2], position)] > least[0], i32)
            return te.sum(te.if_then_else(position < n, is_above, const(0, i32)), row)

        return te.compute((*x.shape[:-1], _matrices(x.shape[-1]), COLUMNS), count, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        above = inputs[0] > inputs[1][0]
        missing = -above.shape[-1] % (ROWS * COLUMNS)
        padded = np.pad(above, [(0, 0)] * (above.ndim - 1) + [(0, missing)])
        matrices = padded.reshape(*above.shape[:-1], -1, ROWS, COLUMNS)
        return matrices.sum(-2, dtype=np.int32)


def _matrices(count: Dim) -> Dim:
    """The number of matrices for `count` elements."""
    size = ROWS * COLUMNS
    return as_dim(simplify((as_expr(count) + (size - 1)) // size))


def _position(matrix: ExprLike, row: ExprLike, column: ExprLike) -> Expr:
    return as_expr(matrix) * (ROWS * COLUMNS) + row * COLUMNS + column


@dataclass(frozen=True)
class NonMaxSuppression(Op):
    """Boxes without those that overlap a better one of their class by more than a threshold.

    Only boxes whose scores are above a threshold are candidates.  Inputs: boxes f32 [batch, boxes,
    4], scores f32 [batch, classes, boxes], the threshold of scores f32 [1], the counts of
    candidates by `count_above`, i32 [batch, classes, matrices, columns], the running sum of
    candidates over classes, i64 [batch * classes], the upper bound on the boxes of a class i64 [1],
    and the threshold of the overlap f32 [1].  Results: (batch, class, box) of the selected boxes,
    i64 [candidates, 3], and their number, i64 [1].  Of boxes with equal scores the first one counts
    as the best.

    candidates: the number of all candidates.
    centred: whether a box is (x of the centre, y, width, height); otherwise it is (y, x, y, x) of
        two opposite corners.
    """

    candidates: Dim
    centred: bool = False

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 7)
        boxes, scores = types[:2]
        if boxes.rank != 3 or scores.rank != 3 or {boxes.dtype, scores.dtype} != {f32}:
            rules.reject(self.name, "f32 boxes [B,N,4] and scores [B,C,N]", f"{boxes}, {scores}")
        wanted = (boxes.shape[0], scores.shape[1], boxes.shape[1])
        if not rules.equal_shapes(self.name, scores.shape, wanted):
            rules.reject(self.name, f"scores {rules.shape_text(wanted)}", scores)
        if not rules.equal(self.name, boxes.shape[2], 4):
            rules.reject(self.name, "four numbers for each box", boxes)
        return TensorType(i64, (self.candidates, 3)), TensorType(i64, (1,))

    def loops(self, *types: TensorType) -> Func:
        """The kernel.  Each class has a part of each of three arrays: a heap of the candidates'
        keys, the corners of the boxes that are kept, and rows of the result for these boxes.  A
        part has an entry for each candidate of the class.  The first number in a class's rows is
        the count of its boxes.  At the end the rows of all classes are moved together.
        """
        results = self.infer(*types)
        b = LoopBuilder(self.name)
        names = ("boxes", "scores", "least", "counts", "ends", "most", "overlap")
        boxes, scores, least, counts, ends, most, overlap = map(b.input, names, types)
        selected, count = b.output("selected", results[0]), b.output("count", results[1])
        batch, classes, many = types[1].shape
        lines = extents.product((batch, classes))
        # Each class has one more entry, which receives the boxes that are not candidates.
        keys = b.scratch("keys", i64, (extents.total((self.candidates, lines)),))
        corners = b.scratch("corners", f32, (4, extents.total((self.candidates, CHUNK))))

        def rows_of(line: Expr) -> tuple[Expr, ...]:
            """The image and class of a line of scores, its first row, and its number of rows."""
            start = b.let("start", select(line > 0, ends[maximum(line - 1, 0)], const(0)))
            size = b.let("size", ends[line] - start)
            return b.let("image", line // classes), b.let("kind", line % classes), start, size

        with b.independent(as_expr(lines), "line") as line:
            image, kind, start, size = rows_of(line)
            with b.when(size > 0):
                heap = _Heap(b, keys, start + line)
                filled = b.variable("filled", const(0))
                with (
                    b.nest(types[3].shape[2:], "k") as (matrix, column),
                    b.when(counts[image, kind, matrix, column] > 0),
                    b.loop(ROWS, "row") as row,
                ):
                    box = b.let("box", _position(matrix, row, column))
                    score = b.let("score", scores[image, kind, minimum(box, _last(many))])
                    heap[filled.value] = box
                    is_candidate = (box < many) & (score > least[0])
                    filled.value = filled.value + cast(is_candidate, i64)
                with b.loop(size) as i:
                    box = b.let("box", minimum(maximum(heap[i], 0), _last(many)))
                    heap[i] = _key(b.let("score", scores[image, kind, box]), box)
                levels = heap.build(size)
                kept, left = b.variable("kept", const(0)), b.variable("left", size)
                wanted = b.let("wanted", minimum(most[0], size))
                # A test per chunk skips whole chunks once the loop has ended.
                with (
                    b.loop((size + (CHUNK - 1)) // CHUNK, "chunk"),
                    b.when(kept.value < wanted),
                    b.loop(CHUNK),
                    b.when((kept.value < wanted) & (left.value > 0)),
                ):
                    box = b.let("box", minimum(_box_of(heap[const(0)]), _last(many)))
                    left.value = left.value - 1
                    heap[const(0)] = heap[left.value]
                    heap.sink(const(0), left.value, levels)
                    mine = [b.let("side", e) for e in self._ends(boxes, image, box)]
                    place = b.let("place", start + kept.value)
                    with b.when(_is_apart(b, mine, corners, start, kept.value, overlap[0])):
                        for side, e in enumerate(mine):
                            corners[side, place] = e
                        selected[place, 1] = box
                        kept.value = kept.value + 1
                selected[start, 0] = kept.value
        kept_boxes = b.variable("found", const(0))
        with b.loop(as_expr(lines), "line") as line:
            image, kind, start, size = rows_of(line)
            with b.when(size > 0), b.loop(b.let("kept", selected[start, 0]), "j") as j:
                box = b.let("box", selected[start + j, 1])
                for column, number in enumerate((image, kind, box)):
                    selected[kept_boxes.value, const(column)] = number
                kept_boxes.value = kept_boxes.value + 1
        count[0] = kept_boxes.value
        with b.loop(self.candidates - kept_boxes.value, "z", start=kept_boxes.value) as z:
            for column in range(3):
                selected[z, const(column)] = const(0)
        return b.finish()

    def _ends(self, boxes: Array, image: Expr, box: Expr) -> tuple[Expr, ...]:
        """The low ends of a box along both axes, then the high ends."""
        e = [boxes[image, box, const(i)] for i in range(4)]
        if self.centred:
            half = [size / const(2.0, f32) for size in e[2:]]
            return e[0] - half[0], e[1] - half[1], e[0] + half[0], e[1] + half[1]
        pairs = (e[0], e[2]), (e[1], e[3])
        return *(minimum(p, q) for p, q in pairs), *(maximum(p, q) for p, q in pairs)

    def reference(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        boxes, scores, least, _, _, most, overlap = inputs
        chosen: list[tuple[int, int, int]] = []
        for image, kind in np.ndindex(*scores.shape[:2]):
            line, kept = scores[image, kind], list[int]()
            for box in np.argsort(-line, kind="stable"):
                if not line[box] > least[0] or len(kept) >= most[0]:
                    continue
                if not any(self._covered(boxes[image], box, k, overlap[0]) for k in kept):
                    kept.append(int(box))
            chosen += [(image, kind, k) for k in kept]
        candidates = rules.static(self.name, self.candidates, "the number of candidates")
        selected = np.zeros((candidates, 3), np.int64)
        if chosen:
            selected[: len(chosen)] = chosen
        return selected, np.array([len(chosen)])

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
        with np.errstate(invalid="ignore"):
            return bool(shared / (areas - shared) > overlap)


@dataclass(frozen=True)
class _Heap:
    """A heap of keys of candidates, the largest on top: both children of entry i, 2i + 1 and 2i +
    2, are smaller.  Entry 0 is at `start`.
    """

    b: LoopBuilder
    keys: Array
    start: Expr

    def __getitem__(self, i: Expr) -> Expr:
        return self.keys[self.start + i]

    def __setitem__(self, i: Expr, key: Expr) -> None:
        self.keys[self.start + i] = key

    def build(self, size: Expr) -> Expr:
        """Make the first `size` entries a heap, bottom level first.  Returns its levels below entry
        0.
        """
        b = self.b
        levels, width = b.variable("levels", const(0)), b.variable("width", const(1))
        with b.loop(i64.bits - 2, "bit"), b.when(width.value * 2 <= size):
            levels.value = levels.value + 1
            width.value = width.value * 2
        with b.loop(levels.value, "level") as level:
            width.value = width.value // 2
            first = b.let("first", width.value - 1)
            with b.loop(width.value) as i:
                self.sink(first + i, size, level + 1)
        return levels.value

    def sink(self, start: Expr, size: Expr, levels: Expr) -> None:
        """Move the key at `start` down, at most `levels` times, until its children are smaller."""
        b = self.b
        hole, key = b.variable("at", start), b.variable("key", self[start])
        with b.loop(levels, "step"):
            child = b.let("child", 2 * hole.value + 1)
            with b.when(child < size):
                other = b.let("other", minimum(child + 1, size - 1))
                below = b.let("below", select(self[other] > self[child], other, child))
                larger = b.let("larger", self[below])
                # No branch is needed: once the key is larger than both children, no entry below it
                # changes.
                self[hole.value] = maximum(larger, key.value)
                key.value = minimum(larger, key.value)
                self[below] = key.value
                hole.value = below


def _key(score: Expr, box: Expr) -> Expr:
    """A key that is larger for a larger score and, for equal scores, for an earlier box."""
    bits = call("bitcast", select(score == const(0.0, f32), const(0.0, f32), score), dtype=i32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the floats
    return (cast(ordered, i64) << 32) | (const(0xFFFFFFFF) - box)


def _box_of(key: Expr) -> Expr:
    return const(0xFFFFFFFF) - (key & 0xFFFFFFFF)


def _is_apart(
    b: LoopBuilder, box: Sequence[Expr], others: Array, start: Expr, count: Expr, overlap: Expr
) -> Expr:
    """Whether a box overlaps none of `count` others by more than `overlap`."""
    hits = b.scratch("hits", i32, (CHUNK,), "stack")
    apart = b.variable("apart", const(1))
    with b.loop((count + (CHUNK - 1)) // CHUNK, "chunk") as chunk, b.when(apart.value > 0):
        with b.independent(CHUNK, "lane") as lane:
            number = chunk * CHUNK + lane
            other = [others[side, start + number] for side in range(4)]
            hits[lane] = cast(_covers(box, other, overlap) & (number < count), i32)
        with b.loop(CHUNK) as i, b.when(hits[i] > 0):
            apart.value = const(0)
    return apart.value > 0


def _covers(a: Sequence[Expr], b: Sequence[Expr], overlap: Expr) -> Expr:
    """Whether the intersection of two boxes (low and high ends) is over `overlap` of the union."""
    zero = const(0.0, f32)
    sides = [maximum(minimum(a[k + 2], b[k + 2]) - maximum(a[k], b[k]), zero) for k in range(2)]
    shared = sides[0] * sides[1]
    areas = [(e[2] - e[0]) * (e[3] - e[1]) for e in (a, b)]
    return shared / (areas[0] + areas[1] - shared) > overlap


def _last(count: Dim) -> Expr:
    return const(count - 1) if isinstance(count, int) else count - 1
