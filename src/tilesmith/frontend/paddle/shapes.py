"""Paddle's operators that change, join, cut, make, reduce and select."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.limits import checked_dims
from tilesmith.frontend.common.lists import joined, listed
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.ranges import ranged
from tilesmith.frontend.common.repeating import tiled
from tilesmith.frontend.common.shaping import without_ones
from tilesmith.frontend.common.slices import places_of, replaced
from tilesmith.frontend.common.slots import Result, TensorList
from tilesmith.frontend.paddle.registry import (
    axis_input,
    dtype_of,
    paddle_op,
    sizes,
    tensors,
    whole,
)
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_, f32, i32, i64
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, reduce, scan, scatter, shape, slicing, sort


@paddle_op("builtin.combine")
def combine(n: LayerNode) -> Result:
    items = n.inputs
    return TensorList(items, items[0].dtype if items else f32)


@paddle_op("builtin.split")
def separate(n: LayerNode) -> Result:
    return tensors(n)


# Shapes


@paddle_op("reshape")
def reshape(n: LayerNode) -> Result:
    x, dims = n.input(), n.input().type.shape
    slot = n.slots[1]
    if isinstance(slot, TensorList) or n.is_known(n.input(1)):
        wanted = sizes(n, 1, "shape")
    else:
        return computed.reshaped(n, x, n.input(1), zero_is_zero=False)
    if any(same_dim(d, 0) and i >= len(dims) for i, d in enumerate(wanted)):
        n.bad(f"shape {list(map(str, wanted))}: expected at most {len(dims)} axes that keep")
    return x.reshape(*(dims[i] if same_dim(d, 0) else d for i, d in enumerate(wanted)))


@paddle_op("flatten")
def flatten(n: LayerNode) -> Result:
    x = n.input()
    rank = x.type.rank
    first, last = (
        n.axis(n.attr_int(name, default), rank)
        for name, default in (("start_axis", 1), ("stop_axis", 1))
    )
    dims = x.type.shape
    return n.reshape(x, (*dims[:first], extents.product(dims[first : last + 1]), *dims[last + 1 :]))


@paddle_op("flatten2")
def flatten_at(n: LayerNode) -> Result:
    x, axis = n.input(), n.attr_int("axis", 1)
    parts = x.type.shape[:axis], x.type.shape[axis:]
    return n.reshape(x, tuple(map(extents.product, parts)))


@paddle_op("transpose")
def transpose(n: LayerNode) -> Result:
    x = n.input()
    return x.transpose(*n.axes(n.attr_ints("perm"), x.type.rank))


@paddle_op("squeeze")
def squeeze(n: LayerNode) -> Result:
    x, axes = n.input(), whole(n, 1, "axis")
    if not axes:
        return without_ones(n, x)
    numbers = n.axes(axes, x.type.rank)
    ones = tuple(a for a in numbers if same_dim(x.type.shape[a], 1))  # Paddle ignores other axes
    return n.add(shape.Squeeze(ones), x) if ones else x


@paddle_op("unsqueeze")
def unsqueeze(n: LayerNode) -> Result:
    x = n.input()
    for axis in whole(n, 1, "axis"):
        x = n.add(shape.Unsqueeze((n.axis(axis, x.type.rank + 1),)), x)
    return x


@paddle_op("expand")
def expand(n: LayerNode) -> Result:
    x, wanted = n.input(), sizes(n, 1, "shape")
    own = (*[1] * (len(wanted) - x.type.rank), *x.type.shape)
    dims = (d if same_dim(w, -1) else w for w, d in zip(wanted, own, strict=True))
    return n.expand(x, checked_dims(dims, "shape"))


@paddle_op("expand_as")
def expand_as(n: LayerNode) -> Result:
    like = n.optional(1)
    dims = n.attr_ints("target_shape") if like is None else like.type.shape
    return n.expand(n.input(), dims)


@paddle_op("tile")
def tile(n: LayerNode) -> Result:
    x, repeats = n.input(), sizes(n, 1, "repeat_times")
    rank = max(len(repeats), x.type.rank)
    x = n.reshape(x, (*[1] * (rank - x.type.rank), *x.type.shape))
    return tiled(n, x, (*[1] * (rank - len(repeats)), *repeats))


@paddle_op("shape", "shape64")
def shape_of(n: LayerNode) -> Result:
    dims = n.of_dims(n.input().type.shape)
    return dims if n.layer.kind == "shape64" else dims.cast(i32)


@paddle_op("numel")
def count(n: LayerNode) -> Result:
    return n.of_dims((extents.product(n.input().type.shape),), ())


@paddle_op("pixel_shuffle")
def pixel_shuffle(n: LayerNode) -> Result:
    if n.attr_string("data_format", "NCHW") != "NCHW":
        n.unsupported("layout NHWC")
    return n.add(shape.DepthToSpace(n.attr_int("upscale_factor", 1, low=1), "CRD"), n.input())


@paddle_op("shuffle_channel", "channel_shuffle")
def shuffle_channel(n: LayerNode) -> Result:
    x, groups = n.input(), n.attr_int("group", n.attr_int("groups", 1), low=1)
    batch, channels, *image = x.type.shape
    each = n.builder.divided("shuffle", channels, groups, "a number of channels", n.loc)
    parts = n.reshape(x, (batch, groups, each, *image))
    order = (0, 2, 1, *range(3, x.type.rank + 1))
    return n.reshape(parts.transpose(*order), x.type.shape)


# Joining and cutting


@paddle_op("concat")
def concat(n: LayerNode) -> Result:
    parts = tensors(n)
    return n.add(slicing.Concat(axis_input(n, 1, parts[0].type.rank)), *parts)


@paddle_op("stack")
def stack(n: LayerNode) -> Result:
    parts = tensors(n)
    axis = n.axis(n.attr_int("axis", 0), parts[0].type.rank + 1)
    return n.add(slicing.Concat(axis), *(n.add(shape.Unsqueeze((axis,)), x) for x in parts))


@paddle_op("split", "split_with_num", "split_of")
def split(n: LayerNode) -> Result:
    x, kind = n.input(), n.layer.kind
    axis = axis_input(n, 1 if kind == "split_with_num" else 2, x.type.rank)
    extent = x.type.shape[axis]
    parts: list[Dim] = [] if kind == "split_with_num" else list(sizes(n, 1, "sections"))
    if parts:
        others = extents.total([d for d in parts if not same_dim(d, -1)])
        rest = extents.difference(extent, others)
        parts = [rest if same_dim(d, -1) else d for d in parts]
    else:
        number = n.attr_int("num", low=1)
        parts = [n.builder.divided("split", extent, number, "an extent to split", n.loc)] * number
    made = n.add(slicing.Split(axis, tuple(parts)), x)
    items = made if isinstance(made, tuple) else (made,)
    return items if kind == "split_of" else TensorList(items, x.dtype)


@paddle_op("unbind", "unstack")
def unbind(n: LayerNode) -> Result:
    x = n.input()
    axis = n.axis(n.attr_int("axis", 0), x.type.rank)
    made = n.add(slicing.Split(axis, (1,) * n.extent(x, axis)), x)
    parts = made if isinstance(made, tuple) else (made,)
    items = tuple(n.add(shape.Squeeze((axis,)), p) for p in parts)
    return items if len(n.layer.outputs) == len(items) > 1 else TensorList(items, x.dtype)


@paddle_op("slice", "strided_slice")
def slice_of(n: LayerNode) -> Result:
    x = n.input()
    axes = n.axes(n.attr_ints("axes"), x.type.rank)
    bounds = [joined(*(listed(v) for v in tensors(n, i))) for i in (1, 2)]
    steps = n.const([1] * len(axes), i64)
    if n.layer.kind == "strided_slice":
        steps = listed(n.input(3))
    if all(map(n.is_known, (*bounds, steps))):
        starts, ends = (n.dims(b, "a bound of a slice") for b in bounds)
        by = n.int_list(steps, "strides")
        # with a negative step, an end of -1 means before the first element
        pairs = zip(ends, by, strict=True)
        ends = tuple(-(1 << 31) if s < 0 and same_dim(e, -1) else e for e, s in pairs)
        y = n.add(slicing.Slice(starts, ends, axes, by), x)
    else:
        y = computed.sliced(n, x, bounds[0], bounds[1], axes, steps)
    gone = n.axes(n.attr_ints("decrease_axis", ()), x.type.rank)
    return n.reshape(y, [d for a, d in enumerate(y.type.shape) if a not in gone])


@paddle_op("pad3d", "pad")
def pad(n: LayerNode) -> Result:
    x = n.input()
    value = n.attr_float("pad_value", 0.0)
    if n.layer.kind == "pad":
        pads = n.attr_ints("paddings")
        if n.optional(1) is not None:
            value = float(n.scalar(n.input(1), "pad_value"))
        return n.add(slicing.Pad((*pads[::2], *pads[1::2]), "constant", value), x)
    layout = n.attr_string("data_format", "NCDHW")
    if layout != "NCDHW":
        n.unsupported(f"layout {layout}; channels must be the second axis")
    pads = whole(n, 1, "paddings")[: 2 * (x.type.rank - 2)]
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    mode = modes[n.attr_string("mode", "constant", among=tuple(modes))]
    # the file has the pads of the innermost axis first
    around = (0, 0, *pads[::2][::-1], 0, 0, *pads[1::2][::-1])
    return n.add(slicing.Pad(around, mode, value), x)


@paddle_op("flip")
def flip(n: LayerNode) -> Result:
    x = n.input()
    return n.add(slicing.Flip(n.axes(n.attr_ints("axis"), x.type.rank)), x)


@paddle_op("roll")
def roll(n: LayerNode) -> Result:
    x, shifts, dims = n.input(), whole(n, 1, "shifts"), n.input().type.shape
    axes = n.attr_ints("axis", ())
    y = x if axes else n.reshape(x, (extents.product(dims),))
    for axis, shift in zip(n.axes(axes or (0,), y.type.rank), shifts, strict=True):
        back = shift % n.extent(y, axis)
        if back:
            parts = [(-back, 1 << 31), (0, -back)]
            cut = [slicing.Slice((a,), (b,), (axis,), (1,)) for a, b in parts]
            y = n.add(slicing.Concat(axis), *(n.add(c, y) for c in cut))
    return n.reshape(y, dims)


@paddle_op("meshgrid")
def meshgrid(n: LayerNode) -> Result:
    parts = tensors(n)
    dims = tuple(p.type.shape[0] if p.type.rank else 1 for p in parts)
    items = []
    for i, p in enumerate(parts):
        own = tuple(d if a == i else 1 for a, d in enumerate(dims))
        items.append(n.expand(n.reshape(p, own), dims))
    return tuple(items) if len(n.layer.outputs) > 1 else TensorList(tuple(items), items[0].dtype)


@paddle_op("tril", "triu", "tril_triu")
def triangle(n: LayerNode) -> Result:
    upper = n.layer.kind == "triu" or not n.attr_flag("lower", True)
    return n.add(gather.Trilu(upper, n.attr_int("diagonal", 0)), n.input())


@paddle_op("set_value_", "set_value", "set_value_with_tensor_", "set_value_with_tensor")
def set_value(n: LayerNode) -> Result:
    """The tensor with the elements of a slice replaced.

    The last three inputs are the starts, the ends and the steps of the slice.
    """
    x, count = n.input(), len(n.slots)
    if n.attr_ints("none_axes", ()):
        n.unsupported("new axes in an index that is assigned to")
    axes = n.axes(n.attr_ints("axes"), x.type.rank)
    starts, ends, steps = (whole(n, i, "a bound") for i in range(count - 3, count))
    cut = slicing.Slice(starts, ends, axes, steps)
    places = places_of(n, x, cut)
    gone = n.attr_ints("decrease_axes", ())
    kept = [d for a, d in enumerate(places.type.shape) if a not in gone]
    if "with_tensor" in n.layer.kind and n.optional(1) is not None:
        new = n.input(1)
    else:
        new = n.const(np.asarray(n.attr_floats("values")).reshape(n.attr_ints("shape")), x.dtype)
    return replaced(n, x, places, n.expand(new.cast(x.dtype), kept))


# Tensors made from attributes


@paddle_op("full_int_array", "assign_value_")
def values_of(n: LayerNode) -> Result:
    old = ("fp32_values", "int32_values", "int64_values", "bool_values")
    held = [n.layer.attributes.get(name) for name in ("value", "values", *old)]
    numbers = next((h for h in held if h is not None and len(h)), held[0])
    if numbers is None:
        n.bad("expected attribute 'values', found none")
    array = np.asarray(numbers).astype(dtype_of(n, "dtype", i64).numpy)
    return n.const(array.reshape(n.attr_ints("shape", array.shape)))


@paddle_op("full", "full_", "full_with_tensor")
def full(n: LayerNode) -> Result:
    """A tensor filled with a number, which is an attribute or the first input."""
    dtype = dtype_of(n, "dtype", f32)
    if n.layer.kind == "full_with_tensor":
        return n.expand(_number(n, 0).cast(dtype), checked_dims(sizes(n, 1, "shape"), "shape"))
    value = n.const(np.asarray(n.attr_float("value")).astype(dtype.numpy))
    return n.expand(value, checked_dims(n.attr_ints("shape", ()), "shape"))


def _number(n: LayerNode, index: int) -> Value:
    """Input number `index`, which has one element, as a scalar."""
    return n.reshape(n.input(index), ())


@paddle_op("full_like")
def full_like(n: LayerNode) -> Result:
    x = n.input()
    value = _number(n, 1).cast(dtype_of(n, "dtype", x.dtype))
    return n.expand(value, x.type.shape)


@paddle_op("full_batch_size_like", "full_batch_size_like_")
def full_batch_size_like(n: LayerNode) -> Result:
    dims: list[Dim] = list(n.attr_ints("shape"))
    target, source = (n.attr_int(a, 0) for a in ("output_dim_idx", "input_dim_idx"))
    dims[target] = n.input().type.shape[source]
    value = _number(n, 1).cast(dtype_of(n, "dtype", f32))
    return n.expand(value, checked_dims(dims, "shape"))


@paddle_op("arange")
def arange(n: LayerNode) -> Result:
    dtype = dtype_of(n, "dtype", n.input().dtype)
    return ranged(n, [n.reshape(n.input(i), ()).cast(dtype) for i in range(3)])


# Reductions


def _reduction(n: LayerNode, make: Callable[..., Any], is_attribute: bool = False) -> Result:
    x = n.input()
    axes = n.attr_ints("axis", ()) if is_attribute else whole(n, 1, "axis")
    numbers = sorted({n.axis(a, x.type.rank) for a in axes})
    if not numbers or n.attr_flag("reduce_all", False):
        numbers = list(range(x.type.rank))
    if make is reduce.ReduceSum:
        x = x.cast(i64) if x.dtype in (bool_, i32) else x
        x = x.cast(dtype_of(n, "dtype", dtype_of(n, "out_dtype", x.dtype)))
    return n.add(make(tuple(numbers), n.attr_flag("keepdim", False)), x)


for _name, _make in {
    "amax": reduce.ReduceMax,
    "amin": reduce.ReduceMin,
    "max": reduce.ReduceMax,
    "mean": reduce.ReduceMean,
    "min": reduce.ReduceMin,
    "prod": reduce.ReduceProd,
    "sum": reduce.ReduceSum,
}.items():
    paddle_op(_name)(partial(_reduction, make=_make, is_attribute=_name.startswith("a")))
for _name, _make in {
    "all": reduce.ReduceMin,
    "any": reduce.ReduceMax,
    "logsumexp": reduce.ReduceLogSumExp,
    "frobenius_norm": reduce.ReduceL2,
}.items():
    paddle_op(_name)(partial(_reduction, make=_make, is_attribute=True))


@paddle_op("argmax", "argmin")
def arg_extreme(n: LayerNode) -> Result:
    x = n.input()
    keep = n.attr_flag("keepdims", False)
    flat = n.attr_flag("flatten", False)
    y = n.reshape(x, (extents.product(x.type.shape),)) if flat else x
    make = reduce.ArgMax if n.layer.kind == "argmax" else reduce.ArgMin
    place = n.add(make(axis_input(n, 1, y.type.rank), keep), y)
    dtype = dtype_of(n, "dtype", i64)
    return (n.reshape(place, (1,) * x.type.rank) if flat and keep else place).cast(dtype)


@paddle_op("topk")
def topk(n: LayerNode) -> Result:
    x = n.input()
    (size,) = sizes(n, 1, "k")
    op = sort.TopK(size, n.axis(n.attr_int("axis", -1), x.type.rank), n.attr_flag("largest", True))
    return n.add(op, x)


@paddle_op("argsort")
def argsort(n: LayerNode) -> Result:
    x = n.input()
    axis = n.axis(n.attr_int("axis", -1), x.type.rank)
    return n.add(sort.TopK(x.type.shape[axis], axis, n.attr_flag("descending", False)), x)


@paddle_op("cumsum")
def cumsum(n: LayerNode) -> Result:
    x = n.input()
    if n.attr_flag("flatten", False):
        x = n.reshape(x, (extents.product(x.type.shape),))
    ways = n.attr_flag("exclusive", False), n.attr_flag("reverse", False)
    return n.add(scan.CumSum(axis_input(n, 1, x.type.rank), *ways), x)


# Selections


@paddle_op("gather")
def gather_slices(n: LayerNode) -> Result:
    x, index = n.input(), n.input(1)
    if index.type.rank == 2:  # a column [N, 1] counts as a list
        index = n.reshape(index, (index.type.shape[0],))
    return n.add(gather.Gather(axis_input(n, 2, x.type.rank)), x, index)


@paddle_op("index_select")
def index_select(n: LayerNode) -> Result:
    axis = n.axis(n.attr_int("axis", 0), n.input().type.rank)
    return n.add(gather.Gather(axis), n.input(), n.input(1))


@paddle_op("gather_nd")
def gather_nd(n: LayerNode) -> Result:
    return n.add(gather.GatherNd(), n.input(), n.input(1))


@paddle_op("index_sample")
def index_sample(n: LayerNode) -> Result:
    return n.add(gather.GatherElements(1), n.input(), n.input(1))


@paddle_op("take_along_axis")
def take_along_axis(n: LayerNode) -> Result:
    axis = n.axis(n.attr_int("axis", 0), n.input().type.rank)
    return n.add(gather.GatherElements(axis), n.input(), n.input(1))


@paddle_op("embedding", "embedding_of_columns")
def embedding(n: LayerNode) -> Result:
    index, table = n.input(0), n.input(1)
    if n.layer.kind != "embedding":
        index = n.reshape(index, index.type.shape[:-1])
    rows = n.add(gather.Gather(0), table, index)
    padding = n.attr_int("padding_idx", -1)
    if padding < 0:
        return rows
    return fn.where(n.add(shape.Unsqueeze((-1,)), index.equals(padding)), 0.0, rows)


@paddle_op("one_hot")
def one_hot(n: LayerNode) -> Result:
    (depth,) = sizes(n, 1, "depth")
    values = n.const([0, 1], dtype_of(n, "dtype", f32))
    return n.add(gather.OneHot(depth), n.input(), values)


@paddle_op("scatter")
def scatter_rows(n: LayerNode) -> Result:
    x, index, updates = (n.input(i) for i in range(3))
    index = n.reshape(index, (index.type.shape[0], 1))
    if n.attr_flag("overwrite", True):
        return n.add(scatter.ScatterNd(), x, index, updates)
    zeros = n.expand(n.const(0, x.dtype), updates.type.shape)
    cleared = n.add(scatter.ScatterNd(), x, index, zeros)
    return n.add(scatter.ScatterNd("add"), cleared, index, updates)


@paddle_op("scatter_nd_add")
def scatter_nd_add(n: LayerNode) -> Result:
    return n.add(scatter.ScatterNd("add"), n.input(0), n.input(1), n.input(2))
