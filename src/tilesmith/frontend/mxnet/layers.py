"""MXNet's layers of networks: convolutions, pools, normalisations and activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilesmith.frontend.common import pools
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import add_bias, convolve, geometry
from tilesmith.frontend.mxnet.registry import dtype_of, is_listed, list_of, mxnet_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim
from tilesmith.ops import activation as act
from tilesmith.ops import conv as cv
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import matmul as mm
from tilesmith.ops import norm, pool, resize, slicing


def _check_layout(n: LayerNode) -> None:
    if n.has("layout") and n.attr_string("layout") not in ("NCW", "NCHW", "NCDHW"):
        n.unsupported(f"layout {n.attr_string('layout')}; channels must be the second axis")


def _bias(n: LayerNode, left_out: bool) -> Value | None:
    return None if n.attr_flag("no_bias", left_out) else n.input(2)


@mxnet_op("Convolution", "Convolution_v1", "_npx_convolution")
def convolution(n: LayerNode) -> Result:
    _check_layout(n)
    x, kernel = n.input(), n.attr_ints("kernel")
    lists = (list_of(n, a, d, len(kernel)) for a, d in (("stride", 1), ("pad", 0), ("dilate", 1)))
    g = geometry(n, x, kernel, *lists)
    return add_bias(n, convolve(n, x, n.input(1), g, n.attr_int("num_group", 1)), _bias(n, False))


@mxnet_op("Deconvolution", "_npx_deconvolution")
def deconvolution(n: LayerNode) -> Result:
    _check_layout(n)
    x, kernel = n.input(), n.attr_ints("kernel")
    rank = len(kernel)
    strides, pads, dilations, extra = (
        list_of(n, a, d, rank) for a, d in (("stride", 1), ("pad", 0), ("dilate", 1), ("adj", 0))
    )
    if any(n.attr_ints("target_shape", ())):  # it determines pads and extra elements
        sizes = zip(
            n.shape(x)[2:], kernel, strides, dilations, n.attr_ints("target_shape"), strict=True
        )
        over = [s * (e - 1) + (k - 1) * d + 1 - t for e, k, s, d, t in sizes]
        pads, extra = tuple((o + 1) // 2 for o in over), tuple(o % 2 for o in over)
    op = cv.ConvTranspose(strides, (*pads, *pads), dilations, n.attr_int("num_group", 1), extra)
    return add_bias(n, n.add(op, x, n.input(1)), _bias(n, True))


@mxnet_op("FullyConnected", "_npx_fully_connected")
def fully_connected(n: LayerNode) -> Result:
    x = n.input()
    if n.attr_flag("flatten", True) and x.type.rank != 2:
        x = n.reshape(x, (x.type.shape[0], extents.product(x.type.shape[1:])))
    y, bias = n.add(mm.MatMul(transpose_b=True), x, n.input(1)), _bias(n, False)
    return y if bias is None else y + bias


@mxnet_op(
    *("BatchNorm", "BatchNorm_v1", "CuDNNBatchNorm", "_npx_batch_norm", "_contrib_SyncBatchNorm"),
    "_contrib_BatchNormWithReLU",
)
def batch_norm(n: LayerNode) -> Result:
    x, gamma, beta, mean, variance = (n.input(i) for i in range(5))
    if n.attr_flag("fix_gamma", True):
        gamma = n.expand(n.const(1, gamma.dtype), gamma.type.shape)
    op = norm.BatchNorm(n.attr_float("eps", 1e-3))
    axis = n.axis(n.attr_int("axis", 1), x.type.rank)
    y = (
        n.add(op, x, gamma, beta, mean, variance)
        if axis == 1
        else _on_axis(n, op, axis, (x, gamma, beta, mean, variance))
    )
    is_rectified = n.layer.kind == "_contrib_BatchNormWithReLU"
    return (n.add(act.Relu(), y) if is_rectified else y), mean, variance


def _on_axis(n: LayerNode, op: norm.BatchNorm, axis: int, operands: tuple[Value, ...]) -> Value:
    """Batch normalisation of the channels along `axis`."""
    rank = operands[0].type.rank
    order = (*(a for a in range(rank) if a != axis), axis)
    x = operands[0].transpose(*order)
    flat = n.reshape(x, (extents.product(x.type.shape[:-1]), x.type.shape[-1]))
    y = n.reshape(n.add(op, flat, *operands[1:]), x.type.shape)
    return y.transpose(*(order.index(a) for a in range(rank)))


_ACTIVATIONS = {
    "relu": act.Relu,
    "sigmoid": act.Sigmoid,
    "softrelu": act.Softplus,
    "softsign": act.Softsign,
    "tanh": ew.Tanh,
    "mish": act.Mish,
}


@mxnet_op("Activation", "_npx_activation")
def activation(n: LayerNode) -> Result:
    if n.attr_string("act_type") == "log_sigmoid":
        return -n.add(act.Softplus(), -n.input())
    return n.add(_ACTIVATIONS[n.attr_string("act_type", among=tuple(_ACTIVATIONS))](), n.input())


@mxnet_op("LeakyReLU", "_npx_leaky_relu")
def leaky_relu(n: LayerNode) -> Result:
    x, kind = n.input(), n.attr_string("act_type", "leaky")
    if kind == "prelu":
        slope = n.input(1)
        if slope.type.rank == 1 and x.type.rank > 2:
            slope = n.reshape(slope, (*slope.type.shape, *[1] * (x.type.rank - 2)))
        return fn.where(x > 0, x, x * slope)
    slope = n.attr_float("slope", 0.25)
    if kind == "rrelu":  # outside training the slope is the mean of its bounds
        slope = (n.attr_float("lower_bound", 0.125) + n.attr_float("upper_bound", 0.334)) / 2
    kinds = {
        "elu": act.Elu(slope),
        "gelu": act.Gelu(),
        "gelu_erf": act.Gelu(),
        "gelu_tanh": act.Gelu("tanh"),
        "leaky": act.LeakyRelu(slope),
        "rrelu": act.LeakyRelu(slope),
        "selu": act.Selu(1.6732632423543772, 1.0507009873554805),
    }
    return n.add(kinds[n.attr_string("act_type", "leaky", among=tuple(kinds))], x)


@mxnet_op("Pooling", "Pooling_v1", "_npx_pooling")
def pooling(n: LayerNode) -> Result:
    _check_layout(n)
    x, kind = n.input(), n.attr_string("pool_type", "max", among=("avg", "lp", "max", "sum"))
    rank = x.type.rank - 2
    axes = tuple(range(2, 2 + rank))
    power = n.attr_int("p_value", 2, low=1) if kind == "lp" else 1
    if n.attr_flag("global_pool", False):
        if kind == "sum":
            return x.sum(axes, keepdims=True)
        if kind == "lp":
            return n.add(pool.GlobalLpPool(power), x)
        return pools.global_pool(n, x, "max" if kind == "max" else "average")
    kernel = n.attr_ints("kernel")
    g = geometry(n, x, kernel, list_of(n, "stride", 1, rank), list_of(n, "pad", 0, rank))
    how = n.attr_string("pooling_convention", "valid", among=("full", "same", "valid"))
    if how == "same":
        g.pads = g.same_pads()
    rounding = "full" if how == "full" else "floor"
    if kind == "max":
        return pools.pooled(n, x, "max", g, rounding)
    if kind == "sum" and how != "full":
        return pools.pooled(n, x, "average", g, "floor", True) * math.prod(g.kernel)
    if kind == "avg":
        return pools.pooled(n, x, "average", g, rounding, n.attr_flag("count_include_pad", True))
    if how == "full":
        n.unsupported(f"pool_type {kind} with pooling_convention full")
    return n.add(pool.LpPool(g.kernel, g.strides, g.pads, g.dilations, False, power), x)


@mxnet_op("_contrib_AdaptiveAvgPooling2D")
def adaptive_avg_pooling(n: LayerNode) -> Result:
    sizes = n.attr_ints("output_size") if is_listed(n, "output_size") else (1,)
    return pools.adaptive_averages(n, n.input(), sizes if len(sizes) == 2 else sizes * 2)


@mxnet_op("LRN")
def lrn(n: LayerNode) -> Result:
    numbers = (n.attr_float(a, d) for a, d in (("alpha", 1e-4), ("beta", 0.75), ("knorm", 2.0)))
    return n.add(norm.Lrn(n.attr_int("nsize", low=1), *numbers), n.input())


@mxnet_op("InstanceNorm")
def instance_norm(n: LayerNode) -> Result:
    return n.add(norm.InstanceNorm(n.attr_float("eps", 1e-3)), *n.inputs)


@mxnet_op("GroupNorm")
def group_norm(n: LayerNode) -> Result:
    x, *parameters = n.inputs
    groups, channels = n.attr_int("num_groups", 1, low=1), n.extent(x, 1)
    for i, p in enumerate(parameters):
        if n.extent(p, 0) != channels:  # MXNet 1.x: a number for each group
            each = n.expand(n.reshape(p, (groups, 1)), (groups, channels // groups))
            parameters[i] = n.reshape(each, (channels,))
    return n.add(norm.GroupNorm(groups, n.attr_float("eps", 1e-5)), x, *parameters)


@mxnet_op("LayerNorm", "_npx_layer_norm")
def layer_norm(n: LayerNode) -> Result:
    x, gamma, beta = n.inputs
    rank = x.type.rank
    axis = n.axis(n.attr_int("axis", -1), rank)
    mean, centred, variance = norm.moments(x, (axis,))
    deviation = fn.sqrt(variance + n.attr_float("eps", 1e-5))
    along = (*gamma.type.shape, *[1] * (rank - 1 - axis))
    y = centred / deviation * n.reshape(gamma, along) + n.reshape(beta, along)
    return y, mean, deviation


@mxnet_op("L2Normalization")
def l2_normalization(n: LayerNode) -> Result:
    x = n.input()
    last = x.type.rank
    axes = {"instance": range(1, last), "channel": (1,), "spatial": range(2, last)}
    mode = n.attr_string("mode", "instance", among=tuple(axes))
    squares = (x * x).sum(tuple(axes[mode]), keepdims=True)
    return x * fn.rsqrt(squares + n.attr_float("eps", 1e-10))


# Distributions


@mxnet_op("softmax", "log_softmax", "softmin", "_npx_softmax", "_npx_log_softmax")
def softmax(n: LayerNode) -> Result:
    x, kind = n.input(), n.layer.kind
    axis = n.axis(n.attr_int("axis", -1), x.type.rank)
    if n.has("temperature"):
        x = x / n.attr_float("temperature")
    if kind == "softmin":
        x = -x
    op = norm.LogSoftmax(axis) if "log" in kind else norm.Softmax(axis)
    to = dtype_of(n, default=x.dtype)
    if not n.attr_flag("use_length", False):
        return n.add(op, x).cast(to)
    place = n.positions(x.type.shape[axis], x.type.rank, axis)
    lengths = n.reshape(
        n.input(1).cast(i64), [1 if a == axis else d for a, d in enumerate(x.type.shape)]
    )
    return fn.where(place < lengths, n.add(op, fn.where(place < lengths, x, -1e30)), 0.0).cast(to)


@mxnet_op("SoftmaxOutput", "Softmax", "SoftmaxActivation")
def softmax_output(n: LayerNode) -> Result:
    x = n.input()
    of_channels = n.attr_flag("multi_output", False) or n.attr_string("mode", "") == "channel"
    is_last = n.attr_flag("preserve_shape", False) or n.layer.kind == "SoftmaxActivation"
    if of_channels or is_last or x.type.rank == 2:
        return n.add(norm.Softmax(1 if of_channels else -1), x)
    rows = n.reshape(x, (x.type.shape[0], extents.product(x.type.shape[1:])))
    return n.reshape(n.add(norm.Softmax(-1), rows), x.type.shape)


# Images of other sizes


@mxnet_op("UpSampling")
def up_sampling(n: LayerNode) -> Result:
    x, scale = n.input(), n.attr_int("scale", low=1)
    if n.attr_string("sample_type", among=("nearest", "bilinear")) == "bilinear":
        op = cv.ConvTranspose((scale, scale), (scale // 2,) * 4, (1, 1), n.extent(x, 1))
        return n.add(op, x, n.input(1))
    high, wide = (extents.product((d, scale)) for d in x.type.shape[2:])
    parts = [_repeated(n, v, (high, wide)) for v in n.inputs]
    if n.attr_string("multi_input_mode", "concat") == "concat":
        return n.add(slicing.Concat(1), *parts) if len(parts) > 1 else parts[0]
    total = parts[0]
    for p in parts[1:]:
        total = total + p
    return total


def _repeated(n: LayerNode, x: Value, sizes: tuple[Dim, ...]) -> Value:
    op = resize.Resize((*x.type.shape[:2], *sizes), (), "nearest", "asymmetric", "floor")
    return n.add(op, x)


_PARITIES: dict[str, Callable[[int], int]] = {
    "to_even_down": lambda d: d - d % 2,
    "to_even_up": lambda d: d + d % 2,
    "to_odd_down": lambda d: d - 1 + d % 2,
    "to_odd_up": lambda d: d + 1 - d % 2,
}
_MODES = ("like", "odd_scale", "size", *_PARITIES)


@mxnet_op("_contrib_BilinearResize2D")
def bilinear_resize(n: LayerNode) -> Result:
    x, mode = n.input(), n.attr_string("mode", "size", among=_MODES)
    sizes: Sequence[Dim]
    if mode == "like":
        sizes = n.input(1).type.shape[2:]
    elif mode in _PARITIES:
        sizes = [_PARITIES[mode](d) for d in n.shape(x)[2:]]
    elif n.has("scale_height"):
        factors = n.attr_float("scale_height"), n.attr_float("scale_width")
        whole = mode == "size"
        pairs = zip(n.shape(x)[2:], factors, strict=True)
        sizes = [int(d * f) if whole or d % 2 == 0 else int((d - 1) * f) + 1 for d, f in pairs]
    else:
        sizes = n.attr_int("height", 1, low=1), n.attr_int("width", 1, low=1)
    how = "align_corners" if n.attr_flag("align_corners", True) else "half_pixel"
    return n.add(resize.Resize((*x.type.shape[:2], *sizes), (), "linear", how), x)
