"""Functions of one quantised tensor: arithmetic on integers, or tables."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite import tables
from tilesmith.frontend.tflite.fixed_point import (
    centred,
    every,
    is_word,
    looked_up,
    power_of_two,
    scaled,
    scales,
    single,
    stored,
)
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import FORMS, quantized_op
from tilesmith.frontend.tflite.tables import Function, f4, in_double
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, i8, i16, u8
from tilesmith.ops.functions import where

_ERFC = np.vectorize(math.erfc, otypes=[np.float64])


def _same_type(n: TfliteNode, *allowed: DType) -> None:
    """Raises UnsupportedError unless input and result have one of these types."""
    x, y = n.input_tensor(0), n.output_tensor()
    if x.dtype is not y.dtype or x.dtype not in allowed:
        n.unsupported(f"an input of type {x.dtype} and a result of type {y.dtype}")


def _table(n: TfliteNode, f: Function, *allowed: DType) -> Value:
    """Apply a function of f32 numbers by a table."""
    _same_type(n, *allowed)
    x, y = single(n, n.input_tensor(0)), single(n, n.output_tensor())
    dtype = n.input_tensor(0).dtype
    table = tables.of_words(f, x, y) if dtype is i16 else tables.of_bytes(f, dtype, x, y)
    return looked_up(n, n.input(0), table)


# Rectifiers


def _rectified(n: TfliteNode, kind: str) -> Result:
    _same_type(n, i8, u8, i16)
    a, y = map(f4, scales(n))
    return stored(n, scaled(n, centred(n, 0), float(a / y)), kind)


for _kind in ("RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1"):
    FORMS.register(_kind)(partial(_rectified, kind=_kind))


@quantized_op("LEAKY_RELU")
def leaky_relu(n: TfliteNode) -> Result:
    _same_type(n, i8, u8, i16)
    a, y = map(f4, scales(n))
    alpha, x = f4(n.option("alpha")), centred(n, 0)
    below = scaled(n, x, float(abs(a * alpha / y)))
    return stored(n, where(x < 0, -below if alpha < 0 else below, scaled(n, x, float(a / y))))


@quantized_op("PRELU")
def prelu(n: TfliteNode) -> Result:
    _same_type(n, i8, u8, i16)
    a, s, y = map(f4, scales(n))
    x = centred(n, 0)
    below = scaled(n, x * centred(n, 1), float(a * s / y))
    return stored(n, where(x < 0, below, scaled(n, x, float(a / y))))


@quantized_op("ABS")
def absolute(n: TfliteNode) -> Result:
    _same_type(n, i8, i16)
    a, y = map(f4, scales(n))
    x = abs(centred(n, 0))
    return stored(n, x if a == y else scaled(n, x, float(a / y)))


# Tables


@quantized_op("HARD_SWISH")
def hard_swish(n: TfliteNode) -> Result:
    _same_type(n, i8, u8)
    x, y = n.input_tensor(0), n.output_tensor()
    return looked_up(n, n.input(0), tables.hard_swish(x.dtype, single(n, x), single(n, y)))


def _of_words(n: TfliteNode, is_tanh: bool) -> Value:
    """A sigmoid or hyperbolic tangent of 16-bit integers."""
    (scale, zero), y = single(n, n.input_tensor(0)), single(n, n.output_tensor())
    if zero or y[1] or power_of_two(y[0]) != -15:
        n.unsupported(f"words with zero points, or a result with the scale {y[0]}; 2^-15 is")
    power = power_of_two(scale)
    shift = None if power is None else power + 12
    if shift == 0 or (is_tanh and shift == 1):
        multiplier, shift = 3 << shift, 0
    else:
        real, shift = scale * 4096.0 * 3.0, 0
        while real <= 32767.0 / 2.0 and shift <= 30:
            real, shift = real * 2.0, shift + 1
        multiplier = int(real)
    make = tables.tanh_of_words if is_tanh else tables.sigmoid_of_words
    return looked_up(n, n.input(0), make(multiplier, shift))


@quantized_op("LOGISTIC")
def logistic(n: TfliteNode) -> Result:
    if is_word(n.input_tensor(0)):
        return _of_words(n, False)
    exp = in_double(np.exp)
    return _table(n, lambda x: f4(1) / (f4(1) + exp(-x)), i8, u8)


@quantized_op("TANH")
def tanh(n: TfliteNode) -> Result:
    if is_word(n.input_tensor(0)):
        return _of_words(n, True)
    return _table(n, in_double(np.tanh), i8, u8)


@quantized_op("ELU")
def elu(n: TfliteNode) -> Result:
    below = in_double(np.expm1)
    return _table(n, lambda x: np.where(x < 0, below(x), x), i8)


@quantized_op("GELU")
def gelu(n: TfliteNode) -> Result:
    erfc, th = in_double(_ERFC), in_double(np.tanh)
    if n.option("approximate"):
        factor = f4(math.sqrt(2 / math.pi))

        def f(x: np.ndarray) -> np.ndarray:
            return f4(0.5) * x * (f4(1) + th(factor * (x + f4(0.044715) * x * x * x)))
    else:

        def f(x: np.ndarray) -> np.ndarray:
            return f4(0.5) * x * erfc(x * f4(-math.sqrt(0.5)))

    return _table(n, f, i8, u8, i16)


@quantized_op("EXP")
def exp(n: TfliteNode) -> Result:
    return _table(n, in_double(np.exp), i8, i16)


@quantized_op("LOG")
def log(n: TfliteNode) -> Result:
    y, (scale, zero) = n.output_tensor(), single(n, n.output_tensor())
    least, ln = f4(int(y.dtype.min) - zero) * f4(scale), in_double(np.log)
    return _table(n, lambda x: np.where(x <= 0, least, ln(x)), i8, i16)


@quantized_op("RSQRT")
def rsqrt(n: TfliteNode) -> Result:
    x, y = single(n, n.input_tensor(0)), single(n, n.output_tensor())
    if not is_word(n.input_tensor(0)):
        _same_type(n, i8)
        return looked_up(n, n.input(0), tables.reciprocal_root(x, y))
    most, root = f4(int(i16.max)) * f4(y[0]), in_double(np.sqrt)

    def f(v: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.where(v <= 0, most, f4(1) / root(v))

    return _table(n, f, i16)


@quantized_op("SQRT")
def sqrt(n: TfliteNode) -> Result:
    _same_type(n, i8, i16)
    tensor, (a, a_zero), (y, y_zero) = (
        n.input_tensor(0),
        single(n, n.input_tensor(0)),
        single(n, n.output_tensor()),
    )
    dtype = tensor.dtype
    real = np.maximum(f4(a) * (every(dtype) - a_zero).astype(f4), 0)
    steps = (np.sqrt(real) / f4(y)).astype(np.int64) + y_zero
    table = np.clip(steps, int(dtype.min), int(dtype.max)).astype(dtype.numpy)
    return looked_up(n, n.input(0), table)
