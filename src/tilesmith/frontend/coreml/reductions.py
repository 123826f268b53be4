"""Core ML's reductions and orderings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op
from tilesmith.ir.dtypes import i32
from tilesmith.ops import reduce, scan, sort

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "l1_norm": reduce.ReduceL1,
    "l2_norm": reduce.ReduceL2,
    "log_sum": reduce.ReduceLogSum,
    "log_sum_exp": reduce.ReduceLogSumExp,
    "max": reduce.ReduceMax,
    "mean": reduce.ReduceMean,
    "min": reduce.ReduceMin,
    "prod": reduce.ReduceProd,
    "sum": reduce.ReduceSum,
    "sum_square": reduce.ReduceSumSquare,
}


def _reduction(n: MilNode, make: Callable[..., Any]) -> Result:
    x, keep = n.input("x"), n.flag("keep_dims")
    axes = n.axes(n.ints("axes"), x.type.rank) if n.has("axes") else None
    return n.add(make(axes, keep), x)


for _name, _make in _REDUCTIONS.items():
    mil_op(f"reduce_{_name}")(partial(_reduction, make=_make))


def _place(n: MilNode, make: Callable[..., Any]) -> Result:
    x = n.input("x")
    axis = n.axis(n.int("axis", -1), x.type.rank)
    return n.add(make(axis, n.flag("keep_dims")), x).cast(n.dtype("output_dtype", "int32"))


mil_op("reduce_argmax")(partial(_place, make=reduce.ArgMax))
mil_op("reduce_argmin")(partial(_place, make=reduce.ArgMin))


@mil_op("cumsum")
def cumsum(n: MilNode) -> Result:
    x = n.input("x")
    axis = n.axis(n.int("axis", 0), x.type.rank)
    return n.add(scan.CumSum(axis, n.flag("exclusive"), n.flag("reverse")), x)


@mil_op("topk")
def topk(n: MilNode) -> Result:
    x, k = n.input("x"), n.optional("k")
    axis = n.axis(n.int("axis", -1), x.type.rank)
    count = 1 if k is None else n.one_extent(k, "k")
    if isinstance(count, int) and count < 0:
        count = x.type.shape[axis]
    values, places = n.add(sort.TopK(count, axis, not n.flag("ascending")), x)
    if not n.flag("return_indices", True):
        return values
    return values, places.cast(n.dtype("output_indices_dtype", "int32"))


@mil_op("argsort")
def argsort(n: MilNode) -> Result:
    x = n.input("x")
    axis = n.axis(n.int("axis", -1), x.type.rank)
    op = sort.TopK(x.type.shape[axis], axis, not n.flag("ascending"))
    return n.add(op, x)[1].cast(i32)
