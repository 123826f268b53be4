"""ONNX's reductions over axes, argmax and argmin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f64
from tilesmith.ops import elementwise as ew
from tilesmith.ops import reduce, scan
from tilesmith.ops.functions import sqrt

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceL1": reduce.ReduceL1,
    "ReduceL2": reduce.ReduceL2,
    "ReduceLogSum": reduce.ReduceLogSum,
    "ReduceLogSumExp": reduce.ReduceLogSumExp,
    "ReduceMax": reduce.ReduceMax,
    "ReduceMean": reduce.ReduceMean,
    "ReduceMin": reduce.ReduceMin,
    "ReduceProd": reduce.ReduceProd,
    "ReduceSum": reduce.ReduceSum,
    "ReduceSumSquare": reduce.ReduceSumSquare,
}


_OF_FLOATS = (reduce.ReduceLogSum, reduce.ReduceLogSumExp)
_OF_ONE_ELEMENT = (
    reduce.ReduceMax,
    reduce.ReduceMin,
    reduce.ReduceMean,
    reduce.ReduceSum,
    reduce.ReduceProd,
)
"""Reductions that return their input unchanged if they have no axes."""


def reduction_of(n: OnnxNode, make: Callable[..., Any], axes_input_since: int) -> Result:
    """The reduction `make` over the axes from an attribute or, in later opsets, from an input."""
    x = n.input(0)
    keepdims = n.attr_flag("keepdims", True)
    computed_axes = n.computed("axes", 1, axes_input_since)
    axes: tuple[int, ...] | None = None
    if computed_axes is None:
        known = n.ints_or_input("axes", 1, since=axes_input_since)
        axes = n.axes(known, x.type.rank) if known else None
    is_noop = n.version >= axes_input_since and n.attr_flag("noop_with_empty_axes")
    if is_noop and computed_axes is None and axes is None:
        axes = ()
        if make in _OF_ONE_ELEMENT:
            return n.add(ew.Identity(), x)

    def reduced(x: Value, make: Callable[..., Any]) -> Value:
        if computed_axes is not None:
            return computed.reduced(n, x, computed_axes, make, keepdims)
        return n.add(make(axes, keepdims), x)

    if x.dtype.is_int and make is reduce.ReduceL2:  # the sum wraps, as in ONNX's function body
        return sqrt(reduced(x, reduce.ReduceSumSquare).cast(f64)).cast(x.dtype)
    if x.dtype.is_int and make in _OF_FLOATS:  # f64 is precise enough; the result is truncated
        return reduced(x.cast(f64), make).cast(x.dtype)
    return reduced(x, make)


for _name, _make in _REDUCTIONS.items():
    _since = 13 if _name == "ReduceSum" else 18
    onnx_op(_name, since=1)(partial(reduction_of, make=_make, axes_input_since=_since))


def _arg(n: OnnxNode, make: Callable[..., Any]) -> Result:
    x = n.input(0)
    axis = n.axis(n.attr_int("axis", 0), x.type.rank)
    last = n.attr_flag("select_last_index") if n.version >= 12 else False
    return n.add(make(axis, n.attr_flag("keepdims", True), last), x)


def _running(n: OnnxNode, make: Callable[..., Any]) -> Result:
    x = n.input(0)
    exclusive, reverse = n.attr_flag("exclusive"), n.attr_flag("reverse")
    if not n.is_known(n.input(1)):
        return computed.running(n, x, n.input(1), lambda a: make(a, exclusive, reverse))
    axis = n.axis(int(n.scalar(n.input(1), "axis")), x.type.rank)
    return n.add(make(axis, exclusive, reverse), x)


onnx_op("ArgMax", since=1)(partial(_arg, make=reduce.ArgMax))
onnx_op("ArgMin", since=1)(partial(_arg, make=reduce.ArgMin))
onnx_op("CumSum", since=11)(partial(_running, make=scan.CumSum))
onnx_op("CumProd", since=26)(partial(_running, make=scan.CumProd))
