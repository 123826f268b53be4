"""Core ML's operators on shapes, which move, join and repeat elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.limits import checked_dims
from tilesmith.frontend.common.ranges import ranged
from tilesmith.frontend.common.repeating import tiled
from tilesmith.frontend.common.shaping import reversed_sequences, without_ones
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i32, i64
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import gather, shape, slicing
from tilesmith.ops.functions import where


@mil_op("reshape")
def reshape(n: MilNode) -> Result:
    x, wanted = n.input("x"), n.input("shape")
    if not n.is_known(wanted):
        return computed.reshaped(n, x, wanted, False)
    return x.reshape(*_copied(n, x, n.dims(wanted, "shape")))


def _copied(n: MilNode, x: Value, dims: Sequence[Dim]) -> tuple[Dim, ...]:
    """`dims` with zeros replaced by extents of `x`.  If the ranks differ, axes are counted from the
    end; axes that `x` lacks count as 1.
    """
    offset = x.type.rank - len(dims)

    def extent(i: int) -> Dim:
        return x.type.shape[i + offset] if i + offset >= 0 else 1

    return tuple(extent(i) if same_dim(d, 0) else d for i, d in enumerate(dims))


@mil_op("reshape_like")
def reshape_like(n: MilNode) -> Result:
    dims: list[Dim] = []
    ends, masks = n.values("ends"), n.values("end_masks")
    for like, begin, end, mask in zip(
        n.values("ref_tensors"), n.values("begins"), ends, masks, strict=True
    ):
        stop = None if n.scalar(mask, "end_masks") else n.scalar(end, "ends")
        dims += like.type.shape[n.scalar(begin, "begins") : stop]
    return n.reshape(n.input("x"), dims)


@mil_op("flatten2d")
def flatten2d(n: MilNode) -> Result:
    x, axis = n.input("x"), n.int("axis", 1)
    return n.add(shape.Flatten(axis), x)


@mil_op("transpose")
def transpose(n: MilNode) -> Result:
    x = n.input("x")
    return x.transpose(*n.axes(n.ints("perm"), x.type.rank, "perm"))


@mil_op("expand_dims")
def expand_dims(n: MilNode) -> Result:
    x, axes = n.input("x"), n.ints("axes")
    return n.add(shape.Unsqueeze(n.axes(axes, x.type.rank + len(axes))), x)


@mil_op("squeeze")
def squeeze(n: MilNode) -> Result:
    x = n.input("x")
    if not n.has("axes"):
        return without_ones(n, x)
    return n.add(shape.Squeeze(n.axes(n.ints("axes"), x.type.rank)), x)


@mil_op("concat")
def concat(n: MilNode) -> Result:
    values = n.values("values")
    axis = n.axis(n.int("axis"), values[0].type.rank)
    if not n.flag("interleave"):
        return values[0] if len(values) == 1 else n.add(slicing.Concat(axis), *values)
    dims = list(values[0].type.shape)
    dims[axis] = extents.product((dims[axis], len(values)))
    return n.reshape(_stacked(n, values, axis + 1), dims)


def _stacked(n: MilNode, values: Sequence[Value], axis: int) -> Value:
    return n.add(slicing.Concat(axis), *(n.add(shape.Unsqueeze((axis,)), v) for v in values))


@mil_op("stack")
def stack(n: MilNode) -> Result:
    values = n.values("values")
    return _stacked(n, values, n.axis(n.int("axis"), values[0].type.rank + 1))


@mil_op("split")
def split(n: MilNode) -> Result:
    x = n.input("x")
    axis = n.axis(n.int("axis"), x.type.rank)
    extent = x.type.shape[axis]
    if n.has("split_sizes"):
        sizes = n.extents(n.input("split_sizes"), "split_sizes")
    else:
        count = n.int("num_splits")
        if not 1 <= count <= max(n.count, 1):
            n.bad(f"num_splits: expected {n.count}, as the operation has outputs, found {count}")
        sizes = (n.builder.divided("split", extent, count, f"axis {axis}", n.loc),) * count
    if not all(extents.is_at_most(0, size) for size in sizes):
        return computed.parts(n, x, axis, sizes)
    parts = n.add(slicing.Split(axis, sizes), x)
    return parts if isinstance(parts, tuple) else (parts,)


@mil_op("tile")
def tile(n: MilNode) -> Result:
    x, repeats = n.input("x"), n.extents(n.input("reps"), "reps")
    if len(repeats) != x.type.rank or any(isinstance(r, int) and r < 0 for r in repeats):
        n.bad(f"reps: expected {x.type.rank} numbers of 0 or more, found {list(repeats)}")
    return tiled(n, x, repeats)


@mil_op("reverse")
def reverse(n: MilNode) -> Result:
    x = n.input("x")
    return n.add(slicing.Flip(n.axes(n.ints("axes", range(x.type.rank)), x.type.rank)), x)


@mil_op("reverse_sequence")
def reverse_sequence(n: MilNode) -> Result:
    x = n.input("x")
    time, batch = (n.axis(n.int(f"{a}_axis", 0), x.type.rank) for a in ("seq", "batch"))
    return reversed_sequences(n, x, n.input("lengths"), time, batch)


@mil_op("sliding_windows")
def sliding_windows(n: MilNode) -> Result:
    x, size, stride = n.input("x"), n.int("size"), n.int("stride", 1)
    axis = n.axis(n.int("axis"), x.type.rank)
    extent = n.extent(x, axis)
    if not 1 <= size <= extent or stride < 1:
        n.bad(f"expected windows of 1 to {extent}, found {size} with stride {stride}")
    starts = range(0, extent - size + 1, stride)
    return n.add(gather.Gather(axis), x, n.const([range(s, s + size) for s in starts], i64))


# Images


@mil_op("depth_to_space")
def depth_to_space(n: MilNode) -> Result:
    return n.add(shape.DepthToSpace(n.int("block_size")), n.input("x"))


@mil_op("space_to_depth")
def space_to_depth(n: MilNode) -> Result:
    return n.add(shape.SpaceToDepth(n.int("block_size")), n.input("x"))


@mil_op("pixel_shuffle")
def pixel_shuffle(n: MilNode) -> Result:
    return n.add(shape.DepthToSpace(n.int("upscale_factor"), "CRD"), n.input("x"))


@mil_op("pixel_unshuffle")
def pixel_unshuffle(n: MilNode) -> Result:
    x, k = n.input("x"), n.int("downscale_factor")
    if x.type.rank != 4 or k < 1:
        n.bad(f"expected images [N, C, H, W] and a factor of 1 or more, found {x.type} and {k}")
    batch, channels = x.type.shape[:2]
    y = n.add(shape.SpaceToDepth(k), x)  # axis 1 of y: positions in a block, then channels
    rest = y.type.shape[2:]
    y = y.reshape(batch, k * k, channels, *rest).transpose(0, 2, 1, 3, 4)
    return y.reshape(batch, extents.product((channels, k * k)), *rest)


@mil_op("space_to_batch")
def space_to_batch(n: MilNode) -> Result:
    x, blocks = n.input("x"), n.ints("block_shape")
    borders = n.array(n.input("paddings"), "paddings").reshape(-1, 2)
    m = len(blocks)
    if x.type.rank != m + 2 or len(borders) != m or min(blocks) < 1:
        n.bad(f"expected [N, C, spatial...] with a block for each axis, found {x.type}, {blocks}")
    before, after = borders.T.tolist()
    x = n.add(slicing.Pad((0, 0, *before, 0, 0, *after), "constant", 0), x)
    batch, channels, *dims = x.type.shape
    parts = [
        n.builder.divided("space_to_batch", d, b, "an extent", n.loc)
        for d, b in zip(dims, blocks, strict=True)
    ]
    pairs = [d for pair in zip(parts, blocks, strict=True) for d in pair]
    y = x.reshape(batch, channels, *pairs)
    y = y.transpose(*range(3, 2 * m + 2, 2), 0, 1, *range(2, 2 * m + 2, 2))
    return y.reshape(extents.product((batch, *blocks)), channels, *parts)


@mil_op("batch_to_space")
def batch_to_space(n: MilNode) -> Result:
    x, blocks = n.input("x"), n.ints("block_shape")
    before, after = n.array(n.input("crops"), "crops").reshape(-1, 2).T.tolist()
    m = len(blocks)
    if x.type.rank != m + 2 or len(before) != m or min(blocks) < 1:
        n.bad(f"expected [N, C, spatial...] with a block for each axis, found {x.type}, {blocks}")
    batch, channels, *dims = x.type.shape
    outer = n.builder.divided("batch_to_space", batch, math.prod(blocks), "the batch", n.loc)
    y = x.reshape(*blocks, outer, channels, *dims)
    pairs = [a for i in range(m) for a in (m + 2 + i, i)]
    y = y.transpose(m, m + 1, *pairs)
    wide = [extents.product(pair) for pair in zip(dims, blocks, strict=True)]
    cut = [-b for b in before], [-a for a in after]
    op = slicing.Pad((0, 0, *cut[0], 0, 0, *cut[1]))
    return n.add(op, y.reshape(outer, channels, *wide))


# Sizes and filled tensors


@mil_op("shape")
def shape_of(n: MilNode) -> Result:
    return n.of_dims(n.input("x").type.shape).cast(i32)


@mil_op("fill")
def fill(n: MilNode) -> Result:
    dims = checked_dims(n.extents(n.input("shape"), "shape"), "shape")
    value = n.optional("value")
    filler = n.const(0.0).cast(n.dtype("_", "fp32")) if value is None else n.reshape(value, ())
    return n.expand(filler, dims)


@mil_op("fill_like")
def fill_like(n: MilNode) -> Result:
    return n.expand(n.reshape(n.input("value"), ()), n.input("ref_tensor").type.shape)


@mil_op("range_1d")
def range_1d(n: MilNode) -> Result:
    start, end, step = (n.reshape(n.input(name), ()) for name in ("start", "end", "step"))
    return ranged(n, (start, end, step))


@mil_op("band_part")
def band_part(n: MilNode) -> Result:
    x, lower, upper = n.input("x"), n.int("lower", -1), n.int("upper", -1)
    y = x if lower < 0 else n.add(gather.Trilu(True, -lower), x)
    return y if upper < 0 else n.add(gather.Trilu(False, upper), y)


@mil_op("non_zero")
def non_zero(n: MilNode) -> Result:
    return n.places(n.input("x")).transpose(1, 0).cast(i32)


@mil_op("one_hot")
def one_hot(n: MilNode) -> Result:
    indices = n.input("indices")
    depth = n.one_extent(n.input("one_hot_vector_size"), "one_hot_vector_size")
    on, off = n.optional("on_value"), n.optional("off_value")
    on = n.const(1, i32) if on is None else n.reshape(on, (1,))
    off = n.const(0, on.dtype) if off is None else off
    values = n.add(slicing.Concat(0), n.reshape(off, (1,)), n.reshape(on, (1,)))
    # a negative index does not count from the end; its row has only `off`
    indices = where(indices < 0, n.of_dims((depth,), ()), indices.cast(i64))
    return n.add(gather.OneHot(depth, n.int("axis", -1)), indices, values)
