"""Operators that write elements at indexed positions of their first input, the data, or of a copy.

A negative index counts from the end.  An index outside the tensor raises ModelError, in the
reference and in compiled code.  With the option `unsafe` compiled code clamps it.  `reduction` is
the operation that combines an update with the old element: "add", "mul", "min" or "max", for one
update after the other.  With "none" the update replaces the element, so the last of several updates
wins.

With `in_place` compiled code copies nothing, and the result uses the memory of the data.
`graph.passes.overwrite` sets `in_place` if no later node reads the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, cast, const, select
from tilesmith.ir.intrinsics import checked_index
from tilesmith.ir.types import Dim, TensorType, same_dim
from tilesmith.loop.builder import Array, LoopBuilder
from tilesmith.loop.nodes import Func
from tilesmith.te import tensor as te

from . import rules
from .base import Op
from .gather import linear, places

_COMBINE: dict[str, tuple[Callable[[Expr, Expr], Expr], Any]] = {
    "none": (lambda _, new: new, None),
    "add": (lambda old, new: old + new, np.add),
    "mul": (lambda old, new: old * new, np.multiply),
    "min": (ir.minimum, np.minimum),
    "max": (ir.maximum, np.maximum),
}
"""For each reduction, the expression of (old, new) and the NumPy function with the same meaning."""


def _check(op: str, reduction: str, types: tuple[TensorType, ...]) -> None:
    rules.check_count(op, types, 3)
    data, indices, updates = types
    if reduction not in _COMBINE:
        rules.reject(op, f"a reduction of {', '.join(_COMBINE)}", repr(reduction))
    if indices.dtype.kind not in rules.INTEGERS:
        rules.reject(op, "indices of an integer type", indices)
    if updates.dtype is not data.dtype:
        rules.reject(op, f"updates of {data.dtype}", updates.dtype)
    if reduction != "none":
        rules.check_kind(op, data, rules.NUMBERS, "numbers to combine,")


def _begin(
    op: str, types: tuple[TensorType, ...], in_place: bool
) -> tuple[LoopBuilder, list[Array], Array]:
    """Begin the program, with the copy of the data unless `in_place`.  Returns the builder, the
    inputs except the data, and the result.
    """
    b = LoopBuilder(op)
    data, *others = (b.input(f"x{i}", t) for i, t in enumerate(types))
    result = b.output("result", types[0])
    if not in_place:
        with b.independent_nest(types[0].shape) as i:
            result[i] = data[i]
    return b, others, result


def _place(b: LoopBuilder, indices: Array, point: tuple[Expr, ...], extent: Dim) -> Expr:
    """The index `indices[point]`, counted from the front.  The run fails if it is out of range."""
    return b.let("at", _checked(indices[point], extent, linear(point, indices.buffer.shape)))


def _checked(index: Expr, extent: Dim, position: Expr) -> Expr:
    """`index` counted from the front.  If out of range, the run fails and reports `position`."""
    wide = cast(index, i64)
    if index.dtype.kind != "int":  # an unsigned index that wraps in i64 must not count from the end
        wide = select(wide < 0, extent, wide)
    return checked_index(wide, extent, position)


def _combine(op: Op, reduction: str, result: Array, target: tuple[Expr, ...], new: Expr) -> None:
    result[target] = _COMBINE[reduction][0](result[target], new)


@dataclass(frozen=True)
class ScatterElements(Op):
    """The data with `updates[i, j]` at `[indices[i, j], j]` (for `axis` 0), an index per update.

    Inputs: data, indices, updates.

    reduction: operation that combines an update with the old element.
    in_place: whether the result occupies the memory of the data.
    """

    axis: int = 0
    reduction: str = "none"
    in_place: bool = False

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        _check(self.name, self.reduction, types)
        data, indices, updates = (t.shape for t in types)
        axis = rules.normalize_axis(self.name, self.axis, len(data))
        if not rules.equal_shapes(self.name, indices, updates):
            rules.reject(
                self.name, f"updates of shape {rules.shape_text(indices)}",
                rules.shape_text(updates),
            )  # fmt: skip
        fits = len(indices) == len(data) and all(
            a == axis or not isinstance(n, int) or not isinstance(m, int) or n <= m
            for a, (n, m) in enumerate(zip(indices, data, strict=True))
        )
        if not fits:
            rules.reject(
                self.name,
                f"indices no larger than {rules.shape_text(data)} but along axis {axis}",
                rules.shape_text(indices),
            )
        return (types[0],)

    def slack(self, *types: TensorType) -> tuple[Dim, ...]:
        data, indices = types[0].shape, types[1].shape
        others = (a for a in range(len(data)) if a != self.axis % len(data))
        return tuple(extents.difference(data[a], indices[a]) for a in others)

    def loops(self, *types: TensorType) -> Func:
        b, (indices, updates), result = _begin(self.name, types, self.in_place)
        shape = types[1].shape
        axis = self.axis % len(shape)
        extent = types[0].shape[axis]
        # Loops before `axis` are independent.  Loops from `axis` on keep the order of the updates.
        with b.independent_nest(shape[:axis], "o") as o, b.nest(shape[axis:], "i") as i:
            position = _place(b, indices, (*o, *i), extent)
            _combine(self, self.reduction, result, (*o, position, *i[1:]), updates[(*o, *i)])
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        data, indices, updates = inputs
        axis = rules.normalize_axis(self.name, self.axis, data.ndim)
        position: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
        position[axis] = places(self.name, indices, data.shape[axis])
        return _scattered(data, tuple(position), updates, self.reduction)


@dataclass(frozen=True)
class ScatterNd(Op):
    """The data with slices of `updates` at the index tuples in the last axis of `indices`.

    Inputs: data, indices, updates.

    reduction: operation that combines an update with the old element.
    in_place: whether the result occupies the memory of the data.
    """

    reduction: str = "none"
    in_place: bool = False

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        _check(self.name, self.reduction, types)
        data, indices, updates = (t.shape for t in types)
        depth = rules.static(self.name, indices[-1], "an index tuple") if indices else 0
        if not 1 <= depth <= len(data):
            rules.reject(self.name, f"index tuples of 1..{len(data)}", rules.shape_text(indices))
        wanted = (*indices[:-1], *data[depth:])
        if not rules.equal_shapes(self.name, updates, wanted):
            rules.reject(
                self.name, f"updates of shape {rules.shape_text(wanted)}", rules.shape_text(updates)
            )
        return (types[0],)

    def loops(self, *types: TensorType) -> Func:
        b, (indices, updates), result = _begin(self.name, types, self.in_place)
        data, (*tuples, last) = types[0].shape, types[1].shape
        depth = rules.static(self.name, last, "an index tuple")
        inner = data[depth:]
        # Slices are not independent, but elements of a slice are, so threads divide the elements.
        outer = inner[: max((a for a, d in enumerate(inner) if not same_dim(d, 1)), default=0)]
        with b.independent_nest(outer, "o") as o, b.nest(tuples, "n") as n:
            position = tuple(_place(b, indices, (*n, const(k)), data[k]) for k in range(depth))
            with b.independent_nest(inner[len(outer) :]) as i:
                _combine(self, self.reduction, result, (*position, *o, *i), updates[(*n, *o, *i)])
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        data, indices, updates = inputs
        position = tuple(
            places(self.name, indices[..., k], data.shape[k]) for k in range(indices.shape[-1])
        )
        return _scattered(data, position, updates, self.reduction)


def _scattered(
    data: np.ndarray, target: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str
) -> np.ndarray:
    result = data.copy()
    if reduction == "none":
        result[target] = updates
    else:
        _COMBINE[reduction][1].at(result, target, updates)
    return result


@dataclass(frozen=True)
class ElementPlaces(Op):
    """The positions that `scatter_elements` writes: for each index the row-major number of an
    element of the data.

    shape: shape of the data.
    axis: axis along which the indices count.
    """

    shape: tuple[int, ...]
    axis: int = 0

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        indices = rules.only(self.name, inputs)
        rules.check_kind(self.name, indices, rules.INTEGERS, "indices")
        axis = rules.normalize_axis(self.name, self.axis, len(self.shape))
        if indices.rank != len(self.shape):
            rules.reject(self.name, f"indices of rank {len(self.shape)}", indices.rank)

        def place(*i: Expr) -> Expr:
            position = _checked(indices[i], self.shape[axis], linear(i, indices.shape))
            return linear((*i[:axis], position, *i[axis + 1 :]), self.shape)

        return te.compute(indices.shape, place, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        (indices,) = inputs
        axis = rules.normalize_axis(self.name, self.axis, indices.ndim)
        position: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
        position[axis] = places(self.name, indices, self.shape[axis])
        return _numbers(position, self.shape)


@dataclass(frozen=True)
class SlicePlaces(Op):
    """The positions that `scatter_nd` writes: for each index tuple, in the last axis, the row-major
    number of a slice of the data.

    shape: extents of the data along the axes that a tuple indexes.
    """

    shape: tuple[int, ...]

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        indices = rules.only(self.name, inputs)
        rules.check_kind(self.name, indices, rules.INTEGERS, "indices")
        if not indices.rank or not rules.equal(self.name, indices.shape[-1], len(self.shape)):
            rules.reject(
                self.name,
                f"index tuples of {len(self.shape)}",
                rules.shape_text(indices.shape),
            )

        def place(*i: Expr) -> Expr:
            tuples = [(*i, const(k)) for k in range(len(self.shape))]
            position = [
                _checked(indices[t], extent, linear(t, indices.shape))
                for t, extent in zip(tuples, self.shape, strict=True)
            ]
            return linear(position, self.shape)

        return te.compute(indices.shape[:-1], place, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        (indices,) = inputs
        position = [places(self.name, indices[..., k], d) for k, d in enumerate(self.shape)]
        return _numbers(position, self.shape)


def _numbers(indices: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    """The row-major numbers of elements, from their indices along each axis."""
    number = np.zeros((), np.int64)
    for i, extent in zip(indices, shape, strict=True):
        number = number * extent + i
    return number


@dataclass(frozen=True)
class ScatterSorted(Op):
    """The data with slices of `updates` at ascending positions, with a thread per position.

    Inputs: data, updates, the sorted positions (i64), and for each position the number of its
    update (i64).  Updates of equal positions are neighbours in ascending order of their numbers.
    The thread of the first one combines them, in that order.

    depth: number of leading axes of the data that a position enumerates in row-major order.  The
        other axes are those of a slice, and the last axes of `updates`.
    reduction: operation that combines an update with the old element.
    in_place: whether the result occupies the memory of the data.
    """

    depth: int
    reduction: str = "none"
    in_place: bool = False

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        rules.check_count(self.name, types, 4)
        data, updates, positions, order = types
        _check(self.name, self.reduction, (data, positions, updates))
        if not 1 <= self.depth <= data.rank:
            rules.reject(self.name, f"a depth of 1..{data.rank}", self.depth)
        inner = data.shape[self.depth :]
        count = rules.product(updates.shape[: updates.rank - len(inner)])
        fits = len(inner) <= updates.rank and rules.equal_shapes(
            self.name, updates.shape[updates.rank - len(inner) :], inner
        )
        if not fits:
            rules.reject(
                self.name, f"updates that end in {rules.shape_text(inner)}",
                rules.shape_text(updates.shape),
            )  # fmt: skip
        for x in (positions, order):
            if x.dtype is not i64 or not rules.equal_shapes(self.name, x.shape, (count,)):
                rules.reject(self.name, f"{TensorType(i64, (count,))}", x)
        return (data,)

    def loops(self, *types: TensorType) -> Func:
        b, (updates, places, order), result = _begin(self.name, types, self.in_place)
        outer, inner = types[0].shape[: self.depth], types[0].shape[self.depth :]
        count = rules.static(self.name, types[2].shape[0], "the number of updates")
        lead = types[1].shape[: types[1].rank - len(inner)]

        def combine(at: Expr, n: Expr, i: tuple[Expr, ...]) -> None:
            new = updates[(*_unravelled(order[n], lead), *i)]
            _combine(self, self.reduction, result, (*_unravelled(at, outer), *i), new)

        with b.independent(count, "n") as n, b.independent_nest(inner) as i:
            to = b.let("at", places[n])
            if self.reduction == "none":  # of updates at equal positions, only the last is written
                with b.when(ir.any_of(n == count - 1, places[ir.minimum(n + 1, count - 1)] > to)):
                    combine(to, n, i)
            else:
                with b.when(ir.any_of(n == 0, places[ir.maximum(n - 1, 0)] < to)):
                    # Binary search in low..high for the end of this position's updates.
                    low, high = b.variable("low", n + 1), b.variable("high", const(count))
                    with b.loop(count.bit_length(), "step"), b.when(low.value < high.value):
                        middle = b.let("middle", (low.value + high.value) // 2)
                        with b.when(places[middle] > to):
                            high.value = middle
                        with b.otherwise():
                            low.value = middle + 1
                    length = b.let("length", low.value - n)
                    with b.loop(length, "m", start=n) as m:
                        combine(to, m, i)
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        data, updates, positions, order = inputs
        flat = updates.reshape(-1, *data.shape[self.depth :])[order]
        indices = np.unravel_index(positions, data.shape[: self.depth])
        return _scattered(data, indices, flat, self.reduction)


def _unravelled(number: Expr, shape: Sequence[Dim]) -> tuple[Expr, ...]:
    """The indices of an element, from its number in row-major order."""
    indices: list[Expr] = []
    for n, extent in enumerate(reversed(shape)):
        is_outermost = n == len(shape) - 1
        indices.append(number if is_outermost else number % extent)
        number = number // extent
    return tuple(reversed(indices))
