"""Gradients of reductions and of running sums."""

from __future__ import annotations

from typing import Any

from tilesmith.ops import rules
from tilesmith.ops.functions import exp, log, maximum, where
from tilesmith.ops.reduce import (
    ReduceL2,
    ReduceLogSumExp,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceSum,
)
from tilesmith.ops.scan import CumLogSumExp, CumMax, CumMin, CumSum
from tilesmith.ops.scatter import ScatterElements
from tilesmith.ops.shape import Expand
from tilesmith.ops.sizes import Iota
from tilesmith.support.errors import UnsupportedError

from .call import Call, gradient, spread, zeros


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
    """Zero where the norm is 0, as in PyTorch."""
    y = _spread(call, call.outputs[0])
    share = _spread(call, call.cotangent) / where(y.equals(0), 1, y)
    return (call.inputs[0] * where(y.equals(0), 0, share),)


@gradient(CumMax, CumMin)
def running_extreme(call: Call) -> tuple[Any, ...]:
    """Added at the place of the running extreme; of equal ones the last, as in PyTorch."""
    op, b, x = call.op, call.builder, call.inputs[0]
    if op.exclusive:
        raise UnsupportedError(f"{op.name} with exclusive=True has no gradient")
    axis = op.axis % x.type.rank
    extent = x.type.shape[axis]
    along = [extent if a == axis else 1 for a in range(x.type.rank)]
    numbers = b.add(Iota(extent)).reshape(*along)
    unset = numbers * 0 + extent if op.reverse else numbers * 0
    latest = CumMin(axis, reverse=True) if op.reverse else CumMax(axis)
    places = b.add(latest, where(x.equals(call.outputs[0]), numbers, unset))
    scatter = ScatterElements(axis, "add")
    return (b.add(scatter, zeros(b, x.type), places, call.cotangent),)


@gradient(CumSum)
def running_sum(call: Call) -> tuple[Any, ...]:
    op = call.op
    back = CumSum(op.axis, op.exclusive, not op.reverse)
    return (call.builder.add(back, call.cotangent),)


@gradient(CumLogSumExp)
def running_log_sum_exp(call: Call) -> tuple[Any, ...]:
    """Sums of g * exp(x - y) from each element on, in logarithms so that nothing overflows."""
    op, x, y, g = call.op, call.inputs[0], call.outputs[0], call.cotangent
    back = CumLogSumExp(op.axis, op.exclusive, not op.reverse)

    def part(weights: Any) -> Any:
        return exp(call.builder.add(back, log(maximum(weights, 0)) - y) + x)

    return (part(g) - part(-g),)
