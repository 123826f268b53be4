"""Gradients of convolutions, which are convolutions too.

The gradient of a convolution's images is a transposed convolution, and vice versa.  The gradient of
the weights is a convolution whose filter is the gradient of the result.  In it, samples take the
role of channels, and stride and dilation are exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.functions import apply
from tilesmith.ops.rules import product
from tilesmith.ops.slicing import Slice

from .call import Call, gradient


@gradient(Conv, ConvTranspose)
def convolution(call: Call) -> tuple[Any, ...]:
    """The gradient is derived from the tensor expression if the spatial extents are not numbers, or
    if the operands and the result have different types.
    """
    op, (x, w), g = call.op, call.inputs, call.cotangent
    rank = w.type.rank - 2
    strides, dilations = op.strides or (1,) * rank, op.dilations or (1,) * rank
    pads = op.pads[:rank] or (0,) * rank
    images, grad = (g, x) if isinstance(op, ConvTranspose) else (x, g)
    spatial = (*x.type.shape[2:], *w.type.shape, *g.type.shape[2:])
    is_known = all(isinstance(d, int) for d in spatial)
    if not is_known or len({x.type.dtype, w.type.dtype, g.type.dtype}) > 1:
        return tuple(call.derived(n) if w else None for n, w in enumerate(call.wanted))
    to_x = to_w = None
    if call.wanted[0] and isinstance(op, ConvTranspose):
        back = Conv(strides, op.pads, dilations, op.groups)
        to_x = cropped(apply(back, g, w), x.type.shape[2:])
    elif call.wanted[0]:
        to_x = transposed_convolution(g, w, x.type.shape[2:], strides, pads, dilations, op.groups)
    if call.wanted[1]:
        is_open = op.groups > 1 and not isinstance(x.type.shape[0], int)
        to_w = call.derived(1) if is_open else of_weight(
            images, grad, w.type.shape[2:], strides, pads, dilations, op.groups
        )  # fmt: skip
    return to_x, to_w


def transposed_convolution(
    grad: Any,
    weight: Any,
    shape: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Any:
    """The gradient of a convolution's images.  `shape` is their spatial shape."""
    whole = [
        s * (o - 1) + d * (k - 1) + 1
        for s, o, d, k in zip(
            strides, grad.type.shape[2:], dilations, weight.type.shape[2:], strict=True
        )
    ]
    # At the end of an axis, windows may reach beyond the images (`ends`) or leave some positions
    # unread (`more`).
    over = [w - p - size for w, p, size in zip(whole, pads, shape, strict=True)]
    ends, more = [max(e, 0) for e in over], [max(-e, 0) for e in over]
    op = ConvTranspose(tuple(strides), (*pads, *ends), tuple(dilations), groups, tuple(more))
    return apply(op, grad, weight)


def of_weight(
    images: Any,
    grad: Any,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Any:
    """The gradient of a convolution's weights [OC, IC / groups, kernel...]."""
    batch, channels, *size = images.type.shape
    per_group = channels // groups
    spatial = [*range(2, len(size) + 2)]
    # These end pads give the result the kernel's extents.  A negative pad crops pixels.
    ends = [
        d * (k - 1) + s * (o - 1) + 1 - p - i
        for d, k, s, o, p, i in zip(
            dilations, kernel, strides, grad.type.shape[2:], pads, size, strict=True
        )
    ]
    filters = grad.transpose(1, 0, *spatial)
    if per_group == 1 and groups > 1 and not same_dim(batch, 0):
        # A depthwise convolution: samples become a spatial axis, and channels keep their axis.
        x = images.transpose(1, 0, *spatial).reshape(1, channels, batch, *size)
        out, *places = filters.type.shape
        op = Conv((1, *dilations), (0, *pads, 0, *ends), (1, *strides), groups)
        gradient = apply(op, x, filters.reshape(out, 1, *places))  # [1, OC, 1, kernel...]
        return gradient.reshape(out, 1, *kernel)
    apart = images.reshape(batch, groups, per_group, *size)
    turned = apart.transpose(2, 1, 0, *(a + 1 for a in spatial))
    x = turned.reshape(per_group, product((groups, batch)), *size)
    op = Conv(tuple(dilations), (*pads, *ends), tuple(strides), groups)
    return apply(op, x, filters).transpose(1, 0, *spatial)  # [IC / groups, OC, kernel...]


def cropped(x: Any, shape: Sequence[Dim]) -> Any:
    """`x` cropped at the end of each spatial axis."""
    axes = tuple(range(2, x.type.rank))
    if all(same_dim(d, s) for d, s in zip(x.type.shape[2:], shape, strict=True)):
        return x
    return apply(Slice((0,) * len(axes), tuple(shape), axes, (1,) * len(axes)), x)
