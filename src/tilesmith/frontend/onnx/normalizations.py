"""ONNX's normalisations, in their inference form."""

from __future__ import annotations

import math

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.frontend.onnx.tensors import element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f32
from tilesmith.ir.types import same_shape
from tilesmith.ops import norm
from tilesmith.ops.functions import rsqrt


@onnx_op("BatchNormalization", since=1)
def batch_normalization(n: OnnxNode) -> Result:
    """Normalisation with given statistics.  Training uses the batch's statistics instead, and
    updates the given ones with them.

    Before opset 14 a node is in training if it has more than one output.
    """
    x, scale, bias, mean, variance = (n.input(i) for i in range(5))
    parameters, dims = (scale, bias, mean, variance), x.type.shape
    if n.version < 7:
        n.ignore("is_test")
    training = any(n.wants(i) for i in range(1, 5))
    if n.version >= 14:
        training = n.attr_flag("training_mode")
    kept = n.attr_float("momentum", 0.9)
    if n.version < 9 and not n.attr_flag("spatial", True):  # statistics for each pixel position
        x = n.reshape(x, (dims[0], math.prod(n.shape(mean))))
        parameters = tuple(n.reshape(v, (v.type.size,)) for v in parameters)
    channels = x.type.shape[1] if x.type.rank > 1 else 1
    for name, v in zip(("scale", "B", "mean", "var"), parameters, strict=True):
        if not same_shape(v.type.shape, (channels,)):
            n.bad(f"{name}: expected one number per channel, [{channels}], found {v.type}")
    op = norm.BatchNorm(n.attr_float("epsilon", 1e-5))
    if not training:
        return n.reshape(n.add(op, x, *parameters), dims)
    batch = _batch_statistics(n, x, parameters[2].dtype)
    moved = [old * kept + new * (1 - kept) for old, new in zip(parameters[2:], batch, strict=True)]
    y = n.reshape(n.add(op, x, *parameters[:2], *batch), dims)
    results = [n.reshape(v, n.shape(mean)) for v in (*moved, *batch)]
    return (y, *results) if n.version < 14 else (y, *results[:2])


def _batch_statistics(n: OnnxNode, x: Value, to: DType) -> tuple[Value, Value]:
    """Mean and variance of each channel, in `to`, computed in f32 at least."""
    axes = (0, *range(2, x.type.rank))
    wide = x.cast(to) if to.bits > x.dtype.bits else x
    mean = wide.mean(axes, keepdims=True)
    centred = wide - mean
    variance = (centred * centred).mean(axes)
    mean = n.reshape(mean, n.shape(variance))
    return mean.cast(to), variance.cast(to)


@onnx_op("LayerNormalization", since=17)
def layer_normalization(n: OnnxNode) -> Result:
    x, bias = n.input(0), n.optional(2)
    axis = n.axis(n.attr_int("axis", -1), x.type.rank)
    epsilon = n.attr_float("epsilon", 1e-5)
    _check_stash(n)
    operands = (x, n.input(1)) if bias is None else (x, n.input(1), bias)
    return n.add(norm.LayerNorm(axis, epsilon, n.wants(1) or n.wants(2)), *operands)


def _check_stash(n: OnnxNode) -> None:
    """Raises UnsupportedError unless `stash_type` is f32: the type in which moments of narrower
    inputs are computed.
    """
    stash = element_type(n.attr_int("stash_type", 1), "attribute 'stash_type'")
    if stash.name != "f32":
        n.unsupported(f"stash_type {stash}; only f32 is supported")


@onnx_op("RMSNormalization", since=23)
def rms_normalization(n: OnnxNode) -> Result:
    x = n.input(0)
    axis = n.axis(n.attr_int("axis", -1), x.type.rank)
    _check_stash(n)
    return n.add(norm.RmsNorm(axis, n.attr_float("epsilon", 1e-5)), x, n.input(1))


@onnx_op("SimplifiedLayerNormalization", since=1)
def simplified_layer_normalization(n: OnnxNode) -> Result:
    """An RMS norm, and the reciprocal of the root mean square.  ONNX Runtime defines the operator,
    which for historical reasons belongs to ONNX's domain.
    """
    x = n.input(0)
    axis, epsilon = n.axis(n.attr_int("axis", -1), x.type.rank), n.attr_float("epsilon", 1e-5)
    n.ignore("stash_type")
    y = n.add(norm.RmsNorm(axis, epsilon), x, n.input(1))
    if not n.wants(1):
        return y
    wide = x.cast(f32)
    axes = tuple(range(axis, x.type.rank))
    mean = (wide * wide).mean(axes, keepdims=True)
    return y, rsqrt(mean + epsilon)


@onnx_op("InstanceNormalization", since=1)
def instance_normalization(n: OnnxNode) -> Result:
    x, scale, bias = (n.input(i) for i in range(3))
    op = norm.InstanceNorm(n.attr_float("epsilon", 1e-5))
    if x.type.rank == 2:  # one position per channel
        wide = n.add(op, n.reshape(x, (*x.type.shape, 1)), scale, bias)
        return n.reshape(wide, x.type.shape)
    return n.add(op, x, scale, bias)


@onnx_op("GroupNormalization", since=18)
def group_normalization(n: OnnxNode) -> Result:
    x = n.input(0)
    groups = n.attr_int("num_groups")
    scale, bias = n.input(1), n.input(2)
    if n.version >= 21:
        _check_stash(n)
    elif groups > 0:  # opset 18 defined scale and bias per group
        channels = n.extent(x, 1)
        scale, bias = (_per_channel(n, v, groups, channels) for v in (scale, bias))
    return n.add(norm.GroupNorm(groups, n.attr_float("epsilon", 1e-5)), x, scale, bias)


def _per_channel(n: OnnxNode, v: Value, groups: int, channels: int) -> Value:
    """A number per group, repeated for each channel of the group."""
    if not same_shape(v.type.shape, (groups,)) or channels % groups:
        n.bad(
            f"expected one number per group, [{groups}], which divide {channels} channels; "
            f"found {v.type}"
        )
    wide = n.reshape(v, (groups, 1)).expand(groups, channels // groups)
    return n.reshape(wide, (channels,))


@onnx_op("MeanVarianceNormalization", since=9)
def mean_variance_normalization(n: OnnxNode) -> Result:
    axes = n.attr_ints("axes")
    return n.add(norm.MeanVarianceNorm((0, 2, 3) if axes is None else axes), n.input(0))


@onnx_op("LpNormalization", since=1)
def lp_normalization(n: OnnxNode) -> Result:
    return n.add(norm.LpNormalization(n.attr_int("axis", -1), n.attr_int("p", 2)), n.input(0))


@onnx_op("LRN", since=1)
def lrn(n: OnnxNode) -> Result:
    size = n.attr_int("size")
    if size < 1:
        n.bad(f"attribute 'size': expected at least 1, found {size}")
    op = norm.Lrn(
        size, n.attr_float("alpha", 1e-4), n.attr_float("beta", 0.75), n.attr_float("bias", 1.0)
    )
    return n.add(op, n.input(0))
