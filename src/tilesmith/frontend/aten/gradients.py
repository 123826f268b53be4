"""Gradients that PyTorch computes by operators of their own, as the backward graphs of a compiler
backend call them.  Most others are made of core operators.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilesmith.frontend.aten.convolutions import spread
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.pools import Numbers, averages
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import same_dim
from tilesmith.ops import conv, reduce
from tilesmith.ops import elementwise as ew
from tilesmith.ops import matmul as mm
from tilesmith.ops.scatter import ScatterElements
from tilesmith.ops.slicing import Slice


@aten_op("aten.convolution_backward.default")
def convolution_backward(
    n: AtenNode, grad_output: Value, input: Value, weight: Value, bias_sizes: Sequence[int] | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:  # fmt: skip
    """The gradients of input, weight and bias, each where `output_mask` asks for it.

    That of a convolution's input is a transposed convolution, and the other way round.  That of the
    weight is a convolution too, in which samples take the place of channels: the gradient is its
    filter, and stride and dilation change places.
    """
    rank = weight.type.rank - 2
    strides, pads, dilations = (spread(v, rank) for v in (stride, padding, dilation))
    to_input = to_weight = to_bias = None
    if output_mask[0] and transposed:
        op = conv.Conv(strides, (*pads, *pads), dilations, groups)
        to_input = _cropped(n, n.add(op, grad_output, weight), n.shape(input)[2:])
    elif output_mask[0]:
        to_input = _spread(
            n, grad_output, weight, n.shape(input)[2:], strides, pads, dilations, groups
        )
    if output_mask[1]:
        images, filters = (grad_output, input) if transposed else (input, grad_output)
        kernel = n.shape(weight)[2:]
        to_weight = _of_weight(n, images, filters, kernel, strides, pads, dilations, groups)
    if output_mask[2]:
        axes = (0, *range(2, rank + 2))
        to_bias = n.add(reduce.ReduceSum(axes, False), grad_output)
    return to_input, to_weight, to_bias


def _spread(
    n: AtenNode,
    grad: Value,
    weight: Value,
    shape: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Value:
    """The gradient of a convolution's input, whose spatial shape is `shape`."""
    whole = [
        s * (o - 1) + d * (k - 1) + 1
        for s, o, d, k in zip(
            strides, n.shape(grad)[2:], dilations, n.shape(weight)[2:], strict=True
        )
    ]
    # what is left over at the end of each axis: windows beyond the input, or places in no window
    over = [w - p - size for w, p, size in zip(whole, pads, shape, strict=True)]
    ends, more = [max(e, 0) for e in over], [max(-e, 0) for e in over]
    op = conv.ConvTranspose(tuple(strides), (*pads, *ends), tuple(dilations), groups, tuple(more))
    return n.add(op, grad, weight)


def _of_weight(
    n: AtenNode,
    images: Value,
    grad: Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Value:
    """The gradient of a convolution's weights [OC, IC / groups, kernel...]."""
    batch, channels, *size = n.shape(images)
    per_group = channels // groups
    spatial = [*range(2, len(size) + 2)]
    apart = n.reshape(images, (batch, groups, per_group, *size))
    turned = n.permute(apart, (2, 1, 0, *(a + 1 for a in spatial)))
    x = n.reshape(turned, (per_group, groups * batch, *size))
    filters = n.permute(grad, (1, 0, *spatial))
    # with these pads the places are those of the kernel; a negative one leaves pixels out
    ends = [
        d * (k - 1) + s * (o - 1) + 1 - p - i
        for d, k, s, o, p, i in zip(
            dilations, kernel, strides, n.shape(grad)[2:], pads, size, strict=True
        )
    ]
    op = conv.Conv(tuple(dilations), (*pads, *ends), tuple(strides), groups)
    return n.permute(n.add(op, x, filters), (1, 0, *spatial))  # [IC / groups, OC, kernel...]


def _cropped(n: AtenNode, x: Value, shape: Sequence[int]) -> Value:
    """The beginning of each spatial axis."""
    axes = tuple(range(2, x.type.rank))
    if all(same_dim(d, s) for d, s in zip(x.type.shape[2:], shape, strict=True)):
        return x
    return n.add(Slice((0,) * len(axes), tuple(shape), axes, (1,) * len(axes)), x)


@aten_op("aten.max_pool2d_with_indices_backward.default")
def max_pool_backward(
    n: AtenNode, grad_output: Value, self: Value, kernel_size: Numbers, stride: Numbers,
    padding: Numbers, dilation: Numbers, ceil_mode: bool, indices: Value,
) -> Value:  # fmt: skip
    return adaptive_max_pool_backward(n, grad_output, self, indices)


@aten_op("aten.adaptive_max_pool2d_backward.default")
def adaptive_max_pool_backward(
    n: AtenNode, grad_output: Value, self: Value, indices: Value
) -> Value:
    """Each window's gradient goes to its maximum, whose place in its plane `indices` has."""
    planes = extents.product(self.type.shape[:-2])
    flat = [
        n.reshape(v, (planes, extents.product(v.type.shape[-2:]))) for v in (grad_output, indices)
    ]
    zeros = n.full(0, (planes, extents.product(self.type.shape[-2:])), grad_output.dtype)
    return n.reshape(n.add(ScatterElements(1, "add"), zeros, flat[1], flat[0]), self.type.shape)


@aten_op("aten.avg_pool2d_backward.default")
def avg_pool_backward(
    n: AtenNode, grad_output: Value, self: Value, kernel_size: Numbers, stride: Numbers,
    padding: Numbers, ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Value:  # fmt: skip
    """Each window's gradient, divided as its sum was, goes to all of its places."""
    kernel = spread(kernel_size, 2)
    strides, pads = spread(stride, 2) or kernel, spread(padding, 2)
    *planes, height, width = n.shape(self)
    out = n.shape(grad_output)[-2:]
    if divisor_override is not None:
        divisors = np.full(out, divisor_override)
    else:
        rows, columns = (
            _counts(o, size, k, s, p, count_include_pad)
            for o, size, k, s, p in zip(out, (height, width), kernel, strides, pads, strict=True)
        )
        divisors = rows[:, None] * columns
    share = n.add(ew.Div(), grad_output, n.const(divisors.astype(grad_output.dtype.numpy)))
    count = extents.product(planes)
    ones = n.const(np.ones((1, 1, *kernel), grad_output.dtype.numpy))
    found = _spread(
        n, n.reshape(share, (count, 1, *out)), ones, (height, width), strides, pads, (1, 1), 1
    )
    return n.reshape(found, self.type.shape)


def _counts(
    out: int, size: int, kernel: int, stride: int, pad: int, includes_padding: bool
) -> np.ndarray:
    """How many places each window along an axis counts."""
    begins = np.arange(out) * stride - pad
    ends = np.minimum(begins + kernel, size + pad)
    if includes_padding:
        return ends - begins
    return np.minimum(ends, size) - np.maximum(begins, 0)


@aten_op("aten._adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool_backward(n: AtenNode, grad_output: Value, self: Value) -> Value:
    """By each axis, the product with the transposed matrix of averages."""
    size, out = n.shape(self)[-2:], n.shape(grad_output)[-2:]
    if max(out) == 1:
        share = n.add(ew.Div(), grad_output, n.tensor(float(size[0] * size[1]), self.dtype))
        return n.expand(share, self.type.shape)
    rows, columns = (
        n.const(averages(i, o).astype(self.dtype.numpy)) for i, o in zip(size, out, strict=True)
    )
    return n.add(mm.MatMul(), n.permute(rows, (1, 0)), n.add(mm.MatMul(), grad_output, columns))
