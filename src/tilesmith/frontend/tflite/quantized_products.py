"""Convolutions and products of matrices of quantised tensors.

The operands are integers minus their zero points.  Passes turn their products into products of
bytes.  Sums of 32 bits wrap, as in TFLite's kernels.  16-bit inputs have sums of 64 bits, computed
in 32 bits if the weights show that this is exact.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilesmith.frontend.common.arithmetic import rounded_away
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite import hybrid
from tilesmith.frontend.tflite.contractions import rows_of
from tilesmith.frontend.tflite.convolutions import check_images, depthwise, plain, transposed
from tilesmith.frontend.tflite.fixed_point import fused, less, scaled, single, stored
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import quantized_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, f64, i8, i16, i32, i64, int4, u8
from tilesmith.ops import matmul as mm
from tilesmith.ops.functions import clip

Product = Callable[[Value, Value, Callable[[Value], Value]], Value]
"""Computes a product from an input, weights, and a function that subtracts the input's zero point.
The input may be rearranged before this function is applied.
"""

_WEIGHTS: dict[DType, tuple[DType, ...]] = {
    i8: (i8, int4),
    i16: (i8, int4),
    u8: (u8,),
}
"""The types of weights for each type of input."""


def _operands(n: TfliteNode, x: int, w: int, more: tuple[DType, ...] = ()) -> tuple[Value, Value]:
    """Inputs number `x` and `w`: the input and the weights, of types that TFLite can multiply.

    more: further types of weights for 16-bit inputs.
    """
    a, b = n.input(x), n.input(w)
    allowed = _WEIGHTS.get(a.dtype, ()) + (more if a.dtype is i16 else ())
    if b.dtype not in allowed:
        n.unsupported(f"operands {a.type} and {b.type}")
    return a, b


def _weights(n: TfliteNode, index: int, to: DType) -> Value:
    """The weights minus their zero point; weights with several scales have none."""
    q = n.quantization(n.input_tensor(index))
    if q.is_single:
        return less(n, n.input(index), q.zero_point, to)
    if q.zero_points.any():
        n.unsupported("weights with a zero point for each channel")
    return n.input(index).cast(to)


def _sums(
    n: TfliteNode, product: Product, x: int, w: int, bias: Value | None, channel: int
) -> Value:
    """The sums of products [..., C] with their bias, i32 or, for 16-bit inputs, i64.

    channel: the axis of the weights for the result's channels.
    """
    zero = single(n, n.input_tensor(x))[1]
    wide = i64 if n.input(x).dtype is i16 and (bias is None or bias.dtype is i64) else i32
    narrow = i32 if wide is i32 or _is_exact(n, n.input(w), channel) else i64
    y = product(n.input(x), _weights(n, w, narrow), lambda v: less(n, v, zero, narrow)).cast(wide)
    if bias is None:
        return y
    if bias.type.rank != 1 or bias.dtype is not wide:
        n.bad(f"the bias: expected one number of type {wide} per channel, found {bias.type}")
    return y + bias


def _is_exact(n: TfliteNode, w: Value, channel: int) -> bool:
    """Whether all sums of 16-bit inputs times weights fit into 32 bits."""
    if not n.builder.is_constant(w):
        return False
    rest = tuple(a for a in range(w.type.rank) if a != channel)
    sums = np.abs(n.builder.data(w).read().astype(np.int64)).sum(rest)
    return int(sums.max(initial=0)) << 15 <= i32.max


def _factors(n: TfliteNode, x: int, w: int) -> list[float] | float:
    """The factor from sums to the result's integers, or a factor for each channel, in f64."""
    a, y = single(n, n.input_tensor(x))[0], single(n, n.output_tensor())[0]
    q = n.quantization(n.input_tensor(w))
    factors = [a * float(s) / y for s in q.scales]
    return factors[0] if q.is_single else factors


def _single_factor(n: TfliteNode, x: int, w: int) -> float:
    """The factor for operands with one scale each.  TFLite rounds the scales' product to f32."""
    a, b, y = (single(n, t)[0] for t in (n.input_tensor(x), n.input_tensor(w), n.output_tensor()))
    return float(np.float32(a) * np.float32(b)) / y


def _convolution(
    n: TfliteNode, product: Product, channel: int, at: tuple[int, int, int] = (0, 1, 2)
) -> Result:
    """A convolution.  `at`: the numbers of the inputs that are its input, weights and bias."""
    x, w, bias = at
    a, _ = _operands(n, x, w)
    if n.output_tensor().dtype is not a.dtype:
        n.unsupported(f"a result of type {n.output_tensor().dtype} of an input {a.type}")
    factors = _single_factor(n, x, w) if a.dtype is u8 else _factors(n, x, w)
    return stored(
        n, scaled(n, _sums(n, product, x, w, n.optional(bias), channel), factors), fused(n)
    )


@quantized_op("CONV_2D")
def conv_2d(n: TfliteNode) -> Result:
    if hybrid.is_hybrid(n):
        return hybrid.convolution(n, is_depthwise=False)
    return _convolution(n, lambda x, w, centre: plain(n, x, w, centre), 0)


@quantized_op("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(n: TfliteNode) -> Result:
    if hybrid.is_hybrid(n):
        return hybrid.convolution(n, is_depthwise=True)
    return _convolution(n, lambda x, w, centre: depthwise(n, x, w, centre), 3)


@quantized_op("TRANSPOSE_CONV")
def transpose_conv(n: TfliteNode) -> Result:
    shape = n.input(0)

    def product(x: Value, w: Value, centre: Callable[[Value], Value]) -> Value:
        check_images(n, x, w, 4)
        return transposed(n, centre(x), w.transpose(3, 0, 1, 2), shape)

    return _convolution(n, product, 0, (2, 1, 3))


@quantized_op("FULLY_CONNECTED")
def fully_connected(n: TfliteNode) -> Result:
    if hybrid.is_hybrid(n):
        return hybrid.fully_connected(n)
    _, w = _operands(n, 0, 1, (i16,))

    def product(x: Value, w: Value, centre: Callable[[Value], Value]) -> Value:
        return n.add(mm.MatMul(transpose_b=True), centre(rows_of(n, x, w)), w)

    sums = _sums(n, product, 0, 1, n.optional(2), 0)
    if w.dtype is i16:
        is_single = n.quantization(n.input_tensor(1)).is_single
        factors = _single_factor(n, 0, 1) if is_single else _factors(n, 0, 1)
        return stored(n, scaled(n, sums, factors), fused(n))
    # TFLite's reference kernels scale these sums in f64
    steps = rounded_away(sums.cast(f64) * n.const(_factors(n, 0, 1), f64))
    return stored(n, clip(steps, float(i32.min), float(i32.max)).cast(i32), fused(n))


@quantized_op("BATCH_MATMUL")
def batch_matmul(n: TfliteNode) -> Result:
    if hybrid.is_hybrid(n):
        return hybrid.batch_matmul(n)
    x, y = n.input(0), n.input(1)
    if (x.dtype, y.dtype) not in ((i8, i8), (i16, i16), (i16, i8)):
        n.unsupported(f"operands {x.type} and {y.type}")
    wide = i64 if x.dtype is i16 else i32
    a, b = (less(n, v, single(n, n.input_tensor(i))[1], wide) for i, v in enumerate((x, y)))
    sums = n.add(mm.MatMul(bool(n.option("adj_x")), bool(n.option("adj_y"))), a, b)
    if n.output_tensor().dtype is i32:
        return sums.cast(i32)
    return stored(n, scaled(n, sums, _single_factor(n, 0, 1)))
