"""Core ML's suppression of boxes that overlap better boxes."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.suppression import suppressed
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i32, i64
from tilesmith.ops import gather, slicing
from tilesmith.ops.functions import maximum, where


@mil_op("non_maximum_suppression")
def non_maximum_suppression(n: MilNode) -> Result:
    """The best boxes of each image.  Rows behind the last one are zeros with the index -1.

    Before iOS17, boxes are [N, B, 4], and the number of boxes of each image is a result; since
    then they are [N, 4, B].
    """
    boxes, scores = n.input("boxes"), n.input("scores")
    is_new = n.version >= 17
    if n.flag("per_class_suppression"):
        n.unsupported("suppression within each class")
    if is_new:
        boxes, scores = (v.transpose(0, 2, 1) for v in (boxes, scores))
    rows = [_kept(n, boxes, scores, image) for image in range(n.extent(boxes, 0))]
    made = [_joined(n, [r[i] for r in rows]) for i in range(4)]
    if is_new:
        return made[0].transpose(0, 2, 1), made[1].transpose(0, 2, 1), made[2]
    return made[0], made[1], made[2], n.reshape(made[3], boxes.type.shape[:1])


def _joined(n: MilNode, parts: list[Value]) -> Value:
    return parts[0] if len(parts) == 1 else n.add(slicing.Concat(0), *parts)


def _kept(n: MilNode, boxes: Value, scores: Value, image: int) -> tuple[Value, ...]:
    """The boxes, scores, indices and their number for one image."""
    cut = slicing.Slice((image,), (image + 1,), (0,), (1,))
    own, of_own = n.add(cut, boxes), n.add(cut, scores)
    best = of_own.cast(f32).max((2,)).reshape(1, 1, -1)
    most, dtype = n.int("max_boxes"), boxes.dtype
    least = n.number("score_threshold", float(np.finfo(np.float32).min))
    limits = (
        n.const([most], i64),
        n.const([n.number("iou_threshold")], f32),
        n.const([least], f32),
    )
    rows = suppressed(n, own.cast(f32), best, limits, centred=True)
    places = n.add(slicing.Slice((2,), (3,), (1,), (1,)), rows).reshape(-1)
    (count,) = places.type.shape
    missing = extents.difference(most, count)
    places = n.add(slicing.Pad((0, missing), "constant", -1), places)
    is_there = places >= 0
    mask = n.reshape(is_there, (1, *is_there.type.shape, 1))
    index = maximum(places, 0)
    kept = (where(mask, n.add(gather.Gather(1), v, index), 0) for v in (own, of_own))
    number = is_there.cast(i32).sum((0,)).reshape(1)
    return (*(v.cast(dtype) for v in kept), places.cast(i32).reshape(1, -1), number)
