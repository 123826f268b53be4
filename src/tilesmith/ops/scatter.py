"""Operators that write elements to places given by index, over a copy of their first input, or
over that itself.

Indices may be negative (from the end).  One outside the tensor raises ModelError, in the reference
and in compiled code; with the option `unsafe` compiled code clamps it.  `reduction` says how an
update combines with the old element.  "none" replaces it: the last of several updates to a place
wins.  "add", "mul", "min" and "max" combine, one update after the other.

With `in_place` the compiled code copies nothing: the memory of the result is that of the data.
`graph.passes.overwrite` sets it where nothing reads the data afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, cast, const, select
from tilesmith.ir.intrinsics import checked_index
from tilesmith.ir.types import Dim, TensorType, same_dim
from tilesmith.loop.builder import Array, LoopBuilder
from tilesmith.loop.nodes import Func

from . import rules
from .base import GraphBuilder, Op
from .gather import linear, places
from .shape import Expand, Reshape

_COMBINE: dict[str, tuple[Callable[[Expr, Expr], Expr], Any]] = {
    "none": (lambda _, new: new, None),
    "add": (lambda old, new: old + new, np.add),
    "mul": (lambda old, new: old * new, np.multiply),
    "min": (ir.minimum, np.minimum),
    "max": (ir.maximum, np.maximum),
}
"""Reduction -> its expression of (old, new), and NumPy's function of the same meaning."""


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
) -> tuple[LoopBuilder, Array, Array, Array]:
    """The program up to the copy, if there is one: (builder, indices, updates, result)."""
    b = LoopBuilder(op)
    data, indices, updates = (b.input(f"x{i}", t) for i, t in enumerate(types))
    result = b.output("result", types[0])
    if not in_place:
        with b.independent_nest(types[0].shape) as i:
            result[i] = data[i]
    return b, indices, updates, result


def _place(b: LoopBuilder, indices: Array, at: tuple[Expr, ...], extent: Dim) -> Expr:
    """The index at a place, counted from the front; the run fails if it is out of range."""
    index = indices[at]
    wide = cast(index, i64)
    if index.dtype.kind != "int":  # what is too large for i64 is not counted from the end
        wide = select(wide < 0, extent, wide)
    return b.let("at", checked_index(wide, extent, linear(at, indices.buffer.shape)))


def _combine(op: Op, reduction: str, result: Array, at: tuple[Expr, ...], new: Expr) -> None:
    result[at] = _COMBINE[reduction][0](result[at], new)


@dataclass(frozen=True)
class ScatterElements(Op):
    """Data with `updates[i, j]` at `[indices[i, j], j]` (for `axis` 0): one index per update.

    Inputs: data, indices, updates.

    reduction: how an update combines with the old element.
    in_place: whether the result lies in the memory of the data.
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

    def loops(self, *types: TensorType) -> Func:
        b, indices, updates, result = _begin(self.name, types, self.in_place)
        shape = types[1].shape
        axis = self.axis % len(shape)
        extent = types[0].shape[axis]
        # Before the axis every update has a place of its own; from there on they come in order.
        with b.independent_nest(shape[:axis], "o") as o, b.nest(shape[axis:], "i") as i:
            at = _place(b, indices, (*o, *i), extent)
            _combine(self, self.reduction, result, (*o, at, *i[1:]), updates[(*o, *i)])
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        data, indices, updates = inputs
        axis = rules.normalize_axis(self.name, self.axis, data.ndim)
        at: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
        at[axis] = places(self.name, indices, data.shape[axis])
        return _scattered(data, tuple(at), updates, self.reduction)


@dataclass(frozen=True)
class ScatterNd(Op):
    """Data with slices of `updates` at the index tuples in the last axis of `indices`.

    Inputs: data, indices, updates.

    reduction: how an update combines with the old element.
    in_place: whether the result lies in the memory of the data.
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
        b, indices, updates, result = _begin(self.name, types, self.in_place)
        data, (*tuples, last) = types[0].shape, types[1].shape
        depth = rules.static(self.name, last, "an index tuple")
        inner = data[depth:]
        # Elements of a slice are independent, slices are not: threads share the elements.
        outer = inner[: max((a for a, d in enumerate(inner) if not same_dim(d, 1)), default=0)]
        with b.independent_nest(outer, "o") as o, b.nest(tuples, "n") as n:
            at = tuple(_place(b, indices, (*n, const(k)), data[k]) for k in range(depth))
            with b.independent_nest(inner[len(outer) :]) as i:
                _combine(self, self.reduction, result, (*at, *o, *i), updates[(*n, *o, *i)])
        return b.finish()

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        data, indices, updates = inputs
        at = tuple(
            places(self.name, indices[..., k], data.shape[k]) for k in range(indices.shape[-1])
        )
        return _scattered(data, at, updates, self.reduction)


def _scattered(
    data: np.ndarray, at: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str
) -> np.ndarray:
    result = data.copy()
    if reduction == "none":
        result[at] = updates
    else:
        _COMBINE[reduction][1].at(result, at, updates)
    return result


@dataclass(frozen=True)
class MaxUnpool(Op):
    """Zeros of `shape` with the elements of x at the flat positions that max-pooling gave.

    Inputs: x and an integer tensor of its shape.
    """

    shape: tuple[int, ...]

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 2)
        x, indices = inputs
        zero = b.constant(np.zeros((1,), x.type.dtype.numpy))
        size = int(np.prod(self.shape, dtype=np.int64))
        zeros = b.add(Expand((size,)), zero)
        flat = [b.add(Reshape((-1,)), v) for v in (indices, x)]
        return b.add(Reshape(self.shape), b.add(ScatterElements(0), zeros, *flat))

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, indices = inputs
        result = np.zeros(self.shape, x.dtype)
        result.reshape(-1)[indices.reshape(-1)] = x.reshape(-1)
        return result
