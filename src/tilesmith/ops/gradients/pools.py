"""Gradients of pools."""

from __future__ import annotations

from typing import Any

from tilesmith.ir.types import TensorType
from tilesmith.ops.pool import MaxPlaces, MaxPool
from tilesmith.ops.rules import product
from tilesmith.ops.scatter import ScatterElements

from .call import Call, gradient, zeros


@gradient(MaxPool)
def max_pool(call: Call) -> tuple[Any, ...]:
    """The cotangent of a window is added at its first maximum, as in PyTorch."""
    op, b, x, y = call.op, call.builder, call.inputs[0], call.outputs[0]
    window = (op.kernel, op.strides, op.pads, op.dilations, op.ceil_mode)
    places = b.add(MaxPlaces(*window, in_plane=True), x, y)
    planes = product(x.type.shape[:2])
    start = zeros(b, TensorType(x.type.dtype, (planes, product(x.type.shape[2:]))))
    flat = (planes, product(y.type.shape[2:]))
    scatter = ScatterElements(1, "add")
    total = b.add(scatter, start, places.reshape(*flat), call.cotangent.reshape(*flat))
    return (total.reshape(*x.type.shape),)
