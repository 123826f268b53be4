"""ONNX's operators whose result is random.

A number is a function of the node's seed and of its position in the result, so every call of a
compiled model gives the same numbers.  Nodes with equal seeds give equal numbers, as in ONNX
Runtime.  Nodes without a seed have streams of their own, numbered in the model's order.
"""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.limits import checked_shape
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.constants import filled
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.frontend.onnx.tensors import element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, bool_, f32, f64, i32, i64
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import elementwise as ew
from tilesmith.ops.functions import reciprocal, where
from tilesmith.ops.norm import Softmax
from tilesmith.ops.random import RandomNormal, RandomUniform
from tilesmith.ops.scan import CumSum
from tilesmith.ops.shape import Unsqueeze
from tilesmith.ops.slicing import Slice

_SEEDED, _NUMBERED = 0, 1
"""The second word of a key: it tells whether the first word is a seed or the number of a stream."""

_SHAPED_LIKE_INPUT = ("RandomUniformLike", "RandomNormalLike")


def _key(n: OnnxNode, integer: bool = False) -> tuple[int, int]:
    """The key of a node's numbers: the bits of its seed, or the number of its stream."""
    if not n.has("seed"):
        return n.builder.next_stream(), _NUMBERED
    if integer:
        seed = n.attr_int("seed") & 0xFFFFFFFF
    else:
        seed = int(np.float32(n.attr_float("seed")).view(np.uint32))
    return seed, _SEEDED


def _float_type(n: OnnxNode, default: DType) -> DType:
    dtype = element_type(n.attr_int("dtype"), "attribute 'dtype'") if n.has("dtype") else default
    if not dtype.is_float:
        n.bad(f"expected a floating-point type to draw, found {dtype}")
    return dtype


def _scaled(n: OnnxNode, x: Value, scale: float, offset: float, dtype: DType) -> Value:
    """x * scale + offset, computed in f32 and cast to `dtype`."""
    if scale != 1.0:
        x = x * scale
    if offset != 0.0:
        x = x + offset
    return x.cast(dtype)


def _shape(n: OnnxNode) -> tuple[tuple[Dim, ...], DType]:
    """The shape and type that a node requests, by attributes or from its input."""
    if n.op_type in _SHAPED_LIKE_INPUT:
        x = n.input(0)
        return x.type.shape, _float_type(n, x.dtype)
    dims = n.attr_ints("shape")
    if dims is None:
        n.bad("expected attribute 'shape', which is required; found none")
    return checked_shape(dims, "attribute 'shape'"), _float_type(n, f32)


@onnx_op("RandomUniform", "RandomUniformLike", since=1)
def random_uniform(n: OnnxNode) -> Result:
    shape, dtype = _shape(n)
    low, high = n.attr_float("low", 0.0), n.attr_float("high", 1.0)
    return _scaled(n, n.add(RandomUniform(shape, _key(n))), high - low, low, dtype)


@onnx_op("RandomNormal", "RandomNormalLike", since=1)
def random_normal(n: OnnxNode) -> Result:
    shape, dtype = _shape(n)
    mean, scale = n.attr_float("mean", 0.0), n.attr_float("scale", 1.0)
    return _scaled(n, n.add(RandomNormal(shape, _key(n))), scale, mean, dtype)


@onnx_op("Bernoulli", since=15)
def bernoulli(n: OnnxNode) -> Result:
    p = n.input(0)
    if not p.dtype.is_float:
        n.bad(f"expected probabilities, found {p.type}")
    code = n.attr_int("dtype") if n.has("dtype") else None
    dtype = p.dtype if code is None else element_type(code, "attribute 'dtype'")
    u = n.add(RandomUniform(p.type.shape, _key(n)))
    return (u < p.cast(f32)).cast(dtype)


@onnx_op("Multinomial", since=7)
def multinomial(n: OnnxNode) -> Result:
    """Draw classes by inverting the cumulative distribution.  For a number drawn from [0, 1), the
    class is the number of cumulative sums that do not exceed it.
    """
    x = n.input(0)
    if x.type.rank != 2 or not x.dtype.is_float or any(same_dim(d, 0) for d in x.type.shape):
        n.bad(f"expected log-probabilities [batch, classes], found {x.type}")
    count = n.attr_int("sample_size", 1)
    dtype = element_type(n.attr_int("dtype", 6), "attribute 'dtype'")
    if dtype not in (i32, i64) or count < 0:
        n.bad(f"expected int32 or int64 and sample_size >= 0, found {dtype} and {count}")
    batch = x.type.shape[0]
    cumulated = n.add(CumSum(1), n.add(Softmax(1), x).cast(f64))
    # The last sum should be 1, but rounding may leave it below 1.  So it is left out.
    bounds = n.add(Slice((0,), (-1,), (1,), (1,)), cumulated)
    u = n.add(RandomUniform((batch, count), _key(n))).cast(f64)
    passed = n.add(Unsqueeze((1,)), bounds) <= n.add(Unsqueeze((2,)), u)
    return passed.cast(dtype).sum((2,))


@onnx_op("Dropout", since=1)
def dropout(n: OnnxNode) -> Result:
    x = n.input(0)
    training: Value | bool = False
    ratio: Value | float = 0.0
    if n.version < 7:
        training, ratio = not n.attr_flag("is_test"), n.attr_float("ratio", 0.5)
    elif n.version < 12:
        n.ignore("ratio")
    else:
        rate, mode = n.optional(1), n.optional(2)
        if mode is not None and not all(n.is_known(v) for v in (rate, mode) if v is not None):
            training = mode.reshape()
            ratio = n.const(0.5, f32) if rate is None else rate.reshape().cast(f32)
            ratio = where(training, ratio, 0.0)
        else:
            training = mode is not None and bool(n.scalar(mode, "training_mode"))
            ratio = 0.5 if rate is None else float(n.scalar(rate, "ratio")) if training else 0.0
    if isinstance(ratio, float) and not 0.0 <= ratio < 1.0:
        n.bad(f"ratio: expected at least 0 and less than 1, found {ratio}")
    if n.builder.without_dropout or training is False or ratio == 0.0:
        n.ignore("seed")
        y = n.add(ew.Identity(), x)
        mask = filled(n, x.type.shape, 1, bool_ if n.version >= 10 else x.dtype)
        return (y, mask) if n.wants(1) else y
    u = n.add(RandomUniform(x.type.shape, _key(n, integer=True)))
    kept = u >= ratio
    if isinstance(ratio, Value):
        scaled = x * reciprocal(1.0 - ratio).cast(x.dtype)
    else:
        scaled = x * (1.0 / (1.0 - ratio))
    y = where(kept, scaled, 0.0)
    if not n.wants(1):
        return y
    return y, kept if n.version >= 10 else kept.cast(x.dtype)
