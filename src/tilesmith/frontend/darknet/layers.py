"""Import functions of Darknet's layers, which translate them to Tilesmith's operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilesmith.frontend.common import pools
from tilesmith.frontend.common.blocks import first_reorganisation
from tilesmith.frontend.common.networks import LayerNode, Layers
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import Geometry, add_bias, convolve, geometry
from tilesmith.frontend.darknet.config import Weights
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import same_dim
from tilesmith.ops import activation as act
from tilesmith.ops import columns, norm, resize, shape, slicing
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import matmul as mm
from tilesmith.ops.base import Op

LAYERS: Layers = Layers()
"""Darknet's layers by the names of sections."""

darknet_layer = LAYERS.register

_EPSILON = 1e-5
_ACTIVATIONS: dict[str, Callable[[], Op]] = {
    "elu": act.Elu,
    "hardtan": lambda: ew.Clip(-1.0, 1.0),
    "leaky": lambda: act.LeakyRelu(0.1),
    "logistic": act.Sigmoid,
    "mish": act.Mish,
    "relie": lambda: act.LeakyRelu(0.01),
    "relu": act.Relu,
    "relu6": lambda: ew.Clip(0.0, 6.0),
    "revleaky": lambda: act.LeakyRelu(0.1),
    "selu": lambda: act.Selu(1.6732, 1.0507),
    "swish": act.Silu,
    "tanh": ew.Tanh,
    "gelu": lambda: act.Gelu("tanh"),
}
_FORMULAS: dict[str, Callable[[Value], Value]] = {
    "linear": lambda x: x,
    "loggy": lambda x: fn.tanh(x * 0.5),
    "lhtan": lambda x: fn.where(x < 0, x * 0.001, fn.where(x > 1, x * 0.001 + 0.999, x)),
    "plse": lambda x: fn.where(
        x < -4, (x + 4) * 0.01, fn.where(x > 4, (x - 4) * 0.01 + 1, x * 0.125 + 0.5)
    ),
    "ramp": lambda x: fn.maximum(x, 0) + x * 0.1,
}


def activate(n: LayerNode, x: Value, default: str = "linear") -> Value:
    """`x` after the activation function that the layer states."""
    name = n.attr_string("activation", default)
    if name in _FORMULAS:
        return _FORMULAS[name](x)
    if name not in _ACTIVATIONS:
        n.unsupported(f"activation {name!r}")
    return n.add(_ACTIVATIONS[name](), x)


def _take(n: LayerNode, what: str, *dims: int) -> Value:
    weights: Weights = n.layer.attributes["weights"]
    return weights.take(n, what, *dims)


def _refuse(n: LayerNode, *options: str) -> None:
    """Raises UnsupportedError for an option that is not 0."""
    for option in options:
        if n.attr_int(option, 0):
            n.unsupported(f"option {option}={n.attr_int(option)}")


def _normalized(n: LayerNode, y: Value, stored: tuple[Value, ...]) -> Value:
    bias, scale, mean, variance = stored
    return n.add(norm.BatchNorm(_EPSILON), y, scale, bias, mean, variance)


def _statistics(n: LayerNode, count: int) -> tuple[Value, ...]:
    return tuple(_take(n, what, count) for what in ("scale", "mean", "variance"))


def _strides(n: LayerNode) -> tuple[int, int]:
    stride = n.attr_int("stride", 1)
    return n.attr_int("stride_y", stride), n.attr_int("stride_x", stride)


