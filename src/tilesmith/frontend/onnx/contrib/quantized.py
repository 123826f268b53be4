"""Quantised operators of com.microsoft, composed of casts, scales and operators on floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from tilesmith.frontend.common.cells import Weights, pick
from tilesmith.frontend.common.node import NodeContext
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.activations import softmax, softmax_flattened
from tilesmith.frontend.onnx.contractions import without_zero_point
from tilesmith.frontend.onnx.contrib import contrib_op
from tilesmith.frontend.onnx.contrib.fused import channels_first, channels_last
from tilesmith.frontend.onnx.convolutions import average_pool
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.quantized import dequantize, qlinear_conv, quantize, scale_at
from tilesmith.frontend.onnx.recurrent import layer
from tilesmith.frontend.onnx.reductions import reduction_of
from tilesmith.frontend.onnx.shapes import is_single
from tilesmith.graph.nodes import Data, Value
from tilesmith.ir.dtypes import f32, u8, uint2, uint4
from tilesmith.ir.types import TensorType
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import gather, pool, reduce, shape, slicing
from tilesmith.ops import matmul as mm
from tilesmith.ops.functions import where
from tilesmith.ops.quantize import DynamicQuantize

OnFloats: TypeAlias = Callable[[OnnxNode, "tuple[Value, ...]"], Value]


def _float(n: OnnxNode, at: int) -> Value:
    """Input `at` dequantised with the scale in input `at` + 1 and the zero point in `at` + 2."""
    return dequantize(n, n.input(at), _one(n, scale_at(n, at + 1)), _zero(n, at + 2), f32)


def _one(n: OnnxNode, v: Value) -> Value:
    """A scale or zero point of one element, as a scalar."""
    if not is_single(v):
        n.unsupported(f"a scale or zero point for each place, {v.type}")
    return n.reshape(v, ())


def _zero(n: OnnxNode, at: int) -> Value | None:
    zero = n.optional(at)
    return None if zero is None else _one(n, zero)


def _quantized(n: OnnxNode, y: Value, at: int, like: Value) -> Value:
    """`y` quantised with the scale and zero point in inputs `at` and `at` + 1."""
    zero = _zero(n, at + 1)
    to = like.dtype if zero is None else zero.dtype
    return quantize(n, y, _one(n, scale_at(n, at, divides=True)), zero, to)


def _on_floats(n: OnnxNode, compute: OnFloats, count: int) -> Result:
    """`compute` applied to `count` dequantised operands, each of which takes three inputs.  The
    result is quantised.
    """
    y = compute(n, tuple(_float(n, 3 * i) for i in range(count)))
    return _quantized(n, y, 3 * count, n.input(0))


def _pooled(n: OnnxNode, x: tuple[Value, ...]) -> Value:
    last = n.attr_flag("channels_last")
    (image,) = (channels_first(n, v) if last else v for v in x)
    if n.op_type == "QLinearGlobalAveragePool":
        y = n.add(pool.GlobalAvgPool(), image)
    else:
        y = _value(n, average_pool(n.as_operator("AveragePool", 11, (image,))))
    return channels_last(n, y) if last else y


def _softmax(n: OnnxNode, x: tuple[Value, ...]) -> Value:
    version = n.attr_int("opset")
    convert = softmax if version >= 13 else softmax_flattened
    return _value(n, convert(n.as_operator("Softmax", version, x)))


def _mean(n: OnnxNode, x: tuple[Value, ...]) -> Value:
    return _value(n, reduction_of(n.as_operator("ReduceMean", 13, x), reduce.ReduceMean, 18))


def _value(n: OnnxNode, result: Result) -> Value:
    return result if isinstance(result, Value) else n.bad("expected a tensor")


_ON_FLOATS: dict[str, tuple[int, OnFloats]] = {
    "QLinearAdd": (2, lambda n, x: n.add(ew.Add(), *x)),
    "QLinearMul": (2, lambda n, x: n.add(ew.Mul(), *x)),
    "QLinearSigmoid": (1, lambda n, x: n.add(act.Sigmoid(), *x)),
    "QLinearLeakyRelu": (1, lambda n, x: n.add(act.LeakyRelu(n.attr_float("alpha", 0.01)), *x)),
    "QLinearAveragePool": (1, _pooled),
    "QLinearGlobalAveragePool": (1, _pooled),
    "QLinearSoftmax": (1, _softmax),
    "QLinearReduceMean": (1, _mean),
}
"""Operators that compute with dequantised operands -> operand count, and operator on floats."""

for _name, (_count, _compute) in _ON_FLOATS.items():
    contrib_op(_name)(partial(_on_floats, compute=_compute, count=_count))


@contrib_op("QLinearConcat")
def qlinear_concat(n: OnnxNode) -> Result:
    """A concatenation of quantised tensors.  The scale and zero point of the result are the first
    inputs.
    """
    parts = [_float(n, index) for index in range(2, len(n.all_slots), 3)]
    if not parts:
        n.bad("expected at least one quantised input, found none")
    axis = n.axis(n.attr_int("axis"), parts[0].type.rank)
    return _quantized(n, n.add(slicing.Concat(axis), *parts), 0, n.input(2))


@contrib_op("QLinearWhere")
def qlinear_where(n: OnnxNode) -> Result:
    y = where(n.input(0), _float(n, 1), _float(n, 4))
    return _quantized(n, y, 7, n.input(1))


@contrib_op("QLinearConv")
def contrib_qlinear_conv(n: OnnxNode) -> Result:
    if not n.attr_flag("channels_last"):
        return qlinear_conv(n.as_operator("QLinearConv", 10))
    slots = n.all_slots
    x = channels_first(n, n.input(0))
    y = qlinear_conv(n.as_operator("QLinearConv", 10, (x, *slots[1:])))
    return channels_last(n, _value(n, y))


def integer_product(
    n: OnnxNode,
    a: Value,
    b: Value,
    a_scale: Value,
    b_scale: Value,
    a_zero: Value | None,
    b_zero: Value | None,
) -> Value:
    """(a - a_zero) (b - b_zero) in i32, times both scales.  The scales of b may be one per
    column.
    """
    wide_a, wide_b = without_zero_point(n, a, a_zero, -2), without_zero_point(n, b, b_zero)
    return n.add(mm.MatMul(), wide_a, wide_b).cast(f32) * (_flat(n, a_scale) * _flat(n, b_scale))


def _flat(n: OnnxNode, scale: Value) -> Value:
    return n.reshape(scale, ()) if is_single(scale) else scale


@contrib_op("MatMulIntegerToFloat")
def matmul_integer_to_float(n: OnnxNode) -> Result:
    a, b, a_scale, b_scale = n.input(0), n.input(1), scale_at(n, 2), scale_at(n, 3)
    y = integer_product(n, a, b, a_scale, b_scale, n.optional(4), n.optional(5))
    bias = n.optional(6)
    return y if bias is None else y + bias


@contrib_op("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(n: OnnxNode) -> Result:
    y = _dynamic_product(n, n.input(0), n.input(1), scale_at(n, 2), n.optional(3))
    bias = n.optional(4)
    return y if bias is None else y + bias


def _dynamic_product(
    n: OnnxNode, x: Value, b: Value, b_scale: Value, b_zero: Value | None
) -> Value:
    """The product of x and b, where x is quantised by its own range."""
    a, scale, zero = n.add(DynamicQuantize(), x)
    return integer_product(n, a, b, scale, b_scale, zero, b_zero)


@contrib_op("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(n: OnnxNode) -> Result:
    """An LSTM whose inputs and states are quantised by their own ranges: the inputs for all steps
    together, the states in each step.  Weights are [directions, columns, gates].
    """
    slots = n.all_slots
    stored = [(n.input(w), scale_at(n, s), n.input(s + 1)) for w, s in ((1, 8), (2, 10))]
    turned = [w.transpose(0, 2, 1) for w, _, _ in stored]
    plain = n.as_operator("LSTM", 7, (slots[0], *turned, *slots[3:8]))

    def times(inner: NodeContext, x: Value, parts: Sequence[Value]) -> Value:
        return _dynamic_product(replace(n, builder=inner.builder), x, *parts)

    def weights(at: int, direction: int) -> Weights:
        return Weights(tuple(pick(plain, v, direction) for v in stored[at]), times)

    return layer(plain, weights)


@contrib_op("QGemm")
def q_gemm(n: OnnxNode) -> Result:
    """alpha A B + C: floats, or quantised if the node has a scale for the result."""
    a, a_zero, b, b_zero = (n.input(i) for i in (0, 2, 3, 5))
    a_scale, b_scale = scale_at(n, 1), scale_at(n, 4)
    turned = [n.attr_flag("transA"), n.attr_flag("transB")]
    a, b = (x.transpose(1, 0) if t else x for x, t in zip((a, b), turned, strict=True))
    bias = n.optional(6)
    wide = [without_zero_point(n, a, a_zero, -2), without_zero_point(n, b, b_zero)]
    y = n.add(mm.MatMul(), *wide)
    if bias is not None:
        y = y + bias
    factor = _flat(n, a_scale) * _flat(n, b_scale)
    factor = factor * n.attr_float("alpha", 1.0)
    y = y.cast(f32) * factor
    return y if n.optional(7) is None else _quantized(n, y, 7, n.input(0))


def unpacked(n: OnnxNode, x: Value, bits: int) -> Value:
    """Unpack the bytes of the last axis into numbers of `bits` bits, the lowest bits first."""
    if bits not in (2, 4, 8):
        n.unsupported(f"numbers of {bits} bits (supported are 2, 4 and 8)")
    if x.dtype is not u8:
        n.bad(f"expected packed bytes, u8, found {x.type}")
    if bits == 8:
        return x
    shifts = n.const(np.arange(0, 8, bits), u8)
    parts = n.add(ew.BitShift("right"), n.add(shape.Unsqueeze((x.type.rank,)), x), shifts)
    parts = parts & ((1 << bits) - 1)
    return n.reshape(parts, (*x.type.shape[:-1], n.extent(x, -1) * 8 // bits))


def _first(n: OnnxNode, x: Value, count: int) -> Value:
    """The first `count` elements of the last axis."""
    if n.extent(x, -1) == count:
        return x
    return n.add(slicing.Slice((0,), (count,), (x.type.rank - 1,), (1,)), x)


def _narrow(n: OnnxNode, x: Value, bits: int, shape: tuple[int, int], count: int) -> Value:
    """The first `count` numbers of each packed row; constants are unpacked on demand."""
    if bits not in _NARROW:
        n.unsupported(f"numbers of {bits} bits (supported are 2, 4 and 8)")
    to, rows = _NARROW[bits], (shape[0], shape[1] * bits // 8)
    if not n.builder.is_constant(x):
        return _first(n, unpacked(n, n.reshape(x, rows), bits), count).cast(to)
    data = n.builder.data(x)

    def load() -> np.ndarray:
        bytes_ = data.read().reshape(rows)[:, :, None]
        parts = bytes_ >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
        return np.ascontiguousarray(parts.reshape(shape)[:, :count]).view(to.numpy)

    return n.builder.lazy_constant(TensorType(to, (shape[0], count)), Data(load))


_NARROW = {2: uint2, 4: uint4, 8: u8}
"""The unsigned types by number of bits."""


@contrib_op("MatMulNBits")
def matmul_n_bits(n: OnnxNode) -> Result:
    """A times the transpose of B [N, K], which is quantised in blocks along K.

    If blocks are not consecutive, g_idx has the block of each index of K.
    """
    a, b, scales, zeros, bias = n.input(0), n.input(1), scale_at(n, 2), n.optional(3), n.optional(5)
    if n.attr_int("weight_prepacked", 0):
        n.unsupported("weights that are packed already")
    n.ignore("accuracy_level")  # the attribute only sets a minimum accuracy
    columns, inner = n.attr_int("N"), n.attr_int("K")
    block, bits = n.attr_int("block_size"), n.attr_int("bits", 4)
    blocks = -(-inner // max(block, 1))
    if b.type.size != columns * blocks * block * bits // 8:
        n.bad(
            f"expected B [N, blocks, bytes of a block], {columns} x {blocks} x {block * bits // 8} "
            f"bytes, found {b.type}"
        )
    numbers = _narrow(n, b, bits, (columns, blocks * block), inner)
    scales = n.reshape(scales, (columns, blocks))
    if zeros is None:
        zeros = n.const(np.full((1, 1), 1 << (bits - 1), np.uint8))
    else:
        zeros = n.reshape(zeros, (columns, zeros.type.size // columns))
        zeros = _first(n, unpacked(n, zeros, bits), blocks) if zeros.dtype is u8 else zeros
    groups = n.optional(4)
    order = None if groups is None else _group_order(n, groups, inner, block)
    # Groups may have any sizes, so each weight gets a scale.
    if groups is not None and order is None:
        places = _first(n, n.reshape(groups, (1, groups.type.size)), inner)
        places = n.reshape(places, (inner,))
        each = n.add(gather.Gather(1), scales, places)
        offsets = n.add(gather.Gather(1), zeros, places) if zeros.type.size > 1 else zeros
        wide = dequantize(n, numbers.cast(u8), each, offsets, a.dtype, 1, 1)
    else:
        if order is not None:
            numbers = _reordered(n, numbers, order)
            a = n.add(gather.Gather(a.type.rank - 1), a, n.const(order))
        wide = dequantize(n, numbers, scales, zeros, a.dtype, 1, block)
    y = n.add(mm.MatMul(transpose_b=True), a, wide)
    return y if bias is None else y + bias


def _reordered(n: OnnxNode, numbers: Value, order: np.ndarray) -> Value:
    """The columns of `numbers` in another order; constants stay constants."""
    if not n.builder.is_constant(numbers):
        return n.add(gather.Gather(1), numbers, n.const(order))
    data = n.builder.data(numbers)
    made = Data(lambda: np.ascontiguousarray(data.read()[:, order]))
    return n.builder.lazy_constant(numbers.type, made)


def _group_order(n: OnnxNode, groups: Value, inner: int, block: int) -> np.ndarray | None:
    """The order of K's indices in which each group is contiguous.  None if groups are not known,
    or if a group does not have `block` indices.
    """
    if groups.type.size < inner:
        n.bad(f"expected {inner} numbers in g_idx, found {groups.type}")
    if not n.builder.is_constant(groups):
        return None
    numbers = n.builder.data(groups).read().reshape(-1)[:inner]
    blocks = -(-inner // block)
    if numbers.min() < 0 or numbers.max() >= blocks:
        shown = f"{numbers.min()} to {numbers.max()}"
        n.bad(f"expected groups from 0 to {blocks - 1} in g_idx, found {shown}")
    order = np.argsort(numbers, kind="stable")
    is_even = np.array_equal(numbers[order], np.arange(inner) // block)
    return order if is_even else None


@contrib_op("GatherBlockQuantized")
def gather_block_quantized(n: OnnxNode) -> Result:
    """Rows of a quantised table, looked up before they become floats."""
    data, indices, scales, zeros = *(n.input(i) for i in range(3)), n.optional(3)
    rank, bits, block = data.type.rank, n.attr_int("bits", 4), n.attr_int("block_size", 128)
    gathered = n.axis(n.attr_int("gather_axis", 0), rank)
    axis = n.axis(n.attr_int("quantize_axis", 1), rank)
    if gathered == axis:
        n.bad(f"expected a gather_axis other than quantize_axis, found {gathered} for both")
    parts = []
    for v in (data, scales, zeros):
        part = None if v is None else n.add(gather.Gather(gathered), v, indices)
        packed = part is not None and v is not scales and part.dtype is u8
        parts.append(unpacked(n, part, bits) if part is not None and packed else part)
    rows, factors, offsets = parts
    place = axis if axis < gathered else axis + indices.type.rank - 1
    if rows is None or factors is None:
        n.bad("expected data and scales")
    if offsets is not None:
        offsets = _first(n, offsets, n.extent(scales, -1))
    elif data.dtype is u8:
        offsets = n.const(np.full([1] * rows.type.rank, 1 << (bits - 1), np.uint8))
    return dequantize(n, rows, factors, offsets, scales.dtype, place, block)
