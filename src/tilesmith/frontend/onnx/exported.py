"""The ONNX form of each operator: a function per operator, or only a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tilesmith.graph.nodes import Node, Value
from tilesmith.ir.dtypes import DType, f8e8m0
from tilesmith.ops import activation as ac
from tilesmith.ops import conv, gather, matmul, norm, pool, quantize, reduce, shape, slicing
from tilesmith.ops import elementwise as ew
from tilesmith.ops.base import Op
from tilesmith.support.errors import UnsupportedError

from .writer import CODES, Writer

WriteNode: TypeAlias = Callable[[Writer, Node], None]

WRITERS: dict[type[Op], WriteNode] = {}
"""Writers of nodes, by operator."""


def _named(kind: str, **attributes: str) -> WriteNode:
    """A writer of a node with the same operands.  `attributes`: ONNX's name -> ours."""

    def write(w: Writer, n: Node) -> None:
        w.write(n, kind, **{k: getattr(n.op, ours) for k, ours in attributes.items()})

    return write


def _writes(*kinds: type[Op]) -> Callable[[WriteNode], WriteNode]:
    def enter(write: WriteNode) -> WriteNode:
        WRITERS.update(dict.fromkeys(kinds, write))
        return write

    return enter


_SAME = (
    ew.Add, ew.Sub, ew.Mul, ew.Div, ew.Pow, ew.Min, ew.Max, ew.Equal, ew.Less, ew.Greater, ew.Where,
    ew.Exp, ew.Log, ew.Sqrt, ew.Erf, ew.Sin, ew.Cos, ew.Tan, ew.Asin, ew.Acos, ew.Atan, ew.Sinh,
    ew.Cosh, ew.Tanh, ew.Floor, ew.Ceil, ew.Round, ew.Reciprocal, ew.Neg, ew.Abs, ew.Sign,
    ew.Identity, ac.Relu, ac.Sigmoid, ac.Softplus, ac.Softsign, ac.HardSwish, ac.Mish,
)  # fmt: skip
WRITERS.update({kind: _named(kind.__name__) for kind in _SAME})
WRITERS.update(
    {
        ew.LessEqual: _named("LessOrEqual"),
        ew.GreaterEqual: _named("GreaterOrEqual"),
        ew.LogicalAnd: _named("And"),
        ew.LogicalOr: _named("Or"),
        ew.LogicalXor: _named("Xor"),
        ew.LogicalNot: _named("Not"),
        ew.IsNan: _named("IsNaN"),
        ac.PRelu: _named("PRelu"),
        ac.LeakyRelu: _named("LeakyRelu", alpha="alpha"),
        ac.Elu: _named("Elu", alpha="alpha"),
        ac.HardSigmoid: _named("HardSigmoid", alpha="alpha", beta="beta"),
        ac.Gelu: _named("Gelu", approximate="approximate"),
        norm.Softmax: _named("Softmax", axis="axis"),
        norm.LogSoftmax: _named("LogSoftmax", axis="axis"),
        norm.BatchNorm: _named("BatchNormalization", epsilon="epsilon"),
        norm.InstanceNorm: _named("InstanceNormalization", epsilon="epsilon"),
        pool.GlobalAvgPool: _named("GlobalAveragePool"),
        pool.GlobalMaxPool: _named("GlobalMaxPool"),
        shape.Transpose: _named("Transpose", perm="perm"),
        shape.Flatten: _named("Flatten", axis="axis"),
        shape.DepthToSpace: _named("DepthToSpace", blocksize="block", mode="mode"),
        shape.SpaceToDepth: _named("SpaceToDepth", blocksize="block"),
        slicing.Concat: _named("Concat", axis="axis"),
        gather.Gather: _named("Gather", axis="axis"),
        gather.GatherElements: _named("GatherElements", axis="axis"),
        gather.GatherNd: _named("GatherND", batch_dims="batch_dims"),
        quantize.DynamicQuantize: _named("DynamicQuantizeLinear"),
    }
)


@_writes(ew.Cast)
def _cast(w: Writer, n: Node) -> None:
    if n.outputs[0].dtype is f8e8m0:
        raise UnsupportedError("ONNX's conversions to f8e8m0 round in another way")
    w.write(n, "Cast", to=CODES[n.outputs[0].dtype])


