"""TensorFlow's products of matrices, reductions and running sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tensorflow.images import fused
from tilesmith.frontend.tensorflow.node import TfNode
from tilesmith.frontend.tensorflow.registry import tf_op
from tilesmith.frontend.tflite import reductions, scattering
from tilesmith.frontend.tflite.shapes import axis_input
from tilesmith.graph.nodes import Value
from tilesmith.ops import einsum, reduce, scan
from tilesmith.ops import matmul as mm


def _product(n: TfNode, x: Value, y: Value) -> Value:
    return n.add(mm.MatMul(n.flag("transpose_a"), n.flag("transpose_b")), x, y)


@tf_op("MatMul")
def matmul(n: TfNode) -> Result:
    return _product(n, n.input(0), n.input(1))


@tf_op("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(n: TfNode) -> Result:
    return n.add(mm.MatMul(n.flag("adj_x"), n.flag("adj_y")), n.input(0), n.input(1))


@tf_op("_FusedMatMul")
def fused_matmul(n: TfNode) -> Result:
    return fused(n, _product(n, n.input(0), n.input(1)))


@tf_op("Einsum")
def einsum_(n: TfNode) -> Result:
    return n.add(einsum.Einsum(n.text("equation")), *n.inputs)


def _reduction(n: TfNode, make: Callable[..., Any]) -> Result:
    x, axes, keep = n.input(0), n.input(1), n.flag("keep_dims")
    if not n.is_known(axes):
        return computed.reduced(n, x, axes, make, keep)
    numbers = {n.axis(a, x.type.rank) for a in n.int_list(axes, "axes")}
    return n.add(make(tuple(sorted(numbers)), keep), x) if numbers else x


for _name, _make in {
    "All": reduce.ReduceMin, "Any": reduce.ReduceMax, "Max": reduce.ReduceMax,
    "Mean": reduce.ReduceMean, "Min": reduce.ReduceMin, "Prod": reduce.ReduceProd,
    "Sum": reduce.ReduceSum, "EuclideanNorm": reduce.ReduceL2,
}.items():  # fmt: skip
    tf_op(_name)(partial(_reduction, make=_make))

tf_op("Cumsum")(reductions.cumsum)


@tf_op("Cumprod")
def cumprod(n: TfNode) -> Result:
    x = n.input(0)
    axis = axis_input(n, 1, x.type.rank)
    return n.add(scan.CumProd(axis, n.flag("exclusive"), n.flag("reverse")), x)


tf_op("SegmentSum")(scattering.segment_sum)
for _name, _how in {"Sum": "add", "Prod": "mul", "Max": "max", "Min": "min"}.items():
    tf_op(f"UnsortedSegment{_name}")(partial(scattering.unsorted, reduction=_how))
