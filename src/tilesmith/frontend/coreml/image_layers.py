"""Layers of Core ML's neural networks on images, whose last axes are channels, height and width.

Older networks have values of rank 5: sequence, batch, channels, height, width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.layers import Inputs, embedded, layer, weights
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import apply
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ops import functions as fn
from tilesmith.ops import slicing


def one(n: MilNode, kind: str, **arguments: Any) -> Value:
    """The only result of operator `kind`, a tensor."""
    made = apply(n, kind, **arguments)
    return made if isinstance(made, Value) else n.bad(f"expected one result of {kind}")


def on_images(n: MilNode, x: Value, made: Callable[[Value], Value]) -> Value:
    """Apply a function of images [N, C, H, W] to x.  All axes of x before C count as N."""
    rank, dims = x.type.rank, x.type.shape
    if rank < 3:
        n.bad(f"expected images of 3 axes or more, found {x.type}")
    lead = dims[: rank - 3]
    y = made(n.reshape(x, (extents.product(lead), *dims[rank - 3 :])))
    return n.reshape(y, (*lead, *y.type.shape[1:]))


def _borders(amounts: Message | None) -> list[int]:
    """The border widths before and after each axis; zeros by default."""
    edges = () if amounts is None else amounts.borderAmounts
    return [int(v) for e in edges for v in (e.startEdgeSize, e.endEdgeSize)] or [0] * 4


def _padding(p: Message) -> dict[str, Any]:
    if p.same is not None:
        is_low = p.same.asymmetryMode == "TOP_LEFT_HEAVY"
        return {"pad_type": "same_lower" if is_low else "same"}
    valid = p.valid.paddingAmounts if p.valid is not None else None
    return {"pad_type": "custom", "pad": _borders(valid)}


def _pair(numbers: np.ndarray, default: int) -> list[int]:
    return numbers.tolist() or [default] * 2


@layer("convolution")
def convolution(n: MilNode, p: Message, xs: Inputs) -> Result:
    kernel, groups, out = _pair(p.kernelSize, 3), int(p.nGroups) or 1, int(p.outputChannels)
    arguments = {"strides": _pair(p.stride, 1), "dilations": _pair(p.dilationFactor, 1),
                 "groups": groups, **_padding(p)}  # fmt: skip
    bias = weights(n, p.bias, (out,)) if p.hasBias else None
    dims = (out, p.kernelChannels, *kernel)
    kind = "conv"
    if p.isDeconvolution:
        kind, dims = "conv_transpose", (p.kernelChannels, out // groups, *kernel)
        if len(p.outputShape):
            arguments["output_shape"] = p.outputShape
    w = weights(n, p.weights, dims) if len(xs) == 1 else xs[1]
    return on_images(n, xs[0], lambda x: one(n, kind, x=x, weight=w, bias=bias, **arguments))


_POOLS = {"MAX": "max_pool", "AVERAGE": "avg_pool", "L2": "l2_pool"}


@layer("pooling")
def pooling(n: MilNode, p: Message, xs: Inputs) -> Result:
    arguments: dict[str, Any] = {"kernel_sizes": _pair(p.kernelSize, 3)}
    if p.globalPooling:
        arguments = {"kernel_sizes": n.shape(xs[0])[-2:], "pad_type": "valid"}
    elif p.includeLastPixel is not None:
        pad = np.repeat(_pair(p.includeLastPixel.paddingAmounts, 0), 2)
        arguments |= {"pad_type": "custom", "pad": pad, "ceil_mode": True}
    else:
        arguments |= _padding(p)
    if not p.globalPooling:
        arguments["strides"] = _pair(p.stride, 1)
    if p.type == "AVERAGE":
        arguments["exclude_padding_from_average"] = p.avgPoolExcludePadding
    return on_images(n, xs[0], lambda x: one(n, _POOLS[p.type], x=x, **arguments))


def _volume(p: Message, name: str) -> list[int]:
    """The fields of `p` that begin with `name`, for depth, height and width."""
    return [max(int(getattr(p, f"{name}{axis}")), 1) for axis in ("Depth", "Height", "Width")]


def _volume_padding(p: Message) -> dict[str, Any]:
    sides = ("Front", "Back", "Top", "Bottom", "Left", "Right")
    pad = [int(getattr(p, f"customPadding{side}")) for side in sides]
    return {"pad_type": p.paddingType.lower(), "pad": pad}


@layer("convolution3d")
def convolution_3d(n: MilNode, p: Message, xs: Inputs) -> Result:
    groups, out, own = max(p.nGroups, 1), p.outputChannels, p.inputChannels
    dims = (own, out // groups) if p.isDeconvolution else (out, own // groups)
    arguments = {
        "weight": weights(n, p.weights, (*dims, *_volume(p, "kernel"))),
        "bias": weights(n, p.bias, (out,)) if p.hasBias else None,
        "strides": _volume(p, "stride"), "dilations": _volume(p, "dilation"), "groups": groups,
        **_volume_padding(p),
    }  # fmt: skip
    if p.isDeconvolution and len(p.outputShape):
        arguments["output_shape"] = p.outputShape
    return apply(n, "conv_transpose" if p.isDeconvolution else "conv", x=xs[0], **arguments)


@layer("pooling3d")
def pooling_3d(n: MilNode, p: Message, xs: Inputs) -> Result:
    arguments = {"kernel_sizes": _volume(p, "kernel"), "strides": _volume(p, "stride"),
                 **_volume_padding(p)}  # fmt: skip
    if p.type == "AVERAGE":
        arguments["exclude_padding_from_average"] = p.countExcludePadding
    return apply(n, _POOLS[p.type], x=xs[0], **arguments)


@layer("globalPooling3d")
def global_pooling_3d(n: MilNode, p: Message, xs: Inputs) -> Result:
    kind = {"MAX": "reduce_max", "AVERAGE": "reduce_mean"}[p.type]
    return apply(n, kind, x=xs[0], axes=(-3, -2, -1), keep_dims=True)


@layer("batchnorm")
def batchnorm(n: MilNode, p: Message, xs: Inputs) -> Result:
    names = ("gamma", "beta", "mean", "variance")
    stored = {name: weights(n, getattr(p, name), (p.channels,)) for name in names}
    kind = "batch_norm"
    if p.computeMeanVar:
        if not p.instanceNormalization:
            n.unsupported("statistics of the batch")
        kind, stored = "instance_norm", {k: stored[k] for k in names[:2]}
    epsilon = p.epsilon or 1e-5
    return on_images(n, xs[0], lambda x: one(n, kind, x=x, epsilon=epsilon, **stored))


@layer("mvn")
def mvn(n: MilNode, p: Message, xs: Inputs) -> Result:
    x = xs[0]
    axes = tuple(range(x.type.rank - (3 if p.acrossChannels else 2), x.type.rank))
    centred = x - x.mean(axes, keepdims=True)
    if not p.normalizeVariance:
        return centred
    deviation = fn.sqrt((centred * centred).mean(axes, keepdims=True))
    return centred / (deviation + (p.epsilon or 1e-5))


@layer("l2normalize")
def l2normalize(n: MilNode, p: Message, xs: Inputs) -> Result:
    return apply(n, "l2_norm", x=xs[0], epsilon=p.epsilon or 1e-6)


@layer("lrn")
def lrn(n: MilNode, p: Message, xs: Inputs) -> Result:
    arguments = {"size": p.localSize, "alpha": p.alpha, "beta": p.beta, "k": p.k or 1.0}
    return on_images(n, xs[0], lambda x: one(n, "local_response_norm", x=x, **arguments))


@layer("softmax")
def softmax(n: MilNode, p: Message, xs: Inputs) -> Result:
    return apply(n, "softmax", x=xs[0], axis=-3 if xs[0].type.rank > 2 else -1)


# Activation functions and arithmetic

_ACTIVATIONS = {
    "linear": "linear_activation", "ReLU": "relu", "leakyReLU": "leaky_relu",
    "thresholdedReLU": "thresholded_relu", "PReLU": "prelu", "tanh": "tanh",
    "scaledTanh": "scaled_tanh", "sigmoid": "sigmoid", "sigmoidHard": "sigmoid_hard", "ELU": "elu",
    "softsign": "softsign", "softplus": "softplus", "parametricSoftplus": "softplus_parametric",
}  # fmt: skip


@layer("activation")
def activation(n: MilNode, p: Message, xs: Inputs) -> Result:
    kind = p.which(*_ACTIVATIONS)
    if kind is None:
        n.unsupported("an activation function that is not known")
    own, x = getattr(p, kind), xs[0]
    if kind in ("PReLU", "parametricSoftplus"):
        count = n.extent(x, -3)
        names = ("alpha", "beta") if kind == "parametricSoftplus" else ("alpha",)
        stored = {name: _channels(n, getattr(own, name), count) for name in names}
        return on_images(n, x, lambda v: one(n, _ACTIVATIONS[kind], x=v, **stored))
    names = [name for name in ("alpha", "beta") if own.message_name in ("Alpha", "AlphaBeta")]
    if own.message_name == "Alpha":
        names = names[:1]
    return apply(n, _ACTIVATIONS[kind], x=x, **{name: getattr(own, name) for name in names})


def _channels(n: MilNode, stored: Message, count: int) -> Value:
    """Stored numbers, one for each channel.  A single number stands for all channels."""
    size = stored.floatValue.size or len(stored.float16Value) // 2
    value = weights(n, stored, (size if size in (1, count) else count,))
    return n.expand(value, (count,)) if value is not None else n.bad("expected weights")


@layer("unary")
def unary(n: MilNode, p: Message, xs: Inputs) -> Result:
    scale = p.scale if p.has("scale") else 1.0
    x = xs[0] * scale + p.shift
    kind, epsilon = p.type.lower(), p.epsilon if p.has("epsilon") else 1e-6
    if kind in ("power", "threshold"):
        return x ** float(p.alpha) if kind == "power" else fn.maximum(x, p.alpha)
    if kind in ("rsqrt", "inverse"):
        return apply(n, kind, x=x, epsilon=epsilon)
    return apply(n, kind, x=x)


def _folded(name: str, kind: str) -> None:
    @layer(name)
    def convert(n: MilNode, p: Message, xs: Inputs) -> Result:
        if len(xs) == 1 and kind in ("add", "mul"):
            return apply(n, kind, x=xs[0], y=np.float32(p.alpha))
        total = xs[0]
        for x in xs[1:]:
            total = one(n, kind, x=total, y=x)
        return total / float(len(xs)) if name == "average" else total


_FOLDS = {"add": "add", "multiply": "mul", "max": "maximum", "min": "minimum", "average": "add"}
for _name, _kind in _FOLDS.items():
    _folded(_name, _kind)


@layer("scale")
def scale(n: MilNode, p: Message, xs: Inputs) -> Result:
    factor = weights(n, p.scale, p.shapeScale.tolist())
    y = xs[0] if factor is None else xs[0] * factor
    offset = weights(n, p.bias, p.shapeBias.tolist()) if p.hasBias else None
    return y if offset is None else y + offset


@layer("bias")
def bias(n: MilNode, p: Message, xs: Inputs) -> Result:
    offset = weights(n, p.bias, p.shape.tolist())
    return xs[0] if offset is None else xs[0] + offset


_AXES = {"CHW": (-3, -2, -1), "HW": (-2, -1), "C": (-3,), "H": (-2,), "W": (-1,)}
_MODES = {"SUM": "sum", "AVG": "mean", "PROD": "prod", "SUMSQUARE": "sum_square", "L1": "l1_norm",
          "L2": "l2_norm", "MAX": "max", "MIN": "min"}  # fmt: skip


@layer("reduce")
def reduce(n: MilNode, p: Message, xs: Inputs) -> Result:
    axes = _AXES[p.axis]
    if p.mode == "ARGMAX":
        return apply(n, "reduce_argmax", x=xs[0], axis=axes[0], keep_dims=True)
    if p.mode == "LOGSUM":
        return fn.log(xs[0].sum(axes, keepdims=True) + p.epsilon)
    return apply(n, f"reduce_{_MODES[p.mode]}", x=xs[0], axes=axes, keep_dims=True)


# Products


@layer("innerProduct")
def inner_product(n: MilNode, p: Message, xs: Inputs) -> Result:
    """A product with rows of channels.  Images of one pixel keep their height and width of 1."""
    x = xs[0]
    is_image = x.type.rank > 3
    rows = n.reshape(x, x.type.shape[:-2]) if is_image else x
    w = weights(n, p.weights, (p.outputChannels, p.inputChannels))
    offset = weights(n, p.bias, (p.outputChannels,)) if p.hasBias else None
    y = one(n, "linear", x=rows, weight=w, bias=offset)
    return n.reshape(y, (*y.type.shape, 1, 1)) if is_image else y


@layer("embedding")
def embedding(n: MilNode, p: Message, xs: Inputs) -> Result:
    x = xs[0]
    y = embedded(n, p, n.reshape(x, x.type.shape[:-3]), (p.outputChannels, p.inputDim))
    return n.reshape(y, (*y.type.shape, 1, 1))


# Shapes


@layer("crop")
def crop(n: MilNode, p: Message, xs: Inputs) -> Result:
    if len(xs) == 1:
        rows = _borders(p.cropAmounts)
        return apply(n, "crop", x=xs[0], crop_height=rows[:2], crop_width=rows[2:])
    first, dims = _pair(p.offset, 0), xs[1].type.shape[-2:]
    ends = tuple(extents.total((a, d)) for a, d in zip(first, dims, strict=True))
    return n.add(slicing.Slice(tuple(first), ends, (-2, -1), (1, 1)), xs[0])


@layer("padding")
def padding(n: MilNode, p: Message, xs: Inputs) -> Result:
    mode = {"reflection": "reflect", "replication": "replicate"}.get(
        p.which("reflection", "replication") or "", "constant"
    )
    filler = p.constant.value if p.constant is not None else 0.0
    pads = _borders(p.paddingAmounts)
    return apply(n, "pad", x=xs[0], pad=pads, mode=mode, constant_val=filler)


@layer("upsample")
def upsample(n: MilNode, p: Message, xs: Inputs) -> Result:
    factors = p.fractionalScalingFactor.tolist() or _pair(p.scalingFactor, 1)
    sizes = {"scale_factor_height": factors[0], "scale_factor_width": factors[1]}
    if p.mode == "NN":
        return apply(n, "upsample_nearest_neighbor", x=xs[0], **sizes)
    aligned = p.linearUpsampleMode == "ALIGN_CORNERS_TRUE"
    centred = p.linearUpsampleMode == "ALIGN_CORNERS_FALSE"
    return apply(n, "upsample_bilinear", x=xs[0], align_corners=aligned,
                 half_pixel_centers=centred, **sizes)  # fmt: skip


_SAMPLING = {
    "STRICT_ALIGN_ENDPOINTS_MODE": "STRICT_ALIGN_CORNERS",
    "ALIGN_ENDPOINTS_MODE": "ALIGN_CORNERS",
    "UPSAMPLE_MODE": "DEFAULT",
    "ROI_ALIGN_MODE": "OFFSET_CORNERS",
}


@layer("resizeBilinear")
def resize_bilinear(n: MilNode, p: Message, xs: Inputs) -> Result:
    mode = p.mode.samplingMethod if p.mode is not None else "STRICT_ALIGN_ENDPOINTS_MODE"
    height, width = _pair(p.targetSize, 1)
    return apply(n, "resize_bilinear", x=xs[0], target_size_height=height,
                 target_size_width=width, sampling_mode=_SAMPLING[mode])  # fmt: skip


@layer("cropResize")
def crop_resize(n: MilNode, p: Message, xs: Inputs) -> Result:
    x, boxes = xs
    height, width = _pair(p.targetSize, 1)
    mode = p.mode.samplingMethod if p.mode is not None else "STRICT_ALIGN_ENDPOINTS_MODE"
    box_mode = p.boxIndicesMode.boxMode if p.boxIndicesMode is not None else "CORNERS_HEIGHT_FIRST"
    return apply(
        n, "crop_resize", x=n.reshape(x, x.type.shape[-4:]), roi=boxes, target_height=height,
        target_width=width, normalized_coordinates=p.normalizedCoordinates,
        spatial_scale=p.spatialScale or 1.0, box_coordinate_mode=box_mode,
        sampling_mode=_SAMPLING[mode],
    )  # fmt: skip


@layer("dot")
def dot(n: MilNode, p: Message, xs: Inputs) -> Result:
    x, y = xs
    if p.cosineSimilarity:
        x, y = (v / fn.sqrt((v * v).sum((-3,), keepdims=True)) for v in (x, y))
    return (x * y).sum((-3,), keepdims=True)


@layer("flatten")
def flatten(n: MilNode, p: Message, xs: Inputs) -> Result:
    x = _ordered(xs[0], p.mode)
    lead, inner = x.type.shape[:-3], x.type.shape[-3:]
    return n.reshape(x, (*lead, extents.product(inner), 1, 1))


def _ordered(x: Value, mode: str) -> Value:
    """x, with its channels moved to the end if `mode` says so."""
    rank = x.type.rank
    return x.transpose(*range(rank - 3), rank - 2, rank - 1, rank - 3) if "LAST" in mode else x


@layer("reshape")
def reshape(n: MilNode, p: Message, xs: Inputs) -> Result:
    """Reshape channels, height and width; with four target sizes also the sequence."""
    target, x = p.targetShape.tolist(), _ordered(xs[0], p.mode)
    lead: Sequence[Any] = x.type.shape[:-3]
    if len(target) == 4 and lead:
        lead = (target[0], *lead[1:])
    inner = target[-3:]
    if "LAST" not in p.mode:
        return n.reshape(x, (*lead, *inner))
    y = n.reshape(x, (*lead, *inner[1:], inner[0]))
    rank = y.type.rank
    return y.transpose(*range(rank - 3), rank - 1, rank - 3, rank - 2)


@layer("permute")
def permute(n: MilNode, p: Message, xs: Inputs) -> Result:
    """Permute sequence, channels, height and width.  The batch stays where it is."""
    axes, x = p.axis.tolist(), xs[0]
    if x.type.rank == 5 and sorted(axes) == [0, 1, 2, 3]:
        places = (0, 2, 3, 4)
        axes = [1 if i == 1 else places[axes[places.index(i)]] for i in range(5)]
    return apply(n, "transpose", x=x, perm=axes)


@layer("concat")
def concat(n: MilNode, p: Message, xs: Inputs) -> Result:
    return apply(n, "concat", values=xs, axis=-5 if p.sequenceConcat else -3)


@layer("split")
def split(n: MilNode, p: Message, xs: Inputs) -> Result:
    return apply(n, "split", x=xs[0], num_splits=p.nOutputs, axis=-3)


@layer("sequenceRepeat")
def sequence_repeat(n: MilNode, p: Message, xs: Inputs) -> Result:
    return apply(n, "tile", x=xs[0], reps=[p.nRepetitions, *[1] * (xs[0].type.rank - 1)])


@layer("slice")
def slice_(n: MilNode, p: Message, xs: Inputs) -> Result:
    axis = {"CHANNEL_AXIS": -3, "HEIGHT_AXIS": -2, "WIDTH_AXIS": -1}[p.axis]
    end = p.endIndex if p.endIndex else 1 << 31
    return n.add(slicing.Slice((p.startIndex,), (end,), (axis,), (int(p.stride) or 1,)), xs[0])


@layer("reorganizeData")
def reorganize_data(n: MilNode, p: Message, xs: Inputs) -> Result:
    kind = p.mode.lower()
    name = "upscale_factor" if kind == "pixel_shuffle" else "block_size"
    return on_images(n, xs[0], lambda x: one(n, kind, x=x, **{name: p.blockSize}))


# Recurrent layers, whose sequences are [steps, batch, inputs, 1, 1]


def _steps(n: MilNode, x: Value) -> Value:
    return n.reshape(x, x.type.shape[:-2]) if x.type.rank == 5 else x


def _initial(n: MilNode, p: Message, xs: Inputs, index: int, directions: int = 1) -> Value:
    """A state before the first step, [batch, hidden]; zeros by default."""
    dims = (xs[0].type.shape[1], directions * int(p.outputVectorSize))
    if len(xs) <= index:
        return n.expand(n.const(np.float32(0)), dims)
    return n.reshape(xs[index], dims)


def _function(n: MilNode, p: Message) -> str:
    kind = p.which(*_ACTIVATIONS)
    known = {"linear": "linear", "sigmoidHard": "sigmoid_hard", "ReLU": "relu"}
    return n.unsupported("an activation function that is not known") if kind is None else known.get(
        kind, _ACTIVATIONS[kind])  # fmt: skip


def _shown(n: MilNode, made: Result) -> Result:
    """Results as [steps, batch, hidden, 1, 1]."""
    values = [v for v in (made if isinstance(made, tuple) else (made,)) if isinstance(v, Value)]
    return tuple(n.reshape(v, (*[1] * (3 - v.type.rank), *v.type.shape, 1, 1)) for v in values)


def _gates(
    n: MilNode, p: Message, names: Sequence[str], ending: str, dims: Sequence[int]
) -> Value | None:
    """The weights of all gates, joined along the first axis; None if they are left out."""
    parts = [weights(n, getattr(p, f"{name}{ending}"), dims) for name in names]
    values = [v for v in parts if v is not None]
    if values and len(values) < len(names):
        n.bad(f"expected weights of {len(names)} gates, found {len(values)}")
    return n.add(slicing.Concat(0), *values) if values else None


@layer("simpleRecurrent")
def simple_recurrent(n: MilNode, p: Message, xs: Inputs) -> Result:
    size, width = p.outputVectorSize, p.inputVectorSize
    return _shown(n, apply(
        n, "rnn", x=_steps(n, xs[0]), initial_h=_initial(n, p, xs, 1),
        weight_ih=weights(n, p.weightMatrix, (size, width)),
        weight_hh=weights(n, p.recursionMatrix, (size, size)),
        bias=weights(n, p.biasVector, (size,)) if p.hasBiasVector else None,
        direction="reverse" if p.reverseInput else "forward", output_sequence=p.sequenceOutput,
        activation=_function(n, p.activation),
    ))  # fmt: skip


@layer("gru")
def gru(n: MilNode, p: Message, xs: Inputs) -> Result:
    size, width, names = (
        p.outputVectorSize,
        p.inputVectorSize,
        ("resetGate", "outputGate", "updateGate"),
    )
    functions = [_function(n, a) for a in p.activations]
    return _shown(n, apply(
        n, "gru", x=_steps(n, xs[0]), initial_h=_initial(n, p, xs, 1),
        weight_ih=_gates(n, p, names, "WeightMatrix", (size, width)),
        weight_hh=_gates(n, p, names, "RecursionMatrix", (size, size)),
        bias=_gates(n, p, names, "BiasVector", (size,)) if p.hasBiasVectors else None,
        direction="reverse" if p.reverseInput else "forward", output_sequence=p.sequenceOutput,
        **dict(zip(("recurrent_activation", "activation"), functions)),
    ))  # fmt: skip


_LSTM_GATES = ("inputGate", "forgetGate", "outputGate", "blockInput")
_LSTM_FUNCTIONS = ("recurrent_activation", "cell_activation", "activation")


def _lstm(n: MilNode, p: Message, w: Message, suffix: str = "") -> dict[str, Any]:
    """The weights of one direction, as arguments of operator `lstm` whose names end in `suffix`."""
    size, width, own = p.outputVectorSize, p.inputVectorSize, p.params
    bias = _gates(n, w, _LSTM_GATES, "BiasVector", (size,)) if own.hasBiasVectors else None
    if own.coupledInputAndForgetGate:
        n.unsupported("coupled input and forget gates")
    if bias is not None and own.forgetBias:
        ones = np.repeat(np.array([0, 1, 0, 0], np.float32), size)
        bias = bias + ones
    peepholes = _gates(n, w, _LSTM_GATES[:3], "PeepholeVector", (size,))
    return {
        f"weight_ih{suffix}": _gates(n, w, _LSTM_GATES, "WeightMatrix", (size, width)),
        f"weight_hh{suffix}": _gates(n, w, _LSTM_GATES, "RecursionMatrix", (size, size)),
        f"bias{suffix}": bias,
        f"peephole{suffix}": peepholes if own.hasPeepholeVectors else None,
    }


@layer("uniDirectionalLSTM", "biDirectionalLSTM")
def lstm(n: MilNode, p: Message, xs: Inputs) -> Result:
    is_two, own = n.kind == "biDirectionalLSTM", p.params
    if is_two:
        parts = _lstm(n, p, p.weightParams[0]) | _lstm(n, p, p.weightParams[1], "_back")
        functions, direction = p.activationsForwardLSTM, "bidirectional"
        pairs = ([xs[i], xs[i + 2]] if len(xs) == 5 else None for i in (1, 2))
        state = [_both(n, p, xs, pair) for pair in pairs]
    else:
        parts = _lstm(n, p, p.weightParams)
        functions, direction = p.activations, "reverse" if p.reverseInput else "forward"
        state = [_initial(n, p, xs, i) for i in (1, 2)]
    names = dict(zip(_LSTM_FUNCTIONS, (_function(n, a) for a in functions)))
    made = apply(
        n, "lstm", x=_steps(n, xs[0]), initial_h=state[0], initial_c=state[1], direction=direction,
        output_sequence=own.sequenceOutput, clip=own.cellClipThreshold, **names, **parts,
    )  # fmt: skip
    shown = _shown(n, made)
    if not is_two:
        return shown
    assert isinstance(shown, tuple)
    y, h, c = (v for v in shown if isinstance(v, Value))
    size = int(p.outputVectorSize)
    halves = [n.add(slicing.Split(2, (size, size)), v) for v in (h, c)]
    return y, halves[0][0], halves[1][0], halves[0][1], halves[1][1]


def _both(n: MilNode, p: Message, xs: Inputs, pair: Sequence[Value] | None) -> Value:
    """The states of both directions, joined to [batch, 2 * hidden]; zeros by default."""
    if pair is None:
        return _initial(n, p, xs[:1], 1, 2)
    size = int(p.outputVectorSize)
    rows = [n.reshape(v, (xs[0].type.shape[1], size)) for v in pair]
    return n.add(slicing.Concat(1), *rows)
