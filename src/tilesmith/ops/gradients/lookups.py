"""Gradients of lookups and scatters: the transpose of a lookup adds at the same places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilesmith.ir.types import TensorType
from tilesmith.ops.functions import where
from tilesmith.ops.gather import Gather, GatherElements, GatherNd
from tilesmith.ops.scatter import ScatterElements, ScatterNd
from tilesmith.ops.sort import TopK

from .call import Call, gradient, zeros


@gradient(Gather)
def gather(call: Call) -> tuple[Any, ...]:
    """The gradient adds each slice at its index, along the axis that is moved to the front."""
    (x, indices), b, g = call.inputs, call.builder, call.cotangent
    axis, rank = call.op.axis % x.type.rank, x.type.rank
    front = (axis, *(a for a in range(rank) if a != axis))
    end = axis + indices.type.rank
    moved = (*range(axis, end), *range(axis), *range(end, g.type.rank))
    if axis:
        g = g.transpose(*moved)
    shape = tuple(x.type.shape[a] for a in front)
    start = zeros(b, TensorType(x.type.dtype, shape))
    total = b.add(ScatterNd("add"), start, indices.reshape(*indices.type.shape, 1), g)
    return (total.transpose(*map(front.index, range(rank))) if axis else total), None


@gradient(GatherElements)
def gather_elements(call: Call) -> tuple[Any, ...]:
    x, indices = call.inputs
    start = zeros(call.builder, x.type)
    scatter = ScatterElements(call.op.axis, "add")
    return call.builder.add(scatter, start, indices, call.cotangent), None


@gradient(GatherNd)
def gather_nd(call: Call) -> tuple[Any, ...]:
    if call.op.batch_dims:
        return call.derived(0), None
    x, indices = call.inputs
    start = zeros(call.builder, x.type)
    return call.builder.add(ScatterNd("add"), start, indices, call.cotangent), None


@gradient(ScatterElements, ScatterNd)
def scatter(call: Call) -> tuple[Any, ...]:
    """Each update has the gradient of its place, also updates that share a place, as in PyTorch.
    A replaced element has the gradient 0.  Equal extremes share the gradient evenly.  In a product,
    each factor has the product of the others.
    """
    op, b, g = call.op, call.builder, call.cotangent
    data, indices, updates = call.inputs
    lookup = GatherNd() if isinstance(op, ScatterNd) else GatherElements(op.axis)
    if op.reduction == "none":
        to_data = b.add(op, g, indices, zeros(b, updates.type))
        return to_data, None, b.add(lookup, g, indices)

    def counted(value: Any) -> Any:
        """For each element, the number of its operands that equal the element of `value`."""
        own = data.equals(value).cast(g.type.dtype)
        others = updates.equals(b.add(lookup, value, indices)).cast(g.type.dtype)
        return b.add(replace(op, reduction="add"), own, indices, others)

    def both(share: Callable[..., Any], *weights: Any) -> tuple[Any, ...]:
        """The gradients of the data and of the updates.  `share` computes a gradient from an
        operand and from the weights, which are looked up for each update.
        """
        of_updates = [b.add(lookup, w, indices) for w in weights]
        return share(data, *weights), None, share(updates, *of_updates)

    if op.reduction == "add":
        return both(lambda _, g: g, g)
    if op.reduction == "mul":
        number = counted(zeros(b, data.type))
        rest = b.add(op, _without_zeros(data), indices, _without_zeros(updates))
        return both(_of_factor, g, number, rest)
    y = call.outputs[0]
    return both(lambda v, y, g: where(v.equals(y), g, 0), y, g / counted(y))


def _without_zeros(v: Any) -> Any:
    return where(v.equals(0), 1, v)


def _of_factor(v: Any, g: Any, zeros: Any, rest: Any) -> Any:
    """The gradient of the factor `v` of a product.

    zeros: number of factors that are 0.
    rest: the product of the factors that are not 0.
    """
    alone = where(zeros.equals(1), rest, 0)
    return g * where(v.equals(0), alone, where(zeros.equals(0), rest / _without_zeros(v), 0))


@gradient(TopK)
def top_k(call: Call) -> tuple[Any, ...]:
    x = call.inputs[0].type
    scatter = ScatterElements(call.op.axis % x.rank)
    places = call.outputs[1]
    return (call.builder.add(scatter, zeros(call.builder, x), places, call.cotangent),)
