"""TensorFlow's convolutions, pools and normalisations of images.

Images are [N, spatial..., C] or [N, C, spatial...]; the attribute `data_format` decides.  Filters
are [spatial..., I, O].  Tilesmith's operators have the channels as second axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tilesmith.frontend.common import pools
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import (
    Geometry,
    add_bias,
    channels_last,
    channels_second,
    convolve,
    spread_to,
)
from tilesmith.frontend.tensorflow.node import TfNode
from tilesmith.frontend.tensorflow.registry import tf_op
from tilesmith.frontend.tflite import blocks, resizing
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.types import Dim
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import norm, pool, rules
from tilesmith.ops.einsum import Einsum
from tilesmith.ops.functions import clamp, floor, rint, where
from tilesmith.ops.gather import GatherNd
from tilesmith.ops.slicing import Concat, Slice
from tilesmith.support.errors import UnsupportedError

_FORMATS = ("NHWC", "NCHW", "NDHWC", "NCDHW")


def _is_second(n: TfNode) -> bool:
    """Whether the channels are the second axis."""
    return n.text("data_format", "NHWC", _FORMATS).startswith("NC")


def _images(n: TfNode, x: Value, rank: int) -> Value:
    """Images of `rank` axes with the channels second."""
    if x.type.rank != rank:
        n.bad(f"expected images of {rank} axes, found {x.type}")
    return x if _is_second(n) else channels_second(x)


def _back(n: TfNode, y: Value) -> Value:
    """Images [N, C, spatial...] in the layout that `data_format` states."""
    return y if _is_second(n) else channels_last(y)


def _spatial(n: TfNode, name: str, rank: int) -> tuple[int, ...]:
    """The entries for spatial axes, of an attribute with an entry for each of `rank` axes."""
    numbers = n.options(name) or (1,) * rank
    if len(numbers) != rank or min(numbers) < 1:
        n.bad(f"attribute {name!r}: expected {rank} numbers above 0, found {list(numbers)}")
    others = (numbers[:2], numbers[2:]) if _is_second(n) else (numbers[:: rank - 1], numbers[1:-1])
    if others[0] != (1, 1):
        n.unsupported(f"attribute {name!r} of {list(numbers)}: not 1 for images and channels")
    return others[1]


def _geometry(
    n: TfNode, dims: Sequence[Dim], kernel: tuple[int, ...], padding: str = "padding"
) -> Geometry:
    rank = len(kernel) + 2
    strides, dilations = _spatial(n, "strides", rank), _spatial(n, "dilations", rank)
    g = Geometry(tuple(dims), kernel, strides, dilations, (0,) * (2 * len(kernel)))
    how = n.text(padding, "VALID", ("VALID", "SAME", "EXPLICIT"))
    if how == "SAME":
        g.pads = g.same_pads()
    if how == "EXPLICIT":
        pads = n.options("explicit_paddings")
        if len(pads) != 2 * rank:
            n.bad(f"attribute 'explicit_paddings': expected {2 * rank} numbers, found {len(pads)}")
        pads = pads[4:] if _is_second(n) else pads[2:-2]
        g.pads = (*pads[::2], *pads[1::2])
    return g


def _filters(w: Value) -> Value:
    """Filters [spatial..., I, O] as [O, I, spatial...]."""
    rank = w.type.rank
    return w.transpose(rank - 1, rank - 2, *range(rank - 2))


def _convolved(n: TfNode, rank: int) -> Value:
    """A convolution, with the channels second."""
    x, w = _images(n, n.input(0), rank), n.input(1)
    if w.type.rank != rank:
        n.bad(f"expected filters of {rank} axes, found {w.type}")
    channels, own = n.extent(x, 1), n.extent(w, rank - 2)
    if own < 1 or channels % own:
        n.bad(f"expected channels that are a multiple of the filters' {own}, found {channels}")
    g = _geometry(n, x.type.shape[2:], n.shape(w)[:-2])
    return convolve(n, x, _filters(w), g, channels // own)


@tf_op("Conv2D")
def conv_2d(n: TfNode) -> Result:
    return _back(n, _convolved(n, 4))


@tf_op("Conv3D")
def conv_3d(n: TfNode) -> Result:
    return _back(n, _convolved(n, 5))


@tf_op("DepthwiseConv2dNative")
def depthwise(n: TfNode) -> Result:
    return _back(n, _depthwise(n))


def _depthwise(n: TfNode) -> Value:
    """A convolution of each channel with its own filters, with the channels second."""
    x, w = _images(n, n.input(0), 4), n.input(1)
    channels = n.extent(x, 1)
    if w.type.rank != 4 or n.extent(w, 2) != channels:
        n.bad(f"expected filters [H, W, {channels}, factor], found {w.type}")
    height, width, _, factor = n.shape(w)
    w = w.reshape(height, width, channels * factor, 1).transpose(2, 3, 0, 1)
    return convolve(n, x, w, _geometry(n, x.type.shape[2:], (height, width)), channels)


@tf_op("Conv2DBackpropInput")
def transposed_2d(n: TfNode) -> Result:
    return _transposed(n, 4)


@tf_op("Conv3DBackpropInputV2")
def transposed_3d(n: TfNode) -> Result:
    return _transposed(n, 5)


def _transposed(n: TfNode, rank: int) -> Value:
    w, x = n.input(1), _images(n, n.input(2), rank)
    dims = n.extents(n.input(0), "the shape of the result")
    if len(dims) != rank or w.type.rank != rank:
        n.bad(f"expected a shape of {rank} extents and such filters, found {w.type}")
    g = _geometry(n, dims[2:] if _is_second(n) else dims[1:-1], n.shape(w)[:-2])
    how = n.text("padding", "VALID", ("VALID", "SAME"))
    w = w.transpose(rank - 1, rank - 2, *range(rank - 2))  # to [I, O, spatial...]
    return _back(n, spread_to(n, x, w, g, how == "SAME"))


@tf_op("BiasAdd", "BiasAddV1")
def bias_add(n: TfNode) -> Result:
    x, bias = n.input(0), n.input(1)
    return add_bias(n, x, bias) if _is_second(n) else x + bias


def _normalised(n: TfNode, x: Value, numbers: Sequence[Value], epsilon: float) -> Value:
    """Images [N, C, spatial...] normalised by `numbers`: scale, offset, mean and variance."""
    return n.add(norm.BatchNorm(epsilon), x, *numbers)


@tf_op("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def batch_norm(n: TfNode) -> Result:
    x = n.input(0)
    is_second, rank = _is_second(n), x.type.rank
    x = x if is_second else x.transpose(0, rank - 1, *range(1, rank - 1))
    scale, offset, mean, variance = (n.input(i) for i in range(1, 5))
    if n.flag("is_training", True):
        axes = tuple(a for a in range(rank) if a != 1)
        wide = x.cast(f32)
        mean = wide.mean(axes)
        apart = wide - n.reshape(mean, (mean.type.shape[0], *[1] * (rank - 2)))
        variance = (apart * apart).mean(axes)
    y = _normalised(n, x, (scale, offset, mean, variance), n.float("epsilon", 1e-4))
    return _back(n, y), mean, variance


@tf_op("_FusedConv2D", "_FusedDepthwiseConv2dNative")
def fused_convolution(n: TfNode) -> Result:
    """A convolution with a bias or normalisation, and an activation, as Grappler fuses them."""
    y = _convolved(n, 4) if n.kind == "_FusedConv2D" else _depthwise(n)
    return _back(n, fused(n, y))


def fused(n: TfNode, y: Value) -> Value:
    """The operators in the attribute `fused_ops`, applied to `y`, with the channels second."""
    stated = n.stated("fused_ops", "list")
    place = 2
    for name in [bytes(s).decode() for s in stated.s] if stated is not None else []:
        if name == "BiasAdd":
            y, place = add_bias(n, y, n.input(place)), place + 1
        elif name == "FusedBatchNorm":
            numbers = [n.input(i) for i in range(place, place + 4)]
            y, place = _normalised(n, y, numbers, n.float("epsilon", 1e-4)), place + 4
        elif name in ACTIVATIONS:
            y = n.add(ACTIVATIONS[name](), y)
        elif name == "LeakyRelu":
            y = n.add(act.LeakyRelu(n.float("leakyrelu_alpha", 0.2)), y)
        elif name == "Add":
            y, place = (
                y + (n.input(place) if _is_second(n) else channels_second(n.input(place))),
                place + 1,
            )
        else:
            n.unsupported(f"operator {name} that is fused into another")
    return y


ACTIVATIONS = {
    "Elu": act.Elu, "Relu": act.Relu, "Relu6": lambda: ew.Clip(0, 6), "Sigmoid": act.Sigmoid,
    "Tanh": ew.Tanh,
}  # fmt: skip
"""Activation functions that fused operators apply, by name."""


def _pool(n: TfNode, rank: int, kind: pools.Kind) -> Value:
    x = _images(n, n.input(0), rank)
    g = _geometry(n, x.type.shape[2:], _spatial(n, "ksize", rank))
    return _back(n, pools.pooled(n, x, kind, g))


tf_op("MaxPool")(partial(_pool, rank=4, kind="max"))
tf_op("AvgPool")(partial(_pool, rank=4, kind="average"))
tf_op("MaxPool3D")(partial(_pool, rank=5, kind="max"))
tf_op("AvgPool3D")(partial(_pool, rank=5, kind="average"))


@tf_op("MaxPoolWithArgmax")
def max_pool_with_positions(n: TfNode) -> Result:
    """Maxima, and the position of each in its flattened image [H, W, C]."""
    x = _images(n, n.input(0), 4)
    g = _geometry(n, x.type.shape[2:], _spatial(n, "ksize", 4))
    y, flat = n.add(pool.MaxPoolIndices(g.kernel, g.strides, g.pads), x)
    batch, channels, h, w = x.type.shape
    size = n.of_dims((extents.product((h, w)),), ())
    place = (flat % size) * n.of_dims((channels,), ()) + n.positions(channels, 4, 1)
    if n.flag("include_batch_in_index"):
        place = place + n.positions(batch, 4, 0) * (size * n.of_dims((channels,), ()))
    return channels_last(y), channels_last(place).cast(n.dtype("Targmax", i64))


@tf_op("LRN")
def local_response_normalization(n: TfNode) -> Result:
    x, radius = n.input(0), n.int("depth_radius", 5)
    size = 2 * radius + 1
    op = norm.Lrn(size, n.float("alpha", 1.0) * size, n.float("beta", 0.5), n.float("bias", 1.0))
    return channels_last(n.add(op, _images(n, x, 4)))


@tf_op("L2Loss")
def l2_loss(n: TfNode) -> Result:
    x = n.input(0)
    return (x * x).sum(tuple(range(x.type.rank))) * 0.5


tf_op("SpaceToBatchND")(blocks.space_to_batch_nd)
tf_op("BatchToSpaceND")(blocks.batch_to_space_nd)


@tf_op("SpaceToDepth")
def space_to_depth(n: TfNode) -> Result:
    return _blocks(n)


@tf_op("DepthToSpace")
def depth_to_space(n: TfNode) -> Result:
    return _blocks(n)


def _blocks(n: TfNode) -> Result:
    if _is_second(n):
        n.unsupported("images with the channels second")
    return blocks.space_to_depth(n) if n.kind == "SpaceToDepth" else blocks.depth_to_space(n)


tf_op("ResizeNearestNeighbor")(resizing.resize_nearest_neighbor)


@tf_op("ResizeBilinear")
def resize_bilinear(n: TfNode) -> Result:
    return resizing.resize_bilinear(replace(n, slots=(n.input(0).cast(f32), n.input(1))))


@tf_op("ResizeBicubic")
def resize_bicubic(n: TfNode) -> Result:
    x = n.input(0).cast(f32)
    how, sizes = resizing.coordinates(n, "half_pixel"), resizing.new_sizes(n, x)
    extents_ = [n.extent(x, a) for a in (1, 2)]
    rows, columns = (
        n.const(_cubic(e, rules.static(n.kind, s, "the new size"), how))
        for e, s in zip(extents_, sizes, strict=True)
    )
    return n.add(Einsum("yh,bhwc,xw->byxc"), rows, x, columns)


_STEPS = 1024
"""Number of positions within a pixel for which TensorFlow's table has cubic weights."""


