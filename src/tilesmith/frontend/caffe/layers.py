"""Import functions of Caffe's layers, which translate them to Tilesmith's operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from tilesmith.frontend.common import pools
from tilesmith.frontend.common.networks import LayerNode, Layers
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import Geometry, add_bias, convolve, geometry
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim
from tilesmith.ops import activation as act
from tilesmith.ops import conv as cv
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, norm, pool, resize, shape, slicing, sort
from tilesmith.ops import matmul as mm
from tilesmith.ops.base import Op

LAYERS: Layers = Layers()
"""Caffe's layers by type."""

caffe_layer = LAYERS.register


def spread(x: Value, of: Value, axis: int) -> Value:
    """`x` reshaped to broadcast with `of`: its first axis is aligned with `axis` of `of`."""
    after = of.type.rank - axis - x.type.rank
    return x.reshape(*[1] * axis, *x.type.shape, *[1] * after)


def part(n: LayerNode, x: Value, axis: int, start: Dim, end: Dim) -> Value:
    """`x[start:end]` along an axis."""
    return n.add(slicing.Slice((start,), (end,), (axis,), (1,)), x)


def _flat_from(n: LayerNode, x: Value, axis: int) -> Value:
    """`x` with `axis` and all later axes joined to one axis."""
    dims = x.type.shape
    return n.reshape(x, (*dims[:axis], extents.product(dims[axis:])))


# Elements


def _same(kind: str, make: Callable[[LayerNode], Op]) -> None:
    caffe_layer(kind)(lambda n: n.add(make(n), n.input()))


_same("AbsVal", lambda n: ew.Abs())
_same("BNLL", lambda n: act.Softplus())
_same("Clip", lambda n: ew.Clip(n.attr_float("min"), n.attr_float("max")))
_same("ELU", lambda n: act.Elu(n.attr_float("alpha", 1)))
_same("ReLU6", lambda n: ew.Clip(0.0, 6.0))
_same("Sigmoid", lambda n: act.Sigmoid())
_same("Swish", lambda n: act.Silu(n.attr_float("beta", 1)))
_same("TanH", lambda n: ew.Tanh())


@caffe_layer("Dropout", "Split", "Silence")
def copies(n: LayerNode) -> Result:
    """The input, once for each output.  In the test phase, dropout keeps all elements."""
    return (n.input(),) * len(n.layer.outputs)


@caffe_layer("ReLU")
def relu(n: LayerNode) -> Result:
    slope = n.attr_float("negative_slope", 0)
    return n.add(act.LeakyRelu(slope) if slope else act.Relu(), n.input())


@caffe_layer("PReLU")
def prelu(n: LayerNode) -> Result:
    x, slope = n.input(), n.weight(0, (-1,))
    return n.add(act.PRelu(), x, spread(slope, x, min(1, x.type.rank - 1)))


def _line(n: LayerNode, x: Value) -> Value:
    scale, shift = n.attr_float("scale", 1), n.attr_float("shift", 0)
    x = x * scale if scale != 1 else x
    return x + shift if shift else x


def _log_of_base(n: LayerNode) -> float:
    base = n.attr_float("base", -1)
    if base != -1 and (base <= 0 or base == 1):
        n.bad(f"base: expected -1 or a number above 0 other than 1, found {base}")
    return 1.0 if base == -1 else math.log(base)


@caffe_layer("Power")
def power(n: LayerNode) -> Result:
    exponent = n.attr_float("power", 1)
    y = _line(n, n.input())
    return y if exponent == 1 else y * y if exponent == 2 else y**exponent


@caffe_layer("Exp")
def exp(n: LayerNode) -> Result:
    return fn.exp(_line(n, n.input()) * _log_of_base(n))


@caffe_layer("Log")
def log(n: LayerNode) -> Result:
    return fn.log(_line(n, n.input())) / _log_of_base(n)


@caffe_layer("Threshold")
def threshold(n: LayerNode) -> Result:
    return (n.input() > n.attr_float("threshold", 0)).cast(f32)


