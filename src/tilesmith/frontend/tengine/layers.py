"""Tengine's layers, as the reference kernels of its CPU device compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.frontend.common import pools
from tilesmith.frontend.common.networks import LayerNode, Layers
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import add_bias, convolve, geometry
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import same_dim, same_shape
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import matmul as mm
from tilesmith.ops import norm, pool, slicing
from tilesmith.ops.base import Op

LAYERS: Layers = Layers()
"""Tengine's layers by name."""

tengine_layer = LAYERS.register

_NO_ACTIVATION, _RELU, _RELU6 = -1, 0, 6


def _pair(n: LayerNode, name: str, low: int = 1) -> tuple[int, int]:
    return n.attr_int(f"{name}_h", low=low), n.attr_int(f"{name}_w", low=low)


def _is_one(x: Value) -> bool:
    """Whether `x` has one element."""
    return same_dim(extents.product(x.type.shape), 1)


def _by_channel(n: LayerNode, numbers: Value, x: Value) -> Value:
    """A number for each channel, reshaped to broadcast with `x` [N, C, ...]."""
    return n.reshape(numbers, (x.type.shape[1], *[1] * (x.type.rank - 2)))


@tengine_layer("Convolution")
def convolution(n: LayerNode) -> Result:
    x, w = n.input(0), n.input(1)
    pads = [n.attr_int(f"pad_{side}") for side in ("h0", "w0", "h1", "w1")]
    if min(pads) < 0:
        n.unsupported(f"padding by a rule (pads {pads})")
    g = geometry(n, x, _pair(n, "kernel"), _pair(n, "stride"), pads, _pair(n, "dilation"))
    y = add_bias(n, convolve(n, x, w, g, n.attr_int("group", low=1)), n.optional(2))
    activation = n.attr_int("activation")
    if activation == _RELU:
        return n.add(act.Relu(), y)
    if activation == _RELU6:
        return fn.clip(y, 0, 6)
    return y if activation == _NO_ACTIVATION else n.unsupported(f"activation {activation}")


@tengine_layer("Pooling")
def pooling(n: LayerNode) -> Result:
    """Flavor 1 is Caffe's: the last window may extend past the end, and averages count padding."""
    x, flavor = n.input(), n.attr_int("caffe_flavor")
    method = n.attr_int("pool_method")
    if method not in (0, 1) or flavor not in (0, 1):
        n.unsupported(f"method {method} of flavor {flavor}")
    kind: pools.Kind = "average" if method else "max"
    if n.attr_flag("global"):
        return pools.global_pool(n, x, kind)
    pads = n.attr_int("pad_h0"), n.attr_int("pad_w0")
    if min(pads) < 0:
        n.unsupported(f"padding by a rule (pads {list(pads)})")
    g = geometry(n, x, _pair(n, "kernel"), _pair(n, "stride"), pads)
    return pools.pooled(n, x, kind, g, "ceil" if flavor else "floor", bool(flavor))


@tengine_layer("FullyConnected")
def fully_connected(n: LayerNode) -> Result:
    x, w = n.input(0), n.input(1)
    count = n.attr_int("num_output", low=1)
    if n.extent(w, 0) != count:
        n.unsupported(f"transposed weights {w.type}")
    rows, rest = x.type.shape[0], x.type.rank - 2
    y = n.add(
        mm.MatMul(transpose_b=True),
        n.reshape(x, (rows, extents.product(x.type.shape[1:]))),
        n.reshape(w, (count, extents.product(w.type.shape[1:]))),
    )
    bias = n.optional(2)
    y = y if bias is None else y + n.reshape(bias, (count,))
    return n.reshape(y, (rows, count, *[1] * rest))


@tengine_layer("Softmax")
def softmax(n: LayerNode) -> Result:
    return n.add(norm.Softmax(n.axis(n.attr_int("axis"), n.input().type.rank)), n.input())


_ELTWISE: dict[int, Callable[[Any, Any], Any]] = {
    0: lambda x, y: x * y,
    1: lambda x, y: x * y,
    2: lambda x, y: x + y,
    4: lambda x, y: x - y,
    5: lambda x, y: x - y,
    6: fn.maximum,
    8: fn.minimum,
    10: lambda x, y: x / y,
}
"""Operators of two tensors, by their number."""

_WITH_NUMBER = (1, 5, 8)
"""Those whose second tensor is one number."""


@tengine_layer("Eltwise")
def eltwise(n: LayerNode) -> Result:
    x, y = n.input(0), n.input(1)
    kind = n.attr_int("type")
    if kind not in _ELTWISE or (kind in _WITH_NUMBER and not _is_one(y)):
        n.unsupported(f"type {kind} of {x.type} and {y.type}")
    if not same_shape(x.type.shape, y.type.shape):
        y = _operand(n, x, y)
    return _ELTWISE[kind](x, y)


def _operand(n: LayerNode, x: Value, y: Value) -> Value:
    """`y` with one element, or one for each channel of an image `x`, as it broadcasts."""
    if _is_one(y):
        return n.reshape(y, (1,) * x.type.rank)
    channels = x.type.shape[1] if x.type.rank == 4 and same_dim(x.type.shape[0], 1) else 0
    if same_dim(extents.product(y.type.shape), channels):
        return n.reshape(y, (1, channels, 1, 1))
    return n.unsupported(f"operands {x.type} and {y.type}")


