"""ONNX's quantised operators, made of casts, scales and integer products.

`q = saturate(round(x / scale) + zero_point)`, `x = (q - zero_point) * scale`; scales may be one
number, one per place of an axis, or one per block along an axis.
"""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.convolutions import convolve, minus_zero_point
from tilesmith.frontend.onnx.elementwise import saturating_cast
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.frontend.onnx.shapes import equal_where_open, is_single
from tilesmith.frontend.onnx.tensors import element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, f8e8m0, f32, i32, u8
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ops import gather, shape, slicing
from tilesmith.ops import matmul as mm
from tilesmith.ops.functions import clip, rint
from tilesmith.ops.packed import DequantizeBlocks
from tilesmith.ops.quantize import Dequantize, DynamicQuantize, Quantize, takes


def along(n: OnnxNode, v: Value, x: Value, axis: int, block: int) -> Value:
    """A scale or zero point in the shape in which it broadcasts to `x`."""
    rank = x.type.rank
    if block:
        dims, axis = v.type.shape, n.axis(axis, rank)
        extent = x.type.shape[axis]
        blocks = as_dim(as_expr(extents.total((extent, block - 1))) // block)
        if len(dims) != rank or not equal_where_open(n, (dims[axis],), (blocks,)):
            n.bad(
                f"expected one scale per block of {block} along axis {axis} of {x.type}, found "
                f"{v.type}"
            )
        if not isinstance(extent, int):
            at = n.positions(extent) / block
            return n.add(gather.Gather(axis), v, at)
        wide = n.add(shape.Unsqueeze((axis + 1,)), v)
        wide = wide.expand(*dims[: axis + 1], block, *dims[axis + 1 :])
        padded = n.extent(v, axis) * block
        wide = n.reshape(wide, (*dims[:axis], padded, *dims[axis + 1 :]))
        if padded == extent:
            return wide
        return n.add(slicing.Slice((0,), (extent,), (axis,), (1,)), wide)
    if is_single(v) and v.type.rank <= 1:
        return n.reshape(v, ())
    if v.type.rank != 1:
        n.bad(f"expected one scale, or one per place of axis {axis}, found {v.type}")
    axis = n.axis(axis, rank)
    places = x.type.shape[axis : axis + 1]
    if not equal_where_open(n, v.type.shape, places):
        n.bad(f"expected {places[0]} scales along axis {axis}, found {v.type}")
    return n.reshape(v, (*places, *[1] * (rank - axis - 1)))


def scale_at(n: OnnxNode, at: int, divides: bool = False) -> Value:
    """Input `at`, a scale.  Raises ModelError for a constant with a NaN or an infinity, or with a
    zero by which numbers are divided (`divides`).
    """
    v = n.input(at)
    if not n.builder.is_constant(v):
        return v
    found = n.builder.data(v).read().astype(np.float32)
    bad = found[~np.isfinite(found) | (divides & (found == 0))]
    if bad.size:
        wanted = "numbers other than 0" if divides else "numbers"
        n.bad(f"expected finite {wanted} as scales in input {at}, found {bad[0]}")
    return v


def quantize(
    n: OnnxNode, x: Value, scale: Value, zero: Value | None, to: DType, saturate: bool = True
) -> Value:
    """`scale` and `zero` broadcast to `x` already."""
    q = x.cast(f32) / scale.cast(f32)
    if to.is_float:
        if zero is not None:
            q = q + zero.cast(f32)
        return saturating_cast(n, q, to) if saturate else q.cast(to)
    q = rint(q)
    if zero is not None:
        q = q + zero.cast(f32)
    return clip(q, float(to.min), float(to.max)).cast(to)


def dequantize(n: OnnxNode, q: Value, scale: Value, zero: Value | None, to: DType) -> Value:
    exact = f32 if q.dtype.is_float else i32
    wide = q.cast(exact)
    if zero is not None:
        wide = wide - zero.cast(exact)
    return (wide.cast(f32) * scale.cast(f32)).cast(to)


def in_blocks(
    n: OnnxNode, q: Value, scale: Value, zero: Value | None, axis: int, block: int, to: DType
) -> Value:
    """Integers with a scale, and maybe a zero point, for each block along an axis."""
    given = (scale,) if zero is None else (scale, zero)
    return n.add(DequantizeBlocks(axis, block), q, *given).cast(to)


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


def _canonical(
    n: OnnxNode, x: Value, scale: Value, zero: Value | None, q: DType, axis: int, block: int
) -> int | None:
    """The axis of `Quantize` or `Dequantize` for these operands; None where they are spelled out:
    blocks, floats of 8 bits, integers of 32, scales along an axis of open extent.
    """
    axis = 0 if is_single(scale) else n.axis(axis, x.type.rank)
    zeros = None if zero is None else zero.type
    return axis if not block and takes(x.type, scale.type, zeros, q, axis) else None


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
    place = _canonical(n, x, factor, zero, to, axis, block)
    if place is not None:
        given = [] if zero is None else [zero]
        return n.add(Quantize(to, place), x.cast(f32), factor.cast(f32), *given)
    factor = along(n, factor, x, axis, block)
    zero = None if zero is None else along(n, zero, x, axis, block)
    return quantize(n, x, factor, zero, to, bool(n.attr_int("saturate", 1)))


@onnx_op("DequantizeLinear", since=10)
def dequantize_linear(n: OnnxNode) -> Result:
    q, factor, zero = n.input(0), scale_at(n, 1), n.optional(2)
    axis = n.attr_int("axis", 1) if n.version >= 13 else 1
    block = n.attr_int("block_size", 0) if n.version >= 21 else 0
    to = factor.dtype
    if n.version >= 23 and n.attr_int("output_dtype", 0):
        to = element_type(n.attr_int("output_dtype"), "attribute 'output_dtype'")
    _quantized(n, q.dtype, "inputs", 32)
    if block and q.dtype.is_int and q.type.is_static:
        return in_blocks(n, q, factor, zero, axis, block, to)
    place = _canonical(n, q, factor, zero, q.dtype, axis, block)
    if place is not None:
        given = [] if zero is None else [zero]
        return n.add(Dequantize(place), q, factor.cast(f32), *given).cast(to)
    factor = along(n, factor, q, axis, block)
    zero = None if zero is None else along(n, zero, q, axis, block)
    return dequantize(n, q, factor, zero, to)


@onnx_op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(n: OnnxNode) -> Result:
    return n.add(DynamicQuantize(), n.input(0))


def _requantize(
    n: OnnxNode, product: Value, scales: tuple[Value, Value, Value], zero: Value
) -> Value:
    a, b, y = (s.cast(f32) for s in scales)
    factor = a * b / y
    q = rint(product.cast(f32) * factor)
    q = q + zero.cast(f32)
    return clip(q, float(zero.dtype.min), float(zero.dtype.max)).cast(zero.dtype)


def _qlinear(n: OnnxNode) -> tuple[list[Value], tuple[Value, Value, Value]]:
    """The operands, each with its zero point, and the result's; the scales of all three."""
    a, _, a_zero, b, _, b_zero, _, y_zero = (n.input(i) for i in range(8))
    scales = scale_at(n, 1), scale_at(n, 4), scale_at(n, 6, divides=True)
    for d in (a.dtype, b.dtype, y_zero.dtype):
        integer(n, d, "operands")
    return [a, a_zero, b, b_zero, y_zero], scales


@onnx_op("QLinearMatMul", since=10)
def qlinear_matmul(n: OnnxNode) -> Result:
    (a, a_zero, b, b_zero, y_zero), (a_scale, b_scale, y_scale) = _qlinear(n)

    def rows(v: Value) -> Value:
        """Per row of the left operand."""
        is_one = v.type.rank != 1 or is_single(v)
        return v if is_one else n.reshape(v, (*v.type.shape, 1))

    left = a.cast(i32) - rows(a_zero).cast(i32)
    right = b.cast(i32) - b_zero.cast(i32)
    return _requantize(
        n, n.add(mm.MatMul(), left, right), (rows(a_scale), b_scale, y_scale), y_zero
    )


@onnx_op("QLinearConv", since=10)
def qlinear_conv(n: OnnxNode) -> Result:
    (x, x_zero, w, w_zero, y_zero), (x_scale, w_scale, y_scale) = _qlinear(n)
    wide_x = x.cast(i32) - x_zero.cast(i32)
    y = convolve(n, wide_x, minus_zero_point(n, w.cast(i32), w_zero, 0))
    space = [1] * (y.type.rank - 2)
    bias = n.optional(8)
    if bias is not None:
        y = y + n.reshape(bias, (*n.shape(bias), *space))
    if w_scale.type.size > 1:
        w_scale = n.reshape(w_scale, (*n.shape(w_scale), *space))
    return _requantize(n, y, (x_scale, w_scale, y_scale), y_zero)
