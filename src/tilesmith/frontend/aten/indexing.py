"""Operators that read and write elements at computed positions, and that find positions."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Number, Operand
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64, u8
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import gather, rules, scatter, slicing
from tilesmith.ops.functions import where

# Reads


@aten_op("aten.index_select.default")
def index_select(n: AtenNode, self: Value, dim: int, index: Value) -> Value:
    if self.type.rank == 0:
        return self
    axis = n.axis(dim, self.type.rank)
    rows = n.from_front(index, self.type.shape[axis])
    return n.add(gather.Gather(axis), self, n.reshape(rows, (-1,)) if not rows.type.rank else rows)


@aten_op("aten.gather.default")
def gather_(n: AtenNode, self: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    """Elements of `self` at `index` along `dim`.  `index` may be shorter along other axes.

    An empty `index` may have another rank than `self`.
    """
    if not self.type.rank or not index.type.rank or index.type.is_empty:
        flat = n.add(gather.Gather(0), n.reshape(self, (-1,)), n.reshape(index, (-1,)))
        return n.reshape(flat, index.type.shape)
    axis = n.axis(dim, self.type.rank)
    position = n.from_front(index, self.type.shape[axis])
    return n.add(gather.GatherElements(axis), self, position)


@aten_op("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(n: AtenNode, self: Value, indices: Sequence[Value | None]) -> Value:
    places = _Places(n, self, indices)
    if len(places.axes) == 1:
        (axis,), (position,) = places.axes, places.tensors
        return n.add(gather.Gather(axis), self, position)
    elements = n.add(gather.GatherNd(), n.permute(self, places.order), places.stacked())
    return places.placed(elements)


class _Places:
    """The elements that advanced indexing reads or writes.

    axes: the indexed axes of the tensor.
    tensors: an index tensor, i64, for each of `axes`.
    order: all axes of the tensor, the indexed axes first.
    shape: the broadcast shape of the indices.
    """

    def __init__(self, n: AtenNode, x: Value, indices: Sequence[Value | None]) -> None:
        self.n, self.rank = n, x.type.rank
        self.axes: list[int] = []
        self.tensors: list[Value] = []
        dim = 0
        for i in indices:
            if i is not None and i.dtype.is_bool:
                position = n.places(i)
                for k in range(i.type.rank):
                    self._use(dim + k, row(n, position, k))
                dim += i.type.rank
                continue
            if i is not None:
                self._use(dim, i)
            dim += 1
        rest = [a for a in range(self.rank) if a not in self.axes]
        self.order = (*self.axes, *rest)
        self.shape: tuple[Dim, ...] = ()
        for t in self.tensors:
            self.shape = rules.broadcast_shapes("the indices", self.shape, t.type.shape)
        self.rest = tuple(x.type.shape[a] for a in rest)
        together = self.axes == [*range(self.axes[0], self.axes[0] + len(self.axes))]
        self.first = self.axes[0] if together else 0

    def _use(self, axis: int, index: Value) -> None:
        self.axes.append(axis)
        self.tensors.append(self.n.cast(index, i64))

    def stacked(self) -> Value:
        """The index tuples along a new last axis."""
        n = self.n
        parts = [n.reshape(n.expand(t, self.shape), (*self.shape, 1)) for t in self.tensors]
        return parts[0] if len(parts) == 1 else n.add(slicing.Concat(-1), *parts)

    def placed(self, found: Value) -> Value:
        """`found`, [indices..., rest...], with the axes of the indices moved to ATen's position."""
        count = len(self.shape)
        rest = range(count, found.type.rank)
        perm = (*rest[: self.first], *range(count), *rest[self.first :])
        return self.n.permute(found, perm)

    def updates(self, values: Value) -> Value:
        """Values for the positions, broadcast to [indices..., rest...]."""
        n, count = self.n, len(self.shape)
        shape = (*self.rest[: self.first], *self.shape, *self.rest[self.first :])
        wide = n.expand(values, shape)
        before = range(self.first)
        perm = (*range(self.first, self.first + count), *before,
                *range(self.first + count, len(shape)))  # fmt: skip
        return n.permute(wide, perm)


