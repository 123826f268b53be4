"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import columns, conv


def spread(given: Sequence[int] | int, count: int) -> tuple[int, ...]:
    """One number per axis.  A single number is repeated `count` times."""
    numbers = (given,) if isinstance(given, int) else tuple(given)
    return numbers * count if len(numbers) == 1 else numbers


@aten_op("aten.convolution.default", "aten._convolution.default")
def convolution(
    n: AtenNode, input: Value, weight: Value, bias: Value | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, benchmark: bool = False,
    deterministic: bool = False, cudnn_enabled: bool = False, allow_tf32: bool = False,
) -> Value:  # fmt: skip
    """A convolution.  An input with one axis less than the weights has no batch axis."""
    rank = weight.type.rank - 2
    if input.type.rank == rank + 1:
        wide = n.reshape(input, (1, *input.type.shape))
        y = convolution(
            n, wide, weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )
        return n.reshape(y, y.type.shape[1:])
    strides, pads, dilations = (spread(v, rank) for v in (stride, padding, dilation))
    op: conv.Conv | conv.ConvTranspose
    if transposed:
        more = spread(output_padding, rank)
        op = conv.ConvTranspose(strides, (*pads, *pads), dilations, groups, more)
    else:
        op = conv.Conv(strides, (*pads, *pads), dilations, groups)
    return _with_bias(n, n.add(op, input, weight), bias)


def _with_bias(n: AtenNode, y: Value, bias: Value | None) -> Value:
    if bias is None:
        return y
    return y + n.reshape(bias, (*bias.type.shape, *[1] * (y.type.rank - 2)))


def _convolution(
    n: AtenNode, input: Value, weight: Value, bias: Value | None = None,
    stride: Sequence[int] | int = 1, padding: Sequence[int] | int | str = 0,
    dilation: Sequence[int] | int = 1, groups: int = 1,
) -> Value:  # fmt: skip
    rank = weight.type.rank - 2
    strides, dilations = spread(stride, rank), spread(dilation, rank)
    if not isinstance(padding, str):
        pads = spread(padding, rank)
        return convolution(n, input, weight, bias, strides, pads, dilations, False, (0,), groups)
    before, after = [0] * rank, [0] * rank
    if padding == "same":
        kernel = n.shape(weight)[2:]
        total = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    elif padding != "valid":
        n.bad(f"padding: expected 'same', 'valid' or numbers, found {padding!r}")
    if input.type.rank == rank + 1:
        wide = n.reshape(input, (1, *input.type.shape))
        y = _convolution(n, wide, weight, bias, stride, padding, dilation, groups)
        return n.reshape(y, y.type.shape[1:])
    op = conv.Conv(strides, (*before, *after), dilations, groups)
    return _with_bias(n, n.add(op, input, weight), bias)


for _rank in (1, 2, 3):
    aten_op(f"aten.conv{_rank}d.default", f"aten.conv{_rank}d.padding")(_convolution)


def _transposed(
    n: AtenNode, input: Value, weight: Value, bias: Value | None = None,
    stride: Sequence[int] | int = 1, padding: Sequence[int] | int = 0,
    output_padding: Sequence[int] | int = 0, groups: int = 1, dilation: Sequence[int] | int = 1,
) -> Value:  # fmt: skip
    rank = weight.type.rank - 2
    s, p, d, o = (spread(v, rank) for v in (stride, padding, dilation, output_padding))
    return convolution(n, input, weight, bias, s, p, d, True, o, groups)


aten_op(
    "aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input"
)(_transposed)


@aten_op("aten.col2im.default")
def col2im(
    n: AtenNode,
    self: Value,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Images in which overlapping columns are summed.  `self` has the shape [N, C * window,
    positions]; N may be missing.
    """
    image = tuple(int(n.number(d, "an extent of the image")) for d in output_size)
    pads = tuple(padding)
    op = columns.Col2Im(image, tuple(kernel_size), tuple(stride), (*pads, *pads), tuple(dilation))
    if self.type.rank == 3:
        return n.add(op, self)
    y = n.add(op, n.reshape(self, (1, *self.type.shape)))
    return n.reshape(y, y.type.shape[1:])
