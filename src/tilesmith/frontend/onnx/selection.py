"""ONNX's operators whose number of results depends on the data: unique elements, boxes."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.distinct import unique_elements
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.suppression import suppressed
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.ir.dtypes import f32, i64


@onnx_op("NonMaxSuppression", since=10)
def non_max_suppression(n: OnnxNode) -> Result:
    limits = []
    for i, (dtype, default) in enumerate(((i64, 0), (f32, 0.0), (f32, -np.inf)), 2):
        operand = n.optional(i)
        value = n.const([default], dtype) if operand is None else listed(operand, dtype)
        limits.append(value)
    most, overlap, least = limits
    boxes, scores, centred = n.input(0), n.input(1), n.attr_flag("center_point_box")
    return suppressed(n, boxes, scores, (most, overlap, least), centred)


@onnx_op("Unique", since=11)
def unique(n: OnnxNode) -> Result:
    x = n.input(0)
    axis = n.axis(n.attr_int("axis"), x.type.rank) if n.has("axis") else None
    return unique_elements(n, x, axis, n.attr_flag("sorted", True))