@caffe_layer("Eltwise")
def eltwise(n: LayerNode) -> Result:
    operation = n.attr_string("operation", "SUM", ("PROD", "SUM", "MAX"))
    inputs, factors = n.inputs, n.attr_floats("coeff", ())
    if factors and (operation != "SUM" or len(factors) != len(inputs)):
        n.bad(f"coeff: expected a number for each input of a sum, found {list(factors)}")
    result: Value | None = None
    for i, x in enumerate(inputs):
        x = x * factors[i] if factors and factors[i] != 1 else x
        if result is None:
            result = x
        elif operation == "SUM":
            result = result + x
        else:
            result = result * x if operation == "PROD" else fn.maximum(result, x)
    return result


def _operand(n: LayerNode, x: Value, number: int = 0) -> Value:
    """The factor or addend of Scale or Bias: the second input, or stored blob `number`."""
    if len(n.slots) > 1:
        operand = n.input(1)
        return spread(
            operand, x, n.axis(n.attr_int("axis", 1), x.type.rank) if operand.type.rank else 0
        )
    axis, count = n.axis(n.attr_int("axis", 1), x.type.rank), n.attr_int("num_axes", 1, -1)
    dims = x.type.shape[axis:] if count == -1 else x.type.shape[axis : axis + count]
    return spread(n.weight(number, dims), x, axis if dims else 0)


@caffe_layer("Scale")
def scale(n: LayerNode) -> Result:
    x = n.input()
    y = x * _operand(n, x)
    if not n.attr_flag("bias_term", False):
        return y
    if len(n.slots) > 1:
        bias = n.weight(0, n.input(1).type.shape)
        return y + spread(bias, x, n.axis(n.attr_int("axis", 1), x.type.rank))
    return y + _operand(n, x, 1)


@caffe_layer("Bias")
def bias(n: LayerNode) -> Result:
    return n.input() + _operand(n, n.input())


@caffe_layer("Axpy")
def axpy(n: LayerNode) -> Result:
    """a * x + y, with a number in `a` for each channel."""
    a, x, y = n.inputs
    return spread(n.reshape(a, a.type.shape[:2]), x, 0) * x + y


# Windows


def _sizes(n: LayerNode, name: str, default: int | None = None) -> Sequence[int]:
    """The sizes that `name` states for spatial axes, as `name_h` and `name_w` or as a list."""
    stem = name.removesuffix("_size")
    if n.has(f"{stem}_h") or n.has(f"{stem}_w"):
        return n.attr_int(f"{stem}_h", default), n.attr_int(f"{stem}_w", default)
    return n.attr_ints(name, () if default is None else (default,)) or (default or 0,)


def _window(n: LayerNode, x: Value) -> Geometry:
    kernel, strides = _sizes(n, "kernel_size"), _sizes(n, "stride", 1)
    pads, dilations = _sizes(n, "pad", 0), _sizes(n, "dilation", 1)
    return geometry(n, x, *(v[0] if len(v) == 1 else v for v in (kernel, strides, pads, dilations)))


def _filters(n: LayerNode) -> tuple[Value, Geometry, Value | None, int, int]:
    x, count, groups = n.input(), n.attr_int("num_output", low=1), n.attr_int("group", 1, 1)
    if n.attr_int("axis", 1) not in (1, 1 - x.type.rank):
        n.unsupported("channels along another axis than 1")
    bias = n.weight(1, (count,)) if n.attr_flag("bias_term", True) else None
    return x, _window(n, x), bias, count, groups


