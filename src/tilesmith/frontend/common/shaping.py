"""Operations on shapes that several formats have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import same_dim
from tilesmith.ops import gather, slicing
from tilesmith.ops.functions import where
from tilesmith.ops.shape import Squeeze
from tilesmith.ops.sizes import Extents

from .node import NodeContext

_FAR = 1 << 40
"""An index beyond every extent."""


def without_ones(n: NodeContext, x: Value) -> Value:
    """`x` without its axes of extent 1.  The rank may not depend on the run, so an axis of symbolic
    extent stays, and a run in which its extent is 1 is refused.
    """
    axes = tuple(i for i, d in enumerate(x.type.shape) if same_dim(d, 1))
    for d in x.type.shape:
        if extents.are_equal(d, 1) is None:
            one = n.const(np.ones(1, np.int64))
            is_one = n.add(Extents((d,), (1,))).equals(one)
            n.builder.require_zero(is_one.cast(i64), f"{d} == 1")
    return n.add(Squeeze(axes), x)


def reversed_sequences(n: NodeContext, x: Value, lengths: Value, time: int, batch: int) -> Value:
    """`x` with the first `lengths[b]` elements along axis `time` in reverse order, for each index b
    of axis `batch`.
    """
    dims, rank = x.type.shape, x.type.rank
    steps, sequences = dims[time], dims[batch]
    # Let l be the length of the sequence.  Step t takes element l - 1 - t if t < l, else element t.
    position = n.positions(steps, rank, time)
    own = tuple(sequences if a == batch else 1 for a in range(rank))
    length = n.reshape(lengths.cast(i64), own)
    mirrored = length - np.int64(1) - position
    source = where(position < length, mirrored, position)
    return n.add(gather.GatherElements(time), x, source.expand(*dims))


def symmetrically_padded(n: NodeContext, x: Value, pads: Sequence[int]) -> Value:
    """`x` with elements of its mirror image at each border, which repeats the outermost element.

    pads: elements to add before each axis, then after each axis.
    """
    for axis, (before, after) in enumerate(zip(pads, pads[x.type.rank :], strict=False)):
        if max(before, after) == 0:
            continue
        # The elements next to each border.  The slice at the end has a negative step, so it is
        # reversed already.
        front = n.add(slicing.Slice((0,), (before,), (axis,), (1,)), x)
        back = n.add(slicing.Slice((_FAR,), (-after - 1,), (axis,), (-1,)), x)
        parts = ([n.add(slicing.Flip((axis,)), front)] if before else []) + [x]
        x = n.add(slicing.Concat(axis), *parts, *([back] if after else []))
    return x


def gathered(n: NodeContext, x: Value, indices: Value, axis: int, shared: int) -> Value:
    """The slices of `x` at `indices` along `axis`.

    shared: number of leading axes that `x` and `indices` have in common; negative numbers count
        from the end of `indices`.
    """
    shared += indices.type.rank if shared < 0 else 0
    if not shared:
        return n.add(gather.Gather(axis), x, indices)
    if not 0 < shared <= min(axis, indices.type.rank):
        n.bad(f"batch_dims: expected at most axis {axis} and {indices.type}, found {shared}")
    rank, places = x.type.rank, indices.type.rank - shared
    between = axis - shared
    x = x.transpose(*range(shared), axis, *range(shared, axis), *range(axis + 1, rank))
    y = n.add(gather.GatherNd(shared), x, n.reshape(indices, (*indices.type.shape, 1)))
    # y has the indices' own axes, then the axes of x between the shared axes and `axis`.  In the
    # result, these two groups of axes are exchanged.
    own = range(shared, shared + places)
    moved = range(shared + places, shared + places + between)
    return y.transpose(*range(shared), *moved, *own, *range(moved.stop, y.type.rank))
