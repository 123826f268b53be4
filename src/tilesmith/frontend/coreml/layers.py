"""Layers of Core ML's neural networks on tensors of any rank, as operators of ML programs.

All values are f32.  Bools are 0 and 1, and indices are cast where they are used.  A layer's import
function gets a node without arguments, the layer's parameters and its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.registry import Registry
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import apply
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i32
from tilesmith.ops import elementwise as ew
from tilesmith.ops.functions import where

Inputs: TypeAlias = Sequence[Value]
LayerFunction: TypeAlias = Callable[[MilNode, Message, Inputs], Result]

LAYERS: Registry[LayerFunction] = Registry()
"""The layers by the names of their parameters."""

layer = LAYERS.register


def weights(n: MilNode, stored: Message | None, dims: Sequence[int]) -> Value | None:
    """The weights of a layer in the shape `dims`, f32; None if they are left out.  Quantised
    weights have a scale and an offset for each index of the first axis, or the same for all.
    """
    kinds = ("floatValue", "float16Value", "rawValue", "int8RawValue")
    which = None if stored is None else stored.which(*kinds)
    if stored is None or which is None:
        return None
    dims = tuple(int(d) for d in dims)
    count = int(np.prod(dims, dtype=object))
    if which == "floatValue":
        numbers = stored.floatValue
    elif which == "float16Value":
        numbers = np.frombuffer(stored.float16Value, np.float16)
    elif which == "rawValue":
        numbers = _unpacked(n, stored, count, dims)
    else:
        n.unsupported("weights for inputs that are quantised when the model runs")
    if numbers.size != count:
        n.bad(f"expected {count} weights in the shape {list(dims)}, found {numbers.size}")
    return n.const(numbers.astype(np.float32).reshape(dims))


def _unpacked(n: MilNode, stored: Message, count: int, dims: Sequence[int]) -> np.ndarray:
    """Dequantise weights.  Numbers of fewer than 8 bits are packed, the highest bit first."""
    q = stored.quantization
    bits, data = int(q.numberOfBits), np.frombuffer(stored.rawValue, np.uint8)
    if not 1 <= bits <= 8 or data.size != -(-count * bits // 8):
        n.bad(f"expected {count} weights of {bits} bits, found {data.size} bytes")
    single = np.unpackbits(data)[: count * bits].reshape(count, bits)
    numbers = (single * (1 << np.arange(bits)[::-1])).sum(1)
    if q.lookupTableQuantization is not None:
        return q.lookupTableQuantization.floatValue[numbers]
    rows = numbers.reshape(dims[0] if dims else 1, -1)
    linear = q.linearQuantization
    scale, offset = (np.reshape(v, (-1, 1)) for v in (linear.scale, linear.bias))
    return (rows * scale + (offset if offset.size else 0)).reshape(-1)


# Rows of a table, for layers that equal one operator of ML programs

_SAME = (
    "ceil", "floor", "sign", "round", "exp2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
)  # fmt: skip

_BINARY = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "real_div", "pow": "pow",
    "floorDiv": "floor_div", "mod": "mod", "min": "minimum", "max": "maximum",
}  # fmt: skip

_REDUCTIONS = {
    "L1": "l1_norm", "L2": "l2_norm", "Max": "max", "Min": "min", "Sum": "sum", "Prod": "prod",
    "Mean": "mean", "LogSum": "log_sum", "SumSquare": "sum_square", "LogSumExp": "log_sum_exp",
}  # fmt: skip

_INDICES = {"indices", "lengths", "shape", "reps", "begin", "end", "stride", "k"}
"""Names of arguments that operators of ML programs take as integers."""


def mode_of(p: Message) -> str:
    """The mode of a scatter, such as "add"."""
    return p.mode.removeprefix("SCATTER_").lower()


def _slice(p: Message) -> dict[str, Any]:
    masks = {f"{m}_mask": getattr(p, f"{m}Masks") for m in ("begin", "end", "squeeze")}
    stored = {k: v for k, v in masks.items() if len(v)}
    return stored | ({"stride": p.strides} if len(p.strides) else {})


Row: TypeAlias = "tuple[str, str, Callable[[Message], Mapping[str, Any]]]"
"""An operator of ML programs, the names of its tensor arguments, and a function that makes its
other arguments from a layer's parameters."""

