"""Operators that write elements along an axis, or at positions in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.program import Memory
from tilesmith.frontend.aten.promotion import Number
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64, u8
from tilesmith.ir.types import Dim, same_shape
from tilesmith.ops import gather, rules, scan, scatter, slicing
from tilesmith.ops.functions import where
from tilesmith.support.errors import UnsupportedError

_REDUCTIONS = {
    "add": "add",
    "sum": "add",
    "multiply": "mul",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
}
"""Names of reductions in ATen, and in our scatters."""


def _scattered(
    n: AtenNode,
    self: Value,
    dim: int,
    index: Value,
    src: Value,
    reduction: str = "none",
    from_end: bool = False,
) -> Value:
    """`self` with elements of `src` written along an axis.

    from_end: whether negative indices count from the end; otherwise they are refused.
    """
    if index.type.is_empty:  # an empty index may have any rank
        return self
    shape, dtype = self.type.shape, self.dtype
    if dtype.is_bool and reduction != "none":  # for bools, a sum is `or` and a product is `and`
        self, src = n.cast(self, u8), n.cast(src, u8)
        reduction = {"add": "max", "mul": "min"}.get(reduction, reduction)
    if not self.type.rank:
        self, index, src = (n.reshape(v, (1,)) for v in (self, index, src))
    if not same_shape(src.type.shape, index.type.shape):
        axes = tuple(range(index.type.rank))
        src = n.add(slicing.Slice((0,) * len(axes), index.type.shape, axes, (1,) * len(axes)), src)
    axis = n.axis(dim, self.type.rank)
    position = n.cast(index, i64) if from_end else n.from_front(index, self.type.shape[axis])
    written = n.add(scatter.ScatterElements(axis, reduction), self, position, src)
    return n.cast(n.reshape(written, shape), dtype)


@aten_op("aten.scatter.src", "aten.scatter.reduce")
def scatter_src(
    n: AtenNode, self: Value, dim: int, index: Value, src: Value, reduce: str | None = None
) -> Value:
    return _scattered(n, self, dim, index, src, _REDUCTIONS[reduce] if reduce else "none")


@aten_op("aten.scatter.value", "aten.scatter.value_reduce")
def scatter_value(
    n: AtenNode, self: Value, dim: int, index: Value, value: Number, reduce: str | None = None
) -> Value:
    src = n.full(value, index.type.shape, self.dtype)
    return scatter_src(n, self, dim, index, src, reduce)


@aten_op("aten.scatter_add.default")
def scatter_add(n: AtenNode, self: Value, dim: int, index: Value, src: Value) -> Value:
    return _scattered(n, self, dim, index, src, "add")


@aten_op("aten.scatter_reduce.two")
def scatter_reduce(
    n: AtenNode,
    self: Value,
    dim: int,
    index: Value,
    src: Value,
    reduce: str,
    include_self: bool = True,
) -> Value:
    """`self` with elements of `src` combined into it along an axis.  A mean is a sum divided by a
    count.  Without `include_self`, the written elements start at the reduction's neutral element.
    """
    reduction = "add" if reduce == "mean" else _REDUCTIONS[reduce]
    start = self
    if not include_self:
        low, high = (False, True) if self.dtype.is_bool else (self.dtype.min, self.dtype.max)
        neutral = {"add": 0, "mul": 1, "max": low, "min": high}[reduction]
        empty = n.full(neutral, index.type.shape, self.dtype)
        start = _scattered(n, self, dim, index, empty)
    total = _scattered(n, start, dim, index, src, reduction)
    if reduce != "mean":
        return total
    one = n.full(1, index.type.shape, self.dtype)
    ones = n.full(1, self.type.shape, self.dtype)
    first = ones
    if not include_self:
        first = _scattered(n, ones, dim, index, n.full(0, index.type.shape, self.dtype))
    count = _scattered(n, first, dim, index, one, "add")
    mean = total / count
    if self.dtype.is_int:  # ATen rounds integer means down
        rest = total - mean * count
        negative = rest < 0
        mean = mean - n.cast(negative, self.dtype)
    return mean


@aten_op("aten.masked_scatter.default")
def masked_scatter(n: AtenNode, self: Value, mask: Value, source: Value) -> Value:
    """`self` with the elements of `source` written in order where the mask holds."""
    shape = rules.broadcast_shapes("masked_scatter", self.type.shape, mask.type.shape)
    mask, self = n.expand(mask, shape), n.expand(self, shape)
    flat = n.cast(n.reshape(mask, (-1,)), i64)
    number = n.add(scan.CumSum(0), flat) - 1
    number = where(n.reshape(mask, (-1,)), number, 0)
    items = n.reshape(source, (-1,))
    taken = n.add(gather.Gather(0), items, number)  # Gather refuses an index beyond the last item
    return where(mask, n.reshape(n.cast(taken, self.dtype), shape), self)


@aten_op("aten.masked_scatter_backward.default")
def masked_scatter_backward(
    n: AtenNode, grad_output: Value, mask: Value, sizes: Sequence[Dim]
) -> Value:
    """The gradient of `source`: gradients of the elements that the mask took, then zeros."""
    dims = tuple(sizes)
    flat = n.reshape(n.expand(n.truth(mask), grad_output.type.shape), (-1,))
    number = n.add(scan.CumSum(0), n.cast(flat, i64)) - 1
    number = where(flat, number, 0)
    zero = n.tensor(0, grad_output.dtype)
    grads = where(flat, n.reshape(grad_output, (-1,)), zero)
    room = n.full(0, (extents.product(dims),), grad_output.dtype)
    return n.reshape(n.add(scatter.ScatterElements(0, "add"), room, number, grads), dims)


@aten_op("aten.index_reduce.default")
def index_reduce(
    n: AtenNode,
    self: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    include_self: bool = True,
) -> Value:
    """`self` with each slice of `source` combined with the slice at its index."""
    rank = source.type.rank
    if not rank:
        index = n.reshape(index, ())
        return scatter_reduce(n, self, 0, index, source, reduce, include_self)
    axis = n.axis(dim, rank)
    line = n.reshape(index, [-1 if a == axis else 1 for a in range(rank)])
    return scatter_reduce(
        n, self, axis, n.expand(line, source.type.shape), source, reduce, include_self
    )


@aten_op("aten.put.default")
def put(n: AtenNode, self: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """`self` with elements written at positions of the flattened tensor."""
    flat, places, items = (n.reshape(v, (-1,)) for v in (self, index, source))
    reduction = "add" if accumulate else "none"
    written = _scattered(n, flat, 0, places, items, reduction, from_end=True)
    return n.reshape(written, self.type.shape)


def _written(n: AtenNode, x: Value, places: np.ndarray, src: Value) -> Value:
    """`x` with `src` at known positions of the flattened tensor."""
    flat = n.reshape(x, (-1,))
    items = n.reshape(n.expand(n.cast(src, x.dtype), places.shape), (-1,))
    elements = n.add(scatter.ScatterElements(0), flat, n.const(places.reshape(-1)), items)
    return n.reshape(elements, x.type.shape)


@aten_op("aten.diagonal_scatter.default")
def diagonal_scatter(
    n: AtenNode, self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    dims = n.shape(self)
    places = np.arange(int(np.prod(dims)), dtype=np.int64).reshape(dims)
    return _written(n, self, np.diagonal(places, offset, dim1, dim2), src)


def strided_places(
    n: AtenNode,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int | None,
    memory: Memory | None = None,
) -> np.ndarray:
    """The positions in memory of a tensor's elements, as i64 in the tensor's shape.

    memory: layout of a tensor.  If `offset` is None, the offset of this layout is used.
    """
    if offset is None and memory is not None:
        offset = int(n.number(memory[1], "an offset"))
    dims = [int(n.number(d, "a size")) for d in size]
    places = np.full(dims, offset or 0, np.int64)
    for axis, (d, s) in enumerate(zip(dims, stride, strict=True)):
        along = np.arange(d, dtype=np.int64) * int(n.number(s, "a stride"))
        places += along.reshape([-1 if a == axis else 1 for a in range(len(dims))])
    return places


@aten_op("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    n: AtenNode,
    self: Value,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
    memory: Memory | None = None,
) -> Value:
    """A copy of a strided view of the memory of `self`.

    memory: layout of `self` in memory; row-major by default.
    """
    flat = n.reshape(self, (extents.product(self.type.shape),))
    places = _elements(n, self, memory, strided_places(n, size, stride, storage_offset, memory))
    whole = np.arange(places.size).reshape(places.shape)
    if same_shape(flat.type.shape, (places.size,)) and np.array_equal(places, whole):
        return n.reshape(flat, places.shape)
    return n.add(gather.Gather(0), flat, n.const(places))


@aten_op("aten.as_strided_scatter.default")
def as_strided_scatter(
    n: AtenNode,
    self: Value,
    src: Value,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
    memory: Memory | None = None,
) -> Value:
    places = strided_places(n, size, stride, storage_offset, memory)
    return _written(n, self, _elements(n, self, memory, places), src)


def _elements(n: AtenNode, x: Value, memory: Memory | None, places: np.ndarray) -> np.ndarray:
    """Row-major indices into `x` of the elements that lie at `places` in memory."""
    if memory is None:
        return places
    strides, offset = memory
    if len(strides) != len(x.type.shape):
        raise UnsupportedError(
            f"{n.target}: the tensor is not in row-major order and its sizes are open; give it a "
            "contiguous() copy, or keep its sizes fixed"
        )
    own = strided_places(n, n.shape(x), strides, offset).reshape(-1)
    order = np.argsort(own, kind="stable")
    own = own[order]
    positions = np.searchsorted(own, places)
    inside = np.asarray(positions < own.size)
    inside[inside] = own[np.asarray(positions)[inside]] == np.asarray(places)[inside]
    if not inside.all() or (own[1:] == own[:-1]).any():
        raise UnsupportedError(
            f"{n.target}: it reaches memory that is not the tensor's own, or elements that share "
            "memory; give it the tensor that the memory belongs to, or a contiguous() copy"
        )
    return order[positions]