_MOST_WEIGHTS = 1 << 24
"""Upper bound on the number of cubic weights along an axis."""


def _cubic(extent: int, size: int, how: str) -> np.ndarray:
    """The weight of each element in each pixel of the result, f32 [size, extent]."""
    if size * extent > _MOST_WEIGHTS:
        raise UnsupportedError(f"a cubic resize from {extent} to {size} pixels")
    aligned = how == "align_corners" and size > 1
    by, to = (extent - 1, size - 1) if aligned else (extent, size)
    scale = np.float32(by) / np.float32(to)
    is_centred = how == "half_pixel"
    half = np.float32(0.5 if is_centred else 0)
    place = (np.arange(size, dtype=np.float32) + half) * scale - half
    low = np.floor(place)
    a, part = (-0.5 if is_centred else -0.75), np.rint((place - low) * _STEPS) / _STEPS
    weights = np.zeros((size, extent), np.float64)
    for k in range(-1, 3):
        t, place = np.abs(part - k), low.astype(np.int64) + k
        near = ((a + 2) * t - (a + 3)) * t * t + 1
        far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        weight = np.where(t <= 1, near, far)
        inside = np.clip(place, 0, extent - 1)
        if is_centred:  # elements past the border are left out
            weight = np.where(inside == place, weight, 0)
        np.add.at(weights, (np.arange(size), inside), weight)
    return (weights / weights.sum(1, keepdims=True) if is_centred else weights).astype(np.float32)