_ROWS: dict[str, Row] = {
    **{name: (name, "x", lambda p: {}) for name in _SAME},
    **{f"{a}Broadcastable": (b, "x y", lambda p: {}) for a, b in _BINARY.items()},
    "argMax": ("reduce_argmax", "x", lambda p: {"axis": p.axis, "keep_dims": not p.removeDim}),
    "argMin": ("reduce_argmin", "x", lambda p: {"axis": p.axis, "keep_dims": not p.removeDim}),
    "argSort": ("argsort", "x", lambda p: {"axis": p.axis, "ascending": not p.descending}),
    "clampedReLU": ("clamped_relu", "x", lambda p: {"alpha": p.alpha, "beta": p.beta}),
    "clip": ("clip", "x", lambda p: {"alpha": p.minVal, "beta": p.maxVal}),
    "copy": ("identity", "x", lambda p: {}),
    "cumSum": ("cumsum", "x", lambda p: {
        "axis": p.axis, "exclusive": p.excludeFinalSum, "reverse": p.reverse}),
    "expandDims": ("expand_dims", "x", lambda p: {"axes": p.axes}),
    "fillDynamic": ("fill", "shape", lambda p: {"value": p.value}),
    "fillLike": ("fill_like", "ref_tensor", lambda p: {"value": p.value}),
    "fillStatic": ("fill", "", lambda p: {"value": p.value, "shape": p.targetShape}),
    "flattenTo2D": ("flatten2d", "x", lambda p: {"axis": p.axis}),
    "gather": ("gather", "x indices", lambda p: {"axis": p.axis}),
    "gatherAlongAxis": ("gather_along_axis", "x indices", lambda p: {"axis": p.axis}),
    "gatherND": ("gather_nd", "x indices", lambda p: {}),
    "gelu": ("gelu", "x", lambda p: {"mode": p.mode}),
    "getShape": ("shape", "x", lambda p: {}),
    "matrixBandPart": ("band_part", "x", lambda p: {"lower": p.numLower, "upper": p.numUpper}),
    "oneHot": ("one_hot", "indices", lambda p: {
        "one_hot_vector_size": p.oneHotVectorSize, "axis": p.axis, "on_value": p.onValue,
        "off_value": p.offValue}),
    "rangeStatic": ("range_1d", "", lambda p: {
        "start": p.startValue, "end": p.endValue, "step": p.stepSizeValue}),
    "rankPreservingReshape": ("reshape", "x", lambda p: {"shape": p.targetShape}),
    "reshapeDynamic": ("reshape", "x shape", lambda p: {}),
    "reshapeStatic": ("reshape", "x", lambda p: {"shape": p.targetShape}),
    "reverse": ("reverse", "x", lambda p: {"axes": np.flatnonzero(p.reverseDim)}),
    "reverseSeq": ("reverse_sequence", "x lengths", lambda p: {
        "batch_axis": p.batchAxis, "seq_axis": p.sequenceAxis}),
    "scatter": ("scatter", "data indices updates", lambda p: {
        "axis": p.axis, "mode": mode_of(p)}),
    "scatterAlongAxis": ("scatter_along_axis", "data indices updates", lambda p: {
        "axis": p.axis, "mode": mode_of(p)}),
    "scatterND": ("scatter_nd", "data indices updates", lambda p: {"mode": mode_of(p)}),
    "sliceDynamic": ("slice_by_index", "x begin end stride", lambda p: _slice(p) | (
        {"end": p.endIds} if len(p.endIds) else {})),
    "sliceStatic": ("slice_by_index", "x", lambda p: _slice(p) | {
        "begin": p.beginIds, "end": p.endIds}),
    "slidingWindows": ("sliding_windows", "x", lambda p: {
        "axis": p.axis, "size": p.windowSize, "stride": p.step}),
    "softmaxND": ("softmax", "x", lambda p: {"axis": p.axis}),
    "splitND": ("split", "x", lambda p: {"axis": p.axis} | (
        {"split_sizes": p.splitSizes} if len(p.splitSizes) else {"num_splits": p.numSplits})),
    "squeeze": ("squeeze", "x", lambda p: {} if p.squeezeAll else {"axes": p.axes}),
    "tile": ("tile", "x reps", lambda p: {"reps": p.reps} if len(p.reps) else {}),
    "topK": ("topk", "x k", lambda p: {
        "axis": p.axis, "ascending": p.useBottomK} | ({"k": p.K} if p.K else {})),
    "transpose": ("transpose", "x", lambda p: {"perm": p.axes}),
    "whereNonZero": ("non_zero", "x", lambda p: {}),
    **{
        f"reduce{a}": (f"reduce_{b}", "x", lambda p: {"keep_dims": p.keepDims} | (
            {} if p.reduceAll or not len(p.axes) else {"axes": p.axes}))
        for a, b in _REDUCTIONS.items()
    },
}  # fmt: skip


