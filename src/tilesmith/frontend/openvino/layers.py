"""OpenVINO's convolutions, pools, products and normalisations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tilesmith.frontend.common import pools
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import ABSENT, Result
from tilesmith.frontend.common.windows import Geometry, convolve, geometry
from tilesmith.frontend.openvino.elements import openvino_layer
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import same_shape
from tilesmith.ops import conv as cv
from tilesmith.ops import functions as fn
from tilesmith.ops import matmul as mm
from tilesmith.ops import norm, pool, resize

_T = TypeVar("_T")


def window_of(n: LayerNode, x: Value, kernel: Sequence[int]) -> Geometry:
    """The window that a layer's attributes describe."""
    ones = (1,) * len(kernel)
    zeros = (0,) * len(kernel)
    pads = (*n.attr_ints("pads_begin", zeros), *n.attr_ints("pads_end", zeros))
    strides, dilations = n.attr_ints("strides", ones), n.attr_ints("dilations", ones)
    mode = n.attr_string("auto_pad", "explicit")
    if mode == "valid":
        pads = (0,) * len(pads)
    g = geometry(n, x, kernel, strides, pads, dilations)
    if mode in ("same_upper", "same_lower"):
        g.pads = g.same_pads(mode == "same_upper")
    return g


def _joined(n: LayerNode, w: Value) -> tuple[Value, int]:
    """Weights [groups, outputs, ...] as [groups * outputs, ...], and the number of groups.

    Weights of layers without groups stay.
    """
    if not n.layer.kind.startswith("Group"):
        return w, 1
    groups, first, *rest = n.shape(w)
    return n.reshape(w, (groups * first, *rest)), groups


@openvino_layer("Convolution", "GroupConvolution")
def convolution(n: LayerNode) -> Result:
    x = n.input(0)
    w, groups = _joined(n, n.input(1))
    return convolve(n, x, w, window_of(n, x, n.shape(w)[2:]), groups)


@openvino_layer("ConvolutionBackpropData", "GroupConvolutionBackpropData")
def transposed_convolution(n: LayerNode) -> Result:
    x = n.input(0)
    w, groups = _joined(n, n.input(1))
    kernel = n.shape(w)[2:]
    g = window_of(n, x, kernel)
    extra = n.attr_ints("output_padding", (0,) * len(kernel))
    if n.optional(2) is not None:
        sizes = n.int_list(n.input(2), "the output's shape")
        totals = [
            s * (e - 1) + r + o - size
            for s, e, r, o, size in zip(
                g.strides, n.shape(x)[2:], g.reach, extra, sizes, strict=True
            )
        ]
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        upper = n.attr_string("auto_pad", "explicit") != "same_lower"
        g.pads = (*small, *large) if upper else (*large, *small)
    pads = g.numbers() or n.unsupported("padding of an open size")
    return n.add(cv.ConvTranspose(g.strides, pads, g.dilations, groups, extra), x, w)


_ROUNDINGS: dict[str, pools.Rounding] = {"floor": "floor", "ceil": "full", "ceil_torch": "ceil"}


def _rounding(n: LayerNode) -> pools.Rounding:
    return _ROUNDINGS[n.attr_string("rounding_type", "floor", tuple(_ROUNDINGS))]


@openvino_layer("MaxPool")
def max_pool(n: LayerNode) -> Result:
    x = n.input()
    g, rounding = window_of(n, x, n.attr_ints("kernel")), _rounding(n)
    y = pools.pooled(n, x, "max", g, rounding)
    if len(n.layer.outputs) < 2:
        return y
    if rounding == "full" and not same_shape(y.shape, pools.pooled(n, x, "max", g, "ceil").shape):
        return y, ABSENT  # an empty window has no index
    op = pool.MaxPlaces(g.kernel, g.strides, g.pads, g.dilations, rounding != "floor")
    return y, n.add(op, x, y)


@openvino_layer("AvgPool")
def avg_pool(n: LayerNode) -> Result:
    x = n.input()
    counts = not n.attr_flag("exclude-pad", True)
    return pools.pooled(
        n, x, "average", window_of(n, x, n.attr_ints("kernel")), _rounding(n), counts
    )