@_writes(ew.Rsqrt)
def _rsqrt(w: Writer, n: Node) -> None:
    root = w.between("Sqrt", [w.name(n.inputs[0])])
    w.put("Reciprocal", [root], [w.name(n.outputs[0])])


@_writes(ew.Clip)
def _clip(w: Writer, n: Node) -> None:
    assert isinstance(n.op, ew.Clip)
    kind = n.inputs[0].dtype.numpy
    limits = ["" if v is None else w.constant(np.asarray(v, kind)) for v in (n.op.min, n.op.max)]
    w.write(n, "Clip", *limits)


@_writes(
    reduce.ReduceSum, reduce.ReduceMean, reduce.ReduceMax, reduce.ReduceMin, reduce.ReduceProd,
    reduce.ReduceL1, reduce.ReduceL2,
)  # fmt: skip
def _reduction(w: Writer, n: Node) -> None:
    assert isinstance(n.op, reduce.Reduction)
    axes = [] if n.op.axes is None else [w.numbers(n.op.axes)]
    if n.op.axes == ():  # ONNX takes an empty list as all axes unless an attribute is set
        w.write(n, "Abs" if isinstance(n.op, (reduce.ReduceL1, reduce.ReduceL2)) else "Identity")
        return
    w.write(n, type(n.op).__name__, *axes, keepdims=int(n.op.keepdims))


@_writes(norm.LayerNorm)
def _layer_norm(w: Writer, n: Node) -> None:
    assert isinstance(n.op, norm.LayerNorm)
    w.write(n, "LayerNormalization", axis=n.op.axis, epsilon=n.op.epsilon)


@_writes(matmul.MatMul)
def _matmul(w: Writer, n: Node) -> None:
    assert isinstance(n.op, matmul.MatMul)
    flipped = (n.op.transpose_a, n.op.transpose_b)
    operands = [
        _transposed(w, v) if flip and v.type.rank > 1 else w.name(v)
        for v, flip in zip(n.inputs, flipped, strict=True)
    ]
    kind = "MatMul" if n.op.to is None else "MatMulInteger"
    w.put(kind, operands, [w.name(n.outputs[0])])


def _transposed(w: Writer, v: Value) -> str:
    order = [*range(v.type.rank)]
    order[-2:] = order[:-3:-1]
    return w.between("Transpose", [w.name(v)], perm=order)


@_writes(matmul.Gemm)
def _gemm(w: Writer, n: Node) -> None:
    op = n.op
    assert isinstance(op, matmul.Gemm)
    w.write(
        n, "Gemm", alpha=op.alpha, beta=op.beta, transA=int(op.transpose_a),
        transB=int(op.transpose_b),
    )  # fmt: skip


def _window(op: Any) -> dict[str, Any]:
    """Attributes of a convolution or pool.  Empty ones are omitted, which means ONNX's default."""
    wanted = {"strides": op.strides, "pads": op.pads, "dilations": op.dilations}
    return {k: list(v) for k, v in wanted.items() if v}


@_writes(conv.Conv, conv.ConvTranspose)
def _conv(w: Writer, n: Node) -> None:
    """A convolution together with its bias, which is a separate node here."""
    op = n.op
    assert isinstance(op, (conv.Conv, conv.ConvTranspose))
    attributes = {**_window(op), "group": op.groups}
    if isinstance(op, conv.ConvTranspose) and op.output_padding:
        attributes["output_padding"] = list(op.output_padding)
    (out,) = n.outputs
    add, bias = w.only_reader(out, ew.Add), None
    if add is not None and add.outputs[0].type == out.type:
        bias = next((_channels(w, v, out) for v in add.inputs if v is not out), None)
    if bias is None:
        w.write(n, type(op).__name__, **attributes)
        return
    assert add is not None
    w.written.add(add)
    operands = [*map(w.name, n.inputs), w.constant(bias)]
    w.put(type(op).__name__, operands, [w.name(add.outputs[0])], **attributes)


def _channels(w: Writer, v: Value, out: Value) -> np.ndarray | None:
    """A constant with one number per channel, as a vector."""
    constant = w.graph.constant.get(v)
    count = out.shape[1]
    if constant is None or not isinstance(count, int):
        return None
    array = constant.data.array
    if array.ndim > out.type.rank:
        return None
    padded = (1,) * (out.type.rank - array.ndim) + array.shape
    if any(d != 1 for axis, d in enumerate(padded) if axis != 1) or padded[1] not in (1, count):
        return None
    return np.ascontiguousarray(np.broadcast_to(array.reshape(-1), count))


