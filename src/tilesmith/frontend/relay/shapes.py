"""Relay's operators that move or select elements, or make tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.lists import joined, listed
from tilesmith.frontend.common.repeating import tiled
from tilesmith.frontend.common.shaping import (
    reversed_sequences,
    symmetrically_padded,
    without_ones,
)
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.relay.elementwise import along
from tilesmith.frontend.relay.layers import channels_second, layout_order, turned
from tilesmith.frontend.relay.node import RelayNode, relay_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i32, i64
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, rules, scatter, shape, slicing, sort

_FAR = 1 << 40
"""An index beyond every extent."""


# Shapes


@relay_op("reshape")
def reshape(n: RelayNode) -> Result:
    x, wanted = n.input(0), n.ints("newshape")
    if n.get("allowzero", False):
        n.unsupported("attribute 'allowzero'")
    if n.get("reverse", False):
        n.unsupported("attribute 'reverse'")
    return n.reshape(x, _dims(n, x.type.shape, wanted))


def _dims(n: RelayNode, own: Sequence[Dim], wanted: Sequence[int]) -> tuple[Dim, ...]:
    """The new shape of a reshape from shape `own`.

    wanted: extents, and codes that consume extents of `own` in order: 0 copies an extent, -2 copies
        all that are left, -3 multiplies two, -4 splits one into the next two numbers.  -1 is the
        extent that keeps the number of elements.
    """
    dims: list[Dim] = []
    read, rest, numbers = 0, -1, list(wanted)

    def next_dim() -> Dim:
        nonlocal read
        read += 1
        if read > len(own):
            n.bad(f"attribute 'newshape': {list(wanted)} names more than {len(own)} extents")
        return own[read - 1]

    while numbers:
        d = numbers.pop(0)
        if d == 0:
            dims.append(next_dim())
        elif d == -1:
            rest, read = len(dims), read + 1
            dims.append(1)
        elif d == -2:
            dims += own[read:]
            read = len(own)
        elif d == -3:
            dims.append(extents.product((next_dim(), next_dim())))
        elif d == -4 and len(numbers) >= 2:
            whole, first, second = next_dim(), numbers.pop(0), numbers.pop(0)
            known = second if first == -1 else first
            other = rules.divided(n.operator, whole, known, "an extent")
            dims += [other, known] if first == -1 else [known, other]
        elif d > 0:
            dims.append(d)
            read += 1
        else:
            n.bad(f"attribute 'newshape': {list(wanted)}")
    if rest >= 0:
        left = extents.quotient(extents.product(own), extents.product(dims))
        dims[rest] = n.bad(f"newshape {list(wanted)} does not fit {own}") if left is None else left
    return tuple(dims)


relay_op("dyn.reshape")(lambda n: computed.reshaped(n, n.input(0), n.input(1), False))
relay_op("reshape_like")(lambda n: n.reshape(n.input(0), n.input(1).type.shape))
relay_op("broadcast_to_like")(lambda n: n.expand(n.input(0), n.input(1).type.shape))
relay_op("broadcast_to")(lambda n: n.expand(n.input(0), n.ints("shape")))
relay_op("dyn.broadcast_to")(lambda n: n.expand(n.input(0), n.extents(n.input(1), "shape")))


@relay_op("nn.batch_flatten")
def batch_flatten(n: RelayNode) -> Result:
    x = n.input(0)
    return n.reshape(x, (x.type.shape[0], extents.product(x.type.shape[1:])))


@relay_op("expand_dims")
def expand_dims(n: RelayNode) -> Result:
    x, count = n.input(0), n.int("num_newaxis", 1)
    axis = n.axis(n.int("axis"), x.type.rank + 1)
    return n.reshape(x, (*x.type.shape[:axis], *[1] * count, *x.type.shape[axis:]))


@relay_op("squeeze")
def squeeze(n: RelayNode) -> Result:
    x = n.input(0)
    if not n.has("axis"):
        return without_ones(n, x)
    return n.add(shape.Squeeze(n.axes(n.ints("axis"), x.type.rank)), x)


@relay_op("transpose")
def transpose(n: RelayNode) -> Result:
    x = n.input(0)
    axes = n.ints("axes", ()) or tuple(reversed(range(x.type.rank)))
    return turned(x, n.axes(axes, x.type.rank))


@relay_op("layout_transform")
def layout_transform(n: RelayNode) -> Result:
    source, target = n.text("src_layout", ""), n.text("dst_layout", "")
    return turned(n.input(0), layout_order(n, source, target))


@relay_op("concatenate")
def concatenate(n: RelayNode) -> Result:
    parts = n.items()
    return n.add(slicing.Concat(n.axis(n.int("axis", 0), parts[0].type.rank)), *parts)


@relay_op("stack")
def stack(n: RelayNode) -> Result:
    parts = n.items()
    axis = n.axis(n.int("axis", 0), parts[0].type.rank + 1)
    dims = parts[0].type.shape
    apart = [n.reshape(p, (*dims[:axis], 1, *dims[axis:])) for p in parts]
    return n.add(slicing.Concat(axis), *apart)


@relay_op("split")
def split(n: RelayNode) -> Result:
    x, places = n.input(0), n.ints("indices_or_sections")
    axis = n.axis(n.int("axis", 0), x.type.rank)
    if isinstance(n.get("indices_or_sections"), int):
        size = rules.divided(n.operator, x.type.shape[axis], places[0], "an extent")
        sizes = (size,) * places[0]
    else:
        ends = (*places, x.type.shape[axis])
        sizes = tuple(extents.difference(b, a) for a, b in zip((0, *places), ends, strict=True))
    parts = n.add(slicing.Split(axis, sizes), x)
    return parts if isinstance(parts, tuple) else (parts,)


for _name, _dynamic in (("tile", False), ("dyn.tile", True)):

    @relay_op(_name)
    def tile(n: RelayNode, is_dynamic: bool = _dynamic) -> Result:
        x = n.input(0)
        counts = n.extents(n.input(1), "reps") if is_dynamic else n.ints("reps")
        rank = max(x.type.rank, len(counts))
        x = n.reshape(x, (*[1] * (rank - x.type.rank), *x.type.shape))
        return tiled(n, x, (*[1] * (rank - len(counts)), *counts))


@relay_op("repeat")
def repeat(n: RelayNode) -> Result:
    x, count = n.input(0), n.int("repeats")
    if not n.has("axis"):
        x = n.reshape(x, (extents.product(x.type.shape),))
    axis = n.axis(n.int("axis", 0), x.type.rank)
    before, (d, *after) = x.type.shape[:axis], x.type.shape[axis:]
    wide = n.expand(n.reshape(x, (*before, d, 1, *after)), (*before, d, count, *after))
    return n.reshape(wide, (*before, extents.product((d, count)), *after))


@relay_op("reverse")
def reverse(n: RelayNode) -> Result:
    x = n.input(0)
    return n.add(slicing.Flip((n.axis(n.int("axis"), x.type.rank),)), x)


@relay_op("reverse_sequence")
def reverse_sequence(n: RelayNode) -> Result:
    rank = n.input(0).type.rank
    axes = n.axis(n.int("seq_axis", 1), rank), n.axis(n.int("batch_axis", 0), rank)
    return reversed_sequences(n, n.input(0), n.input(1), *axes)


# Slices and pads


@relay_op("strided_slice")
def strided_slice(n: RelayNode) -> Result:
    x, begin, end = n.input(0), n.ints("begin"), n.ints("end")
    axes = n.axes(n.ints("axes", tuple(range(len(begin)))), x.type.rank)
    if n.text("slice_mode", "end", ("end", "size")) == "size":
        pairs = zip(begin, end, strict=True)
        end, steps = tuple(_FAR if e < 0 else b + e for b, e in pairs), (1,)
    else:
        steps = n.ints("strides", (1,))
    n.get("strides")
    steps = steps * len(begin) if len(steps) == 1 else steps
    return n.add(slicing.Slice(begin, end, axes, (*steps, *[1] * (len(begin) - len(steps)))), x)


@relay_op("dyn.strided_slice")
def dynamic_slice(n: RelayNode) -> Result:
    x, begin, end, *steps = n.inputs
    axes = tuple(range(begin.type.static_shape[0]))
    if n.text("slice_mode", "end", ("end", "size")) == "size":
        sizes = listed(end)
        end, steps = fn.where(sizes < 0, _FAR, listed(begin) + sizes), []
    known = [v for v in (begin, end, *steps) if n.is_known(v)]
    if len(known) < 2 + len(steps):
        return computed.sliced(n, x, begin, end, axes, steps[0] if steps else None)
    numbers = n.int_list(steps[0], "strides") if steps else (1,) * len(axes)
    return n.add(slicing.Slice(n.dims(begin, "begin"), n.dims(end, "end"), axes, numbers), x)


@relay_op("slice_like")
def slice_like(n: RelayNode) -> Result:
    x, like = n.inputs
    axes = n.axes(n.ints("axes", ()), x.type.rank) or tuple(range(like.type.rank))
    ends = tuple(like.type.shape[a] for a in axes)
    return n.add(slicing.Slice((0,) * len(axes), ends, axes, (1,) * len(axes)), x)


@relay_op("nn.pad", "nn.mirror_pad")
def pad(n: RelayNode) -> Result:
    x, widths = n.input(0), n.get("pad_width", ())
    pairs = all(isinstance(w, tuple) and len(w) == 2 for w in widths)
    if not pairs or len(widths) != x.type.rank:
        n.bad(f"attribute 'pad_width': expected {x.type.rank} pairs, found {widths!r}")
    pads = (*(w[0] for w in widths), *(w[1] for w in widths))
    if n.operator == "nn.mirror_pad":
        mode = n.text("mode", "SYMMETRIC", ("REFLECT", "SYMMETRIC"))
        if mode == "SYMMETRIC":
            return symmetrically_padded(n, x, pads)
        return n.add(slicing.Pad(pads, "reflect"), x)
    mode = n.text("pad_mode", "constant", ("constant", "edge", "reflect"))
    value = n.get("pad_value", 0.0) if len(n.slots) < 2 else n.scalar(n.input(1), "the pad value")
    return n.add(slicing.Pad(pads, mode, x.dtype.numpy.type(value).item()), x)


@relay_op("dyn.nn.pad")
def dynamic_pad(n: RelayNode) -> Result:
    x, widths, value = n.inputs
    mode = n.text("pad_mode", "constant", ("constant", "edge", "reflect"))
    pads = listed(widths.transpose(1, 0))
    return computed.padded(n, x, pads, tuple(range(x.type.rank)), mode, n.reshape(value, ()))


def _blocks(n: RelayNode, make: Callable[..., Any]) -> Result:
    x, back = channels_second(n, n.input(0))
    return turned(n.add(make(n.int("block_size"), *_mode(n)), x), back)


def _mode(n: RelayNode) -> tuple[str, ...]:
    return (n.text("mode", "DCR"),) if n.operator == "nn.depth_to_space" else ()


relay_op("nn.depth_to_space")(partial(_blocks, make=shape.DepthToSpace))
relay_op("nn.space_to_depth")(partial(_blocks, make=shape.SpaceToDepth))


# Tensors of given shapes


def _filled(n: RelayNode, number: Value | float, dims: Sequence[Dim], like: Value | None) -> Value:
    dtype = n.dtype("dtype", f32 if like is None else like.dtype)
    value = number.cast(dtype) if isinstance(number, Value) else n.const(number, dtype)
    return n.expand(n.reshape(value, ()), dims)


for _name, _number in (("zeros", 0), ("ones", 1)):
    relay_op(_name)(lambda n, v=_number: _filled(n, v, n.ints("shape"), None))
    relay_op(f"dyn.{_name}")(
        lambda n, v=_number: _filled(n, v, n.extents(n.input(0), "shape"), None)
    )
    relay_op(f"{_name}_like")(lambda n, v=_number: _filled(n, v, n.input(0).type.shape, n.input(0)))
relay_op("full")(lambda n: _filled(n, n.input(0), n.ints("shape", ()), n.input(0)))
relay_op("dyn.full")(lambda n: _filled(n, n.input(0), n.extents(n.input(1), "shape"), n.input(0)))
relay_op("full_like")(lambda n: _filled(n, n.input(1), n.input(0).type.shape, n.input(0)))
relay_op("shape_of", "vm.shape_of")(
    lambda n: n.of_dims(n.input(0).type.shape).cast(n.dtype("dtype", i32))
)
relay_op("ndarray_size")(
    lambda n: n.of_dims((extents.product(n.input(0).type.shape),), ()).cast(n.dtype("dtype", i32))
)


@relay_op("arange")
def arange(n: RelayNode) -> Result:
    start, _, step = n.inputs
    dtype = n.dtype("dtype", start.dtype)
    if not start.dtype.is_int:
        first, last, by = (n.scalar(v, "a bound") for v in n.inputs)
        count: Dim = max(-int((first - last) // by), 0)
        return n.positions(count).cast(dtype) * n.reshape(step, ()) + n.reshape(start, ())
    begin, end, by = (n.one_extent(v.cast(i64), "a bound") for v in n.inputs)
    length = extents.difference(end, begin)
    if not same_dim(by, 1):
        length = -(
            -rules.static(n.operator, length, "a length") // rules.static(n.operator, by, "a step")
        )
    numbers = n.positions(extents.larger(length, 0)) * by + n.of_dims((begin,), ())
    return numbers.cast(dtype)


# Elements at indices


@relay_op("take")
def take(n: RelayNode) -> Result:
    x, places = n.inputs
    if not n.has("axis"):
        x = n.reshape(x, (extents.product(x.type.shape),))
    axis, batch = n.axis(n.int("axis", 0), x.type.rank), n.int("batch_dims", 0)
    mode = n.text("mode", "clip", ("clip", "wrap", "fast"))
    if batch:
        n.unsupported("attribute 'batch_dims'")
    places = places.cast(i64)
    if mode == "clip":  # a negative index becomes 0
        last = n.of_dims((extents.difference(x.type.shape[axis], 1),), ())
        places = fn.clamp(places, 0, last)
    elif mode == "wrap":
        places = places % n.of_dims((x.type.shape[axis],), ())
    return n.add(gather.Gather(axis), x, places)


@relay_op("gather")
def gather_elements(n: RelayNode) -> Result:
    x, places = n.inputs
    return n.add(gather.GatherElements(n.axis(n.int("axis"), x.type.rank)), x, places)


def _tuples(places: Value) -> Value:
    """Index tuples moved from the first axis, where TVM has them, to the last."""
    return places.transpose(*range(1, places.type.rank), 0)


@relay_op("gather_nd")
def gather_nd(n: RelayNode) -> Result:
    x, places = n.inputs
    n.get("index_rank")
    return n.add(gather.GatherNd(n.int("batch_dims", 0)), x, _tuples(places))


@relay_op("one_hot", "dyn.one_hot")
def one_hot(n: RelayNode) -> Result:
    places, on, off, *depth = n.inputs
    dtype = n.dtype("dtype", f32)
    count: Dim = n.one_extent(depth[0], "depth") if depth else n.int("depth")
    values = joined(listed(off, dtype), listed(on, dtype))
    return n.add(gather.OneHot(count, n.int("axis", -1)), places, values)


def _scatter(n: RelayNode, reduction: str = "") -> Result:
    axis = n.axis(n.int("axis", 0), n.input(0).type.rank)
    return n.add(scatter.ScatterElements(axis, reduction or _reduction(n, "reduction")), *n.inputs)


def _reduction(n: RelayNode, name: str) -> str:
    """Tilesmith's name of the reduction that attribute `name` of a scatter states."""
    mode = n.text(name, "update", ("update", "add", "mul", "min", "max"))
    return {"update": "none"}.get(mode, mode)


