"""OpenVINO's operators on shapes and indices."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.shaping import gathered, reversed_sequences
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.openvino.elements import element_type, openvino_layer
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, scan, scatter, slicing, sort
from tilesmith.ops import shape as sh


@openvino_layer("Reshape")
def reshape(n: LayerNode) -> Result:
    x, copies = n.input(0), n.attr_flag("special_zero", False)
    if not n.is_known(n.input(1)):
        return computed.reshaped(n, x, n.input(1), not copies)
    dims = n.dims(n.input(1), "the shape")
    own = x.type.shape
    zeros = [copies and same_dim(d, 0) and i < len(own) for i, d in enumerate(dims)]
    return x.reshape(*(own[i] if zero else d for i, (d, zero) in enumerate(zip(dims, zeros))))


@openvino_layer("Transpose")
def transpose(n: LayerNode) -> Result:
    x = n.input(0)
    order = n.int_list(n.input(1), "the order") or tuple(range(x.type.rank))[::-1]
    return x.transpose(*order)


@openvino_layer("Squeeze")
def squeeze(n: LayerNode) -> Result:
    x, axes = n.input(0), n.optional(1)
    if axes is None:
        numbers = tuple(i for i, d in enumerate(x.type.shape) if same_dim(d, 1))
    else:
        numbers = n.axes(n.int_list(axes, "axes"), x.type.rank)
    return n.add(sh.Squeeze(tuple(sorted(numbers))), x)


@openvino_layer("Unsqueeze")
def unsqueeze(n: LayerNode) -> Result:
    x, axes = n.input(0), n.int_list(n.input(1), "axes")
    return n.add(sh.Unsqueeze(tuple(sorted(n.axes(axes, x.type.rank + len(axes))))), x)


@openvino_layer("Concat")
def concat(n: LayerNode) -> Result:
    return n.add(slicing.Concat(n.axis(n.attr_int("axis"), n.input().type.rank)), *n.inputs)


def axis_at(n: LayerNode, index: int) -> int:
    """The axis of the first input that another input names."""
    return n.axis(int(n.scalar(n.input(index), "the axis")), n.input(0).type.rank)


@openvino_layer("Split")
def split(n: LayerNode) -> Result:
    x, axis, count = n.input(0), axis_at(n, 1), n.attr_int("num_splits", low=1)
    size = n.builder.divided("Split", x.type.shape[axis], count, f"axis {axis}", n.loc)
    return n.add(slicing.Split(axis, (size,) * count), x)


@openvino_layer("VariadicSplit")
def variadic_split(n: LayerNode) -> Result:
    x, axis = n.input(0), axis_at(n, 1)
    sizes = list(n.dims(n.input(2), "the sizes"))
    if -1 in [s for s in sizes if isinstance(s, int)]:
        rest = sizes.index(-1)
        others = extents.total(s for i, s in enumerate(sizes) if i != rest)
        sizes[rest] = extents.difference(x.type.shape[axis], others)
    return n.add(slicing.Split(axis, tuple(sizes)), x)


@openvino_layer("Slice")
def slices(n: LayerNode) -> Result:
    x = n.input(0)
    starts, ends, steps = n.input(1), n.input(2), n.input(3)
    axes: Value | tuple[int, ...]
    if n.optional(4) is None:
        axes = tuple(range(starts.type.size if isinstance(starts.type.size, int) else x.type.rank))
    else:
        axes = n.axes(n.int_list(n.input(4), "axes"), x.type.rank)
    if not (n.is_known(starts) and n.is_known(ends)):
        return computed.sliced(n, x, starts, ends, axes, steps)
    op = slicing.Slice(
        n.dims(starts, "starts"), n.dims(ends, "ends"), axes, n.int_list(steps, "steps")
    )
    return n.add(op, x)


@openvino_layer("StridedSlice")
def strided_slice(n: LayerNode) -> Result:
    x, rank = n.input(0), n.input(0).type.rank
    begins, ends = n.extents(n.input(1), "the begins"), n.extents(n.input(2), "the ends")
    count = len(begins)
    steps = (1,) * count if n.optional(3) is None else n.int_list(n.input(3), "the steps")

    def mask(name: str) -> list[bool]:
        bits = [bool(b) for b in n.attr_ints(name, ())]
        return (bits + [False] * count)[:count]

    uses_begin, uses_end = ([not b for b in mask(f"{side}_mask")] for side in ("begin", "end"))
    news, shrinks, ellipses = mask("new_axis_mask"), mask("shrink_axis_mask"), mask("ellipsis_mask")
    covered = sum(not (new or dots) for new, dots in zip(news, ellipses))
    starts: list[Dim] = []
    stops: list[Dim] = []
    strides: list[int] = []
    axes: list[int] = []
    inserted: list[int] = []
    dropped: list[int] = []
    axis = place = 0  # axes of the input, and of the result before axes are dropped
    for i in range(count):
        if ellipses[i]:
            axis, place = axis + rank - covered, place + rank - covered
            continue
        if news[i]:
            inserted.append(place)
            place += 1
            continue
        step = 1 if shrinks[i] else steps[i]
        last: Dim = 1 << 31 if step > 0 else -(1 << 31)
        start: Dim = begins[i] if uses_begin[i] else (0 if step > 0 else -1)
        stop: Dim = ends[i] if uses_end[i] else last
        if shrinks[i]:
            start = begins[i] if uses_begin[i] else 0
            stop = last if isinstance(start, int) and start == -1 else extents.total((start, 1))
            dropped.append(place)
        starts.append(start)
        stops.append(stop)
        strides.append(step)
        axes.append(axis)
        axis, place = axis + 1, place + 1
    y = (
        n.add(slicing.Slice(tuple(starts), tuple(stops), tuple(axes), tuple(strides)), x)
        if axes
        else x
    )
    y = n.add(sh.Unsqueeze(tuple(inserted)), y) if inserted else y
    return n.add(sh.Squeeze(tuple(dropped)), y) if dropped else y


def from_front(n: LayerNode, indices: Value, extent: Dim) -> Value:
    """Indices counted from the front."""
    known = n.known(indices)
    if known is not None and (known >= 0).all():
        return indices.cast(i64)
    whole = indices.cast(i64)
    return fn.where(whole < 0, whole + n.of_dims((extent,), ()), whole)


@openvino_layer("Gather")
def gather_slices(n: LayerNode) -> Result:
    x, axis, batch = n.input(0), axis_at(n, 2), n.attr_int("batch_dims", 0)
    indices = from_front(n, n.input(1), x.type.shape[axis])
    return gathered(n, x, indices, axis, batch)


@openvino_layer("GatherElements")
def gather_elements(n: LayerNode) -> Result:
    x = n.input(0)
    axis = n.axis(n.attr_int("axis"), x.type.rank)
    return n.add(gather.GatherElements(axis), x, from_front(n, n.input(1), x.type.shape[axis]))


@openvino_layer("GatherND")
def gather_nd(n: LayerNode) -> Result:
    return n.add(gather.GatherNd(n.attr_int("batch_dims", 0)), n.input(0), n.input(1).cast(i64))


@openvino_layer("ScatterElementsUpdate")
def scatter_elements(n: LayerNode) -> Result:
    x, axis = n.input(0), axis_at(n, 3)
    kinds = {"none": "none", "sum": "add", "prod": "mul", "min": "min", "max": "max"}
    kind = n.attr_string("reduction", "none")
    if kind not in kinds or not n.attr_flag("use_init_val", True):
        n.unsupported(f"reduction {kind!r}, or one without the old element")
    indices = from_front(n, n.input(1), x.type.shape[axis])
    return n.add(scatter.ScatterElements(axis, kinds[kind]), x, indices, n.input(2))


@openvino_layer("ScatterNDUpdate")
def scatter_nd(n: LayerNode) -> Result:
    if n.attr_string("reduction", "none") != "none":
        n.unsupported("a reduction")
    return n.add(scatter.ScatterNd(), n.input(0), n.input(1).cast(i64), n.input(2))


@openvino_layer("Broadcast")
def broadcast(n: LayerNode) -> Result:
    x, mode = n.input(0), n.attr_string("mode", "numpy").lower()
    if mode == "bidirectional":
        return computed.expanded(n, x, n.input(1))
    if not n.is_known(n.input(1)):
        return computed.expanded(n, x, n.input(1))
    dims = n.dims(n.input(1), "the shape")
    if mode == "explicit":
        axes = n.int_list(n.input(2), "the axes")
        own: list[Dim] = [1] * len(dims)
        for a, d in zip(axes, x.type.shape, strict=True):
            own[a] = d
        x = n.reshape(x, own)
    return n.expand(x, dims)


@openvino_layer("Tile")
def tile(n: LayerNode) -> Result:
    x, repeats = n.input(0), n.int_list(n.input(1), "the repeats")
    rank = max(x.type.rank, len(repeats))
    x = n.reshape(x, (*[1] * (rank - x.type.rank), *x.type.shape))
    return n.add(slicing.Tile((*[1] * (rank - len(repeats)), *repeats)), x)


@openvino_layer("Pad")
def pad(n: LayerNode) -> Result:
    x, mode = n.input(0), n.attr_string("pad_mode", "constant")
    modes = {"constant": "constant", "edge": "edge", "reflect": "reflect"}
    if mode not in modes:
        n.unsupported(f"mode {mode!r}")
    value = 0 if n.optional(3) is None else n.scalar(n.input(3), "the value")
    pads = (*n.dims(n.input(1), "pads"), *n.dims(n.input(2), "pads"))
    return n.add(slicing.Pad(pads, modes[mode], value), x)


@openvino_layer("ShapeOf")
def shape_of(n: LayerNode) -> Result:
    return n.of_dims(n.input().type.shape).cast(element_type(n, "output_type", "i64"))


@openvino_layer("Range")
def numbers(n: LayerNode) -> Result:
    dtype = element_type(n, "output_type", "i64")
    if all(n.known(n.input(i)) is not None for i in range(3)):
        start, stop, step = (n.scalar(n.input(i), "a number") for i in range(3))
        return n.const(np.arange(start, stop, step), dtype)
    start, step = (n.scalar(n.input(i), "a number") for i in (0, 2))
    if step != 1 or not n.input(1).dtype.is_int:
        n.unsupported("a range of open size with steps other than 1")
    count = extents.difference(n.one_extent(n.input(1), "the end"), int(start))
    return (n.positions(count) + int(start)).cast(dtype)


@openvino_layer("OneHot")
def one_hot(n: LayerNode) -> Result:
    depth = n.dim(n.input(1), "the depth")
    pair = n.add(slicing.Concat(0), *(n.reshape(n.input(i), (1,)) for i in (3, 2)))
    return n.add(gather.OneHot(depth, n.attr_int("axis", -1)), n.input(0), pair)


@openvino_layer("TopK")
def top_k(n: LayerNode) -> Result:
    x = n.input(0)
    axis, largest = n.axis(n.attr_int("axis"), x.type.rank), n.attr_string("mode") == "max"
    count = n.one_extent(n.input(1), "k")
    best, places = n.add(sort.TopK(count, axis, largest), x)
    if n.attr_string("sort", "value") == "index":
        places, _ = n.add(sort.TopK(count, axis, False), places)
        best = n.add(gather.GatherElements(axis), x, places)
    return best, places.cast(element_type(n, "index_element_type", "i32"))


@openvino_layer("NonZero")
def non_zero(n: LayerNode) -> Result:
    return n.places(n.input()).cast(element_type(n, "output_type", "i64"))


@openvino_layer("CumSum")
def cumulative_sum(n: LayerNode) -> Result:
    flags = n.attr_flag("exclusive", False), n.attr_flag("reverse", False)
    return n.add(scan.CumSum(axis_at(n, 1), *flags), n.input(0))


@openvino_layer("ReverseSequence")
def reverse_sequence(n: LayerNode) -> Result:
    rank = n.input(0).type.rank
    batch, time = n.axis(n.attr_int("batch_axis", 0), rank), n.axis(n.attr_int("seq_axis", 1), rank)
    return reversed_sequences(n, n.input(0), n.input(1).cast(i64), time, batch)


@openvino_layer("DepthToSpace")
def depth_to_space(n: LayerNode) -> Result:
    mode = "DCR" if n.attr_string("mode") == "blocks_first" else "CRD"
    return n.add(sh.DepthToSpace(n.attr_int("block_size", 1), mode), n.input())


@openvino_layer("SpaceToDepth")
def space_to_depth(n: LayerNode) -> Result:
    x, size = n.input(), n.attr_int("block_size", 1)
    y = n.add(sh.SpaceToDepth(size), x)
    if n.attr_string("mode") == "blocks_first":
        return y
    batch, channels, *space = y.type.shape
    own = n.builder.divided("SpaceToDepth", channels, size * size, "the channels", n.loc)
    split_y = y.reshape(batch, size * size, own, *space)
    return split_y.transpose(0, 2, 1, 3, 4).reshape(*y.type.shape)


@openvino_layer("ShuffleChannels")
def shuffle_channels(n: LayerNode) -> Result:
    x, groups = n.input(), n.attr_int("group", 1, 1)
    axis = n.axis(n.attr_int("axis", 1), x.type.rank)
    before, extent, after = x.type.shape[:axis], x.type.shape[axis], x.type.shape[axis + 1 :]
    each = n.builder.divided("ShuffleChannels", extent, groups, "the channels", n.loc)
    y = x.reshape(*before, groups, each, *after)
    order = (*range(axis), axis + 1, axis, *range(axis + 2, y.type.rank))
    return y.transpose(*order).reshape(*x.type.shape)


@openvino_layer("Roll")
def roll(n: LayerNode) -> Result:
    x = n.input(0)
    axes = n.axes(n.int_list(n.input(2), "axes"), x.type.rank)
    shifts = n.int_list(n.input(1), "shifts")
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    for axis, shift in zip(axes, shifts, strict=True):
        extent = n.extent(x, axis)
        place = -shift % extent if extent else 0
        if place:
            first, second = n.add(slicing.Split(axis, (place, extent - place)), x)
            x = n.add(slicing.Concat(axis), second, first)
    return x
