"""MXNet's operators that change, join, cut and make tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tilesmith.frontend.common.limits import checked_dims
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.repeating import tiled
from tilesmith.frontend.common.shaping import without_ones
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.mxnet.registry import dtype_of, is_listed, mxnet_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim
from tilesmith.ops import shape, slicing


@mxnet_op("Flatten", "flatten", "_npx_batch_flatten")
def flatten(n: LayerNode) -> Result:
    x = n.input()
    return n.reshape(x, (x.type.shape[0], extents.product(x.type.shape[1:])))


@mxnet_op("Reshape", "reshape")
def reshape(n: LayerNode) -> Result:
    x, codes = n.input(), n.attr_ints("shape", ())
    if not codes:  # the oldest form of Reshape
        codes = n.attr_ints("target_shape")
        if n.attr_flag("keep_highest", False):
            codes = (0, *codes[1:])
        elif codes and not codes[0]:
            codes = (-1, *codes[1:])
    dims = x.type.shape
    if not n.attr_flag("reverse", False):
        return n.reshape(x, coded(n, dims, codes))
    if -4 in codes:
        n.unsupported("the code -4 from the end")
    return n.reshape(x, coded(n, dims[::-1], codes[::-1])[::-1])


def coded(n: LayerNode, dims: Sequence[Dim], codes: Sequence[int]) -> tuple[Dim, ...]:
    """The shape that MXNet's codes make of `dims`, whose extents they consume in order.

    0 copies an extent, -2 copies all extents that are left, -3 multiplies two, -4 splits one into
    the next two numbers.  -1 is the extent that keeps the number of elements.
    """
    result: list[Dim | None] = []
    left, pending = list(dims), list(codes)
    while pending:
        code = pending.pop(0)
        counts = {-2: len(left), -3: 2}
        taken = left[: counts.get(code, 1)]
        del left[: len(taken)]
        if code == -4:
            first, second = pending.pop(0), pending.pop(0)
            known = second if first == -1 else first
            other = n.builder.divided("reshape", taken[0], known, "an extent to split", n.loc)
            result += [other, second] if first == -1 else [first, other if second == -1 else second]
        elif code in (0, -2):
            if code == 0 and not taken:
                n.bad(f"shape {list(codes)}: expected {len(codes)} axes, found {list(dims)}")
            result += taken
        elif code == -3:
            result.append(extents.product(taken))
        elif code == -1:
            result.append(None)
        else:
            result.append(code)
    return filled(n, dims, result)


def filled(n: LayerNode, dims: Sequence[Dim], wanted: Sequence[Dim | None]) -> tuple[Dim, ...]:
    """The shape `wanted` of a tensor with as many elements as `dims`.

    None stands for the extent that keeps the number of elements.
    """
    if None not in wanted:
        return tuple(d for d in wanted if d is not None)
    others = extents.product([d for d in wanted if d is not None])
    rest = extents.quotient(extents.product(dims), others)
    if rest is None or sum(d is None for d in wanted) > 1:
        n.bad(f"expected one open extent that divides {list(dims)}, found {list(wanted)}")
    return tuple(rest if d is None else d for d in wanted)


@mxnet_op("_np_reshape", "_npi_reshape", "_npx_reshape")
def numpy_reshape(n: LayerNode) -> Result:
    x, wanted = n.input(), n.attr_ints("newshape")
    if any(d < -1 for d in wanted):
        if n.layer.kind != "_npx_reshape":
            n.bad(f"newshape: expected numbers of -1 or more, found {list(wanted)}")
        codes = {-1: -1, -2: 0, -4: -2, -5: -3, -6: -4}
        if n.attr_flag("reverse", False) or not all(d >= 0 or d in codes for d in wanted):
            n.unsupported(f"newshape {list(wanted)}")
        return n.reshape(x, coded(n, x.type.shape, [codes.get(d, d) for d in wanted]))
    return n.reshape(x, filled(n, x.type.shape, [None if d < 0 else d for d in wanted]))


@mxnet_op("reshape_like", "_npx_reshape_like")
def reshape_like(n: LayerNode) -> Result:
    x, like = n.input(0), n.input(1)
    parts = []
    for side, v in (("lhs", x), ("rhs", like)):
        ends = (n.attr_int(f"{side}_begin", 0), n.attr_int(f"{side}_end", v.type.rank))
        parts.append(slice(*(e + v.type.rank if e < 0 else e for e in ends)))
    dims, new = x.type.shape, like.type.shape[parts[1]]
    return n.reshape(x, (*dims[: parts[0].start], *new, *dims[parts[0].stop :]))


@mxnet_op("transpose", "_np_transpose")
def transpose(n: LayerNode) -> Result:
    x = n.input()
    axes = n.attr_ints("axes") if is_listed(n, "axes") else tuple(reversed(range(x.type.rank)))
    return x.transpose(*n.axes(axes, x.type.rank))


@mxnet_op("SwapAxis", "swapaxes", "_npi_swapaxes")
def swap_axes(n: LayerNode) -> Result:
    x = n.input()
    order = list(range(x.type.rank))
    a, b = (n.axis(n.attr_int(name, 0), x.type.rank) for name in ("dim1", "dim2"))
    order[a], order[b] = b, a
    return x.transpose(*order)


@mxnet_op("expand_dims", "_npi_expand_dims")
def expand_dims(n: LayerNode) -> Result:
    x = n.input()
    return n.add(shape.Unsqueeze((n.axis(n.attr_int("axis"), x.type.rank + 1),)), x)


@mxnet_op("squeeze", "_np_squeeze")
def squeeze(n: LayerNode) -> Result:
    x = n.input()
    if not is_listed(n, "axis"):
        return without_ones(n, x)
    return n.add(shape.Squeeze(n.axes(n.attr_ints("axis"), x.type.rank)), x)


@mxnet_op("depth_to_space", "space_to_depth")
def blocks(n: LayerNode) -> Result:
    make = {"depth_to_space": shape.DepthToSpace, "space_to_depth": shape.SpaceToDepth}
    return n.add(make[n.layer.kind](n.attr_int("block_size", low=1)), n.input())


# Joining and cutting


@mxnet_op("Concat", "concat", "_npi_concatenate", "_rnn_param_concat", "_npi_rnn_param_concat")
def concat(n: LayerNode) -> Result:
    axis = n.attr_int("axis", 0) if n.layer.kind == "_npi_concatenate" else n.attr_int("dim", 1)
    parts = n.inputs
    if not parts:
        n.bad("expected at least one input, found none")
    return n.add(slicing.Concat(n.axis(axis, parts[0].type.rank)), *parts)


@mxnet_op("stack", "_npi_stack")
def stack(n: LayerNode) -> Result:
    parts = n.inputs
    if not parts:
        n.bad("expected at least one input, found none")
    axis = n.axis(n.attr_int("axis", 0), parts[0].type.rank + 1)
    return n.add(slicing.Concat(axis), *(n.add(shape.Unsqueeze((axis,)), x) for x in parts))


@mxnet_op("SliceChannel", "split")
def slice_channel(n: LayerNode) -> Result:
    x, count = n.input(), n.attr_int("num_outputs", low=1)
    axis = n.axis(n.attr_int("axis", 1), x.type.rank)
    each = n.builder.divided("split", x.type.shape[axis], count, "an extent to split", n.loc)
    return _parts(n, x, axis, [each] * count, n.attr_flag("squeeze_axis", False))


@mxnet_op("_split_v2", "_npi_split")
def split(n: LayerNode) -> Result:
    x = n.input()
    axis = n.axis(n.attr_int("axis", 0), x.type.rank)
    squeezes = n.attr_flag("squeeze_axis", False)
    if count := n.attr_int("sections", 0):
        each = n.builder.divided("split", x.type.shape[axis], count, "an extent to split", n.loc)
        return _parts(n, x, axis, [each] * count, squeezes)
    starts = [*n.attr_ints("indices"), x.type.shape[axis]]
    if starts[0] != 0:
        starts.insert(0, 0)
    sizes = [extents.difference(b, a) for a, b in pairwise(starts)]
    return _parts(n, x, axis, sizes, squeezes)


def _parts(n: LayerNode, x: Value, axis: int, sizes: Sequence[Dim], squeezes: bool) -> Result:
    made = n.add(slicing.Split(axis, tuple(sizes)), x)
    parts = made if isinstance(made, tuple) else (made,)
    return tuple(n.add(shape.Squeeze((axis,)), p) for p in parts) if squeezes else parts


_FAR = 1 << 31


@mxnet_op("slice", "crop", "_npi_slice", "_npx_slice")
def slice_of(n: LayerNode) -> Result:
    x = n.input()
    begins, ends, steps = (_entries(n, a) for a in ("begin", "end", "step"))
    steps = [s or 1 for s in (*steps, *[1] * (len(begins) - len(steps)))]
    starts = [b if b is not None else (0 if s > 0 else _FAR)
              for b, s in zip(begins, steps, strict=True)]  # fmt: skip
    stops = [e if e is not None else (_FAR if s > 0 else -_FAR)
             for e, s in zip(ends, steps, strict=True)]  # fmt: skip
    axes = tuple(range(len(starts)))
    return n.add(slicing.Slice(tuple(starts), tuple(stops), axes, tuple(steps)), x)


def _entries(n: LayerNode, name: str) -> list[int | None]:
    """An attribute with a list of integers.  None stands for a number that is left out."""
    stated = n.layer.attributes.get(name, ())
    entries = list(stated) if isinstance(stated, tuple) else [stated]
    if not all(e is None or isinstance(e, int) for e in entries):
        n.bad(f"attribute {name!r}: expected integers, found {stated!r}")
    return entries


@mxnet_op("slice_axis")
def slice_axis(n: LayerNode) -> Result:
    x = n.input()
    axis = n.axis(n.attr_int("axis"), x.type.rank)
    op = slicing.Slice((n.attr_int("begin"),), (n.attr_int("end", _FAR),), (axis,), (1,))
    return n.add(op, x)


@mxnet_op("slice_like")
def slice_like(n: LayerNode) -> Result:
    x, like = n.input(0), n.input(1)
    rank = x.type.rank
    axes = n.axes(n.attr_ints("axes"), rank) if is_listed(n, "axes") else tuple(range(rank))
    ends = tuple(like.type.shape[a] for a in axes)
    return n.add(slicing.Slice((0,) * len(axes), ends, axes, (1,) * len(axes)), x)


@mxnet_op("Crop")
def crop(n: LayerNode) -> Result:
    """Crop images to the size of another image, or to a given size."""
    x = n.input()
    like = n.optional(1)
    sizes: Sequence[Dim] = n.attr_ints("h_w") if like is None else like.type.shape[2:]
    starts: Sequence[Dim] = n.attr_ints("offset", (0, 0))
    if n.attr_flag("center_crop", False):
        rooms = map(extents.difference, x.type.shape[2:], sizes)
        starts = [as_dim(as_expr(room) // 2) for room in rooms]
    ends = tuple(extents.total(p) for p in zip(starts, sizes, strict=True))
    return n.add(slicing.Slice(tuple(starts), ends, (2, 3), (1, 1)), x)


@mxnet_op("Pad", "pad")
def pad(n: LayerNode) -> Result:
    widths = n.attr_ints("pad_width")
    mode = n.attr_string("mode", among=("constant", "edge", "reflect"))
    op = slicing.Pad((*widths[::2], *widths[1::2]), mode, n.attr_float("constant_value", 0.0))
    return n.add(op, n.input())


@mxnet_op("tile", "_npi_tile")
def tile(n: LayerNode) -> Result:
    x, reps = n.input(), n.attr_ints("reps")
    rank = max(len(reps), x.type.rank)
    x = n.reshape(x, (*[1] * (rank - x.type.rank), *x.type.shape))
    return tiled(n, x, (*[1] * (rank - len(reps)), *reps))


@mxnet_op("repeat", "_np_repeat")
def repeat(n: LayerNode) -> Result:
    x, count = n.input(), n.attr_int("repeats", low=0)
    if not n.has("axis"):
        x = n.reshape(x, (extents.product(x.type.shape),))
    axis = n.axis(n.attr_int("axis", 0), x.type.rank)
    before, extent, after = x.type.shape[:axis], x.type.shape[axis], x.type.shape[axis + 1 :]
    wide = n.expand(n.reshape(x, (*before, extent, 1, *after)), (*before, extent, count, *after))
    return n.reshape(wide, (*before, extents.product((extent, count)), *after))


@mxnet_op("reverse", "flip", "_npi_flip")
def reverse(n: LayerNode) -> Result:
    x = n.input()
    return n.add(slicing.Flip(n.axes(n.attr_ints("axis"), x.type.rank)), x)


# Broadcasting


@mxnet_op("broadcast_axis", "broadcast_axes")
def broadcast_axis(n: LayerNode) -> Result:
    x = n.input()
    dims = list(x.type.shape)
    axes = n.axes(n.attr_ints("axis"), x.type.rank)
    for axis, size in zip(axes, n.attr_ints("size"), strict=True):
        dims[axis] = size
    return n.expand(x, dims)


@mxnet_op("broadcast_to", "_npi_broadcast_to")
def broadcast_to(n: LayerNode) -> Result:
    x, wanted = n.input(), n.attr_ints("shape")
    own = (*[1] * (len(wanted) - x.type.rank), *x.type.shape)
    return n.expand(x, checked_dims((w or d for w, d in zip(wanted, own, strict=True)), "shape"))


@mxnet_op("broadcast_like")
def broadcast_like(n: LayerNode) -> Result:
    x, like = n.input(0), n.input(1)
    if not is_listed(n, "lhs_axes"):
        return n.expand(x, like.type.shape)
    dims = list(x.type.shape)
    pairs = zip(n.attr_ints("lhs_axes"), n.attr_ints("rhs_axes"), strict=True)
    for a, b in pairs:
        dims[n.axis(a, x.type.rank)] = like.type.shape[n.axis(b, like.type.rank)]
    return n.expand(x, dims)


# Tensors made from attributes


@mxnet_op("_zeros", "_npi_zeros", "_ones", "_npi_ones", "_full", "_npi_full")
def full(n: LayerNode) -> Result:
    value = n.attr_float("value") if "full" in n.layer.kind else float("ones" in n.layer.kind)
    # MXNet infers an extent of 0.  Here it becomes 1, which broadcasts to any extent.
    dims = [d or 1 for d in n.attr_ints("shape")]
    return n.expand(n.const(value, dtype_of(n)), checked_dims(dims, "shape"))


@mxnet_op("zeros_like", "ones_like")
def like(n: LayerNode) -> Result:
    x = n.input()
    return n.expand(n.const(int(n.layer.kind == "ones_like"), x.dtype), x.type.shape)


@mxnet_op("_arange", "_npi_arange")
def arange(n: LayerNode) -> Result:
    start, step, repeats = (
        n.attr_float("start", 0.0),
        n.attr_float("step", 1.0),
        n.attr_int("repeat", 1, low=1),
    )
    if not n.has("stop"):
        start, stop = (0.0, start) if not n.attr_flag("infer_range", False) else (start, math.nan)
    else:
        stop = n.attr_float("stop")
    if not math.isfinite(stop):
        n.unsupported("a range whose end follows from other shapes")
    count = max(math.ceil((stop - start) / step), 0)
    checked_dims((count, repeats), "the range")
    numbers = np.repeat(np.arange(count) * step + start, repeats)
    return n.const(numbers.astype(dtype_of(n).numpy))


@mxnet_op("_contrib_arange_like", "_npx_arange_like")
def arange_like(n: LayerNode) -> Result:
    x = n.input()
    if n.attr_int("repeat", 1) != 1:
        n.unsupported("repeated numbers")
    dims = (
        (x.type.shape[n.axis(n.attr_int("axis"), x.type.rank)],) if n.has("axis") else x.type.shape
    )
    numbers = n.positions(extents.product(dims)).cast(f32)
    return n.reshape(numbers * n.attr_float("step", 1.0) + n.attr_float("start", 0.0), dims)


@mxnet_op("shape_array", "_npx_shape_array")
def shape_array(n: LayerNode) -> Result:
    return n.of_dims(n.input().type.shape)


@mxnet_op("size_array")
def size_array(n: LayerNode) -> Result:
    return n.of_dims((extents.product(n.input().type.shape),)).cast(i64)
