"""Paddle's operators for object detection: boxes of YOLO's cells, and the best boxes of classes."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.boxes import best_of_images
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.paddle.registry import paddle_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i32
from tilesmith.ops import activation as act
from tilesmith.ops import functions as fn
from tilesmith.ops import slicing


@paddle_op("yolo_box")
def yolo_box(n: LayerNode) -> Result:
    """The boxes [N, cells, 4] in pixels of the image, and their scores [N, cells, classes].

    Boxes and scores are 0 where the objectness is below the threshold.
    """
    x, image, classes = n.input(0), n.input(1), n.attr_int("class_num", low=1)
    if x.type.rank != 4 or image.type.rank != 2:
        n.bad(f"expected cells of rank 4 and sizes of rank 2, found {x.type} and {image.type}")
    pairs, (batch, _, rows, columns) = n.attr_ints("anchors"), x.type.shape
    if not pairs or len(pairs) % 2:
        n.bad(f"anchors: expected pairs of numbers, found {list(pairs)}")
    anchors = np.array(pairs, np.float32).reshape(-1, 2)
    count = len(anchors)
    overlap = None
    if n.attr_flag("iou_aware", False):
        parts = n.add(slicing.Split(1, (count, count * (5 + classes))), x)
        overlap = n.add(act.Sigmoid(), parts[0].reshape(batch, count, rows, columns, 1))
        x = parts[1]
    cells = n.reshape(x, (batch, count, 5 + classes, rows, columns)).transpose(0, 1, 3, 4, 2)
    centre, size, confidence, scores = n.add(slicing.Split(4, (2, 2, 1, classes)), cells)

    spread = n.attr_float("scale_x_y", 1.0)
    places = [n.positions(d, 5, a).cast(f32) for d, a in ((columns, 3), (rows, 2))]
    grid = n.add(slicing.Concat(4), *(n.expand(p, (1, 1, rows, columns, 1)) for p in places))
    extent = n.of_dims((columns, rows)).cast(f32)
    pixels = _reversed(n, image.cast(f32)).reshape(batch, 1, 1, 1, 2)
    centre = n.add(act.Sigmoid(), centre) * spread - 0.5 * (spread - 1) + grid
    sides = n.const(anchors.reshape(1, count, 1, 1, 2))
    stride = extent * n.attr_int("downsample_ratio", low=1)
    centre, half = centre * pixels / extent, fn.exp(size) * sides * pixels / stride * 0.5
    low, high = centre - half, centre + half
    if n.attr_flag("clip_bbox", True):
        low, high = fn.maximum(low, 0), fn.minimum(high, pixels - 1)

    confidence = n.add(act.Sigmoid(), confidence)
    if overlap is not None:
        share = n.attr_float("iou_aware_factor", 0.5)
        confidence = confidence ** (1 - share) * overlap**share
    is_object = confidence >= n.attr_float("conf_thresh")
    boxes = fn.where(is_object, n.add(slicing.Concat(4), low, high), 0)
    scores = fn.where(is_object, n.add(act.Sigmoid(), scores) * confidence, 0)
    total = extents.product((count, rows, columns))
    return n.reshape(boxes, (batch, total, 4)), n.reshape(scores, (batch, total, classes))


def _reversed(n: LayerNode, pairs: Value) -> Value:
    """Pairs [N, 2] in the other order."""
    first, second = n.add(slicing.Split(1, (1, 1)), pairs)
    return n.add(slicing.Concat(1), second, first)


@paddle_op("multiclass_nms3")
def multiclass_nms(n: LayerNode) -> Result:
    """The best boxes of all images, [count, 6]: class, score and box; their numbers among the boxes
    of all images, [count, 1]; and the number of boxes of each image.
    """
    if n.optional(2) is not None or n.input(1).type.rank != 3:
        n.unsupported("boxes of regions, whose number differs from image to image")
    if n.attr_float("nms_eta", 1.0) != 1:
        n.unsupported(f"a threshold that shrinks by {n.attr_float('nms_eta')}")
    rows, places, counts = best_of_images(
        n,
        n.input(0),
        n.input(1),
        n.attr_float("score_threshold"),
        n.attr_float("nms_threshold", 0.3),
        n.attr_int("nms_top_k"),
        n.attr_int("keep_top_k"),
        n.attr_int("background_label", 0),
        n.attr_flag("normalized", True),
    )
    return rows, places.cast(i32), counts.cast(i32)