def _register(name: str, row: Row) -> None:
    kind, names, others = row

    @layer(name)
    def convert(n: MilNode, p: Message, xs: Inputs) -> Result:
        tensors = dict(zip(names.split(), xs, strict=False))
        tensors = {k: v.cast(i32) if k in _INDICES else v for k, v in tensors.items()}
        if len(xs) > len(names.split()):
            n.bad(f"expected at most {len(names.split())} inputs, found {len(xs)}")
        return apply(n, kind, **{**others(p), **tensors})


for _name, _row in _ROWS.items():
    _register(_name, _row)


# Comparisons, logic and selections, with bools as 0 and 1

_COMPARISONS = {
    "equal": ew.Equal, "notEqual": ew.NotEqual, "lessThan": ew.Less, "lessEqual": ew.LessEqual,
    "greaterThan": ew.Greater, "greaterEqual": ew.GreaterEqual,
}  # fmt: skip

_LOGIC = {"logicalAnd": ew.LogicalAnd, "logicalOr": ew.LogicalOr, "logicalXor": ew.LogicalXor}


def _compared(name: str, make: Callable[[], Any]) -> None:
    @layer(name)
    def convert(n: MilNode, p: Message, xs: Inputs) -> Result:
        other = xs[1] if len(xs) > 1 else n.const(np.float32(p.alpha))
        return n.add(make(), xs[0], other)


for _name, _make in _COMPARISONS.items():
    _compared(_name, _make)


def _decided(name: str, make: Callable[[], Any]) -> None:
    @layer(name)
    def convert(n: MilNode, p: Message, xs: Inputs) -> Result:
        return n.add(make(), *(x.differs(0.0) for x in xs))


for _name, _make in _LOGIC.items():
    _decided(_name, _make)
_decided("logicalNot", ew.LogicalNot)


@layer("whereBroadcastable")
def where_broadcastable(n: MilNode, p: Message, xs: Inputs) -> Result:
    condition, then, otherwise = xs
    return where(condition.differs(0.0), then, otherwise)


@layer("lowerTriangular", "upperTriangular")
def triangular(n: MilNode, p: Message, xs: Inputs) -> Result:
    from_top = n.kind == "upperTriangular"
    x, k = xs[0], int(p.k)
    ones = [n.positions(d, 2, a) for a, d in enumerate(x.type.shape[-2:])]
    distance = ones[1] - ones[0]
    return where(distance < k if from_top else distance > k, 0.0, x)


# Shapes and constants


@layer("concatND")
def concat_nd(n: MilNode, p: Message, xs: Inputs) -> Result:
    return apply(n, "concat", values=xs, axis=p.axis, interleave=p.interleave)


@layer("stack")
def stack(n: MilNode, p: Message, xs: Inputs) -> Result:
    return apply(n, "stack", values=xs, axis=p.axis)


@layer("reshapeLike")
def reshape_like(n: MilNode, p: Message, xs: Inputs) -> Result:
    return n.reshape(xs[0], xs[1].type.shape)


@layer("broadcastToLike")
def broadcast_to_like(n: MilNode, p: Message, xs: Inputs) -> Result:
    return n.expand(xs[0], xs[1].type.shape)


@layer("broadcastToStatic", "broadcastToDynamic")
def broadcast_to(n: MilNode, p: Message, xs: Inputs) -> Result:
    wanted = n.const(p.targetShape.astype(np.int64)) if len(xs) == 1 else xs[1].cast(i32)
    return n.expand(xs[0], n.extents(wanted, "the shape"))


