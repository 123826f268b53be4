"""Gradients of reductions."""

from __future__ import annotations

from typing import Any

from tilesmith.ops import rules
from tilesmith.ops.functions import exp, where
from tilesmith.ops.reduce import (
    ReduceL2,
    ReduceLogSumExp,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceSum,
)
from tilesmith.ops.shape import Expand

from .call import Call, gradient, spread


def _spread(call: Call, g: Any) -> Any:
    """A value of the result's shape, so that it broadcasts to the operand."""
    return spread(g, call.inputs[0].type, call.op.axes, call.op.keepdims)


@gradient(ReduceSum)
def total(call: Call) -> tuple[Any, ...]:
    return (call.builder.add(Expand(call.inputs[0].type.shape), _spread(call, call.cotangent)),)


@gradient(ReduceMean)
def mean(call: Call) -> tuple[Any, ...]:
    x = call.inputs[0].type
    axes = rules.normalize_axes(call.op.name, call.op.axes, x.rank)
    count = rules.product(x.shape[a] for a in axes)
    share = _spread(call, call.cotangent) / count
    return (call.builder.add(Expand(x.shape), share),)


@gradient(ReduceMax, ReduceMin)
def extreme(call: Call) -> tuple[Any, ...]:
    """Equal extremes share the gradient evenly, as in `torch.amax`."""
    x, y = call.inputs[0], _spread(call, call.outputs[0])
    is_chosen = x.equals(y)
    ties = is_chosen.cast(x.type.dtype).sum(call.op.axes, keepdims=True)
    return (where(is_chosen, _spread(call, call.cotangent) / ties, 0),)


@gradient(ReduceLogSumExp)
def log_sum_exp(call: Call) -> tuple[Any, ...]:
    weights = exp(call.inputs[0] - _spread(call, call.outputs[0]))
    return (_spread(call, call.cotangent) * weights,)


@gradient(ReduceL2)
def norm(call: Call) -> tuple[Any, ...]:
    """The gradient is 0 where the norm is 0, as in PyTorch."""
    y = _spread(call, call.outputs[0])
    share = _spread(call, call.cotangent) / where(y.equals(0), 1, y)
    return (call.inputs[0] * where(y.equals(0), 0, share),)
