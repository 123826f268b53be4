"""Gradients of softmax and its relatives, from their results."""

from __future__ import annotations

from typing import Any

from tilesmith.ops.functions import exp
from tilesmith.ops.norm import LogSoftmax, MaskedSoftmax, Softmax

from .call import Call, gradient


@gradient(Softmax, MaskedSoftmax)
def softmax(call: Call) -> tuple[Any, ...]:
    y, axes = call.outputs[0], (call.op.axis,)
    weighted = call.cotangent * y
    return (weighted - y * weighted.sum(axes, keepdims=True),)


@gradient(LogSoftmax)
def log_softmax(call: Call) -> tuple[Any, ...]:
    g = call.cotangent
    return (g - exp(call.outputs[0]) * g.sum((call.op.axis,), keepdims=True),)
