"""Recipes of operators that work element by element, and of reductions."""

from __future__ import annotations

import numpy as np
from onnx import helper

from .builder import BOOL, F32, FLOATS, INTS, UNSIGNED, Builder, Rejected, recipe

UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos"),
    *("Cosh", "Erf", "Exp", "Floor", "HardSwish", "Identity", "IsNaN", "Log", "Mish", "Neg"),
    *("Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus"),
    *("Softsign", "Sqrt", "Tan", "Tanh"),
)
BINARY = (
    *("Add", "Sub", "Mul", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And"),
    *("Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "PRelu"),
)
REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)
_SCALED = {
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "Celu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "Swish": ("alpha",),
    "Selu": ("alpha", "gamma"),
    "HardSigmoid": ("alpha", "beta"),
    "Shrink": ("lambd", "bias"),
}


@recipe(*UNARY)
def unary(b: Builder, op: str) -> None:
    b.add(op, [b.pick(b.types(op))])


@recipe(*_SCALED)
def scaled(b: Builder, op: str) -> None:
    numbers = {n: float(np.float32(b.choose([0.01, 0.5, 1.0, 1.7]))) for n in _SCALED[op]}
    given = {n: v for n, v in numbers.items() if b.chance(0.7)}
    b.add(op, [b.pick(b.types(op))], **given)


@recipe("Gelu")
def gelu(b: Builder, op: str) -> None:
    b.add(op, [b.pick(b.types(op))], approximate=b.choose(["none", "tanh"]))


@recipe("IsInf")
def is_inf(b: Builder, op: str) -> None:
    flags = {n: b.number(0, 1) for n in ("detect_negative", "detect_positive") if b.chance(0.5)}
    b.add(op, [b.pick(b.types(op))], **flags)


@recipe(*BINARY)
def binary(b: Builder, op: str) -> None:
    x = b.pick(b.types(op))
    if op == "PRelu":
        dims = b.of(x).shape
        slope = [1 if b.chance(0.3) else d for d in dims[b.number(0, len(dims)) :]]
        b.add(op, [x, b.fresh(slope, b.of(x).dtype)])
        return
    pair = [x, b.like(x)]
    b.add(op, pair if b.chance(0.6) else pair[::-1])


@recipe("Div", "Mod")
def divide(b: Builder, op: str) -> None:
    x = b.pick(b.types(op))
    dtype = b.of(x).dtype
    by = b.like(x)
    if dtype.kind in "iu":
        numbers = np.maximum(b.array(b.of(by).shape, dtype), 1)
        by = b.given(numbers.astype(dtype)) if b.chance(0.5) else b.store(numbers.astype(dtype))
    fmod = {"fmod": 1} if op == "Mod" and (dtype.kind not in "iu" or b.chance(0.5)) else {}
    b.add(op, [x, by], **fmod)


@recipe("Pow")
def power(b: Builder, op: str) -> None:
    x = b.pick(b.types(op))
    dtype = b.of(x).dtype
    to = dtype if b.opset < 12 else b.dtype(b.types(op, 1))
    exponents = [0, 1, 2, 3] if dtype.kind in "iu" or to.kind in "iu" else [-1, 0, 0.5, 2, 3, 2.5]
    shape = b.choose([(), (1,), b.of(x).shape])
    b.add(op, [x, b.given(b.random.choice(exponents, shape).astype(to))])


@recipe("BitShift")
def shift(b: Builder, op: str) -> None:
    x = b.pick(UNSIGNED)
    dtype = b.of(x).dtype
    by = b.random.integers(0, dtype.itemsize * 8, b.of(x).shape).astype(dtype)
    b.add(op, [x, b.given(by)], direction=b.choose(["LEFT", "RIGHT"]))


@recipe("Max", "Min", "Sum", "Mean")
def variadic(b: Builder, op: str) -> None:
    x = b.pick(b.types(op))
    b.add(op, [x, *(b.like(x) for _ in range(b.number(0, 2)))])


@recipe("Where")
def where(b: Builder, op: str) -> None:
    x = b.pick((*FLOATS, *INTS, BOOL))
    y = b.like(x)
    shape = np.broadcast_shapes(b.of(x).shape, b.of(y).shape)
    b.add(op, [b.fresh([1 if b.chance(0.2) else d for d in shape], BOOL), x, y])


@recipe("Clip")
def clip(b: Builder, op: str) -> None:
    x = b.pick(b.types(op))
    dtype = b.of(x).dtype
    low, high = sorted(b.random.integers(0 if dtype.kind == "u" else -3, 5, 2))
    if b.opset < 11:
        limits = {n: float(v) for n, v in (("min", low), ("max", high)) if b.chance(0.7)}
        b.add(op, [x], **limits)
    else:
        ends = [b.given(np.array(v, dtype)) if b.chance(0.7) else "" for v in (low, high)]
        b.add(op, [x, *ends])


@recipe("Cast")
def cast(b: Builder, op: str) -> None:
    x = b.pick((*FLOATS, *INTS, BOOL))
    allowed = [d for d in b.types(op) if b.opset >= 13 or d.name != "bfloat16"]
    b.add(op, [x], to=int(helper.np_dtype_to_tensor_dtype(b.choose(allowed))))


@recipe(*REDUCTIONS)
def reduction(b: Builder, op: str) -> None:
    x = b.pick(b.types(op))
    since = 13 if op == "ReduceSum" else 18
    rank = b.of(x).ndim
    least = 0 if b.opset >= since else 1
    if rank < least:
        raise Rejected("no axis")
    axes = b.axes(rank, least) if b.chance(0.8) else None
    more = {"noop_with_empty_axes": b.number(0, 1)} if b.opset >= since and b.chance(0.3) else {}
    if b.chance(0.7):
        more["keepdims"] = b.number(0, 1)
    b.listed(op, [x], since, "axes", axes, **more)


@recipe("ArgMax", "ArgMin")
def arg(b: Builder, op: str) -> None:
    x = b.pick(b.types(op), rank=(1, 5))
    more = {"select_last_index": b.number(0, 1)} if b.opset >= 12 else {}
    b.add(op, [x], axis=b.axis(b.of(x).ndim), keepdims=b.number(0, 1), **more)


@recipe("CumSum", "CumProd")
def running(b: Builder, op: str) -> None:
    x = b.pick(b.types(op), rank=(1, 4))
    axis = b.store(np.array(b.axis(b.of(x).ndim), b.choose([np.int32, np.int64])))
    b.add(op, [x, axis], exclusive=b.number(0, 1), reverse=b.number(0, 1))


@recipe("Softmax", "LogSoftmax", "Hardmax")
def softmax(b: Builder, op: str) -> None:
    # Of old versions the reference evaluator knows nothing, and ONNX Runtime only f32.
    x = b.pick(b.types(op) if b.opset >= 13 else (F32,), rank=(1, 4))
    rank = b.of(x).ndim
    axis = {"axis": b.axis(rank) if b.opset >= 11 else b.number(0, rank - 1)}
    b.add(op, [x], **(axis if b.chance(0.8) else {}))


@recipe("QuantizeLinear", "DequantizeLinear")
def quantize(b: Builder, op: str) -> None:
    x = b.pick((F32,) if op == "QuantizeLinear" else (np.dtype(np.uint8), np.dtype(np.int8)))
    array = b.of(x)
    to = b.choose([np.uint8, np.int8]) if op == "QuantizeLinear" else array.dtype
    shape: tuple[int, ...] = ()
    more = {}
    if b.opset >= 13 and array.ndim and b.chance(0.5):
        axis = b.number(0, array.ndim - 1)
        shape, more = (array.shape[axis],), {"axis": axis}
    scale = np.exp2(b.random.integers(-4, 2, shape)).astype(np.float32)
    zero = b.random.integers(0, 10, shape).astype(to)
    b.add(op, [x, b.store(scale), b.store(zero)], **more)


@recipe("DynamicQuantizeLinear")
def dynamic_quantize(b: Builder, op: str) -> None:
    b.add(op, [b.pick((F32,), fits=lambda a: a.size > 0 and np.isfinite(a).all())], 3)