@tf_op("AdjustContrastv2")
def adjust_contrast(n: TfNode) -> Result:
    x, factor = n.input(0), n.input(1)
    mean = x.mean((x.type.rank - 3, x.type.rank - 2), keepdims=True)
    return (x - mean) * factor + mean


@tf_op("CropAndResize")
def crop_and_resize(n: TfNode) -> Result:
    """Crop boxes [y, x, y, x] of images and resize them.  0 to 1 spans the image."""
    x, boxes, owners = n.input(0), n.input(1), n.input(2)
    sizes = n.int_list(n.input(3), "crop_size")
    if x.type.rank != 4 or boxes.type.rank != 2 or len(sizes) != 2:
        n.bad(f"expected images, boxes and two sizes, found {x.type}, {boxes.type}")
    method = n.text("method", "bilinear", ("bilinear", "nearest"))
    filler = n.float("extrapolation_value")
    x = x.cast(f32)
    count, depth = boxes.type.shape[0], x.type.shape[3]
    places: list[Value] = []
    for axis, size in enumerate(sizes):
        first, last = (
            n.add(Slice((axis + k,), (axis + k + 1,), (1,), (1,)), boxes) for k in (0, 2)
        )
        end = n.of_dims((extents.difference(x.type.shape[1 + axis], 1),), ()).cast(f32)
        if size > 1:
            steps = n.positions(size, 2, 1).cast(f32)
            places.append(first * end + steps * ((last - first) * end / (size - 1)))
        else:
            places.append((first + last) * 0.5 * end)
    heights, widths = sizes
    rows = n.expand(n.reshape(places[0], (count, heights, 1)), (count, heights, widths))
    columns = n.expand(n.reshape(places[1], (count, 1, widths)), (count, heights, widths))
    y = sampled(n, x, owners, (rows, columns), method == "nearest")
    inside = n.const(True)
    for axis, place in enumerate((rows, columns)):
        end = n.of_dims((extents.difference(x.type.shape[1 + axis], 1),), ()).cast(f32)
        inside = inside & (place >= 0) & (place <= end)
    inside = n.reshape(n.expand(inside, rows.type.shape), (count, heights, widths, 1))
    return where(n.expand(inside, (count, heights, widths, depth)), y, filler)


