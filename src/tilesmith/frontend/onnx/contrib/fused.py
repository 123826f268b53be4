"""Products, activations, normalisations and convolutions that optimisers fuse."""

from __future__ import annotations

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.contractions import gemm
from tilesmith.frontend.onnx.contrib import contrib_op
from tilesmith.frontend.onnx.convolutions import conv, max_pool
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.normalizations import simplified_layer_normalization
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i32
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, norm
from tilesmith.ops import matmul as mm
from tilesmith.ops.base import Op


def _sum(n: OnnxNode, *terms: Value | None) -> Value:
    """The sum of the inputs that are not omitted."""
    total, *rest = (t for t in terms if t is not None)
    for term in rest:
        total = total + term
    return total


@contrib_op("FusedMatMul", "TransposeMatMul")
def fused_matmul(n: OnnxNode) -> Result:
    """alpha A B.  With `transBatchA` the rows of A are its first axis, in front of the batch axes;
    `transA` transposes after that.
    """
    operands = []
    for i, side in enumerate("AB"):
        x = n.input(i)
        if n.attr_flag(f"transBatch{side}") and x.type.rank > 2:
            x = x.transpose(*range(1, x.type.rank - 1), 0, x.type.rank - 1)
        operands.append(x)
    flip_a, flip_b = (
        n.attr_flag(f"trans{side}") and x.type.rank > 1
        for side, x in zip("AB", operands, strict=True)
    )
    y = n.add(mm.MatMul(flip_a, flip_b), *operands)
    alpha = n.attr_float("alpha", 1.0)
    return y if alpha == 1.0 else y * alpha


def _activated(n: OnnxNode, y: Value) -> Value:
    """Apply the activation that attribute `activation` names, if any, to `y`."""
    name = n.attr_string("activation", "")
    single = [f"activation_{p}" for p in ("alpha", "beta", "gamma")]
    numbers = n.attr_floats("activation_params") or [n.attr_float(a) for a in single if n.has(a)]
    makes = {
        "Relu": act.Relu, "Sigmoid": act.Sigmoid, "Tanh": ew.Tanh, "LeakyRelu": act.LeakyRelu,
        "HardSigmoid": act.HardSigmoid, "Clip": ew.Clip, "Elu": act.Elu, "Softplus": act.Softplus,
        "Softsign": act.Softsign, "ThresholdedRelu": act.ThresholdedRelu,
    }  # fmt: skip
    if not name:
        return y
    if name not in makes:
        n.unsupported(f"activation {name!r}")
    try:
        op: Op = makes[name](*numbers)
    except TypeError:
        n.bad(f"expected the parameters of {name}, found {list(numbers)}")
    return n.add(op, y)


@contrib_op("FusedGemm")
def fused_gemm(n: OnnxNode) -> Result:
    return _activated(n, _value(n, gemm(n.as_operator("Gemm", 13))))


def _value(n: OnnxNode, result: Result) -> Value:
    return result if isinstance(result, Value) else n.bad("expected a tensor")


@contrib_op("FusedConv")
def fused_conv(n: OnnxNode) -> Result:
    """A convolution plus Z, followed by an activation."""
    y = _value(n, conv(n.as_operator("Conv", 11, n.all_slots[:3])))
    return _activated(n, _sum(n, y, n.optional(3)))


def _channels(n: OnnxNode, x: Value, last: bool) -> Value:
    """Transpose [N, ..., C] to [N, C, ...], or the reverse if `last`."""
    inner = range(1, x.type.rank - 1)
    perm = (0, *(i + 1 for i in inner), 1) if last else (0, x.type.rank - 1, *inner)
    return x.transpose(*perm)


def channels_first(n: OnnxNode, x: Value) -> Value:
    """Transpose [N, spatial..., C] to [N, C, spatial...]."""
    return _channels(n, x, last=False)


def channels_last(n: OnnxNode, x: Value) -> Value:
    """Transpose [N, C, spatial...] to [N, spatial..., C]."""
    return _channels(n, x, last=True)


@contrib_op("NhwcConv")
def nhwc_conv(n: OnnxNode) -> Result:
    """A convolution whose images and weights have their channels last."""
    x, w = (channels_first(n, n.input(i)) for i in (0, 1))
    return channels_last(n, _value(n, conv(n.as_operator("Conv", 11, (x, w, n.optional(2))))))


@contrib_op("NhwcMaxPool")
def nhwc_max_pool(n: OnnxNode) -> Result:
    x = channels_first(n, n.input(0))
    return channels_last(n, _value(n, max_pool(n.as_operator("MaxPool", 12, (x,)))))


@contrib_op("Gelu", "BiasGelu")
def gelu(n: OnnxNode) -> Result:
    return n.add(act.Gelu(), _sum(n, n.input(0), n.optional(1)))


@contrib_op("FastGelu")
def fast_gelu(n: OnnxNode) -> Result:
    return n.add(act.Gelu("tanh"), _sum(n, n.input(0), n.optional(1)))


@contrib_op("QuickGelu")
def quick_gelu(n: OnnxNode) -> Result:
    return n.add(act.Silu(n.attr_float("alpha", 1.702)), n.input(0))


contrib_op("SimplifiedLayerNormalization")(simplified_layer_normalization)


@contrib_op("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_layer_normalization(n: OnnxNode) -> Result:
    """The norm of input + skip + bias; that sum is the fourth output."""
    rms = n.op_type == "SkipSimplifiedLayerNormalization"
    x, skip, gamma = (n.input(i) for i in range(3))
    beta = None if rms else n.optional(3)
    if n.wants(1) or n.wants(2):
        n.unsupported("the mean and the inverse deviation, which are outputs of training")
    total = _sum(n, x, skip, n.optional(3 if rms else 4))
    kind = norm.RmsNorm if rms else norm.LayerNorm
    op = kind(x.type.rank - 1, n.attr_float("epsilon", 1e-12))
    return n.add(op, total, gamma, *([] if beta is None else [beta])), None, None, total


@contrib_op("EmbedLayerNormalization")
def embed_layer_normalization(n: OnnxNode) -> Result:
    """The norm of the sum of embeddings of words, positions and segments."""
    words, segments, mask, positions = n.input(0), n.optional(1), n.optional(7), n.optional(8)
    parts = [n.add(gather.Gather(0), n.input(2), words)]
    if positions is None:
        positions = n.positions(words.type.shape[1])
    parts.append(n.add(gather.Gather(0), n.input(3), positions))
    segment_table = n.optional(4)
    if segments is not None and segment_table is not None:
        parts.append(n.add(gather.Gather(0), segment_table, segments))
    total = _sum(n, *parts)
    y = n.add(norm.LayerNorm(2, n.attr_float("epsilon", 1e-12)), total, n.input(5), n.input(6))
    n.ignore("mask_index_type")
    if mask is None:
        count = n.const(0, i32).expand(*words.type.shape[:1])
    else:
        count = mask.cast(i32).sum((1,))
    return y, count, total
