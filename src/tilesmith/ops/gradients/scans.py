"""Gradients of running sums, products and extremes.

Most are linear recurrences that run against the direction of the scan.
"""

from __future__ import annotations

from typing import Any

from tilesmith.ir import extents
from tilesmith.ops.elementwise import IsInf
from tilesmith.ops.functions import exp, where
from tilesmith.ops.scan import (
    CumLogSumExp,
    CumMax,
    CumMin,
    CumProd,
    CumSum,
    LinearRecurrence,
    Scan,
)
from tilesmith.ops.scatter import ScatterElements
from tilesmith.ops.sizes import Iota
from tilesmith.ops.slicing import Pad, Slice

from .call import Call, gradient, zeros


def _next(call: Call, v: Any) -> Any:
    """Element t + 1 of `v` in the place of element t, in the scan's direction; 0 at the end."""
    op, rank = call.op, v.type.rank
    axis, extent = op.axis % rank, v.type.shape[op.axis]
    pads = [0] * (2 * rank)
    pads[axis if op.reverse else axis + rank] = 1
    start = 0 if op.reverse else 1
    cut = Slice((start,), (extents.total((start, extent)),), (axis,), (1,))
    return call.builder.add(cut, call.builder.add(Pad(tuple(pads)), v))


def _of_totals(call: Call) -> Any:
    """The cotangent of the inclusive scan, whether the operator's scan is exclusive or not."""
    return _next(call, call.cotangent) if call.op.exclusive else call.cotangent


def _totals(call: Call, exclusive: bool) -> Any:
    """The inclusive or the exclusive scan."""
    op = call.op
    if op.exclusive == exclusive:
        return call.outputs[0]
    return call.builder.add(type(op)(op.axis, exclusive, op.reverse), *call.inputs)


def _accumulated(call: Call, slopes: Any) -> Any:
    """The cotangent of each total, from all later results.

    slopes: the derivative of each total with respect to the total before it.
    """
    back = LinearRecurrence(call.op.axis, reverse=not call.op.reverse)
    return call.builder.add(back, _next(call, slopes), _of_totals(call))


@gradient(CumSum)
def running_sum(call: Call) -> tuple[Any, ...]:
    op = call.op
    back = CumSum(op.axis, op.exclusive, not op.reverse)
    return (call.builder.add(back, call.cotangent),)


@gradient(CumProd)
def running_product(call: Call) -> tuple[Any, ...]:
    """The gradient is a linear recurrence, which is exact also where factors are 0."""
    return (_accumulated(call, call.inputs[0]) * _totals(call, exclusive=True),)


@gradient(LinearRecurrence)
def recurrence(call: Call) -> tuple[Any, ...]:
    """A linear recurrence."""
    total = _accumulated(call, call.inputs[0])
    return total * _totals(call, exclusive=True) if call.wanted[0] else None, total


@gradient(CumLogSumExp)
def running_log_sum_exp(call: Call) -> tuple[Any, ...]:
    """The gradient is a linear recurrence.  No exponent in it is positive, so nothing overflows."""
    x, y = call.inputs[0], _totals(call, exclusive=False)
    is_inf = call.builder.add(IsInf(), y)

    def share(part: Any) -> Any:
        return exp(where(is_inf, 0, part - y))

    return (_accumulated(call, share(_totals(call, exclusive=True))) * share(x),)


@gradient(CumMax, CumMin)
def running_extreme(call: Call) -> tuple[Any, ...]:
    """Each cotangent is added at the position of the running extreme.  Of equal extremes the last
    one gets it, as in PyTorch.
    """
    op, b, x = call.op, call.builder, call.inputs[0]
    assert isinstance(op, Scan)
    axis = op.axis % x.type.rank
    extent = x.type.shape[axis]
    along = [extent if a == axis else 1 for a in range(x.type.rank)]
    numbers = b.add(Iota(extent)).reshape(*along)
    unset = numbers * 0 + extent if op.reverse else numbers * 0
    latest = CumMin(axis, reverse=True) if op.reverse else CumMax(axis)
    places = b.add(latest, where(x.equals(_totals(call, exclusive=False)), numbers, unset))
    scatter = ScatterElements(axis, "add")
    return (b.add(scatter, zeros(b, x.type), places, _of_totals(call)),)