@caffe_layer("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution")
def convolution(n: LayerNode) -> Result:
    x, g, bias, count, groups = _filters(n)
    if "epthwise" in n.layer.kind:
        groups = n.extent(x, 1)
    w = n.weight(0, (count, n.extent(x, 1) // groups, *g.kernel))
    return add_bias(n, convolve(n, x, w, g, groups), bias)


@caffe_layer("Deconvolution")
def deconvolution(n: LayerNode) -> Result:
    x, g, bias, count, groups = _filters(n)
    w = n.weight(0, (n.extent(x, 1), count // groups, *g.kernel))
    pads = tuple(p for p in g.pads if isinstance(p, int))
    return add_bias(n, n.add(cv.ConvTranspose(g.strides, pads, g.dilations, groups), x, w), bias)


_KINDS: dict[str, pools.Kind] = {"MAX": "max", "AVE": "average"}


def _kind(n: LayerNode) -> pools.Kind:
    """The kind of a pool."""
    name = n.attr_string("pool", "MAX", (*_KINDS, "STOCHASTIC"))
    return _KINDS.get(name) or n.unsupported("a stochastic pool")


@caffe_layer("Pooling")
def pooling(n: LayerNode) -> Result:
    x, kind = n.input(), _kind(n)
    if n.attr_flag("global_pooling", False):
        y = pools.global_pool(n, x, kind)
        return y if len(n.layer.outputs) < 2 else n.unsupported("the places of global maxima")
    g = _window(n, x)
    floors = n.attr_string("round_mode", "CEIL", ("CEIL", "FLOOR")) == "FLOOR"
    floors = floors or not n.attr_flag("ceil_mode", True)
    # Caffe also keeps windows that start after the end, if there is no padding
    rounding = "floor" if floors else "ceil" if any(g.pads) else "full"
    y = pools.pooled(n, x, kind, g, rounding, counts_padding=True)
    if len(n.layer.outputs) < 2:
        return y
    op = pool.MaxPlaces(g.kernel, g.strides, g.pads, (), not floors, in_plane=True)
    return y, n.add(op, x, y).cast(f32)


@caffe_layer("SPP")
def spatial_pyramid(n: LayerNode) -> Result:
    x, kind = n.input(), _kind(n)
    parts = []
    for level in range(n.attr_int("pyramid_height", low=1)):
        bins, sizes = 1 << level, n.shape(x)[2:]
        kernel = tuple(-(-s // bins) for s in sizes)
        pads = tuple((k * bins - s + 1) // 2 for k, s in zip(kernel, sizes, strict=True))
        g = geometry(n, x, kernel, kernel, pads)
        parts.append(_flat_from(n, pools.pooled(n, x, kind, g, "ceil", counts_padding=True), 1))
    return n.add(slicing.Concat(1), *parts)


@caffe_layer("LRN")
def lrn(n: LayerNode) -> Result:
    x, size = n.input(), n.attr_int("local_size", 5, 1)
    alpha, beta = n.attr_float("alpha", 1), n.attr_float("beta", 0.75)
    if size % 2 == 0:
        n.bad(f"local_size: expected an odd number, found {size}")
    if n.attr_string("norm_region", "ACROSS_CHANNELS") == "ACROSS_CHANNELS":
        return n.add(norm.Lrn(size, alpha, beta, n.attr_float("k", 1)), x)
    g = geometry(n, x, size, 1, size // 2)
    squares = pools.pooled(n, x * x, "average", g, counts_padding=True)
    return x * (squares * alpha + 1) ** -beta


# Products and statistics


@caffe_layer("InnerProduct")
def inner_product(n: LayerNode) -> Result:
    x, count = n.input(), n.attr_int("num_output", low=1)
    x = _flat_from(n, x, n.axis(n.attr_int("axis", 1), x.type.rank))
    is_transposed = n.attr_flag("transpose", False)
    w = n.weight(0, (x.type.shape[-1], count) if is_transposed else (count, x.type.shape[-1]))
    y = n.add(mm.MatMul(transpose_b=not is_transposed), x, w)
    return y + n.weight(1, (count,)) if n.attr_flag("bias_term", True) else y


@caffe_layer("Embed")
def embed(n: LayerNode) -> Result:
    count, places = n.attr_int("num_output", low=1), n.attr_int("input_dim", low=1)
    y = n.add(gather.Gather(0), n.weight(0, (places, count)), n.input().cast(i64))
    return y + n.weight(1, (count,)) if n.attr_flag("bias_term", True) else y


@caffe_layer("BatchNorm")
def batch_norm(n: LayerNode) -> Result:
    x, eps = n.input(), n.attr_float("eps", 1e-5)
    if not n.attr_flag("use_global_stats", True):
        axes = (0, *range(2, x.type.rank))
        centred = x - x.mean(axes, keepdims=True)
        return centred / fn.sqrt((centred * centred).mean(axes, keepdims=True) + eps)
    total = n.weight(2, (1,))
    factor = fn.where(total.equals(np.float32(0)), 0.0, 1 / total)
    mean, variance = (n.weight(i, (-1,)) * factor for i in (0, 1))
    ones = n.const(np.ones(mean.type.static_shape, np.float32))
    return n.add(norm.BatchNorm(eps), x, ones, ones * 0.0, mean, variance)


@caffe_layer("BN")
def bn(n: LayerNode) -> Result:
    """SegNet's normalisation: by a stored scale and shift."""
    x = n.input()
    return x * spread(n.weight(0, (-1,)), x, 1) + spread(n.weight(1, (-1,)), x, 1)


@caffe_layer("MVN")
def mvn(n: LayerNode) -> Result:
    x = n.input()
    axes = tuple(range(1 if n.attr_flag("across_channels", False) else 2, x.type.rank))
    centred = x - x.mean(axes, keepdims=True)
    if not n.attr_flag("normalize_variance", True):
        return centred
    deviation = fn.sqrt((centred * centred).mean(axes, keepdims=True))
    return centred / (deviation + n.attr_float("eps", 1e-9))


@caffe_layer("Normalize")
def normalize(n: LayerNode) -> Result:
    x = n.input()
    axes = (1, 2, 3) if n.attr_flag("across_spatial", True) else (1,)
    length = fn.sqrt((x * x).sum(axes, keepdims=True) + n.attr_float("eps", 1e-10))
    factor = n.weight(0, (1,) if n.attr_flag("channel_shared", True) else (-1,))
    return x / length * spread(factor, x, 1)


@caffe_layer("Softmax")
def softmax(n: LayerNode) -> Result:
    return n.add(norm.Softmax(n.axis(n.attr_int("axis", 1), n.input().type.rank)), n.input())


@caffe_layer("Reduction")
def reduction(n: LayerNode) -> Result:
    x, operation = n.input(), n.attr_string("operation", "SUM", ("SUM", "ASUM", "SUMSQ", "MEAN"))
    axes = tuple(range(n.axis(n.attr_int("axis", 0), x.type.rank), x.type.rank))
    if operation == "MEAN":
        y = x.mean(axes)
    else:
        y = (abs(x) if operation == "ASUM" else x * x if operation == "SUMSQ" else x).sum(axes)
    return y * n.attr_float("coeff", 1) if n.has("coeff") else y


@caffe_layer("ArgMax")
def arg_max(n: LayerNode) -> Result:
    """The indices of the largest elements.

    With `out_max_val` also the elements, or only the elements if `axis` is given.
    """
    x, count, shows = n.input(), n.attr_int("top_k", 1, 1), n.attr_flag("out_max_val", False)
    if n.has("axis"):
        axis = n.axis(n.attr_int("axis"), x.type.rank)
        best, places = n.add(sort.TopK(count, axis), x)
        return best if shows else places.cast(f32)
    best, places = n.add(sort.TopK(count, 1), _flat_from(n, x, 1))
    dims = (x.type.shape[0], 1, count)
    rows = [n.reshape(places.cast(f32), dims), *([n.reshape(best, dims)] if shows else [])]
    return n.add(slicing.Concat(1), *rows)


# Shapes


def _channel_axis(n: LayerNode, old: str) -> int:
    """The axis of Concat or Slice.  In old files, the attribute has the name `old`."""
    return n.attr_int(old) if n.has(old) else n.attr_int("axis", 1)


@caffe_layer("Concat")
def concat(n: LayerNode) -> Result:
    axis = n.axis(_channel_axis(n, "concat_dim"), n.input().type.rank)
    return n.add(slicing.Concat(axis), *n.inputs)


@caffe_layer("Slice")
def slices(n: LayerNode) -> Result:
    x, count = n.input(), len(n.layer.outputs)
    axis = n.axis(
        n.attr_int("slice_dim") if n.has("slice_dim") else n.attr_int("axis", 1), x.type.rank
    )
    points = n.attr_ints("slice_point", ())
    extent = x.type.shape[axis]
    if points and len(points) != count - 1:
        n.bad(f"slice_point: expected {count - 1} numbers, found {list(points)}")
    if not points:
        size = n.builder.divided(n.layer.kind, extent, count, f"axis {axis}", n.loc)
        return n.add(slicing.Split(axis, (size,) * count), x)
    edges: list[Dim] = [0, *points, extent]
    sizes = tuple(extents.difference(b, a) for a, b in pairwise(edges))
    return n.add(slicing.Split(axis, sizes), x)


@caffe_layer("Flatten")
def flatten(n: LayerNode) -> Result:
    x, rank = n.input(), n.input().type.rank
    start, end = n.axis(n.attr_int("axis", 1), rank), n.axis(n.attr_int("end_axis", -1), rank)
    dims = x.type.shape
    joined = extents.product(dims[start : end + 1])
    return n.reshape(x, (*dims[:start], joined, *dims[end + 1 :]))


@caffe_layer("Reshape")
def reshape(n: LayerNode) -> Result:
    x, rank = n.input(), n.input().type.rank
    wanted = [int(d) for d in n.layer.attributes["shape"].dim] if n.has("shape") else []
    start = n.axis(n.attr_int("axis", 0), rank + 1)
    count = n.attr_int("num_axes", -1, -1)
    end = rank if count == -1 else start + count
    if end > rank or wanted.count(-1) > 1:
        n.bad(f"expected axes {start} to {end} of {x.type} and one -1 at most, found {wanted}")
    own = x.type.shape[start:end]
    if any(d == 0 and i >= len(own) for i, d in enumerate(wanted)):
        n.bad(f"a 0 copies an extent; expected at most {len(own)} numbers, found {wanted}")
    new = [own[i] if d == 0 else d for i, d in enumerate(wanted)]
    return x.reshape(*x.type.shape[:start], *new, *x.type.shape[end:])


@caffe_layer("Permute")
def permute(n: LayerNode) -> Result:
    x, order = n.input(), list(n.attr_ints("order", ()))
    order += [a for a in range(x.type.rank) if a not in order]
    return x.transpose(*order)


@caffe_layer("Crop")
def crop(n: LayerNode) -> Result:
    x, like = n.input(0), n.input(1)
    first = n.axis(n.attr_int("axis", 2), x.type.rank)
    axes = tuple(range(first, x.type.rank))
    offsets = n.attr_ints("offset", ()) or (0,)
    offsets = offsets * len(axes) if len(offsets) == 1 else offsets
    if len(offsets) != len(axes):
        n.bad(f"offset: expected {len(axes)} numbers, found {list(offsets)}")
    ends = tuple(extents.total((o, like.type.shape[a])) for o, a in zip(offsets, axes, strict=True))
    return n.add(slicing.Slice(offsets, ends, axes, (1,) * len(axes)), x)


@caffe_layer("Tile")
def tile(n: LayerNode) -> Result:
    x = n.input()
    axis, count = n.axis(n.attr_int("axis", 1), x.type.rank), n.attr_int("tiles", low=1)
    return n.add(slicing.Concat(axis), *[x] * count) if count > 1 else x


@caffe_layer("ShuffleChannel")
def shuffle_channel(n: LayerNode) -> Result:
    x, groups = n.input(), n.attr_int("group", low=1)
    batch, channels, *space = x.type.shape
    each = n.builder.divided(n.layer.kind, channels, groups, "the channels", n.loc)
    y = x.reshape(batch, groups, each, *space)
    return y.transpose(0, 2, 1, *range(3, y.type.rank)).reshape(*x.type.shape)


@caffe_layer("Reorg")
def reorg(n: LayerNode) -> Result:
    if n.attr_flag("reverse", False):
        n.unsupported("reverse: true")
    return n.add(shape.SpaceToDepth(n.attr_int("stride", 2, 1)), n.input())


@caffe_layer("Interp")
def interp(n: LayerNode) -> Result:
    """Bilinear resizing with aligned corners."""
    x = n.input()
    begin, end = n.attr_int("pad_beg", 0), n.attr_int("pad_end", 0)
    x = n.add(slicing.Pad((0, 0, begin, begin, 0, 0, end, end)), x) if begin or end else x
    shrink, zoom = n.attr_int("shrink_factor", 1, 1), n.attr_int("zoom_factor", 1, 1)
    sizes: list[Dim] = []
    for name, extent in zip(("height", "width"), x.type.shape[2:], strict=True):
        gaps = as_dim(as_expr(extents.total((extent, -1))) // shrink)
        computed = extents.total((extents.product((gaps, zoom)), 1))
        sizes.append(
            n.attr_int(name, low=1) if n.attr_int(name, 0) and shrink == zoom == 1 else computed
        )
    if len(n.slots) > 1:
        sizes = list(n.input(1).type.shape[2:])
    return n.add(resize.Resize((*x.type.shape[:2], *sizes), (), "linear", "align_corners"), x)


@caffe_layer("Python")
def python(n: LayerNode) -> Result:
    n.unsupported("a layer that is code in Python; replace it by layers of Caffe")