@aten_op("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    n: AtenNode,
    self: Value,
    indices: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
) -> Value:
    values = n.cast(values, self.dtype)
    mask = indices[0] if len(indices) == 1 else None
    is_one = same_dim(extents.product(values.type.shape), 1)
    if mask is not None and mask.dtype.is_bool and is_one and not accumulate:
        more = self.type.rank - mask.type.rank
        there = n.reshape(mask, (*mask.type.shape, *[1] * more))
        return where(there, n.reshape(values, ()), self)
    places, dtype = _Places(n, self, indices), self.dtype
    reduction = "add" if accumulate else "none"
    if dtype.is_bool and accumulate:
        self, values, reduction = n.cast(self, u8), n.cast(values, u8), "max"
    op = scatter.ScatterNd(reduction)
    written = n.add(op, n.permute(self, places.order), places.stacked(), places.updates(values))
    back = [places.order.index(a) for a in range(self.type.rank)]
    return n.cast(n.permute(written, back), dtype)


def _slices(n: AtenNode, self: Value, dim: int, index: Value) -> tuple[Value, list[Value | None]]:
    """The tensor to index, and advanced indices that select `index` along its axis `dim`.

    The tensor is `self`, reshaped to rank 1 if its rank is 0.
    """
    x = self if self.type.rank else n.reshape(self, (1,))
    axis = n.axis(dim, x.type.rank)
    position = n.from_front(n.reshape(index, (-1,)), x.type.shape[axis])
    return x, [*[None] * axis, position]


@aten_op("aten.index_add.default")
def index_add(
    n: AtenNode, self: Value, dim: int, index: Value, source: Value, alpha: Number = 1
) -> Value:
    x, position = _slices(n, self, dim, index)
    source = n.cast(source, self.dtype) if source.type.rank else n.reshape(source, (1,))
    if not isinstance(alpha, (int, float)) or alpha != 1:
        source = source * alpha
    return n.reshape(index_put(n, x, position, source, accumulate=True), self.type.shape)


@aten_op("aten.index_copy.default")
def index_copy(n: AtenNode, self: Value, dim: int, index: Value, source: Value) -> Value:
    x, position = _slices(n, self, dim, index)
    source = source if source.type.rank else n.reshape(source, (1,))
    return n.reshape(index_put(n, x, position, source), self.type.shape)


@aten_op("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(n: AtenNode, self: Value, dim: int, index: Value, value: Operand) -> Value:
    """`self` with `value` at the indices of an axis.  Negative indices count from the end."""
    x = self if self.type.rank else n.reshape(self, (1,))
    position: list[Value | None] = [*[None] * n.axis(dim, x.type.rank), n.reshape(index, (-1,))]
    return n.reshape(index_put(n, x, position, n.tensor(value, self.dtype)), self.type.shape)


# Positions that depend on data


def row(n: AtenNode, places: Value, k: int) -> Value:
    """Row k of the matrix `places`."""
    return n.reshape(
        n.add(slicing.Slice((k,), (k + 1,), (0,), (1,)), places), (places.type.shape[1],)
    )


@aten_op("aten.nonzero.default")
def nonzero(n: AtenNode, self: Value) -> Value:
    positions = n.permute(n.places(n.reshape(self, (1,)) if not self.type.rank else self), (1, 0))
    if self.type.rank:
        return positions
    return n.add(slicing.Slice((0,), (0,), (1,), (1,)), positions)


@aten_op("aten.masked_select.default")
def masked_select(n: AtenNode, self: Value, mask: Value) -> Value:
    shape = rules.broadcast_shapes("masked_select", self.type.shape, mask.type.shape)
    flat = n.reshape(n.expand(mask, shape), (-1,))
    position = row(n, n.places(flat), 0)
    return n.add(gather.Gather(0), n.reshape(n.expand(self, shape), (-1,)), position)
