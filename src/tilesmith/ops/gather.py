"""Operators that look elements up by index.

A negative index counts from the end.  An index out of range raises ModelError, in the reference and
in compiled code, so no read is outside the tensor.  With the option `unsafe` compiled code clamps
such indices to the axis instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, as_expr, cast, const, minimum, select
from tilesmith.ir.intrinsics import checked_index, checked_place
from tilesmith.ir.types import Dim, same_dim, same_shape
from tilesmith.te import tensor as te

from . import rules
from .base import Op


def _place(indices: te.Tensor, point: tuple[Expr, ...], extent: Dim) -> Expr:
    """The index `indices[point]` as a position in 0..extent-1."""
    end = ir.as_expr(extent, const(0)) - 1
    place = checked_index(cast(indices[point], i64), end + 1, linear(point, indices.shape))
    # Analyses don't know the range of the intrinsic's result, so a clamp states the range.
    return ir.minimum(ir.maximum(place, 0), end)


def linear(at: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
    """The row-major number of the element at indices `at` of a tensor of `shape`."""
    number: Expr = const(0)
    for i, extent in zip(at, shape, strict=True):
        number = number * extent + i
    return number


def places(op: str, indices: np.ndarray, extent: int) -> np.ndarray:
    """`indices` counted from the front.  Raises ModelError if an index is out of range."""
    i = indices.astype(np.int64)
    bad = (i < -extent) | (i >= extent)
    if bad.any():
        rules.reject(op, f"indices in {-extent}..{extent - 1}", int(i[bad][0]))
    return np.where(i < 0, i + extent, i)


@dataclass(frozen=True)
class _AlongAxis(Op, abstract=True):
    """Base: elements of x at `indices` along `axis`.  Negative indices count from the end of the
    axis.
    """

    axis: int = 0

    def _checked(self, inputs: tuple[te.Tensor, ...]) -> tuple[te.Tensor, te.Tensor, int]:
        """Check the inputs.  Returns x, the indices, and the axis counted from the front."""
        rules.check_count(self.name, inputs, 2)
        x, indices = inputs
        rules.check_kind(self.name, indices, rules.INTEGERS, "indices")
        axis = rules.normalize_axis(self.name, self.axis, x.rank)
        others = (*x.shape[:axis], *x.shape[axis + 1 :], *indices.shape)
        if same_dim(x.shape[axis], 0) and not any(same_dim(d, 0) for d in others):
            rules.reject(self.name, f"elements along axis {axis}", "none")
        return x, indices, axis

    def _placed(self, x: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, int]:
        """The indices and the axis, both counted from the front."""
        axis = rules.normalize_axis(self.name, self.axis, x.ndim)
        return places(self.name, indices, x.shape[axis]), axis


@dataclass(frozen=True)
class FromFront(Op):
    """Check indices into an axis of size `extent` and cast them to i64, for operators without
    negative indices.  A negative index raises ModelError, as does an index past the end.
    """

    extent: Dim

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        indices = rules.only(self.name, inputs)
        rules.check_kind(self.name, indices, rules.INTEGERS, "indices")
        end = ir.as_expr(self.extent, const(0)) - 1

        def place(*i: Expr) -> Expr:
            position = checked_place(cast(indices[i], i64), end + 1, linear(i, indices.shape))
            # analyses don't know the range of the intrinsic's result, so a clamp states the range
            return ir.minimum(ir.maximum(position, 0), end)

        return te.compute(indices.shape, place, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        extent = rules.static(self.name, self.extent, "the extent")
        indices = inputs[0].astype(np.int64)
        bad = (indices < 0) | (indices >= extent)
        if bad.any():
            rules.reject(self.name, f"indices in 0..{extent - 1}", int(indices[bad][0]))
        return indices


class Gather(_AlongAxis):
    """Slices of x at `indices` along `axis`, which is replaced by the axes of `indices`."""

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x, indices, axis = self._checked(inputs)
        end = axis + indices.rank
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        position = te.compute(
            indices.shape, lambda *i: _place(indices, i, x.shape[axis]), "position"
        )

        def body(*i: Expr) -> Expr:
            return x[(*i[:axis], position[i[axis:end]], *i[end:])]

        return te.compute(shape, body, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, indices = inputs
        from_front, axis = self._placed(x, indices)
        return np.asarray(np.take(x, from_front, axis))


class GatherElements(_AlongAxis):
    """`x[..., indices[...], ...]` along `axis`: one lookup per element of `indices`."""

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x, indices, axis = self._checked(inputs)
        fits = indices.rank == x.rank and all(
            a == axis or not isinstance(d, int) or not isinstance(e, int) or e <= d
            for a, (d, e) in enumerate(zip(x.shape, indices.shape, strict=False))
        )
        if not fits:
            rules.reject(
                self.name,
                f"indices no larger than {rules.shape_text(x.shape)} but along axis {axis}",
                rules.shape_text(indices.shape),
            )

        def element(*i: Expr) -> Expr:
            point = [*i]
            for a, (d, e) in enumerate(zip(x.shape, indices.shape, strict=True)):
                if not extents.is_at_most(e, d):  # a run is rejected unless e <= d
                    point[a] = minimum(i[a], as_expr(d) - 1)
            point[axis] = _place(indices, i, x.shape[axis])
            return x[tuple(point)]

        return te.compute(indices.shape, element, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, indices = inputs
        from_front, axis = self._placed(x, indices)
        cut = tuple(slice(None) if a == axis else slice(d) for a, d in enumerate(indices.shape))
        return np.take_along_axis(x[cut], from_front, axis)


@dataclass(frozen=True)
class GatherNd(Op):
    """The elements or slices of x at the index tuples in the last axis of `indices`, after
    `batch_dims` axes that x and `indices` share.
    """

    batch_dims: int = 0

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 2)
        x, indices = inputs
        rules.check_kind(self.name, indices, rules.INTEGERS, "indices")
        b = self.batch_dims
        if not 0 <= b < min(x.rank, indices.rank) or not rules.equal_shapes(
            self.name, x.shape[:b], indices.shape[:b]
        ):
            rules.reject(
                self.name,
                f"{b} equal leading axes",
                f"{rules.shape_text(x.shape)} and {rules.shape_text(indices.shape)}",
            )
        depth = rules.static(self.name, indices.shape[-1], "the length of an index tuple")
        if b + depth > x.rank:
            rules.reject(self.name, f"index tuples of at most {x.rank - b}", depth)
        lead = indices.rank - 1
        shape = (*indices.shape[:-1], *x.shape[b + depth :])

        def body(*i: Expr) -> Expr:
            point = [_place(indices, (*i[:lead], const(n)), x.shape[b + n]) for n in range(depth)]
            return x[(*i[:b], *point, *i[lead:])]

        return te.compute(shape, body, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, indices = inputs
        b, depth = self.batch_dims, indices.shape[-1]
        batch = math.prod(x.shape[:b])
        flat_x = x.reshape(batch, *x.shape[b:])
        flat_i = indices.reshape(batch, -1, depth)
        point = [places(self.name, flat_i[..., n], x.shape[b + n]) for n in range(depth)]
        slices = flat_x[(np.arange(batch)[:, None], *point)]
        return slices.reshape((*indices.shape[:-1], *x.shape[b + depth :]))


@dataclass(frozen=True)
class OneHot(Op):
    """A new axis of extent `depth` at `axis`: `values[1]` at the index, `values[0]` elsewhere.

    Inputs: indices, values (two elements).  An index outside -depth..depth-1 selects no position.
    """

    depth: Dim
    axis: int = -1

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 2)
        indices, values = inputs
        rules.check_kind(self.name, indices, rules.NUMBERS, "indices")
        if not same_shape(values.shape, (2,)):
            rules.reject(self.name, "values of shape [2]", rules.shape_text(values.shape))
        axis = rules.normalize_axis(self.name, self.axis, indices.rank + 1)
        shape = (*indices.shape[:axis], self.depth, *indices.shape[axis:])

        def body(*i: Expr) -> Expr:
            index = cast(indices[(*i[:axis], *i[axis + 1 :])], i64)
            index = select(index < 0, index + self.depth, index)
            return select(index == i[axis], values[1], values[0])

        return te.compute(shape, body, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        indices, values = inputs
        axis = rules.normalize_axis(self.name, self.axis, indices.ndim + 1)
        i = indices.astype(np.int64)
        count = rules.static(self.name, self.depth, "the depth")
        i = np.expand_dims(np.where(i < 0, i + count, i), axis)
        depth = np.arange(count).reshape(-1, *[1] * (indices.ndim - axis))
        return np.where(i == depth, values[1], values[0])


@dataclass(frozen=True)
class Trilu(Op):
    """The upper (or lower) triangle of the last two axes, from diagonal `k` on; 0 elsewhere."""

    upper: bool = True
    k: Dim = 0

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        if x.rank < 2:
            rules.reject(self.name, "an input of rank 2 or more", rules.shape_text(x.shape))

        def body(*i: Expr) -> Expr:
            diagonal = i[-2] if same_dim(self.k, 0) else i[-2] + self.k
            keep = i[-1] >= diagonal if self.upper else i[-1] <= diagonal
            return te.if_then_else(keep, x[i], ir.const(0, x.dtype))

        return te.compute(x.shape, body, self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return (np.triu if self.upper else np.tril)(
            inputs[0], rules.static(self.name, self.k, "the diagonal")
        )
