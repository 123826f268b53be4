"""Embeddings: rows of a table, and sums of them."""

from __future__ import annotations

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.reductions import vector_norm
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.common.bags import bags_of
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import gather, scatter, slicing
from tilesmith.ops.functions import maximum, where
from tilesmith.ops.sizes import Iota

_ROOM = 1e-7
"""The constant that ATen adds to a norm before it divides by the norm."""

_NOWHERE = 1 << 62
"""A position after the end of any list of indices."""

_SUM, _MEAN, _MAX = range(3)
"""ATen's numbers for the modes of embedding bags."""


@aten_op("aten.embedding.default")
def embedding(
    n: AtenNode,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return n.add(gather.Gather(0), weight, n.from_front(indices, weight.type.shape[0]))


@aten_op("aten.embedding_renorm.default")
def embedding_renorm(
    n: AtenNode, self: Value, indices: Value, max_norm: float, norm_type: float
) -> Value:
    """The table with the rows at `indices` scaled down to a norm of at most `max_norm`."""
    numbers = n.from_front(indices, self.type.shape[0])
    places = n.reshape(numbers, (extents.product(indices.type.shape), 1))
    rows = n.add(gather.GatherNd(), self, places)
    norms = vector_norm(n, rows, norm_type, -1, keepdim=True)
    limit, room = n.tensor(max_norm, self.dtype), n.tensor(_ROOM, self.dtype)
    scale = limit / (norms + room)
    is_long = norms > limit
    rows = where(is_long, rows * scale, rows)
    return n.add(scatter.ScatterNd(), self, places, rows)


@aten_op("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    n: AtenNode, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False,
    mode: int = _SUM, sparse: bool = False, per_sample_weights: Value | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Value, Value, Value, Value]:  # fmt: skip
    """The sum, mean or maximum of the rows in each bag.  Bag b begins at position `offsets[b]` of
    `indices` and ends where bag b + 1 begins.  Indices equal to `padding_idx` do not count.

    The other results: the bag of each index, the number of counted rows in each bag, and the index
    of each maximum (an unused tensor in the other modes).
    """
    count = indices.type.shape[0]
    bags = offsets.type.shape[0]
    if include_last_offset:
        bags = extents.difference(bags, 1)
    bag = _bags_of(n, offsets, bags, count)
    rows = n.add(gather.Gather(0), weight, n.from_front(indices, weight.type.shape[0]))
    is_row = _counted(n, indices, padding_idx)
    sizes = n.add(
        scatter.ScatterElements(0, "add"), n.full(0, (bags,), i64), bag, n.cast(is_row, i64)
    )
    if per_sample_weights is not None:
        rows = rows * n.reshape(per_sample_weights, (count, 1))
    neutral = weight.dtype.min if mode == _MAX else 0
    rows = where(n.reshape(is_row, (count, 1)), rows, neutral)
    width = weight.type.shape[1]
    result = n.add(
        scatter.ScatterNd("max" if mode == _MAX else "add"),
        n.full(neutral, (bags, width), rows.dtype), n.reshape(bag, (count, 1)), rows,
    )  # fmt: skip
    sizes_column = n.reshape(sizes, (bags, 1))
    if mode == _MEAN:
        divisor = n.cast(maximum(sizes_column, 1), result.dtype)
        result = result / divisor
    largest = sizes
    if mode == _MAX:  # an empty bag gives zeros
        largest = _largest(n, rows, result, bag, indices)
        result = where(n.truth(sizes_column), result, 0)
    return result, bag, sizes, largest


def _bags_of(n: AtenNode, offsets: Value, bags: Dim, count: Dim) -> Value:
    """The bag of each of `count` indices.  `offsets` has the beginning of each of the `bags`, and
    perhaps the end of the last one.
    """
    starts = n.cast(offsets, i64)
    if not same_dim(offsets.type.shape[0], bags):
        starts = n.add(slicing.Slice((0,), (bags,), (0,), (1,)), starts)
    return bags_of(n, starts, count)


def _counted(n: AtenNode, indices: Value, padding_idx: int) -> Value:
    """A mask of the indices that count.  `padding_idx` does not count; a negative `padding_idx`
    excludes nothing.
    """
    if padding_idx < 0:
        return n.full(True, indices.type.shape, bool_)
    return n.cast(indices, i64).differs(padding_idx)


def _largest(n: AtenNode, rows: Value, result: Value, bag: Value, indices: Value) -> Value:
    """For each bag and column, the bag's first index whose row has the maximum; 0 if none has."""
    count = indices.type.shape[0]
    most = n.add(gather.Gather(0), result, bag)
    place = n.reshape(n.add(Iota(count)), (count, 1))
    place = where(rows.equals(most), place, _NOWHERE)
    first = n.add(
        scatter.ScatterNd("min"), n.full(_NOWHERE, result.type.shape, i64),
        n.reshape(bag, (count, 1)), place,
    )  # fmt: skip
    none = first.equals(_NOWHERE)
    largest = n.add(gather.Gather(0), n.cast(indices, i64), where(none, 0, first))
    return where(none, 0, largest)


@aten_op("aten._embedding_bag_backward.default")
def embedding_bag_gradient(
    n: AtenNode, grad: Value, indices: Value, offsets: Value, offset2bag: Value, bag_size: Value,
    maximum_indices: Value, num_weights: Dim, scale_grad_by_freq: bool, mode: int, sparse: bool,
    per_sample_weights: Value | None = None, padding_idx: int = -1,
) -> Value:  # fmt: skip
    """The gradient of the table.  Bags follow from `offsets`, since `offset2bag` may be empty."""
    if sparse:
        n.unsupported("a sparse gradient")
    if scale_grad_by_freq:  # PyTorch's CPU kernel divides by the frequencies of the wrong indices
        n.unsupported("a gradient that is scaled by the frequency of indices in bags")
    bags, width = grad.type.shape
    count = indices.type.shape[0]
    table = n.full(0, (num_weights, width), grad.dtype)
    sizes = n.reshape(n.cast(bag_size, i64), (bags, 1))
    if mode == _MAX:
        grads = where(n.truth(sizes), grad, 0)
        return n.add(scatter.ScatterElements(0, "add"), table, n.cast(maximum_indices, i64), grads)
    if mode == _MEAN:
        divisor = n.cast(maximum(sizes, 1), grad.dtype)
        grad = grad / divisor
    rows = n.add(gather.Gather(0), grad, _bags_of(n, offsets, bags, count))
    if per_sample_weights is not None:
        rows = rows * n.reshape(per_sample_weights, (count, 1))
    numbers = n.from_front(indices, num_weights)
    is_row = n.reshape(_counted(n, indices, padding_idx), (count, 1))
    rows = where(is_row, rows, 0)
    return n.add(scatter.ScatterNd("add"), table, n.reshape(numbers, (count, 1)), rows)


@aten_op("aten._embedding_bag_per_sample_weights_backward.default")
def sample_weights_gradient(
    n: AtenNode, grad: Value, weight: Value, indices: Value, offsets: Value, offset2bag: Value,
    mode: int, padding_idx: int = -1,
) -> Value:  # fmt: skip
    """The gradient of `per_sample_weights`, the factors of the rows in a sum."""
    count = indices.type.shape[0]
    bag = _bags_of(n, offsets, grad.type.shape[0], count)
    rows = n.add(gather.Gather(0), weight, n.from_front(indices, weight.type.shape[0]))
    products = n.add(gather.Gather(0), grad, bag) * rows
    sums = products.sum((1,))
    is_row = _counted(n, indices, padding_idx)
    return where(is_row, sums, 0)
