"""Gradients of normalisations and of embeddings, as backward graphs call them."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim
from tilesmith.ops import gather, scatter
from tilesmith.ops.functions import where
from tilesmith.ops.norm import widened

_Gradients = tuple[Value | None, Value | None, Value | None]


@aten_op("aten.native_layer_norm_backward.default")
def native_layer_norm_backward(
    n: AtenNode,
    grad_out: Value,
    input: Value,
    normalized_shape: Sequence[Dim],
    mean: Value,
    rstd: Value,
    weight: Value | None,
    bias: Value | None,
    output_mask: Sequence[bool],
) -> _Gradients:
    """The gradients of input, weight and bias, each None unless `output_mask` asks for it."""
    first = input.type.rank - len(normalized_shape)
    grad, x = widened(grad_out), widened(input)
    normal = _normal(x, mean, rstd)
    to_input = to_weight = to_bias = None
    if output_mask[0]:
        scaled = grad if weight is None else grad * widened(weight)
        axes = tuple(range(first, input.type.rank))
        to_input = n.cast(_of_input(n, scaled, normal, rstd, axes), input.dtype)
    outer = tuple(range(first))
    if output_mask[1] and weight is not None:
        to_weight = n.cast(_sum(grad * normal, outer), weight.dtype)
    if output_mask[2]:
        dtype = input.dtype if bias is None else bias.dtype
        to_bias = n.cast(_sum(grad, outer), dtype)
    return to_input, to_weight, to_bias


@aten_op("aten.native_group_norm_backward.default")
def native_group_norm_backward(
    n: AtenNode,
    grad_out: Value,
    input: Value,
    mean: Value,
    rstd: Value,
    weight: Value | None,
    N: Dim,
    C: Dim,
    HxW: Dim,
    group: int,
    output_mask: Sequence[bool],
) -> _Gradients:
    """The gradients of input, weight and bias, each None unless `output_mask` asks for it.

    mean, rstd: statistics [N, group] of the forward pass.
    """
    if not isinstance(C, int):
        n.unsupported(f"C is the symbolic {C}; give the inputs a fixed number of channels")
    apart = (N, group, C // group, HxW)
    grad, x = (n.reshape(widened(v), apart) for v in (grad_out, input))
    mean, rstd = (n.reshape(v, (N, group, 1, 1)) for v in (mean, rstd))
    normal = _normal(x, mean, rstd)
    to_input = to_weight = to_bias = None
    if output_mask[0]:
        scaled = grad
        if weight is not None:
            factors = n.reshape(widened(weight), (group, C // group, 1))
            scaled = grad * factors
        gradient = n.cast(_of_input(n, scaled, normal, rstd, (2, 3)), input.dtype)
        to_input = n.reshape(gradient, input.type.shape)
    if output_mask[1]:
        gradient = _sum(grad * normal, (0, 3))
        dtype = input.dtype if weight is None else weight.dtype
        to_weight = n.cast(n.reshape(gradient, (C,)), dtype)
    if output_mask[2]:
        dtype = input.dtype if weight is None else weight.dtype
        to_bias = n.cast(n.reshape(_sum(grad, (0, 3)), (C,)), dtype)
    return to_input, to_weight, to_bias


def _normal(x: Value, mean: Value, rstd: Value) -> Value:
    """(x - mean) * rstd."""
    return (x - mean.cast(x.dtype)) * rstd.cast(x.dtype)


def _of_input(n: AtenNode, grad: Value, normal: Value, rstd: Value, axes: tuple[int, ...]) -> Value:
    """The gradient of the input of a normalisation over `axes`.

    It is (g - mean(g) - y mean(g y)) / deviation.  y is the normalised values, g is their gradient.
    """
    shift = grad.mean(axes, keepdims=True)
    slope = (grad * normal).mean(axes, keepdims=True)
    return (grad - shift - normal * slope) * n.cast(rstd, grad.dtype)


def _sum(x: Value, axes: tuple[int, ...]) -> Value:
    return x.sum(axes) if axes else x


@aten_op("aten.embedding_dense_backward.default")
def embedding_dense_backward(
    n: AtenNode,
    grad_output: Value,
    indices: Value,
    num_weights: Dim,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Value:
    """The gradient of a table [num_weights, width].  A row's gradient is the sum of the gradients
    at the indices that read the row.

    Indices equal to `padding_idx` do not count.  `scale_grad_by_freq` divides by the number of
    indices that read the row.
    """
    width = grad_output.type.shape[-1]
    count = extents.product(indices.type.shape)
    places = n.reshape(n.cast(indices, i64), (count,))
    rows = n.reshape(widened(grad_output), (count, width))
    if scale_grad_by_freq:
        zeros = n.full(0, (num_weights,), i64)
        uses = n.add(scatter.ScatterElements(0, "add"), zeros, places, n.full(1, (count,), i64))
        own = n.cast(n.add(gather.Gather(0), uses, places), rows.dtype)
        rows = rows / n.reshape(own, (count, 1))
    if padding_idx >= 0:
        is_padding = places.equals(padding_idx)
        rows = where(n.reshape(is_padding, (count, 1)), 0, rows)
    zeros = n.full(0, (num_weights, width), rows.dtype)
    summed = n.add(scatter.ScatterNd("add"), zeros, n.reshape(places, (count, 1)), rows)
    return n.cast(summed, grad_output.dtype)
