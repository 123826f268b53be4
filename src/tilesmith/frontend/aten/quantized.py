"""Quantisation: the `quantized_decomposed` operators of PyTorch's quantised graphs, and products of
integers.

They become the operators of `ops.quantize`, as in quantised ONNX models, so their products run on
the same integers.
"""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Number
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f32, f64, i32, i64
from tilesmith.ops import matmul as mm
from tilesmith.ops.functions import clip, maximum, minimum, rint
from tilesmith.ops.quantize import Dequantize, Quantize


def _scale(n: AtenNode, scale: Value | float) -> Value:
    return n.tensor(scale, f32)


def _quantized(
    n: AtenNode, x: Value, scale: Value, zero: Value, axis: int, low: int, high: int, to: DType
) -> Value:
    """round(x / scale) + zero, within [low, high].

    scale, zero: `scale` is f32, `zero` is of type `to`.  One number, or one for each position of
        `axis`.
    """
    x = n.cast(x, f32)
    # `Quantize` saturates at the limits of its type, so narrower limits are applied to x
    if (low, high) != (to.min, to.max):
        least, most = (_of_integers(n, x, limit, scale, zero, axis) for limit in (low, high))
        x = minimum(maximum(x, least), most)
    return n.add(Quantize(to, axis), x, scale, zero)


def _of_integers(n: AtenNode, x: Value, q: int, scale: Value, zero: Value, axis: int) -> Value:
    """(q - zero) * scale, in a shape that broadcasts to x."""
    wide = q - n.cast(zero, i32)
    floats = n.cast(wide, f32) * scale
    after = x.type.rank - 1 - axis
    return n.reshape(floats, (*floats.type.shape, *[1] * after)) if floats.type.rank else floats


def _integer(n: AtenNode, dtype: DType) -> DType:
    if not dtype.is_int or dtype.bits > 16:
        n.unsupported(f"quantisation to {dtype}; supported are integers of at most 16 bits")
    return dtype


_OVERLOADS = ("default", "tensor", "tensor2")
"""Names of overloads.  In "default", the scale, the zero point and the limits are numbers.  In
"tensor", the scale and the zero point are tensors; in "tensor2", the limits are tensors, too.
"""


@aten_op(*(f"quantized_decomposed.quantize_per_tensor.{o}" for o in _OVERLOADS))
def quantize_per_tensor(
    n: AtenNode, input: Value, scale: Value | float, zero_point: Value | int,
    quant_min: Number | Value, quant_max: Number | Value, dtype: DType,
) -> Value:  # fmt: skip
    low, high = (int(n.number(v, "a limit of integers")) for v in (quant_min, quant_max))
    zero = n.tensor(zero_point, _integer(n, dtype))
    scale, zero = (n.reshape(v, ()) for v in (_scale(n, scale), zero))
    return _quantized(n, input, scale, zero, 0, low, high, dtype)


@aten_op("quantized_decomposed.quantize_per_channel.default")
def quantize_per_channel(
    n: AtenNode, input: Value, scales: Value, zero_points: Value, axis: int, quant_min: int,
    quant_max: int, dtype: DType,
) -> Value:  # fmt: skip
    zero = n.cast(zero_points, _integer(n, dtype))
    number = n.axis(axis, input.type.rank)
    return _quantized(n, input, _scale(n, scales), zero, number, quant_min, quant_max, dtype)


def _floats(n: AtenNode, q: Value, scale: Value, zero: Value, axis: int) -> Value:
    """(q - zero) * scale as f32; `zero` is an integer of any type."""
    return n.add(Dequantize(axis), q, scale, n.cast(zero, q.dtype) if q.dtype.is_int else zero)


@aten_op(*(f"quantized_decomposed.dequantize_per_tensor.{o}" for o in _OVERLOADS))
def dequantize_per_tensor(
    n: AtenNode, input: Value, scale: Value | float, zero_point: Value | int,
    quant_min: Number | Value, quant_max: Number | Value, dtype: DType,
    out_dtype: DType | None = None,
) -> Value:  # fmt: skip
    scale, zero = (n.reshape(v, ()) for v in (_scale(n, scale), n.tensor(zero_point)))
    return n.cast(_floats(n, input, scale, zero, 0), out_dtype)


@aten_op("quantized_decomposed.dequantize_per_channel.default")
def dequantize_per_channel(
    n: AtenNode, input: Value, scales: Value, zero_points: Value | None, axis: int, quant_min: int,
    quant_max: int, dtype: DType, out_dtype: DType | None = None,
) -> Value:  # fmt: skip
    zero = n.full(0, scales.type.shape, i64) if zero_points is None else zero_points
    number = n.axis(axis, input.type.rank)
    return n.cast(_floats(n, input, _scale(n, scales), zero, number), out_dtype)


@aten_op("aten._int_mm.default")
def int_mm(n: AtenNode, self: Value, mat2: Value) -> Value:
    """The i32 product of two matrices of type i8."""
    return n.add(mm.MatMul(), n.cast(self, i32), n.cast(mat2, i32))


@aten_op("quantized_decomposed.choose_qparams.tensor")
def choose_qparams(
    n: AtenNode, input: Value, quant_min: int, quant_max: int, eps: float, dtype: DType
) -> tuple[Value, Value]:
    """A scale f64[1] and a zero point i64[1] for a tensor's range, extended to include 0."""
    low, high = _range(n, input)
    scale = (high - low) / (quant_max - quant_min)
    scale = maximum(scale, np.float32(eps))
    zero = quant_min - rint(low / scale)
    zero = clip(zero, float(quant_min), float(quant_max))
    return n.reshape(n.cast(scale, f64), (1,)), n.reshape(n.cast(zero, i64), (1,))


@aten_op("quantized_decomposed.choose_qparams_symmetric.tensor")
def choose_qparams_symmetric(
    n: AtenNode, input: Value, quant_min: int, quant_max: int, eps: float, dtype: DType
) -> tuple[Value, Value]:
    """Like `choose_qparams`, for a range that is symmetric around 0."""
    low, high = _range(n, input)
    most = maximum(-low, high)
    scale = most / ((quant_max - quant_min) / 2)
    scale = maximum(scale, np.float32(eps))
    middle = 0 if dtype.kind == "int" else 128
    return n.reshape(n.cast(scale, f64), (1,)), n.const(np.array([middle], np.int64))


def _range(n: AtenNode, x: Value) -> tuple[Value, Value]:
    """The minimum of 0 and all elements, and the maximum of 0 and all elements, each f32[]."""
    x, zero = n.cast(x, f32), n.const(0, f32)
    return (
        minimum(x.min(), zero),
        maximum(x.max(), zero),
    )