@tengine_layer("BroadMul")
def broad_mul(n: LayerNode) -> Result:
    x, y = n.input(0), n.input(1)
    if x.type.rank != y.type.rank:
        n.unsupported(f"operands {x.type} and {y.type}")
    return x * y


def _same(kind: str, make: Callable[[LayerNode], Op]) -> None:
    tengine_layer(kind)(lambda n: n.add(make(n), n.input()))


_same("ReLU6", lambda n: ew.Clip(0.0, 6.0))
_same("Sigmoid", lambda n: act.Sigmoid())
_same("Tanh", lambda n: ew.Tanh())


@tengine_layer("ReLU")
def relu(n: LayerNode) -> Result:
    slope = n.attr_float("negative_slope")
    return n.add(act.LeakyRelu(slope) if slope else act.Relu(), n.input())


@tengine_layer("PReLU")
def prelu(n: LayerNode) -> Result:
    x, slope = n.input(0), n.input(1)
    if _is_one(slope):
        return n.add(act.PRelu(), x, n.reshape(slope, (1,)))
    return n.add(act.PRelu(), x, _by_channel(n, slope, x))


@tengine_layer("BatchNormalize")
def batch_normalize(n: LayerNode) -> Result:
    """Inputs: x, gamma, beta, mean, variance.  Caffe's flavor has no gamma and beta."""
    x, by = n.input(0), n.attr_float("rescale_factor")
    factor = 1 / by if by else 0.0
    mean, variance = n.input(3) * factor, n.input(4) * factor
    slope = fn.rsqrt(variance + n.attr_float("eps"))
    offset = -mean * slope
    if not n.attr_flag("caffe_flavor"):
        gamma, beta = n.input(1), n.input(2)
        slope, offset = slope * gamma, offset * gamma + beta
    return x * _by_channel(n, slope, x) + _by_channel(n, offset, x)


@tengine_layer("Scale")
def scale(n: LayerNode) -> Result:
    x, addend = n.input(0), n.optional(2)
    y = x * _by_channel(n, n.input(1), x)
    return y if addend is None else y + _by_channel(n, addend, x)


@tengine_layer("Lrn")
def lrn(n: LayerNode) -> Result:
    """x * (1 + alpha / size * sum of (x^2 + k))^-beta over a window of channels.

    In other engines k is in the place of 1, and not in the sum.
    """
    x, size = n.input(), n.attr_int("local_size", low=1)
    if n.attr_int("norm_region") or size % 2 == 0 or x.type.rank != 4:
        n.unsupported(f"a window of {size} channels of {x.type}, or one inside channels")
    batch, channels, height, width = x.type.shape
    squares = x * x + n.attr_float("k")
    rows = n.reshape(squares, (batch, 1, channels, extents.product((height, width))))
    window = pool.AvgPool((size, 1), (1, 1), (size // 2, 0) * 2, count_include_pad=True)
    mean = n.reshape(n.add(window, rows), x.type.shape)
    return x * (mean * n.attr_float("alpha") + 1) ** -n.attr_float("beta")


@tengine_layer("InstanceNorm")
def instance_norm(n: LayerNode) -> Result:
    return n.add(norm.InstanceNorm(n.attr_float("eps")), *n.inputs)


@tengine_layer("LayerNorm")
def layer_norm(n: LayerNode) -> Result:
    return n.add(norm.LayerNorm(-1, n.attr_float("eps")), *n.inputs)


# Layers that move elements


@tengine_layer("Dropout")
def dropout(n: LayerNode) -> Result:
    return n.input()


@tengine_layer("Concat")
def concat(n: LayerNode) -> Result:
    return n.add(slicing.Concat(n.axis(n.attr_int("axis"), n.input().type.rank)), *n.inputs)


@tengine_layer("Flatten")
def flatten(n: LayerNode) -> Result:
    x = n.input()
    dims = x.type.shape
    start, end = n.attr_int("axis", low=0), n.attr_int("end_axis", low=0)
    if start != 1 or end < x.type.rank - 1:
        n.unsupported(f"axes {start} to {end} of {x.type}")
    return n.reshape(x, (dims[0], extents.product(dims[1:])))


@tengine_layer("Reshape")
def reshape(n: LayerNode) -> Result:
    """In ONNX's and MXNet's models, 0 keeps an extent."""
    x, dims = n.input(0), list(n.attr_ints("re_shape"))
    keeps = n.attr_flag("is_onnx") or n.attr_flag("is_mxnet")
    if n.attr_flag("reverse") or min(dims, default=0) < -1 or (0 in dims and not keeps):
        n.unsupported(f"shape {dims}")
    if any(d == 0 and i >= x.type.rank for i, d in enumerate(dims)):
        n.bad(f"shape {dims}: 0 keeps an extent, found {x.type}")
    return x.reshape(*(d or x.type.shape[i] for i, d in enumerate(dims)))
