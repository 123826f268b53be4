"""ONNX's operators whose number of results depends on the data: unique elements, boxes."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.distinct import groups, scattered
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.suppression import suppressed
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.types import same_dim
from tilesmith.ops import gather, select, sort


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
    dims = x.type.shape
    if any(same_dim(d, 0) for d in dims):
        n.unsupported(f"unique elements of {x.type}, which has none")
    perm = () if axis is None else (axis, *(a for a in range(len(dims)) if a != axis))
    if axis is None:
        count = extents.product(dims)
        rows = x.reshape(count, 1)
        _, order = n.add(sort.TopK(count, 0, largest=False), rows)
        order = listed(order)
    else:
        columns = extents.product(dims[a] for a in perm[1:])
        rows = x.transpose(*perm).reshape(dims[axis], columns)
        order = scattered(n, n.add(select.RowRanks(), rows), n.positions(dims[axis]))
    firsts, inverse, counts = groups(n, rows, order, n.attr_flag("sorted", True))
    kept = n.add(gather.Gather(0), rows, firsts)
    length = firsts.type.shape[0]
    if axis is None:
        y = kept.reshape(length)
    else:
        rest = tuple(d for a, d in enumerate(dims) if a != axis)
        y = kept.reshape(length, *rest)
        y = y.transpose(*tuple(int(i) for i in np.argsort(perm)))
    return (y, firsts, inverse, counts)