relay_op("scatter_elements")(_scatter)
relay_op("scatter")(partial(_scatter, reduction="none"))
relay_op("scatter_add")(partial(_scatter, reduction="add"))


@relay_op("scatter_nd")
def scatter_nd(n: RelayNode) -> Result:
    x, places, updates = n.inputs
    return n.add(scatter.ScatterNd(_reduction(n, "mode")), x, _tuples(places), updates)


relay_op("argwhere")(lambda n: n.places(n.input(0)).transpose(1, 0).cast(i32))


@relay_op("topk", "dyn.topk")
def topk(n: RelayNode) -> Result:
    x = n.input(0)
    axis = n.axis(n.int("axis", -1), x.type.rank)
    k: Dim = n.int("k", 1) if len(n.slots) < 2 else n.one_extent(n.input(1), "k")
    k = x.type.shape[axis] if isinstance(k, int) and k < 1 else k
    values, places = n.add(sort.TopK(k, axis, not n.get("is_ascend", False)), x)
    places = places.cast(n.dtype("dtype", i32))
    kind = n.text("ret_type", "both", ("both", "values", "indices"))
    return {"both": (values, places), "values": values, "indices": places}[kind]


@relay_op("sort", "argsort")
def sorted_(n: RelayNode) -> Result:
    x = n.input(0)
    axis = n.axis(n.int("axis", -1), x.type.rank)
    op = sort.TopK(x.type.shape[axis], axis, not n.get("is_ascend", True))
    values, places = n.add(op, x)
    return values if n.operator == "sort" else places.cast(n.dtype("dtype", i32))


@relay_op("meshgrid")
def meshgrid(n: RelayNode) -> Result:
    lists, rank = n.items(), len(n.items())
    order = [*range(rank)]
    if n.text("indexing", "ij", ("ij", "xy")) == "xy":
        order[:2] = order[:2][::-1]
    dims: list[Dim] = [1] * rank
    for v, axis in zip(lists, order, strict=True):
        dims[axis] = extents.product(v.type.shape)
    pairs = zip(lists, order, strict=True)
    return tuple(n.expand(along(n, v, axis, rank), dims) for v, axis in pairs)


@relay_op("sequence_mask")
def sequence_mask(n: RelayNode) -> Result:
    x, lengths = n.inputs
    axis = n.axis(n.int("axis", 0), 2)
    place = n.positions(x.type.shape[axis], x.type.rank, axis)
    inside = place < along(n, lengths.cast(i64), 1 - axis, x.type.rank)
    return fn.where(inside, x, n.const(n.get("mask_value", 0.0), x.dtype))


@relay_op("trilu")
def trilu(n: RelayNode) -> Result:
    k = n.one_extent(n.input(1), "k") if len(n.slots) > 1 else 0
    return n.add(gather.Trilu(n.get("upper", True), k), n.input(0))