@openvino_layer("AdaptiveAvgPool")
def adaptive_avg_pool(n: LayerNode) -> Result:
    return pools.adaptive_averages(n, n.input(0), n.dims(n.input(1), "the output's shape"))


@openvino_layer("AdaptiveMaxPool")
def adaptive_max_pool(n: LayerNode) -> Result:
    return pools.adaptive_maxima(n, n.input(0), n.int_list(n.input(1), "the output's shape"))


@openvino_layer("MatMul")
def matmul(n: LayerNode) -> Result:
    flips = n.attr_flag("transpose_a", False), n.attr_flag("transpose_b", False)
    ranks = n.input(0).type.rank, n.input(1).type.rank
    flips = flips[0] and ranks[0] > 1, flips[1] and ranks[1] > 1
    return n.add(mm.MatMul(*flips), n.input(0), n.input(1))


@openvino_layer("BatchNormInference")
def batch_norm(n: LayerNode) -> Result:
    return n.add(norm.BatchNorm(n.attr_float("epsilon", 1e-5)), *n.inputs)


@openvino_layer("LRN")
def lrn(n: LayerNode) -> Result:
    x = n.input(0)
    if n.int_list(n.input(1), "axes") != (1,):
        n.unsupported("normalisation over other axes than 1")
    numbers = (n.attr_float(name) for name in ("alpha", "beta", "bias"))
    return n.add(norm.Lrn(n.attr_int("size", low=1), *numbers), x)


@openvino_layer("MVN")
def mvn(n: LayerNode) -> Result:
    x, eps = n.input(0), n.attr_float("eps", 1e-9)
    if len(n.slots) > 1:
        axes = n.axes(n.int_list(n.input(1), "axes"), x.type.rank)
    else:
        axes = tuple(range(1 if n.attr_flag("across_channels", False) else 2, x.type.rank))
    centred = x - x.mean(axes, keepdims=True)
    if not n.attr_flag("normalize_variance", True):
        return centred
    variance = (centred * centred).mean(axes, keepdims=True)
    if n.attr_string("eps_mode", "inside_sqrt").lower() == "inside_sqrt":
        return centred / fn.sqrt(variance + eps)
    return centred / (fn.sqrt(variance) + eps)


@openvino_layer("NormalizeL2")
def normalize_l2(n: LayerNode) -> Result:
    x, eps = n.input(0), n.attr_float("eps")
    axes = n.axes(n.int_list(n.input(1), "axes"), x.type.rank)
    squares = (x * x).sum(axes, keepdims=True) if axes else x * x
    adds = n.attr_string("eps_mode", "add") == "add"
    return x / fn.sqrt(squares + eps if adds else fn.maximum(squares, eps))


@openvino_layer("GroupNormalization")
def group_normalization(n: LayerNode) -> Result:
    op = norm.GroupNorm(n.attr_int("num_groups", low=1), n.attr_float("epsilon"))
    return n.add(op, *n.inputs)


@openvino_layer("SoftMax", "Softmax")
def softmax(n: LayerNode) -> Result:
    return n.add(norm.Softmax(n.axis(n.attr_int("axis", 1), n.input().type.rank)), n.input())


@openvino_layer("LogSoftmax")
def log_softmax(n: LayerNode) -> Result:
    return n.add(norm.LogSoftmax(n.axis(n.attr_int("axis", -1), n.input().type.rank)), n.input())


@openvino_layer("ScaledDotProductAttention")
def attention(n: LayerNode) -> Result:
    query, key, value = (n.input(i) for i in range(3))
    scale = n.optional(4)
    factor = n.extent(query, -1) ** -0.5 if scale is None else scale
    scores = n.add(mm.MatMul(transpose_b=True), query * factor, key)
    mask = n.optional(3)
    if n.attr_flag("causal", False):  # which ignores a mask
        rows, columns = (n.positions(scores.type.shape[a], 2, a + 2) for a in (-2, -1))
        scores = fn.where(columns <= rows, scores, -float("inf"))
    elif mask is not None and mask.type.rank:
        scores = fn.where(mask, scores, -float("inf")) if mask.dtype.is_bool else scores + mask
    return n.add(mm.MatMul(), n.add(norm.Softmax(-1), scores), value)


