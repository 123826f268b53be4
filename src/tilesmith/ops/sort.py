"""Ordering elements along an axis.

NaN is larger than every number, and equal elements keep their order, as in PyTorch and NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, f32, i32, i64
from tilesmith.ir.expr import Expr, Unary, as_expr, cast, const, select
from tilesmith.ir.intrinsics import call
from tilesmith.ir.types import Dim, TensorType, same_dim
from tilesmith.loop.builder import Array, LoopBuilder
from tilesmith.loop.nodes import Func

from . import rules
from .base import Op

_PLACES = 1 << 32
"""Number of positions that a key can distinguish."""

BLOCK, LANES = 64, 16
"""`BLOCK`: elements that are compared at once with the worst element kept.  `LANES`: lanes of this
comparison.
"""


@dataclass(frozen=True)
class TopK(Op):
    """The `k` largest (or smallest) elements along `axis`, best first, and their i64 positions.

    If `k` is the extent of the axis, this sorts; both may be symbolic.  For each line along the
    axis a heap keeps the best elements so far, with the worst of them on top: n log k comparisons
    in all.  At the end, repeated removal of the worst puts the elements in order.  The heap
    occupies the memory of the results.  If a value and its position fit into 64 bits, one integer
    holds both, so that one comparison is enough.

    largest: whether larger elements come first.
    """

    k: Dim
    axis: int = -1
    largest: bool = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 1)
        x = types[0]
        axis = rules.normalize_axis(self.name, self.axis, x.rank)
        n = x.shape[axis]
        if isinstance(self.k, int) and (self.k < 0 or (isinstance(n, int) and self.k > n)):
            rules.reject(self.name, f"k in 0..{n}", self.k)
        rules.check_kind(self.name, x, rules.NUMBERS)
        shape = (*x.shape[:axis], self.k, *x.shape[axis + 1 :])
        return TensorType(x.dtype, shape), TensorType(i64, shape)

    def slack(self, *types: TensorType) -> tuple[Dim, ...]:
        return (extents.difference(types[0].shape[self.axis], self.k),)

    def loops(self, *types: TensorType) -> Func:
        results = self.infer(*types)
        shape = types[0].shape
        axis = self.axis % len(shape)
        extent, k = as_expr(shape[axis]), as_expr(self.k)
        b = LoopBuilder(self.name)
        x = b.input("x", types[0])
        values, places = b.output("values", results[0]), b.output("places", results[1])
        if same_dim(self.k, 0):
            return b.finish()
        lines = (*shape[:axis], *shape[axis + 1 :])
        with b.independent_nest(lines, "line") as line:
            source = _Line(x, line, axis)
            ends = _Line(values, line, axis), _Line(places, line, axis)

            def work(has_keys: bool) -> None:
                self._line(
                    b, source, extent, k, _Heap(self, b, *ends, _levels(b, self.k), has_keys)
                )

            fits = types[0].dtype.bits <= 32
            if not fits or extents.is_at_most(shape[axis], _PLACES):
                work(fits)
            else:
                with b.when(extent <= _PLACES):
                    work(has_keys=True)
                with b.otherwise():
                    work(has_keys=False)
        return b.finish()

    def _line(self, b: LoopBuilder, source: _Line, extent: Expr, k: Expr, heap: _Heap) -> None:
        """Compute the results of one line."""
        with b.loop(k) as i:
            heap[i] = heap.entry(source[i], i)
        with b.loop(k // 2) as i:
            start = b.let("start", k // 2 - 1 - i)
            heap.sink(heap[start], start, k)
        with b.when(k > 0):
            self._keep_better(b, source, extent, k, heap)
            with b.loop(k - 1) as i:
                last = b.let("last", k - 1 - i)
                held = heap.held(heap[last])
                heap[last] = heap[const(0)]
                heap.sink(held, const(0), last)
            heap.unpack(source, k)

    def _keep_better(
        self, b: LoopBuilder, source: _Line, extent: Expr, k: Expr, heap: _Heap
    ) -> None:
        """Consider the elements after the first k, and insert into the heap those that precede its
        worst element.

        Few elements precede it.  So whole blocks are compared with the worst value, and skipped if
        no lane is better.  Otherwise the lanes are examined one by one.  Their order does not
        matter, because equal elements are ordered by position.
        """
        first = heap.value(heap[const(0)], source)
        # The worst value is in memory, not in a register, so that all lanes may read it.
        worst = b.scratch("worst", first.dtype, (1,), "stack")
        worst[const(0)] = first

        def consider(i: Expr) -> None:
            held = heap.held(heap.entry(source[i], i))
            with b.when(heap.precedes(held, heap[const(0)])):
                heap.sink(held, const(0), k)
                worst[const(0)] = heap.value(heap[const(0)], source)

        blocks = b.let("blocks", (extent - k) // BLOCK)
        with b.loop(blocks, "block") as block:
            start = b.let("start", k + block * BLOCK)
            better = b.scratch("better", i32, (LANES,), "stack")
            with b.independent(LANES, "lane") as lane:
                flags = (
                    _is_better(source[start + i * LANES + lane], worst[const(0)], self.largest)
                    for i in range(BLOCK // LANES)
                )
                better[lane] = cast(ir.any_of(*flags), i32)
            any_better = b.variable("found", const(0, i32))
            with b.loop(LANES) as i:
                any_better.value = any_better.value | better[i]
            with (
                b.when(any_better.value > 0),
                b.loop(LANES) as lane,
                b.when(better[lane] > 0),
                b.loop(BLOCK // LANES) as i,
            ):
                consider(start + i * LANES + lane)
        with b.loop(extent - k - blocks * BLOCK, start=k + blocks * BLOCK) as i:
            consider(i)

    def precedes(self, a: Expr, at_a: Expr, b: Expr, at_b: Expr) -> Expr:
        """Whether element a, at position `at_a`, comes before b in the result."""
        better, worse = (_is_better(*pair, self.largest) for pair in ((a, b), (b, a)))
        return ir.any_of(better, ir.all_of(Unary("not", worse), at_a < at_b))

    def last(self, dtype: DType) -> float | int:
        """The value that comes last in the order."""
        if self.largest:
            return dtype.min
        return math.nan if dtype.is_float else dtype.max

    def reference(self, *inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = np.moveaxis(inputs[0], self.axis, -1)
        n = x.shape[-1]
        # Largest first: sort the reversed line in ascending order, take its last elements and
        # reverse them.
        if self.largest:
            order = n - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
        else:
            order = np.argsort(x, axis=-1, kind="stable")
        order = order[..., : self.k].astype(np.int64)
        values = np.take_along_axis(x, order, -1)
        return np.moveaxis(values, -1, self.axis), np.moveaxis(order, -1, self.axis)


def _is_better(a: Expr, b: Expr, largest: bool) -> Expr:
    """Whether a comes before b whatever their positions, because it is larger (or smaller)."""
    better = a > b if largest else a < b
    if not a.dtype.is_float:
        return better
    first, second = (a, b) if largest else (b, a)
    return ir.any_of(better, ir.all_of(call("isnan", first), Unary("not", call("isnan", second))))


@dataclass(frozen=True)
class MergeSorted(Op):
    """The `k` first elements of two neighbouring sorted lines together, and their i64 positions.

    Inputs: values and positions, as `top_k` returns them.  Lines run along `axis`.  Pairs of
    neighbours along the axis before it are merged, so that axis has an even extent, and the result
    has half as many lines.  Of equal elements, the element of the left line comes first.  For each
    result, the number of elements of the left line before it is computed independently (Odeh et
    al., "Merge Path", 2012).

    k: number of elements of the result for two lines.
    span: number added to positions of the right line, because they count from the line's own start.
    axis: axis of the lines.
    largest: whether larger elements come first.
    """

    k: int
    span: int
    axis: int = -1
    largest: bool = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 2)
        values, places = types
        shape = values.shape
        axis = rules.normalize_axis(self.name, self.axis, len(shape))
        rules.check_kind(self.name, values, rules.NUMBERS)
        if places.dtype is not i64 or not rules.equal_shapes(self.name, places.shape, shape):
            rules.reject(self.name, f"positions {TensorType(i64, shape)}", places)
        lines = rules.static(self.name, shape[axis - 1], "the number of lines") if axis else 1
        if lines % 2:
            rules.reject(self.name, "an even number of lines before the axis", lines)
        width = rules.static(self.name, shape[axis], "the length of a line")
        if not 0 <= self.k <= 2 * width:
            rules.reject(self.name, f"k in 0..{2 * width}", self.k)
        shape = (*shape[: axis - 1], lines // 2, self.k, *shape[axis + 1 :])
        return TensorType(values.dtype, shape), TensorType(i64, shape)

    def loops(self, *types: TensorType) -> Func:
        results = self.infer(*types)
        axis = self.axis % types[0].rank
        width = rules.static(self.name, types[0].shape[axis], "the length of a line")
        b = LoopBuilder(self.name)
        inputs = b.input("values", types[0]), b.input("places", types[1])
        outputs = b.output("merged", results[0]), b.output("merged_places", results[1])
        with b.independent_nest(results[0].shape) as i:
            rank, pair = i[axis], 2 * i[axis - 1]
            others = [(*i[: axis - 1], line, *i[axis + 1 :]) for line in (pair, pair + 1)]
            (left, left_places), (right, right_places) = (
                [_Line(x, line, axis) for x in inputs] for line in others
            )
            # Binary search in low..high for the number of left elements before this element.
            low = b.variable("low", ir.maximum(rank - width, 0))
            high = b.variable("high", ir.minimum(rank, width))
            with b.loop(width.bit_length(), "step"), b.when(low.value < high.value):
                middle = b.let("middle", (low.value + high.value) // 2)
                with b.when(_is_better(right[rank - 1 - middle], left[middle], self.largest)):
                    high.value = middle
                with b.otherwise():
                    low.value = middle + 1
            first, second = b.let("first", low.value), b.let("second", rank - low.value)
            here, there = (ir.minimum(n, width - 1) for n in (first, second))
            stays = Unary("not", _is_better(right[there], left[here], self.largest))
            is_left = ir.all_of(first < width, ir.any_of(second >= width, stays))
            with b.when(is_left):
                outputs[0][i], outputs[1][i] = left[here], left_places[here]
            with b.otherwise():
                outputs[0][i], outputs[1][i] = right[there], right_places[there] + self.span
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        axis = self.axis % inputs[0].ndim
        pairs = []
        for x, span in zip(inputs, (0, self.span), strict=True):
            x = np.moveaxis(x, (axis - 1, axis), (-2, -1))
            x = x.reshape(*x.shape[:-2], x.shape[-2] // 2, 2, x.shape[-1])
            x = x + np.asarray([[0], [span]], x.dtype) if span else x
            pairs.append(x.reshape(*x.shape[:-2], 2 * x.shape[-1]))
        values, order = TopK(self.k, -1, self.largest).reference(pairs[0])
        merged = values, np.take_along_axis(pairs[1], order, -1)
        return tuple(np.moveaxis(x, (-2, -1), (axis - 1, axis)) for x in merged)  # type: ignore[return-value]  # two


@dataclass(frozen=True)
class _Line:
    """The elements of an array along `axis`, at an index of the other axes."""

    array: Array
    at: Sequence[Expr]
    axis: int

    def _indices(self, i: Expr) -> tuple[Expr, ...]:
        return (*self.at[: self.axis], i, *self.at[self.axis :])

    def __getitem__(self, i: Expr) -> Expr:
        return self.array[self._indices(i)]

    def __setitem__(self, i: Expr, value: Expr) -> None:
        self.array[self._indices(i)] = value


@dataclass(frozen=True)
class _Heap:
    """A heap.  Entry i comes after its children, 2i + 1 and 2i + 2, in the result; entry 0 is last.

    An entry is a value and its position, or a key: one integer that holds both.  An element that
    comes earlier has a larger key.  Keys are stored in the memory of the positions.

    levels: number of levels of children below entry 0.
    """

    op: TopK
    b: LoopBuilder
    values: _Line
    places: _Line
    levels: Expr
    has_keys: bool

    def entry(self, value: Expr, place: Expr) -> tuple[Expr, ...]:
        return (_key(value, place, self.op.largest),) if self.has_keys else (value, place)

    def __getitem__(self, i: Expr) -> tuple[Expr, ...]:
        return (self.places[i],) if self.has_keys else (self.values[i], self.places[i])

    def __setitem__(self, i: Expr, entry: tuple[Expr, ...]) -> None:
        if not self.has_keys:
            self.values[i] = entry[0]
        self.places[i] = entry[-1]

    def held(self, entry: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """A copy of `entry` in variables, because a `let` can hold an index but not an element."""
        return tuple(self.b.variable("held", e).value for e in entry)

    def value(self, entry: tuple[Expr, ...], source: _Line) -> Expr:
        return source[_place_of(entry[0])] if self.has_keys else entry[0]

    def precedes(self, first: tuple[Expr, ...], second: tuple[Expr, ...]) -> Expr:
        if self.has_keys:
            return first[0] > second[0]
        return self.op.precedes(first[0], first[1], second[0], second[1])

    def unpack(self, source: _Line, count: Expr) -> None:
        """Replace the first `count` keys by values and positions."""
        if self.has_keys:
            with self.b.loop(count) as i:
                place = self.b.let("place", _place_of(self.places[i]))
                self.values[i] = source[place]
                self.places[i] = place

    def sink(self, entry: tuple[Expr, ...], start: Expr, size: Expr) -> None:
        """Put `entry` at `start` or below, so that the first `size` entries remain a heap."""
        b = self.b
        held = self.held(entry)
        hole, current = b.variable("hole", start), b.variable("at", start)
        with b.loop(self.levels, "level"):
            child = b.let("child", 2 * current.value + 1)
            with b.when(child < size):
                other = b.let("other", ir.minimum(child + 1, size - 1))
                below = b.let(
                    "below", select(self.precedes(self[child], self[other]), other, child)
                )
                lower = self.held(self[below])
                with b.when(self.precedes(held, lower)):
                    self[hole.value] = lower
                    hole.value = below
                    current.value = below
                with b.otherwise():
                    current.value = size  # this ends the loop
        self[hole.value] = held


def _key(value: Expr, place: Expr, largest: bool) -> Expr:
    """A key for an element of at most 32 bits, larger for an element that comes earlier."""
    if value.dtype.is_float:
        x, zero = cast(value, f32), const(0.0, f32)
        bits = call("bitcast", select(x == zero, zero, x), dtype=i32)  # -0 and +0 get equal bits
        ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the floats
        ordered = cast(select(call("isnan", x), const(0x7FFFFFFF, i32), ordered), i64)
    else:
        ordered = cast(value, i64)
        if value.dtype.kind == "uint":
            ordered = ordered - (1 << 31)
    if not largest:
        ordered = -1 - ordered
    return (ordered << 32) | ((_PLACES - 1) - place)


def _place_of(key: Expr) -> Expr:
    return (_PLACES - 1) - (key & (_PLACES - 1))


def _levels(b: LoopBuilder, k: Dim) -> Expr:
    """Number of levels below the top of a heap of `k` entries: log2 of k, rounded down."""
    if isinstance(k, int):
        return const(k.bit_length() - 1)
    levels, power = b.variable("levels", const(0)), b.variable("power", const(2))
    with b.loop(k.dtype.bits - 2, "bit"), b.when(power.value <= k):
        levels.value = levels.value + 1
        power.value = power.value * 2
    return levels.value
