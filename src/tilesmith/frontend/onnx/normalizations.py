"""ONNX's normalisations, in their inference form."""

from __future__ import annotations

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.frontend.onnx.shapes import reshape_to
from tilesmith.frontend.onnx.tensors import element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir.types import same_shape
from tilesmith.ops import norm, shape


@onnx_op("BatchNormalization", since=7)
def batch_normalization(n: OnnxNode) -> Result:
    n.ignore("momentum")
    if n.version < 9:
        if not n.attr_flag("spatial", True):
            n.unsupported("statistics per place (spatial=0)")
    elif n.version >= 14 and n.attr_flag("training_mode"):
        n.unsupported("training mode; export the model for inference")
    if n.version < 14 and any(n.wants(i) for i in range(1, 5)):
        n.unsupported("the statistics of training as outputs; export the model for inference")
    x = n.input(0)
    statistics = [n.input(i) for i in range(1, 5)]
    channels = n.shape(x)[1] if x.type.rank > 1 else 1
    for name, v in zip(("scale", "B", "mean", "var"), statistics, strict=True):
        if not same_shape(v.type.shape, (channels,)):
            n.bad(f"{name}: expected one number per channel, [{channels}], found {v.type}")
    return n.add(norm.BatchNorm(n.attr_float("epsilon", 1e-5)), x, *statistics)


@onnx_op("LayerNormalization", since=17)
def layer_normalization(n: OnnxNode) -> Result:
    x, bias = n.input(0), n.optional(2)
    axis = n.axis(n.attr_int("axis", -1), x.type.rank)
    epsilon = n.attr_float("epsilon", 1e-5)
    _check_stash(n)
    operands = (x, n.input(1)) if bias is None else (x, n.input(1), bias)
    return n.add(norm.LayerNorm(axis, epsilon, n.wants(1) or n.wants(2)), *operands)


def _check_stash(n: OnnxNode) -> None:
    """Moments are computed in f32 for narrower inputs, which is the attribute's default."""
    stash = element_type(n.attr_int("stash_type", 1), "attribute 'stash_type'")
    if stash.name != "f32":
        n.unsupported(f"stash_type {stash}; only f32 is supported")


@onnx_op("RMSNormalization", since=23)
def rms_normalization(n: OnnxNode) -> Result:
    x = n.input(0)
    axis = n.axis(n.attr_int("axis", -1), x.type.rank)
    _check_stash(n)
    return n.add(norm.RmsNorm(axis, n.attr_float("epsilon", 1e-5)), x, n.input(1))


@onnx_op("InstanceNormalization", since=6)
def instance_normalization(n: OnnxNode) -> Result:
    return n.add(
        norm.InstanceNorm(n.attr_float("epsilon", 1e-5)), n.input(0), n.input(1), n.input(2)
    )


@onnx_op("GroupNormalization", since=18)
def group_normalization(n: OnnxNode) -> Result:
    x = n.input(0)
    groups = n.attr_int("num_groups")
    scale, bias = n.input(1), n.input(2)
    if n.version >= 21:
        _check_stash(n)
    elif groups > 0:  # opset 18 gave scale and bias per group
        channels = n.shape(x)[1]
        scale, bias = (_per_channel(n, v, groups, channels) for v in (scale, bias))
    return n.add(norm.GroupNorm(groups, n.attr_float("epsilon", 1e-5)), x, scale, bias)


def _per_channel(n: OnnxNode, v: Value, groups: int, channels: int) -> Value:
    """A number per group, repeated for each channel of the group."""
    if not same_shape(v.type.shape, (groups,)) or channels % groups:
        n.bad(
            f"expected one number per group, [{groups}], which divide {channels} channels; "
            f"found {v.type}"
        )
    wide = n.add(shape.Expand((groups, channels // groups)), reshape_to(n, v, (groups, 1)))
    return reshape_to(n, wide, (channels,))


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
