"""Core ML's suppression of boxes that overlap better boxes."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.node import NodeContext
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.suppression import suppressed
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i32, i64
from tilesmith.ops import gather, reduce, slicing, sort
from tilesmith.ops.functions import maximum, where


def kept_boxes(
    n: NodeContext,
    boxes: Value,
    scores: Value,
    limits: tuple[int, float, float],
    per_class: bool = False,
) -> Value:
    """The indices of boxes that overlap no better box, i64 [count]; the best box comes first.

    boxes: [1, B, 4], centres and sizes.
    scores: [1, B, classes].
    limits: the maximum number of boxes, or 0; the overlap above which a box is dropped; the score
        above which a box is a candidate.
    per_class: whether a box drops only boxes whose best class is the same.
    """
    most, overlap, least = limits
    count = boxes.type.shape[1]
    best = scores.cast(f32).max((2,), keepdims=True)
    rows, classes = best, 1
    if per_class:
        classes = n.extent(scores, 2)
        top = n.add(reduce.ArgMax(2, True), scores)
        own = n.positions(classes, 3, 2).equals(top)
        rows = where(own, best, float("-inf"))
    bound = n.of_dims((count,)) if per_class or not most else n.const([most], i64)
    thresholds = bound, n.const([overlap], f32), n.const([least], f32)
    chosen = suppressed(n, boxes.cast(f32), rows.transpose(0, 2, 1), thresholds, centred=True)
    places = n.add(slicing.Slice((2,), (3,), (1,), (1,)), chosen).reshape(-1)
    if not per_class:
        return places
    (kept,) = places.type.shape
    ranked = n.add(gather.Gather(0), best.reshape(-1), places)
    _, order = n.add(sort.TopK(extents.smaller(kept, most) if most else kept, 0), ranked)
    return n.add(gather.Gather(0), places, order)


@mil_op("non_maximum_suppression")
def non_maximum_suppression(n: MilNode) -> Result:
    """The best boxes of each image: boxes, scores and indices.

    Rows after an image's last box are zeros with the index -1.  Since iOS17, boxes are [N, 4, B].
    Before, they are [N, B, 4], and a fourth result is the number of boxes of each image.
    """
    boxes, scores = n.input("boxes"), n.input("scores")
    is_new = n.version >= 17
    if is_new:
        boxes, scores = (v.transpose(0, 2, 1) for v in (boxes, scores))
    least = n.number("score_threshold", float(np.finfo(np.float32).min))
    limits = (n.int("max_boxes"), n.number("iou_threshold"), least)
    per_class = n.flag("per_class_suppression")
    rows = [
        _padded(n, *_image(n, boxes, scores, image), limits, per_class)
        for image in range(n.extent(boxes, 0))
    ]
    made = [_joined(n, [r[i] for r in rows]) for i in range(4)]
    if is_new:
        return made[0].transpose(0, 2, 1), made[1].transpose(0, 2, 1), made[2]
    return made[0], made[1], made[2], n.reshape(made[3], boxes.type.shape[:1])


def _image(n: MilNode, boxes: Value, scores: Value, image: int) -> tuple[Value, Value]:
    cut = slicing.Slice((image,), (image + 1,), (0,), (1,))
    return n.add(cut, boxes), n.add(cut, scores)


def _joined(n: MilNode, parts: list[Value]) -> Value:
    return parts[0] if len(parts) == 1 else n.add(slicing.Concat(0), *parts)


def _padded(
    n: MilNode,
    boxes: Value,
    scores: Value,
    limits: tuple[int, float, float],
    per_class: bool,
) -> tuple[Value, ...]:
    """The boxes, scores and indices of one image, padded to the limit, and the number of boxes."""
    places = kept_boxes(n, boxes, scores, limits, per_class)
    missing = extents.difference(limits[0], places.type.shape[0])
    places = n.add(slicing.Pad((0, missing), "constant", -1), places)
    is_there = places >= 0
    mask, index = n.reshape(is_there, (1, *is_there.type.shape, 1)), maximum(places, 0)
    kept = (where(mask, n.add(gather.Gather(1), v, index), 0) for v in (boxes, scores))
    number = is_there.cast(i32).sum((0,)).reshape(1)
    return (*kept, places.cast(i32).reshape(1, -1), number)
