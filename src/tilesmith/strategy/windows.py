"""Fused groups whose results are strided windows on their operand's memory.

Slices, splits, reshapes, and transpositions to the memory order may need no copy.  If so, the
address of a result's element in the operand is an affine function of the element's indices.  A
layout with spans expresses this function.
"""

from __future__ import annotations

from tilesmith.graph.nodes import Graph
from tilesmith.ir.expr import Load
from tilesmith.ir.layout import Layout
from tilesmith.ops.runtime_shape import Reinterpret
from tilesmith.ops.shape import Reshape
from tilesmith.te.tensor import Compute

from .access import address, expand
from .group import group_tensors


def windows(body: Graph) -> tuple[tuple[Layout, int], ...] | None:
    """The layout of each result of `body` in the memory of the one operand, and the offset of the
    result's first element.

    None if a result is computed from the operand's elements, or if their order differs from the
    result's own layout.
    """
    if len(body.inputs) != 1 or body.constants or any(n.op.is_irregular() for n in body.nodes):
        return None
    if body.inputs[0].dtype is not body.outputs[0].dtype:
        return None
    values = (*body.inputs, *body.outputs)
    if not all(v.type.is_static for v in values):
        same_order = all(v.layout is None for v in values)
        reshaped = same_order and all(isinstance(n.op, (Reshape, Reinterpret)) for n in body.nodes)
        return tuple((Layout.row_major(v.type.rank), 0) for v in body.outputs) if reshaped else None
    group = group_tensors(body)
    results = []
    for v, tensor in zip(body.outputs, group.outputs):
        op = tensor.op
        if not isinstance(op, Compute) or op.reduce_axis or not v.type.size:
            return None
        read = expand(op)[tensor.index]
        if not isinstance(read, Load) or read.buffer is not group.inputs[0]:
            return None
        strided = address(group.inputs[0], read.indices, group.layout(group.inputs[0]))
        if strided is None:
            return None
        strides, first = strided
        steps = [strides.get(a.var, 0) for a in op.axis]
        layout = window_layout(
            steps, v.type.static_shape, v.layout or Layout.row_major(v.type.rank)
        )
        if layout is None:
            return None
        results.append((layout, first))
    return tuple(results)


def window_layout(strides: list[int], shape: tuple[int, ...], order: Layout) -> Layout | None:
    """The layout with dimensions in `order` in which axes of `shape` have `strides`, or None."""
    if order.has_padding or 0 in shape:
        return None
    spans = [0] * len(order.dims)
    below, inner = 1, 1  # stride and extent of the dimension inside the current one
    for position in reversed(range(len(order.dims))):
        axis = order.dims[position].axis
        stride = below * inner
        if shape[axis] != 1 and strides[axis] != stride:
            stride = strides[axis]
            if position + 1 == len(order.dims) or stride < below * inner or stride % below:
                return None
            spans[position + 1] = stride // below
        below, inner = stride, shape[axis]
    return order.spanning(tuple(spans))
