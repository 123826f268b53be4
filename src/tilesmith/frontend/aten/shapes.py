"""Operators that move elements: views (copies here), concatenations, slices and pads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Number, Operand
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.common.repeating import tiled
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import rules, scatter, slicing
from tilesmith.ops.gather import Gather
from tilesmith.ops.runtime_shape import Window

"""A size, or a tensor of rank 0 that becomes a size in a run."""


@aten_op(
    "aten.alias.default", "aten.clone.default", "aten.detach.default", "aten.contiguous.default",
    "aten.detach_.default",
    "aten.lift_fresh_copy.default", "aten.lift_fresh.default", "aten.detach_copy.default",
    "aten.alias_copy.default", "aten.positive.default",
)  # fmt: skip
def alias(n: AtenNode, self: Value) -> Value:
    return self


@aten_op("aten.copy.default")
def copy(n: AtenNode, self: Value, src: Operand, non_blocking: bool = False) -> Value:
    """`src` with the shape and type of `self`.  As in PyTorch, `src` may also be a number."""
    return n.expand(n.tensor(src, self.dtype), self.type.shape)


@aten_op("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default",
         "aten._reshape_copy.default", "aten.view_copy.default")  # fmt: skip
def view(n: AtenNode, self: Value, size: Sequence[Dim]) -> Value:
    return n.reshape(self, size)


@aten_op("aten.view_as.default", "aten.reshape_as.default")
def view_as(n: AtenNode, self: Value, other: Value) -> Value:
    return n.reshape(self, other.type.shape)


@aten_op("aten.flatten.using_ints")
def flatten(n: AtenNode, self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    if self.type.rank == 0:
        return n.reshape(self, (1,))
    start, end = (n.axis(a, self.type.rank) for a in (start_dim, end_dim))
    dims = self.type.shape
    return n.reshape(
        self, (*dims[:start], extents.product(dims[start : end + 1]), *dims[end + 1 :])
    )


@aten_op("aten.unflatten.int")
def unflatten(n: AtenNode, self: Value, dim: int, sizes: Sequence[Dim]) -> Value:
    axis, dims = n.axis(dim, self.type.rank), self.type.shape
    known = extents.product(d for d in sizes if not same_dim(d, -1))
    rest = extents.quotient(dims[axis], known)
    inner = tuple(rest if same_dim(d, -1) and rest is not None else d for d in sizes)
    return n.reshape(self, (*dims[:axis], *inner, *dims[axis + 1 :]))


@aten_op("aten.expand.default", "aten.expand_copy.default")
def expand(n: AtenNode, self: Value, size: Sequence[Dim], implicit: bool = False) -> Value:
    """`self` broadcast to a size.  In the size, -1 keeps an axis."""
    more = len(size) - self.type.rank
    dims = [
        self.type.shape[a - more] if a >= more and same_dim(d, -1) else d
        for a, d in enumerate(size)
    ]
    return n.expand(self, dims)


@aten_op("aten.expand_as.default")
def expand_as(n: AtenNode, self: Value, other: Value) -> Value:
    return n.expand(self, other.type.shape)


@aten_op("aten.permute.default", "aten.permute_copy.default")
def permute(n: AtenNode, self: Value, dims: Sequence[int]) -> Value:
    return n.permute(self, n.axes(tuple(dims), self.type.rank, "dims"))


@aten_op("aten.transpose.int", "aten.transpose_copy.int")
def transpose(n: AtenNode, self: Value, dim0: int, dim1: int) -> Value:
    rank = self.type.rank
    if rank == 0:
        return self
    a, b = n.axis(dim0, rank), n.axis(dim1, rank)
    perm = [*range(rank)]
    perm[a], perm[b] = b, a
    return n.permute(self, perm)


@aten_op("aten.t.default", "aten.t_copy.default", "aten.numpy_T.default")
def t(n: AtenNode, self: Value) -> Value:
    return n.permute(self, range(self.type.rank)[::-1])


@aten_op("aten.mT.default", "aten.adjoint.default")
def matrix_transpose(n: AtenNode, self: Value) -> Value:
    return transpose(n, self, -1, -2)


@aten_op("aten.movedim.intlist", "aten.movedim.int")
def movedim(
    n: AtenNode, self: Value, source: Sequence[int] | int, destination: Sequence[int] | int
) -> Value:
    rank = self.type.rank
    froms, tos = (
        n.axes((a,) if isinstance(a, int) else tuple(a), rank) for a in (source, destination)
    )
    perm = [a for a in range(rank) if a not in froms]
    for to, axis in sorted(zip(tos, froms, strict=True)):
        perm.insert(to, axis)
    return n.permute(self, perm)


@aten_op("aten.unsqueeze.default", "aten.unsqueeze_copy.default")
def unsqueeze(n: AtenNode, self: Value, dim: int) -> Value:
    axis, dims = n.axis(dim, self.type.rank + 1), self.type.shape
    return n.reshape(self, (*dims[:axis], 1, *dims[axis:]))


@aten_op(
    "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims",
    "aten.squeeze_copy.default", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims",
)  # fmt: skip
def squeeze(n: AtenNode, self: Value, dim: Sequence[int] | int | None = None) -> Value:
    """`self` without those axes in `dim` that have extent 1.  By default, `dim` is all axes."""
    rank = self.type.rank
    if rank == 0:
        return self
    dims = range(rank) if dim is None else (dim,) if isinstance(dim, int) else dim
    axes = n.axes(tuple(dims), rank, "dim")
    return n.reshape(
        self, [d for a, d in enumerate(self.type.shape) if a not in axes or not same_dim(d, 1)]
    )


@aten_op("aten.select.int", "aten.select_copy.int")
def select(n: AtenNode, self: Value, dim: int, index: Dim | Value) -> Value:
    axis, dims = n.axis(dim, self.type.rank), self.type.shape
    if isinstance(index, Value):
        return n.add(Gather(axis), self, index)
    if isinstance(index, int) and not extents.is_at_most(
        index + 1 if index >= 0 else -index, dims[axis]
    ):
        # PyTorch's ranges of sizes may be too wide to prove that the index is inside.  So the run
        # checks the index.
        return n.add(Gather(axis), self, n.const(index, i64))
    cut = n.add(_at(index, dims[axis], axis), self)
    return n.reshape(cut, (*dims[:axis], *dims[axis + 1 :]))


def _at(index: Dim, extent: Dim, axis: int) -> slicing.Slice:
    """The slice that selects one position.  A negative index counts from the end."""
    if isinstance(index, int) and index < 0:
        index = extents.total((extent, index))
    return slicing.Slice((index,), (extents.total((index, 1)),), (axis,), (1,))


def _cut(
    n: AtenNode, self: Value, dim: int, start: Dim | None, end: Dim | None, step: int
) -> tuple[int, Dim, Dim]:
    """The axis of a slice as a number, and the start and the end of the slice as extents."""
    axis = n.axis(dim, self.type.rank)
    last = self.type.shape[axis] if end is None else end
    return axis, 0 if start is None else start, last


@aten_op("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(
    n: AtenNode, self: Value, dim: int = 0, start: Dim | None = None, end: Dim | None = None,
    step: int = 1,
) -> Value:  # fmt: skip
    axis, first, last = _cut(n, self, dim, start, end, step)
    if step == 1 and same_dim(first, 0) and _covers(last, self.type.shape[axis]):
        return self
    return n.add(slicing.Slice((first,), (last,), (axis,), (step,)), self)


def _covers(end: Dim, extent: Dim) -> bool:
    return same_dim(end, extent) or (isinstance(end, int) and end >= (1 << 63) - 1)


@aten_op("aten.narrow.default", "aten.narrow_copy.default")
def narrow(n: AtenNode, self: Value, dim: int, start: Dim, length: Dim) -> Value:
    if isinstance(start, int) and start < 0:
        start = extents.total((start, self.type.shape[n.axis(dim, self.type.rank)]))
    return slice_(n, self, dim, start, extents.total((start, length)))


@aten_op("aten.slice_scatter.default")
def slice_scatter(
    n: AtenNode, self: Value, src: Value, dim: int = 0, start: Dim | None = None,
    end: Dim | None = None, step: int = 1,
) -> Value:  # fmt: skip
    """`self` with the positions of a slice replaced by `src`."""
    axis, first, last = _cut(n, self, dim, start, end, step)
    src = n.cast(src, self.dtype)
    cut = slicing.Slice((first,), (last,), (axis,), (step,)).cuts(self.type.shape)[axis]
    extent = self.type.shape[axis]
    src = n.expand(src, (*self.type.shape[:axis], cut.count, *self.type.shape[axis + 1 :]))
    if same_dim(cut.count, extent):
        return src
    if same_dim(cut.count, 0):
        return self
    if step == 1:
        after = extents.total((cut.start, cut.count))
        parts = [
            n.add(slicing.Slice((0,), (cut.start,), (axis,), (1,)), self),
            src,
            n.add(slicing.Slice((after,), (extent,), (axis,), (1,)), self),
        ]
        kept = [p for p in parts if not same_dim(p.type.shape[axis], 0)]
        return kept[0] if len(kept) == 1 else n.add(slicing.Concat(axis), *kept)
    places = n.positions(cut.count, self.type.rank, axis)
    position = n.expand(_affine(n, places, step, cut.start), src.type.shape)
    return n.add(scatter.ScatterElements(axis), self, position, src)


def _affine(n: AtenNode, x: Value, factor: Dim, offset: Dim) -> Value:
    return x * factor + offset


@aten_op("aten.select_scatter.default")
def select_scatter(n: AtenNode, self: Value, src: Value, dim: int, index: Dim) -> Value:
    axis = n.axis(dim, self.type.rank)
    if isinstance(index, int) and index < 0:
        index = extents.total((self.type.shape[axis], index))
    wide = unsqueeze(
        n, n.expand(src, [d for a, d in enumerate(self.type.shape) if a != axis]), axis
    )
    return slice_scatter(n, self, wide, axis, index, extents.total((index, 1)))


@aten_op("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def cat(n: AtenNode, tensors: Sequence[Value], dim: int = 0) -> Value:
    """The concatenation of tensors.  A tensor of shape [0] is ignored, whatever the rank of the
    others.
    """
    dtype = n.result_type(*tensors)
    kept = [x for x in tensors if not (x.type.rank == 1 and same_dim(x.type.shape[0], 0))]
    if not kept:
        return n.cast(tensors[0], dtype)
    axis = n.axis(dim, kept[0].type.rank, "dim")
    if len(kept) == 1:
        return n.cast(kept[0], dtype)
    return n.add(slicing.Concat(axis), *(n.cast(x, dtype) for x in kept))


@aten_op("aten.stack.default")
def stack(n: AtenNode, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = n.axis(dim, tensors[0].type.rank + 1, "dim")
    return cat(n, [unsqueeze(n, x, axis) for x in tensors], axis)


@aten_op("aten.split_with_sizes.default", "aten.split_with_sizes_copy.default", "aten.split.sizes")
def split_with_sizes(
    n: AtenNode, self: Value, split_sizes: Sequence[Dim], dim: int = 0
) -> tuple[Value, ...]:
    if len(split_sizes) == 1:
        return (self,)
    parts = n.add(slicing.Split(n.axis(dim, self.type.rank), tuple(split_sizes)), self)
    return parts if isinstance(parts, tuple) else (parts,)


@aten_op("aten.split.Tensor")
def split(n: AtenNode, self: Value, split_size: Dim, dim: int = 0) -> tuple[Value, ...]:
    """Parts of size `split_size`.  The last part may be smaller."""
    axis = n.axis(dim, self.type.rank)
    extent = self.type.shape[axis]
    if same_dim(extent, split_size) or same_dim(extent, 0):
        return (self,)
    count = extents.quotient(extent, split_size)
    if isinstance(count, int):
        return split_with_sizes(n, self, [split_size] * count, axis)
    if n.count is not None and not (isinstance(extent, int) and isinstance(split_size, int)):
        return _parted(n, self, split_size, axis, n.count)
    whole, size = n.extent(self, axis), int(n.number(split_size, "the size of a part"))
    sizes = [min(size, whole - start) for start in range(0, whole, size)]
    return split_with_sizes(n, self, sizes, axis)


def _parted(n: AtenNode, x: Value, size: Dim, axis: int, count: int) -> tuple[Value, ...]:
    """`count` parts of `size`, the last perhaps smaller.  A run with another count is refused."""
    whole = x.type.shape[axis]
    parts = as_dim((as_expr(whole) + size - 1) // size)
    if not same_dim(parts, count):
        n.builder.assume_equal(parts, count, n.loc)
    starts = [extents.product((size, i)) for i in range(count)]
    sizes = [*[size] * (count - 1), extents.difference(whole, starts[-1])]
    ones = (1,) * x.type.rank

    def along(axis_dim: Dim, others: Sequence[Dim]) -> tuple[Dim, ...]:
        return (*others[:axis], axis_dim, *others[axis + 1 :])

    return tuple(
        n.add(Window(along(start, (0,) * x.type.rank), along(part, x.type.shape), ones), x)
        for start, part in zip(starts, sizes, strict=True)
    )


@aten_op("aten.chunk.default")
def chunk(n: AtenNode, self: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    extent = self.type.shape[n.axis(dim, self.type.rank)]
    size = extents.quotient(extent, chunks)
    if size is not None:
        return split_with_sizes(n, self, [size] * chunks, dim)
    return split(n, self, as_dim((as_expr(extent) + (chunks - 1)) // chunks), dim)


@aten_op("aten.unbind.int", "aten.unbind_copy.int")
def unbind(n: AtenNode, self: Value, dim: int = 0) -> tuple[Value, ...]:
    extent = self.type.shape[n.axis(dim, self.type.rank)]
    if not isinstance(extent, int) and n.count is not None:
        rules.equal(n.target, extent, n.count)
        extent = n.count
    return tuple(
        select(n, self, dim, i)
        for i in range(rules.static(n.target, extent, f"axis {dim} of {self.type}"))
    )


@aten_op("aten.flip.default")
def flip(n: AtenNode, self: Value, dims: Sequence[int]) -> Value:
    axes = n.axes(tuple(dims), self.type.rank, "dims")
    return n.add(slicing.Flip(axes), self) if axes and self.type.rank else self


@aten_op("aten.roll.default")
def roll(
    n: AtenNode, self: Value, shifts: Sequence[Dim] | Dim, dims: Sequence[int] | int = ()
) -> Value:
    by: list[Dim] = [shifts] if isinstance(shifts, (int, Expr)) else list(shifts)
    axes = [dims] if isinstance(dims, int) else list(dims)
    if not axes:
        flat = n.reshape(self, (extents.product(self.type.shape),))
        return n.reshape(roll(n, flat, by, (0,)), self.type.shape)
    x = self
    for shift, dim in zip(by, axes, strict=True):
        axis = n.axis(dim, x.type.rank)
        extent = x.type.shape[axis]
        if same_dim(extent, 0):
            continue
        if isinstance(extent, int) and isinstance(shift, int):
            shift %= extent
        if same_dim(shift, 0):
            continue
        # The index of the element that moves to the front.  Negative shifts and shifts beyond the
        # extent wrap around.
        start = as_dim((as_expr(0) - shift) % extents.larger(extent, 1))
        parts = (slice_(n, x, axis, start, extent), slice_(n, x, axis, 0, start))
        x = n.add(slicing.Concat(axis), *parts)
    return x


@aten_op("aten.repeat.default")
def repeat(n: AtenNode, self: Value, repeats: Sequence[Dim]) -> Value:
    wide = n.reshape(self, (*[1] * (len(repeats) - self.type.rank), *self.type.shape))
    return tiled(n, wide, tuple(repeats))


@aten_op("aten.unfold.default", "aten.unfold_copy.default")
def unfold(n: AtenNode, self: Value, dimension: int, size: int, step: int) -> Value:
    """Windows along an axis; the last axis holds the elements of a window."""
    if not self.type.rank:
        return n.reshape(self, (1,)) if size else n.full(0, (0,), self.dtype)
    axis = n.axis(dimension, self.type.rank, "dimension")
    extent = self.type.shape[axis]
    starts = n.positions(as_dim((as_expr(extent) - size) // step + 1), 2) * step
    windows = n.add(Gather(axis), self, starts + np.arange(size)[None])
    rank = windows.type.rank
    return n.permute(windows, [*(a for a in range(rank) if a != axis + 1), axis + 1])


@aten_op("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(n: AtenNode, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """A diagonal of the matrices in the axes `dim1` and `dim2`.  It becomes the last axis."""
    rank = self.type.rank
    a, b = n.axis(dim1, rank), n.axis(dim2, rank)
    x = n.permute(self, [*(i for i in range(rank) if i not in (a, b)), a, b])
    (*batch, rows, columns) = x.type.shape
    row, column = max(-offset, 0), max(offset, 0)
    length = extents.larger(
        extents.smaller(extents.difference(rows, row), extents.difference(columns, column)), 0
    )
    flat = n.reshape(x, (*batch, extents.product((rows, columns))))
    if same_dim(length, 0):
        return n.add(slicing.Slice((0,), (0,), (len(batch),), (1,)), flat)
    if not isinstance(columns, int):
        first = extents.total((extents.product((columns, row)), column))
        places = _affine(n, n.positions(length), extents.total((columns, 1)), first)
        return n.add(Gather(len(batch)), flat, places)
    step = columns + 1
    first = row * (step - 1) + column
    last = extents.total((first, extents.product((extents.difference(length, 1), step)), 1))
    return n.add(slicing.Slice((first,), (last,), (len(batch),), (step,)), flat)


# Pads


def _pads(rank: int, pad: Sequence[Dim]) -> tuple[Dim, ...]:
    """ATen's pads in another order.  ATen has a pair (before, after) for each axis, the last axis
    first.  The result has all pads before the axes, then all pads after them.
    """
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for i in range(len(pad) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return (*before, *after)


@aten_op("aten.constant_pad_nd.default")
def constant_pad(n: AtenNode, self: Value, pad: Sequence[Dim], value: Number = 0) -> Value:
    filler = n.number(value, "the value")
    if self.dtype.is_bool:
        filler = bool(filler)
    elif self.dtype.is_int:
        filler = int(filler)
    return n.add(slicing.Pad(_pads(self.type.rank, pad), "constant", filler), self)


def _bordered(n: AtenNode, self: Value, padding: Sequence[Dim], mode: str) -> Value:
    return n.add(slicing.Pad(_pads(self.type.rank, padding), mode), self)


for _rank in (1, 2, 3):
    aten_op(f"aten.reflection_pad{_rank}d.default")(partial(_bordered, mode="reflect"))
    aten_op(f"aten.replication_pad{_rank}d.default")(partial(_bordered, mode="edge"))


@aten_op("aten.pad.default")
def pad(
    n: AtenNode,
    self: Value,
    pad: Sequence[Dim],
    mode: str = "constant",
    value: Number | None = None,
) -> Value:
    if mode == "constant":
        return constant_pad(n, self, pad, 0 if value is None else value)
    names = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    return _bordered(n, self, pad, names[mode])