@darknet_layer("convolutional")
def convolutional(n: LayerNode) -> Result:
    x, count, size = n.input(), n.attr_int("filters", 1, 1), n.attr_int("size", 1, 1)
    _refuse(n, "binary", "xnor", "flipped", "antialiasing", "sway", "rotate", "stretch")
    _refuse(n, "stretch_sway", "coordconv", "assisted_excitation", "dontload", "dontloadscales")
    if n.has("share_index"):
        n.unsupported("weights of another layer (share_index)")
    groups, channels = n.attr_int("groups", 1, 1), n.extent(x, 1)
    padding = size // 2 if n.attr_int("pad", 0) else n.attr_int("padding", 0)
    dilation = n.attr_int("dilation", 1) if size > 1 else 1
    g = geometry(n, x, size, _strides(n), padding * dilation, dilation)
    bias = _take(n, "bias", count)
    normalizes = n.attr_int("batch_normalize", 0) or n.attr_int("cbn", 0)
    statistics = _statistics(n, count) if normalizes else ()
    y = convolve(n, x, _take(n, "weights", count, channels // groups, size, size), g, groups)
    y = _normalized(n, y, (bias, *statistics)) if normalizes else add_bias(n, y, bias)
    return activate(n, y, "logistic")


@darknet_layer("connected")
def connected(n: LayerNode) -> Result:
    x, count = n.input(), n.attr_int("output", 1, 1)
    x = n.reshape(x, (x.type.shape[0], extents.product(x.type.shape[1:])))
    bias, weights = _take(n, "bias", count), _take(n, "weights", count, n.extent(x, 1))
    y = n.add(mm.MatMul(transpose_b=True), x, weights)
    if n.attr_int("batch_normalize", 0):
        y = _normalized(n, y, (bias, *_statistics(n, count)))
    else:
        y = y + bias
    return activate(n, y, "logistic")


@darknet_layer("local")
def local(n: LayerNode) -> Result:
    """A convolution with different weights at each position of the result."""
    x, count, size = n.input(), n.attr_int("filters", 1, 1), n.attr_int("size", 1, 1)
    stride, pad, batch = n.attr_int("stride", 1, 1), n.attr_int("pad", 0, 0), x.type.shape[0]
    patches = n.add(columns.Im2Col((size, size), (stride, stride), (pad,) * 4), x)
    rows, width = n.shape(patches)[4:]
    taps, places = n.extent(x, 1) * size * size, rows * width
    bias = n.reshape(_take(n, "bias", count, rows, width), (count, places))
    weights = _take(n, "weights", places, count, taps)
    patches = n.reshape(patches, (taps, batch, places)).transpose(2, 0, 1)
    y = n.add(mm.MatMul(), weights, patches).transpose(2, 1, 0) + bias
    return activate(n, n.reshape(y, (batch, count, rows, width)), "logistic")


@darknet_layer("batchnorm")
def batchnorm(n: LayerNode) -> Result:
    x = n.input()
    bias = _take(n, "bias", n.extent(x, 1))
    return _normalized(n, x, (bias, *_statistics(n, n.extent(x, 1))))


def _window(n: LayerNode, x: Value) -> Geometry:
    """The windows of a pool.  Option `padding` is the sum of the padding on both sides."""
    size = n.attr_int("size", n.attr_int("stride", 1), 1)
    padding = n.attr_int("padding", size - 1)
    before, after = padding // 2, padding - padding // 2
    return geometry(n, x, size, _strides(n), (before, before, after, after))


@darknet_layer("maxpool")
def maxpool(n: LayerNode) -> Result:
    _refuse(n, "maxpool_depth", "antialiasing", "maxpool_zero_nonmax")
    return pools.pooled(n, n.input(), "max", _window(n, n.input()))


@darknet_layer("local_avgpool")
def local_avgpool(n: LayerNode) -> Result:
    return pools.pooled(n, n.input(), "average", _window(n, n.input()))


@darknet_layer("avgpool")
def avgpool(n: LayerNode) -> Result:
    return pools.global_pool(n, n.input(), "average")


@darknet_layer("dropout", "silence")
def copies(n: LayerNode) -> Result:
    """The input.  In inference, dropout keeps all elements."""
    return n.input()


@darknet_layer("activation")
def activation(n: LayerNode) -> Result:
    return activate(n, n.input())


@darknet_layer("normalization")
def normalization(n: LayerNode) -> Result:
    size, alpha = n.attr_int("size", 5, 1), n.attr_float("alpha", 1e-4)
    if size % 2 == 0:
        n.unsupported(f"an even size of {size}")
    op = norm.Lrn(size, alpha * size, n.attr_float("beta", 0.75), n.attr_float("kappa", 1))
    return n.add(op, n.input())


@darknet_layer("softmax")
def softmax(n: LayerNode) -> Result:
    x, groups = n.input(), n.attr_int("groups", 1, 1)
    for option in ("tree", "spatial"):
        if n.has(option):
            n.unsupported(f"option {option}={n.attr_string(option)}")
    batch, *rest = x.type.shape
    each = n.builder.divided("softmax", extents.product(rest), groups, "the elements", n.loc)
    scores = n.reshape(x, (batch, groups, each)) * (1 / n.attr_float("temperature", 1))
    return n.reshape(n.add(norm.Softmax(2), scores), x.type.shape)


@darknet_layer("route")
def route(n: LayerNode) -> Result:
    groups, number = n.attr_int("groups", 1, 1), n.attr_int("group_id", 0)
    parts = list(n.inputs)
    if groups > 1:
        if not 0 <= number < groups:
            n.bad(f"group_id: expected 0 to {groups - 1}, found {number}")
        parts = [_group(n, x, groups, number) for x in parts]
    return n.add(slicing.Concat(1), *parts) if len(parts) > 1 else parts[0]


def _group(n: LayerNode, x: Value, groups: int, number: int) -> Value:
    each = n.builder.divided("route", x.type.shape[1], groups, "the channels", n.loc)
    return n.add(slicing.Split(1, (each,) * groups), x)[number]


@darknet_layer("shortcut")
def shortcut(n: LayerNode) -> Result:
    y, *others = n.inputs
    if n.attr_string("weights_type", "none") != "none":
        n.unsupported(f"weights_type={n.attr_string('weights_type')}")
    for other in others:
        y = y + _with_channels(n, other, y)
    return activate(n, y)


def _with_channels(n: LayerNode, x: Value, like: Value) -> Value:
    """`x` with as many channels as `like`.  Added channels are 0."""
    if same_dim(x.type.shape[1], like.type.shape[1]):
        return x
    missing = extents.difference(like.type.shape[1], x.type.shape[1])
    return n.add(slicing.Pad((0, 0, 0, 0, 0, missing, 0, 0)), x)


@darknet_layer("scale_channels", "sam")
def scaled(n: LayerNode) -> Result:
    """The input times another layer's result.  One of them has a number per channel or pixel."""
    return activate(n, n.input(0) * n.input(1))


@darknet_layer("upsample")
def upsample(n: LayerNode) -> Result:
    x, stride = n.input(), n.attr_int("stride", 2)
    if stride < 1:
        n.unsupported(f"stride={stride}, which makes images smaller")
    sizes = (*x.type.shape[:2], *(extents.product((d, stride)) for d in x.type.shape[2:]))
    y = n.add(resize.Resize(sizes, (), "nearest", "asymmetric", "floor"), x)
    return y * n.attr_float("scale", 1) if n.has("scale") else y


@darknet_layer("reorg")
def reorg(n: LayerNode) -> Result:
    """Move blocks of pixels to channels, in the order of the first Darknet."""
    _refuse(n, "reverse")
    x, s = n.input(), n.attr_int("stride", 1, 1)
    return first_reorganisation(n, x, s)


@darknet_layer("reorg3d")
def reorg_3d(n: LayerNode) -> Result:
    _refuse(n, "reverse")
    return n.add(shape.SpaceToDepth(n.attr_int("stride", 1, 1)), n.input())


@darknet_layer("crop")
def crop(n: LayerNode) -> Result:
    """The middle of the image, with numbers from 0 to 1 mapped to -1 to 1."""
    x = n.input()
    sizes = n.attr_int("crop_height", low=1), n.attr_int("crop_width", low=1)
    starts = tuple((d - s) // 2 for d, s in zip(n.shape(x)[2:], sizes, strict=True))
    ends = tuple(a + s for a, s in zip(starts, sizes, strict=True))
    y = n.add(slicing.Slice(starts, ends, (2, 3), (1, 1)), x)
    return y if n.attr_int("noadjust", 0) else y * np.float32(2) - np.float32(1)
