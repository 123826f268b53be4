"""Operators that compute gradients, as the backward graphs of a compiler backend call them.

PyTorch composes most other gradients of core operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.aten.convolutions import spread
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.types import same_dim
from tilesmith.ops import conv
from tilesmith.ops.slicing import Slice


@aten_op("aten.convolution_backward.default")
def convolution_backward(
    n: AtenNode, grad_output: Value, input: Value, weight: Value, bias_sizes: Sequence[int] | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:  # fmt: skip
    """The gradients of input, weight and bias, each None unless `output_mask` asks for it.

    The gradient of a convolution's input is a transposed convolution, and vice versa.  The gradient
    of the weight is a convolution whose filter is the gradient of the result.  In it, samples take
    the role of channels, and stride and dilation are exchanged.
    """
    rank = weight.type.rank - 2
    strides, pads, dilations = (spread(v, rank) for v in (stride, padding, dilation))
    to_input = to_weight = to_bias = None
    if output_mask[0] and transposed:
        op = conv.Conv(strides, (*pads, *pads), dilations, groups)
        to_input = _cropped(n, n.add(op, grad_output, weight), n.shape(input)[2:])
    elif output_mask[0]:
        to_input = transposed_convolution(
            n, grad_output, weight, n.shape(input)[2:], strides, pads, dilations, groups
        )
    if output_mask[1]:
        images, filters = (grad_output, input) if transposed else (input, grad_output)
        kernel = n.shape(weight)[2:]
        to_weight = _of_weight(n, images, filters, kernel, strides, pads, dilations, groups)
    if output_mask[2]:
        axes = (0, *range(2, rank + 2))
        to_bias = grad_output.sum(axes)
    return to_input, to_weight, to_bias


def transposed_convolution(
    n: AtenNode,
    grad: Value,
    weight: Value,
    shape: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Value:
    """The gradient of a convolution's input.  `shape` is the input's spatial shape."""
    whole = [
        s * (o - 1) + d * (k - 1) + 1
        for s, o, d, k in zip(
            strides, n.shape(grad)[2:], dilations, n.shape(weight)[2:], strict=True
        )
    ]
    # At the end of an axis, windows may reach beyond the input (`ends`) or leave some positions
    # unread (`more`).
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
    # These end pads give the result the kernel's extents.  A negative pad crops pixels.
    ends = [
        d * (k - 1) + s * (o - 1) + 1 - p - i
        for d, k, s, o, p, i in zip(
            dilations, kernel, strides, n.shape(grad)[2:], pads, size, strict=True
        )
    ]
    filters = n.permute(grad, (1, 0, *spatial))
    if per_group == 1 and groups > 1 and not same_dim(batch, 0):
        # A depthwise convolution: samples become a spatial axis, and channels keep their axis.
        turned = n.permute(images, (1, 0, *spatial))
        x = n.reshape(turned, (1, channels, batch, *size))
        out, *places = n.shape(filters)
        op = conv.Conv((1, *dilations), (0, *pads, 0, *ends), (1, *strides), groups)
        gradient = n.add(op, x, n.reshape(filters, (out, 1, *places)))  # [1, OC, 1, kernel...]
        return n.reshape(gradient, (out, 1, *kernel))
    apart = n.reshape(images, (batch, groups, per_group, *size))
    turned = n.permute(apart, (2, 1, 0, *(a + 1 for a in spatial)))
    x = n.reshape(turned, (per_group, groups * batch, *size))
    op = conv.Conv(tuple(dilations), (*pads, *ends), tuple(strides), groups)
    return n.permute(n.add(op, x, filters), (1, 0, *spatial))  # [IC / groups, OC, kernel...]


def _cropped(n: AtenNode, x: Value, shape: Sequence[int]) -> Value:
    """`x` cropped at the end of each spatial axis."""
    axes = tuple(range(2, x.type.rank))
    if all(same_dim(d, s) for d, s in zip(x.type.shape[2:], shape, strict=True)):
        return x
    return n.add(Slice((0,) * len(axes), tuple(shape), axes, (1,) * len(axes)), x)
