"""TFLite's operators that change, join, cut and make shapes."""

from __future__ import annotations

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.limits import checked_dims
from tilesmith.frontend.common.lists import joined, listed
from tilesmith.frontend.common.options import OptionNode
from tilesmith.frontend.common.ranges import ranged
from tilesmith.frontend.common.repeating import tiled
from tilesmith.frontend.common.shaping import without_ones
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.activations import activate
from tilesmith.frontend.tflite.fixed_point import restored
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import stored_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i32
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import rules, shape, slicing
from tilesmith.ops.functions import where


def axis_input(n: OptionNode, index: int, rank: int) -> int:
    """An axis that is input number `index`, counted from the front."""
    return n.axis(int(n.scalar(n.input(index), "axis")), rank)


@stored_op("RESHAPE")
def reshape(n: TfliteNode) -> Result:
    x, wanted = n.input(0), n.optional(1)
    if wanted is not None:
        return reshaped(n, x, wanted)
    if n.operator.options is None:
        n.bad("expected a shape as input number 2 or as an option, found none")
    dims = n.options("new_shape")
    return x.reshape(*(() if dims == (0,) else dims))  # old files state a scalar's shape as [0]


def reshaped(n: OptionNode, x: Value, wanted: Value) -> Value:
    """`x` in the shape `wanted`."""
    if not n.is_known(wanted):
        return computed.reshaped(n, x, wanted, zero_is_zero=True)
    return x.reshape(*n.dims(wanted, "shape"))


@stored_op("SQUEEZE")
def squeeze(n: OptionNode) -> Result:
    x, axes = n.input(0), n.options("squeeze_dims")
    if not axes:
        return without_ones(n, x)
    return n.add(shape.Squeeze(n.axes(axes, x.type.rank)), x)


@stored_op("EXPAND_DIMS")
def expand_dims(n: OptionNode) -> Result:
    x = n.input(0)
    return n.add(shape.Unsqueeze((axis_input(n, 1, x.type.rank + 1),)), x)


@stored_op("TRANSPOSE")
def transpose(n: OptionNode) -> Result:
    x = n.input(0)
    return x.transpose(*n.axes(n.int_list(n.input(1), "perm"), x.type.rank))


@stored_op("PACK")
def pack(n: OptionNode) -> Result:
    if not n.inputs:
        n.bad("expected at least one input, found none")
    axis = n.axis(n.option("axis"), n.inputs[0].type.rank + 1)
    return n.add(slicing.Concat(axis), *(n.add(shape.Unsqueeze((axis,)), x) for x in n.inputs))


@stored_op("UNPACK")
def unpack(n: OptionNode) -> Result:
    x, count = n.input(0), n.output_count
    axis = n.axis(n.option("axis"), x.type.rank)
    dims = x.type.shape
    if not rules.equal("unpack", dims[axis], count):
        n.bad(f"expected an output for each index of axis {axis} of {x.type}, found {count}")
    parts = (n.add(slicing.Slice((i,), (i + 1,), (axis,), (1,)), x) for i in range(count))
    return tuple(p.reshape(*dims[:axis], *dims[axis + 1 :]) for p in parts)


@stored_op("CONCATENATION")
def concatenation(n: TfliteNode) -> Result:
    if not n.inputs:
        n.bad("expected at least one input, found none")
    parts = [restored(n, i) if n.is_quantized else x for i, x in enumerate(n.inputs)]
    y = n.add(slicing.Concat(n.axis(n.option("axis"), parts[0].type.rank)), *parts)
    if n.is_quantized and n.option("fused_activation_function"):
        n.unsupported("a fused activation function of quantised tensors")
    return activate(n, y)


@stored_op("SPLIT")
def split(n: OptionNode) -> Result:
    x, count = n.input(1), n.output_count
    axis = axis_input(n, 0, x.type.rank)
    what = f"an extent along axis {axis}"
    size = n.builder.divided("split", x.type.shape[axis], count, what, n.loc)
    return _parts(n, x, axis, [size] * count)


@stored_op("SPLIT_V")
def split_sizes(n: OptionNode) -> Result:
    x, wanted = n.input(0), n.input(1)
    axis = axis_input(n, 2, x.type.rank)
    extent = x.type.shape[axis]
    known = n.elements(wanted, "sizes")
    if not n.is_known(wanted):
        sizes = listed(wanted)
        is_rest = sizes.equals(-1)
        left = n.of_dims((extent,)) - where(is_rest, 0, sizes).sum((0,), keepdims=True)
        sizes = where(is_rest, left, sizes)
        return computed.parts(n, x, axis, n.measured(sizes, (), [extent] * len(known)))
    sizes = n.dims(wanted, "sizes")
    others = [d for d in sizes if not same_dim(d, -1)]
    rest = extents.difference(extent, extents.total(others))
    if len(sizes) - len(others) > 1:
        n.bad(f"sizes: expected at most one -1, found {list(sizes)}")
    return _parts(n, x, axis, [rest if same_dim(d, -1) else d for d in sizes])


def _parts(n: OptionNode, x: Value, axis: int, sizes: list[Dim]) -> tuple[Value, ...]:
    parts = n.add(slicing.Split(axis, tuple(sizes)), x)
    return parts if isinstance(parts, tuple) else (parts,)


@stored_op("TILE")
def tile(n: OptionNode) -> Result:
    x, repeats = n.input(0), n.extents(n.input(1), "repeats")
    if len(repeats) != x.type.rank or any(isinstance(r, int) and r < 0 for r in repeats):
        n.bad(f"repeats: expected {x.type.rank} numbers of 0 or more, found {list(repeats)}")
    return tiled(n, x, repeats)


@stored_op("BROADCAST_TO")
def broadcast_to(n: OptionNode) -> Result:
    if not n.is_known(n.input(1)):
        return computed.expanded(n, n.input(0), n.input(1))
    return n.input(0).expand(*checked_dims(n.dims(n.input(1), "shape"), "shape"))


@stored_op("BROADCAST_ARGS")
def broadcast_args(n: OptionNode) -> Result:
    a, b = n.input(0), n.input(1)
    if n.is_known(a) and n.is_known(b):
        dims = rules.broadcast_shapes("broadcast_args", n.dims(a, "shape"), n.dims(b, "shape"))
        return n.of_dims(dims).cast(a.dtype)
    if not a.type.rank == b.type.rank == 1:
        n.bad(f"expected two shapes, found {a.type} and {b.type}")
    short, long = sorted((a, b), key=lambda v: len(n.elements(v, "shape")))
    missing = len(n.elements(long, "shape")) - len(n.elements(short, "shape"))
    if missing:
        short = joined(n.const([1] * missing, short.dtype), short)
    return where(long.equals(1), short, long)


@stored_op("SHAPE")
def shape_of(n: OptionNode) -> Result:
    return n.of_dims(n.input(0).type.shape).cast(n.output_dtype())


@stored_op("RANK")
def rank(n: OptionNode) -> Result:
    return n.const(n.input(0).type.rank, i32)


@stored_op("FILL")
def fill(n: OptionNode) -> Result:
    dims, value = n.extents(n.input(0), "dims"), n.input(1)
    return n.expand(n.reshape(value, ()), checked_dims(dims, "dims"))


@stored_op("ZEROS_LIKE")
def zeros_like(n: OptionNode) -> Result:
    x = n.input(0)
    return n.expand(n.const(0, x.dtype), x.type.shape)


@stored_op("RANGE")
def range_of(n: OptionNode) -> Result:
    return ranged(n, [n.input(i) for i in range(3)])