def sampled(
    n: TfNode, x: Value, owners: Value, place: tuple[Value, Value], is_nearest: bool
) -> Value:
    """Samples of images x [N, H, W, C] at fractional positions, [R, h, w, C].

    owners: [R], the image of each region.
    place: rows and columns, [R, h, w] each.
    """
    shape = place[0].type.shape
    owner = n.expand(n.reshape(owners.cast(i64), (shape[0], 1, 1)), shape)
    ends = [n.of_dims((extents.difference(d, 1),), ()) for d in x.type.shape[1:3]]

    def pixels(row: Value, column: Value) -> Value:
        places = [owner, *(clamp(p.cast(i64), 0, e) for p, e in zip((row, column), ends))]
        indices = n.add(Concat(3), *(n.reshape(p, (*shape, 1)) for p in places))
        return n.add(GatherNd(0), x, indices)

    if is_nearest:
        return pixels(*(rint(a) for a in place))
    low = [floor(a) for a in place]
    down, right = (n.reshape(a - f, (*shape, 1)) for a, f in zip(place, low, strict=True))
    top, bottom = (
        pixels(r, low[1]) * (1 - right) + pixels(r, low[1] + 1) * right
        for r in (low[0], low[0] + 1)
    )
    return top * (1 - down) + bottom * down
