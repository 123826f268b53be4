"""StableHLO's gathers, scatters and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import convolve, geometry
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import same_dim
from tilesmith.ops import gather, scatter, slicing
from tilesmith.ops.functions import clamp, where

from .elementwise import padded
from .functions import combiner
from .node import HloNode
from .registry import hlo_op

_FAR = -(1 << 62)
"""An end before the first element, for a slice that runs backwards."""


def _tuples(n: HloNode, indices: Value, length: int) -> Value:
    """Index tuples of `length` numbers along the last axis, i64."""
    rank, axis = indices.type.rank, n.option("index_vector_dim")
    if axis == rank:
        indices = n.reshape(indices, (*indices.type.shape, 1))
    elif 0 <= axis < rank:
        indices = indices.transpose(*(a for a in range(rank) if a != axis), axis)
    if not 0 <= axis <= rank or not same_dim(indices.type.shape[-1], length):
        n.bad(f"expected tuples of {length} indices along axis {axis}, found {indices.type}")
    return indices.cast(i64)


def _spread(n: HloNode, starts: Value, sizes: Sequence[int]) -> Value:
    """The index tuples [..., sizes..., K] of all elements of windows with starts [..., K]."""
    for i, size in enumerate(sizes):
        *batch, depth = starts.type.shape
        steps = np.zeros((size, len(sizes)), np.int64)
        steps[:, i] = np.arange(size)
        starts = n.reshape(starts, (*batch, 1, depth)) + n.const(steps)
    return starts


def _batched(n: HloNode, starts: Value, axes: Sequence[int]) -> Value:
    """Append to each index tuple its own position along each of `axes`.

    starts: the index tuples [..., K].
    axes: axes of the operator's indices, before the axis of the tuples was moved to the end.
    """
    tuples, columns = n.option("index_vector_dim"), [starts]
    batch = starts.type.shape[:-1]
    for axis in n.axes(tuple(axes), starts.type.rank):
        a = axis - (axis > tuples)
        columns.append(n.expand(n.positions(batch[a], len(batch) + 1, a), (*batch, 1)))
    return n.add(slicing.Concat(len(batch)), *columns) if axes else starts


@hlo_op("gather", moves=True)
def gather_slices(n: HloNode) -> Result:
    return gathered(n, (), ())


def gathered(n: HloNode, of_x: tuple[int, ...], of_indices: tuple[int, ...]) -> Value:
    """A gather.

    of_x: the batching axes of the operand: each position along them has its own indices.
    of_indices: the corresponding batching axes of the indices.
    """
    x, rank = n.input(0), n.input(0).type.rank
    names = ("offset_dims", "collapsed_slice_dims", "start_index_map", "slice_sizes")
    offsets, collapsed, mapped, sizes = (n.options(name) for name in names)
    starts = _batched(n, _tuples(n, n.input(1), len(mapped)), of_indices)
    collapsed, mapped = (*collapsed, *of_x), (*mapped, *of_x)
    kept = [a for a in range(rank) if a not in collapsed]
    n.axes(mapped, rank)
    if len(sizes) != rank or len(offsets) != len(kept) or any(sizes[a] != 1 for a in collapsed):
        n.bad(f"expected {rank} sizes and {len(kept)} axes, found {sizes} and {offsets}")
    room = [extents.difference(x.type.shape[a], sizes[a]) for a in mapped]
    batch = starts.type.rank - 1
    places = _spread(n, clamp(starts, 0, n.of_dims(room)), [sizes[a] for a in mapped])
    rest = [a for a in range(rank) if a not in mapped]
    for a in rest:
        x = n.add(slicing.Slice((0,), (sizes[a],), (a,), (1,)), x)
    y = n.add(gather.GatherNd(), x.transpose(*mapped, *rest), places)
    place = {axis: batch + i for i, axis in enumerate((*mapped, *rest))}
    of_offset = dict(zip(offsets, kept, strict=True))
    batches = iter(range(batch))
    count = batch + len(kept)
    order = [place[of_offset[i]] if i in of_offset else next(batches) for i in range(count)]
    y = y.transpose(*order, *(place[a] for a in collapsed))
    return n.reshape(y, y.type.shape[:count])


@hlo_op("scatter", moves=True)
def scatter_slices(n: HloNode) -> Result:
    return scattered(n, (), ())


def scattered(n: HloNode, of_x: tuple[int, ...], of_indices: tuple[int, ...]) -> Value:
    """A scatter.  Elements of windows that lie outside of the operand are left out.

    of_x, of_indices: as in `gathered`.
    """
    if len(n.slots) != 3:
        n.unsupported(f"a scatter of {(len(n.slots) - 1) // 2} tensors at once")
    x, updates, rank = n.input(0), n.input(2), n.input(0).type.rank
    names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    windows, inserted, mapped = (n.options(name) for name in names)
    starts = _batched(n, _tuples(n, n.input(1), len(mapped)), of_indices)
    inserted, mapped = (*inserted, *of_x), (*mapped, *of_x)
    kept = [a for a in range(rank) if a not in inserted]
    if len(windows) != len(kept) or any(not 0 <= a < rank for a in (*inserted, *mapped)):
        n.bad(f"expected {len(kept)} axes of windows, found {windows}")
    axis_of = dict(zip(kept, n.axes(windows, updates.type.rank), strict=True))
    batch = [a for a in range(updates.type.rank) if a not in windows]
    rest = [a for a in range(rank) if a not in mapped]
    order = [*batch, *(axis_of[a] for a in (*mapped, *rest) if a in axis_of)]
    updates = updates.transpose(*order)
    sizes = [n.extent(n.input(2), axis_of[a]) if a in axis_of else 1 for a in mapped]
    inner = [x.type.shape[a] for a in rest]
    wide = [updates.type.shape[order.index(axis_of[a])] if a in axis_of else 1 for a in rest]
    if not all(same_dim(a, b) for a, b in zip(inner, wide, strict=True)):
        n.unsupported("windows that are smaller than axes that no index chooses")
    places = _spread(n, starts, sizes)
    outer = [x.type.shape[a] for a in mapped]
    limits = n.of_dims(outer)
    is_inside = ((places >= 0) & (places < limits)).cast(i64).min((-1,))
    strides = n.of_dims([extents.product(outer[i + 1 :]) for i in range(len(outer))])
    count = extents.product(outer)
    # elements outside are written to an additional row, which is cut off
    row = where(is_inside > 0, (places * strides).sum((-1,)), n.of_dims((count,), ()))
    batches = updates.type.shape[: len(batch)]
    updates = n.reshape(updates, (*batches, *sizes, *inner))
    moved = x.transpose(*mapped, *rest)
    rows = n.reshape(moved, (count, *inner))
    more = n.add(slicing.Pad((*(0,) * len(inner), 0, 1, *(0,) * len(inner))), rows)
    c = combiner(n, "update_computation", x)
    tuples = n.reshape(row, (*row.type.shape, 1))
    y = n.add(scatter.ScatterNd(c.scatter if c is not None else "none"), more, tuples, updates)
    y = n.add(slicing.Slice((0,), (count,), (0,), (1,)), y)
    back = np.argsort([*mapped, *rest]).tolist()
    return n.reshape(y, moved.type.shape).transpose(*back)


@hlo_op("convolution")
def convolution(n: HloNode) -> Result:
    x, w = n.input(0), n.input(1)
    if n.option("batch_group_count") > 1:
        n.unsupported("groups of the batch")

    def axes(*names: str) -> list[int]:
        return [a for name in names for a in (n.options(name) or (n.option(name),))]

    x = x.transpose(*axes("input_batch_dimension", "input_feature_dimension",
                          "input_spatial_dimensions"))  # fmt: skip
    w = w.transpose(*axes("kernel_output_feature_dimension", "kernel_input_feature_dimension",
                          "kernel_spatial_dimensions"))  # fmt: skip
    rank = x.type.rank - 2
    reversed_ = tuple(2 + i for i, r in enumerate(n.options("window_reversal")) if r)
    if reversed_:
        w = n.add(slicing.Slice((-1,) * len(reversed_), (_FAR,) * len(reversed_), reversed_,
                                (-1,) * len(reversed_)), w)  # fmt: skip
    one = (1,) * rank
    spread = n.options("lhs_dilation") or one
    zeros = (0,) * (rank + 2)
    x = padded(n, x, zeros, zeros, (0, 0, *(s - 1 for s in spread)), n.const(0, x.dtype))
    padding = n.options("padding") or (0,) * 2 * rank
    strides, dilations = (n.options(k) or one for k in ("window_strides", "rhs_dilation"))
    kernel = [n.extent(w, 2 + i) for i in range(rank)]
    g = geometry(n, x, kernel, strides, (*padding[::2], *padding[1::2]), dilations)
    y = convolve(n, x, w, g, n.option("feature_group_count") or 1)
    to = axes("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions")
    return y.transpose(*np.argsort(to).tolist())
