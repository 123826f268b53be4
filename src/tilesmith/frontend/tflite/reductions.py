"""TFLite's reductions, running sums and normalisation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.options import OptionNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.activations import activate
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import stored_op, tflite_op
from tilesmith.frontend.tflite.shapes import axis_input
from tilesmith.ops import reduce, scan
from tilesmith.ops.functions import maximum, sqrt


def reduction(n: OptionNode, make: Callable[..., Any]) -> Result:
    x, axes, keep = n.input(0), n.input(1), bool(n.option("keep_dims"))
    if not n.is_known(axes):
        return computed.reduced(n, x, axes, make, keep)
    # a set, since some models list the same axis twice
    numbers = {n.axis(a, x.type.rank) for a in n.int_list(axes, "axes")}
    return n.add(make(tuple(sorted(numbers)), keep), x) if numbers else x


for _name, _make in {
    "MEAN": reduce.ReduceMean,
    "REDUCE_PROD": reduce.ReduceProd,
    "SUM": reduce.ReduceSum,
}.items():
    tflite_op(_name)(partial(reduction, make=_make))

for _name, _extreme in {
    "REDUCE_ALL": reduce.ReduceMin,
    "REDUCE_ANY": reduce.ReduceMax,
    "REDUCE_MAX": reduce.ReduceMax,
    "REDUCE_MIN": reduce.ReduceMin,
}.items():
    stored_op(_name)(partial(reduction, make=_extreme))


@tflite_op("CUMSUM")
def cumsum(n: OptionNode) -> Result:
    x, exclusive, reverse = n.input(0), bool(n.option("exclusive")), bool(n.option("reverse"))
    if not n.is_known(n.input(1)):
        return computed.running(n, x, n.input(1), lambda a: scan.CumSum(a, exclusive, reverse))
    return n.add(scan.CumSum(axis_input(n, 1, x.type.rank), exclusive, reverse), x)


@tflite_op("L2_NORMALIZATION")
def l2_normalization(n: TfliteNode) -> Result:
    x = n.input(0)
    norm = sqrt((x * x).sum((x.type.rank - 1,), keepdims=True))
    return activate(n, x / maximum(norm, 1e-6))
