"""ONNX's quantised operators, composed of `ops.quantize` and integer products.

`q = saturate(round(x / scale) + zero_point)` and `x = (q - zero_point) * scale`.  There is one
scale, one per index of an axis, or one per block along an axis.
"""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.contractions import without_zero_point
from tilesmith.frontend.onnx.convolutions import convolve
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.frontend.onnx.shapes import is_single
from tilesmith.frontend.onnx.tensors import element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f8e8m0, f32, u8
from tilesmith.ops import matmul as mm
from tilesmith.ops.quantize import Dequantize, DynamicQuantize, Quantize


def scale_at(n: OnnxNode, at: int, divides: bool = False) -> Value:
    """Input `at`, a scale.  Raises ModelError for a constant that contains a NaN or an infinity, or
    a zero if it is a divisor (`divides`).
    """
    v = n.input(at)
    if not n.builder.is_constant(v):
        return v
    scales = n.builder.data(v).read().astype(np.float32)
    bad = scales[~np.isfinite(scales) | (divides & (scales == 0))]
    if bad.size:
        wanted = "numbers other than 0" if divides else "numbers"
        n.bad(f"expected finite {wanted} as scales in input {at}, found {bad[0]}")
    return v


def quantize(
    n: OnnxNode,
    x: Value,
    scale: Value,
    zero: Value | None,
    to: DType,
    axis: int = 0,
    block: int = 0,
    saturates: bool = True,
) -> Value:
    """x quantised to type `to`.  `scale` is one number, or varies along `axis`."""
    op = Quantize(to, _place(n, x, scale, axis, block), block, saturates)
    return n.add(op, x.cast(f32), scale.cast(f32), *([] if zero is None else [zero]))


def dequantize(
    n: OnnxNode,
    q: Value,
    scale: Value,
    zero: Value | None,
    to: DType,
    axis: int = 0,
    block: int = 0,
) -> Value:
    """q dequantised to type `to`.  `scale` is one number, or varies along `axis`."""
    if not (block and scale.dtype is to):
        scale = scale.cast(f32)
    op = Dequantize(_place(n, q, scale, axis, block), block)
    return n.add(op, q, scale, *([] if zero is None else [zero])).cast(to)


def _place(n: OnnxNode, x: Value, scale: Value, axis: int, block: int) -> int:
    """The axis along which scales vary, counted from the front; 0 for a single scale."""
    return 0 if is_single(scale) and not block else n.axis(axis, x.type.rank)


def integer(n: OnnxNode, d: DType, what: str) -> DType:
    if not d.is_int or d.bits > 32:
        n.unsupported(f"{what} of element type {d}; supported are integers of at most 32 bits")
    return d


def _quantized(n: OnnxNode, d: DType, what: str, bits: int) -> None:
    if d is f8e8m0 or d.bits > bits or not (d.is_int or d.is_storage):
        n.unsupported(
            f"{what} of element type {d}; supported are integers of at most {bits} bits and floats "
            "of at most 8"
        )


@onnx_op("QuantizeLinear", since=10)
def quantize_linear(n: OnnxNode) -> Result:
    x, factor, zero = n.input(0), scale_at(n, 1, divides=True), n.optional(2)
    axis = n.attr_int("axis", 1) if n.version >= 13 else 1
    block = n.attr_int("block_size", 0) if n.version >= 21 else 0
    to = u8 if zero is None else zero.dtype
    if n.version >= 21 and n.attr_int("output_dtype", 0):
        to = element_type(n.attr_int("output_dtype"), "attribute 'output_dtype'")
    if n.version >= 23 and n.attr_int("precision", 0) not in (0, 1):
        n.unsupported("a precision other than f32")
    _quantized(n, to, "results", 16)
    saturates = bool(n.attr_int("saturate", 1))
    return quantize(n, x, factor, zero, to, axis, block, saturates)


@onnx_op("DequantizeLinear", since=10)
def dequantize_linear(n: OnnxNode) -> Result:
    q, factor, zero = n.input(0), scale_at(n, 1), n.optional(2)
    axis = n.attr_int("axis", 1) if n.version >= 13 else 1
    block = n.attr_int("block_size", 0) if n.version >= 21 else 0
    to = factor.dtype
    if n.version >= 23 and n.attr_int("output_dtype", 0):
        to = element_type(n.attr_int("output_dtype"), "attribute 'output_dtype'")
    _quantized(n, q.dtype, "inputs", 32)
    return dequantize(n, q, factor, zero, to, axis, block)


@onnx_op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(n: OnnxNode) -> Result:
    return n.add(DynamicQuantize(), n.input(0))


def _requantize(
    n: OnnxNode, product: Value, scales: tuple[Value, Value, Value], zero: Value
) -> Value:
    """`product` quantised with the result's scale; `zero` may vary along the last axis."""
    a, b, y = (s.cast(f32) for s in scales)
    steps = product.cast(f32) * (a * b / y)
    zero = n.reshape(zero, ()) if is_single(zero) else zero
    return n.add(Quantize(zero.dtype, -1), steps, n.const(1.0, f32), zero)


def _qlinear(n: OnnxNode) -> tuple[list[Value], tuple[Value, Value, Value]]:
    """The two operands, each followed by its zero point, and the result's zero point; then the
    scales of all three.
    """
    a, _, a_zero, b, _, b_zero, _, y_zero = (n.input(i) for i in range(8))
    scales = scale_at(n, 1), scale_at(n, 4), scale_at(n, 6, divides=True)
    for d in (a.dtype, b.dtype, y_zero.dtype):
        integer(n, d, "operands")
    return [a, a_zero, b, b_zero, y_zero], scales


@onnx_op("QLinearMatMul", since=10)
def qlinear_matmul(n: OnnxNode) -> Result:
    (a, a_zero, b, b_zero, y_zero), (a_scale, b_scale, y_scale) = _qlinear(n)
    if a_scale.type.rank == 1 and not is_single(a_scale):  # a scale for each row
        a_scale = n.reshape(a_scale, (*a_scale.type.shape, 1))
    y = n.add(mm.MatMul(), without_zero_point(n, a, a_zero, -2), without_zero_point(n, b, b_zero))
    return _requantize(n, y, (a_scale, b_scale, y_scale), y_zero)


@onnx_op("QLinearConv", since=10)
def qlinear_conv(n: OnnxNode) -> Result:
    (x, x_zero, w, w_zero, y_zero), (x_scale, w_scale, y_scale) = _qlinear(n)
    y = convolve(n, without_zero_point(n, x, x_zero), without_zero_point(n, w, w_zero, 0))
    space = [1] * (y.type.rank - 2)
    bias = n.optional(8)
    if bias is not None:
        y = y + n.reshape(bias, (*n.shape(bias), *space))
    if w_scale.type.size > 1:
        w_scale = n.reshape(w_scale, (*n.shape(w_scale), *space))
    return _requantize(n, y, (x_scale, w_scale, y_scale), y_zero)
