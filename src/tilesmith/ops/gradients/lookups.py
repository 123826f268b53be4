"""Gradients of lookups and scatters: the transpose of a lookup adds at the same places."""

from __future__ import annotations

from typing import Any

from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import TensorType
from tilesmith.ops.functions import where
from tilesmith.ops.gather import Gather, GatherElements, GatherNd
from tilesmith.ops.rules import product
from tilesmith.ops.scatter import ScatterElements, ScatterNd
from tilesmith.ops.sizes import Iota
from tilesmith.ops.sort import TopK
from tilesmith.support.errors import UnsupportedError

from .call import Call, gradient, zeros


@gradient(Gather)
def gather(call: Call) -> tuple[Any, ...]:
    """Each slice is added at its index, along an axis that is moved to the front."""
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
    """The updates' gradient is a lookup.  A replaced element, and an update that a later one
    replaces, have the gradient 0.
    """
    op, b, g = call.op, call.builder, call.cotangent
    data, indices, updates = call.inputs
    if op.reduction not in ("none", "add"):
        raise UnsupportedError(f"{op.name} with reduction {op.reduction!r} has no gradient")
    lookup = GatherNd() if isinstance(op, ScatterNd) else GatherElements(op.axis)
    to_data, to_updates = g, b.add(lookup, g, indices)
    if op.reduction == "none":
        to_data = b.add(op, g, indices, zeros(b, updates.type))
        numbers = b.add(Iota(product(updates.type.shape))).reshape(*updates.type.shape)
        nothing = zeros(b, TensorType(i64, data.type.shape))
        last = b.add(lookup, b.add(op, nothing, indices, numbers), indices)
        to_updates = where(last.equals(numbers), to_updates, 0)
    return to_data, None, to_updates


@gradient(TopK)
def top_k(call: Call) -> tuple[Any, ...]:
    x = call.inputs[0].type
    scatter = ScatterElements(call.op.axis % x.rank)
    places = call.outputs[1]
    return (call.builder.add(scatter, zeros(call.builder, x), places, call.cotangent),)
