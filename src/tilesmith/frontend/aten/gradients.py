"""Operators that compute gradients, as the backward graphs of a compiler backend call them.

PyTorch composes most other gradients of core operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.aten.convolutions import spread
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import conv
from tilesmith.ops.gradients.convolutions import cropped, of_weight, transposed_convolution


@aten_op("aten.convolution_backward.default")
def convolution_backward(
    n: AtenNode, grad_output: Value, input: Value, weight: Value, bias_sizes: Sequence[int] | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:  # fmt: skip
    """The gradients of input, weight and bias, each None unless `output_mask` asks for it.

    `ops.gradients.convolutions` has the rules.
    """
    rank = weight.type.rank - 2
    strides, pads, dilations = (spread(v, rank) for v in (stride, padding, dilation))
    to_input = to_weight = to_bias = None
    if output_mask[0] and transposed:
        op = conv.Conv(strides, (*pads, *pads), dilations, groups)
        to_input = cropped(n.add(op, grad_output, weight), n.shape(input)[2:])
    elif output_mask[0]:
        to_input = transposed_convolution(
            grad_output, weight, n.shape(input)[2:], strides, pads, dilations, groups
        )
    if output_mask[1]:
        images, filters = (grad_output, input) if transposed else (input, grad_output)
        for v in (images, filters):
            n.shape(v)  # raises an error for open dimensions
        kernel = n.shape(weight)[2:]
        to_weight = of_weight(images, filters, kernel, strides, pads, dilations, groups)
    if output_mask[2]:
        axes = (0, *range(2, rank + 2))
        to_bias = grad_output.sum(axes)
    return to_input, to_weight, to_bias