@_writes(pool.MaxPool, pool.AvgPool)
def _pool(w: Writer, n: Node) -> None:
    op = n.op
    assert isinstance(op, (pool.MaxPool, pool.AvgPool))
    attributes = {**_window(op), "kernel_shape": list(op.kernel), "ceil_mode": int(op.ceil_mode)}
    if isinstance(op, pool.AvgPool):
        attributes["count_include_pad"] = int(op.count_include_pad)
    w.write(n, "MaxPool" if isinstance(op, pool.MaxPool) else "AveragePool", **attributes)


@_writes(shape.Reshape)
def _reshape(w: Writer, n: Node) -> None:
    sizes = n.outputs[0].shape
    known = [d for d in sizes if isinstance(d, int)]
    if len(known) == len(sizes) - 1 and all(known):
        sizes = [d if isinstance(d, int) else -1 for d in sizes]  # -1 needs no computation
    w.write(n, "Reshape", w.numbers(sizes), allowzero=1)


@_writes(shape.Expand)
def _expand(w: Writer, n: Node) -> None:
    w.write(n, "Expand", w.numbers(n.outputs[0].shape))


@_writes(shape.Squeeze, shape.Unsqueeze)
def _squeeze(w: Writer, n: Node) -> None:
    assert isinstance(n.op, (shape.Squeeze, shape.Unsqueeze))
    axes = [] if n.op.axes is None else [w.numbers(n.op.axes)]
    w.write(n, type(n.op).__name__, *axes)


@_writes(slicing.Split)
def _split(w: Writer, n: Node) -> None:
    assert isinstance(n.op, slicing.Split)
    w.write(n, "Split", w.numbers(n.op.sizes), axis=n.op.axis)


@_writes(slicing.Slice)
def _slice(w: Writer, n: Node) -> None:
    op = n.op
    assert isinstance(op, slicing.Slice)
    w.write(n, "Slice", *map(w.numbers, (op.starts, op.ends, op.axes, op.steps)))


@_writes(slicing.Pad)
def _pad(w: Writer, n: Node) -> None:
    op = n.op
    assert isinstance(op, slicing.Pad)
    value = w.constant(np.asarray(op.value, n.inputs[0].dtype.numpy))
    w.write(n, "Pad", w.numbers(op.pads), *([value] if op.mode == "constant" else []), mode=op.mode)


@_writes(quantize.Quantize)
def _quantize(w: Writer, n: Node) -> None:
    op = n.op
    assert isinstance(op, quantize.Quantize)
    zero = _zero_point(w, n, op.to)  # the zero point determines the result's type
    if not zero:
        zero = [w.constant(np.zeros(n.inputs[1].type.static_shape, op.to.numpy))]
    _put_scaled(w, n, "QuantizeLinear", zero, op, saturate=None if op.saturates else 0)


@_writes(quantize.Dequantize)
def _dequantize(w: Writer, n: Node) -> None:
    assert isinstance(n.op, quantize.Dequantize)
    _put_scaled(w, n, "DequantizeLinear", _zero_point(w, n, n.inputs[0].dtype), n.op)


def _zero_point(w: Writer, n: Node, q: DType) -> list[str]:
    """The zero points, if any, in the scales' shape.  UnsupportedError if ONNX has no such form."""
    _, scale, *zero = n.inputs
    for v in zero:
        if v.dtype is not q or v.type.rank > scale.type.rank:
            raise UnsupportedError(f"{n.op.name}: expected zero points of {q}, found {v.type}")
        if v.shape != scale.shape:
            return [w.between("Expand", [w.name(v), w.numbers(scale.shape)])]
    return [w.name(v) for v in zero]


def _put_scaled(
    w: Writer,
    n: Node,
    kind: str,
    zero: list[str],
    op: quantize.Quantize | quantize.Dequantize,
    **attributes: int | None,
) -> None:
    inputs = [w.name(v) for v in n.inputs[:2]]
    attributes |= {"axis": op.axis, "block_size": op.block or None}
    w.put(kind, [*inputs, *zero], [w.name(n.outputs[0])], **attributes)