@openvino_layer("Interpolate")
def interpolate(n: LayerNode) -> Result:
    """Resizing, in the forms of opset 1, 4 and 11."""
    x, rank = n.input(0), n.input(0).type.rank
    modes = {"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"}
    mode = n.attr_string("mode", among=tuple(modes))
    zeros = (0,) * rank
    if any((*n.attr_ints("pads_begin", zeros), *n.attr_ints("pads_end", zeros))):
        n.unsupported("padding")
    is_first = not n.has("shape_calculation_mode")
    if is_first:
        return _first_interpolate(n, x, modes[mode])
    by_sizes = n.attr_string("shape_calculation_mode", among=("sizes", "scales")) == "sizes"
    if len(n.slots) > 3 or (len(n.slots) > 2 and n.input(2).dtype.is_float):
        sizes_at, scales_at, axes_at = 1, 2, 3
    else:
        sizes_at, scales_at, axes_at = 1, 1, 2
    axes: Sequence[int] = range(rank)
    if n.optional(axes_at) is not None:
        axes = n.axes(n.int_list(n.input(axes_at), "axes"), rank)
    sizes, factors = list(x.type.shape), [1.0] * rank
    if by_sizes:
        for a, size in _of_axes(n, axes, n.dims(n.input(sizes_at), "sizes"), "sizes"):
            sizes[a] = size
    else:
        numbers = n.array(n.input(scales_at), "scales").reshape(-1).tolist()
        for a, f in _of_axes(n, axes, numbers, "scales"):
            factors[a] = f
            # OpenVINO adds 1e-5 before it rounds down
            whole = f == int(f)
            sizes[a] = (
                extents.product((sizes[a], int(f))) if whole else int(n.shape(x)[a] * f + 1e-5)
            )
    return _resized(
        n,
        x,
        resize.Resize(
            tuple(sizes),
            () if by_sizes else tuple(factors),
            modes[mode],
            n.attr_string("coordinate_transformation_mode", "half_pixel"),
            n.attr_string("nearest_mode", "round_prefer_floor"),
            n.attr_float("cube_coeff", -0.75),
            antialias=n.attr_flag("antialias", False),
        ),
    )


def _of_axes(
    n: LayerNode, axes: Sequence[int], given: Sequence[_T], what: str
) -> Iterator[tuple[int, _T]]:
    """Each axis with what is given for it."""
    if len(given) != len(axes):
        n.bad(f"expected {what} for {len(axes)} axes, found {len(given)}")
    return zip(axes, given, strict=True)


def _first_interpolate(n: LayerNode, x: Value, mode: str) -> Result:
    """Resizing to sizes, as opset 1 defines it."""
    if n.attr_flag("antialias", False):
        n.unsupported("the antialias of opset 1")
    axes = n.axes(n.attr_ints("axes"), x.type.rank)
    sizes = list(x.type.shape)
    for a, size in _of_axes(n, axes, n.dims(n.input(1), "sizes"), "sizes"):
        sizes[a] = size
    where = "align_corners" if n.attr_flag("align_corners", True) else "asymmetric"
    return _resized(n, x, resize.Resize(tuple(sizes), (), mode, where, "simple"))


def _resized(n: LayerNode, x: Value, op: resize.Resize) -> Value:
    """x resized.  The rounding "simple" is upwards along axes that shrink, else downwards."""
    if op.rounding != "simple" or op.mode != "nearest":
        rounding = "floor" if op.rounding == "simple" else op.rounding
        return n.add(replace(op, rounding=rounding), x)
    if not all(map(extents.is_at_most, x.type.shape, op.sizes)):
        smaller = tuple(map(extents.smaller, x.type.shape, op.sizes))
        scales = tuple(min(f, 1) for f in op.scales)
        x = n.add(replace(op, sizes=smaller, scales=scales, rounding="ceil"), x)
    scales = tuple(max(f, 1) for f in op.scales)
    return n.add(replace(op, scales=scales, rounding="floor"), x)