@layer("loadConstantND", "loadConstant")
def load_constant(n: MilNode, p: Message, xs: Inputs) -> Result:
    dims = tuple(p.shape.tolist())
    value = weights(n, p.data, dims)
    if value is None:
        n.bad("expected numbers, found none")
    # the result of loadConstant has rank 5: sequence, batch, channels, height, width
    return (
        value if n.kind == "loadConstantND" else n.reshape(value, (*[1] * (5 - len(dims)), *dims))
    )


@layer("sliceBySize")
def slice_by_size(n: MilNode, p: Message, xs: Inputs) -> Result:
    x, begin = xs
    axis = n.axis(int(p.axis), x.type.rank)
    first = [n.const(np.zeros(1, np.int32))] * x.type.rank
    first[axis] = n.reshape(begin.cast(i32), (1,))
    size = [-1] * x.type.rank
    size[axis] = int(p.size)
    return apply(n, "slice_by_size", x=x, begin=apply(n, "concat", values=first, axis=0), size=size)


@layer("constantPad")
def constant_pad(n: MilNode, p: Message, xs: Inputs) -> Result:
    if p.padToGivenOutputSizeMode:
        n.unsupported("padding to a given size")
    pads = p.padAmounts if len(xs) == 1 else xs[1].cast(i32)
    return apply(n, "pad", x=xs[0], pad=pads, constant_val=p.value)


# Products


@layer("batchedMatmul")
def batched_matmul(n: MilNode, p: Message, xs: Inputs) -> Result:
    if len(xs) == 2:
        return apply(
            n, "matmul", x=xs[0], y=xs[1], transpose_x=p.transposeA, transpose_y=p.transposeB
        )
    dims = p.weightMatrixSecondDimension, p.weightMatrixFirstDimension
    w, bias = weights(n, p.weights, dims), weights(n, p.bias, dims[:1])
    x = apply(n, "transpose", x=xs[0], perm=_last_two(xs[0])) if p.transposeA else xs[0]
    return apply(n, "linear", x=x, weight=w, bias=bias if p.hasBias else None)


def _last_two(x: Value) -> list[int]:
    """The permutation of axes that exchanges the last two."""
    return [*range(x.type.rank - 2), x.type.rank - 1, x.type.rank - 2]


@layer("embeddingND")
def embedding_nd(n: MilNode, p: Message, xs: Inputs) -> Result:
    x = xs[0]
    return embedded(n, p, n.reshape(x, x.type.shape[:-1]), (p.embeddingSize, p.vocabSize))


def embedded(n: MilNode, p: Message, places: Value, dims: tuple[int, int]) -> Value:
    """The columns of the weights [size, entries] that indices select, along a new last axis."""
    w = weights(n, p.weights, dims)
    if w is None:
        n.bad("expected weights, found none")
    rows = apply(n, "gather", x=w.transpose(1, 0), indices=places.cast(i32), axis=0)
    assert isinstance(rows, Value)
    bias = weights(n, p.bias, dims[:1]) if p.hasBias else None
    return rows if bias is None else rows + bias


@layer("layerNormalization")
def layer_normalization(n: MilNode, p: Message, xs: Inputs) -> Result:
    dims = p.normalizedShape.tolist()
    gamma, beta = weights(n, p.gamma, dims), weights(n, p.beta, dims)
    return apply(n, "layer_norm", x=xs[0], axes=range(-len(dims), 0), gamma=gamma, beta=beta,
                 epsilon=p.eps)  # fmt: skip


@layer("rangeDynamic")
def range_dynamic(n: MilNode, p: Message, xs: Inputs) -> Result:
    """A range.  Inputs are the end, the start and the step; parameters replace missing ones."""
    stored = {"start": np.float32(p.startValue), "step": np.float32(p.stepSizeValue)}
    inputs = dict(zip(("end", "start", "step"), xs, strict=False))
    return apply(n, "range_1d", **{**stored, **inputs})


@layer("NonMaximumSuppression")
def non_maximum_suppression(n: MilNode, p: Message, xs: Inputs) -> Result:
    if len(xs) > 2:
        n.unsupported("thresholds that a run computes")
    return apply(n, "non_maximum_suppression", boxes=xs[0], scores=xs[1],
                 iou_threshold=p.iouThreshold, score_threshold=p.scoreThreshold,
                 max_boxes=p.maxBoxes, per_class_suppression=p.perClassSuppression)  # fmt: skip
