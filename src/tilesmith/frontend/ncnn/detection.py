"""ncnn's layers for object detection: priors, and the best boxes of SSD and YOLO."""

from __future__ import annotations

import math

import numpy as np

from tilesmith.frontend.common.boxes import column, decoded, detections, prior_boxes
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.suppression import suppressed
from tilesmith.frontend.ncnn.elements import ncnn_layer
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ops import activation as act
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, norm, reduce, slicing, sort

_OPEN = -233
"""The number that stands for what the input has."""


@ncnn_layer("PriorBox")
def prior_box(n: LayerNode) -> Result:
    """SSD's boxes, [2, 4 * count] with their variances, or MXNet's, [4 * count]."""
    x, sizes, most = n.input(), n.attr_floats("0"), n.attr_floats("1", ())
    ratios, offset = n.attr_floats("2", ()), n.attr_float("13", 0)
    if (most and len(most) != len(sizes)) or min((*sizes, *most, *ratios), default=0) <= 0:
        n.bad(f"expected sizes and ratios above 0, found {sizes}, {most} and {ratios}")
    rows, columns = (n.extent(x, axis) for axis in (1, 2))
    width, height = n.attr_int("9", 0), n.attr_int("10", 0)
    steps = [n.attr_float(key, _OPEN) for key in ("12", "11")]
    is_mxnet = len(n.slots) == 1 and width == height == _OPEN and not most
    if is_mxnet:
        image = (1, 1)
        tall = [(size, size) for size in sizes]
        roots = [math.sqrt(r) for r in ratios[1:]]
        tall += [(sizes[0] * root, sizes[0] / root) for root in roots]
        shapes = [(w * rows / columns, h) for w, h in tall]
    else:
        height = n.extent(n.input(1), 1) if height == _OPEN else height
        width = n.extent(n.input(1), 2) if width == _OPEN else width
        image, shapes = (height, width), []
        for i, size in enumerate(sizes):
            sides = [size, *([math.sqrt(size * most[i])] if most else [])]
            shapes += [(side, side) for side in sides]
            for root in map(math.sqrt, ratios):
                shapes.append((size * root, size / root))
                shapes += [(size / root, size * root)] if n.attr_int("7", 1) else []
    if min(image) <= 0:
        n.bad(f"expected the image's size, found {image}")
    each = [
        size / cells if step == _OPEN else step
        for step, size, cells in zip(steps, image, (rows, columns), strict=True)
    ]
    boxes = prior_boxes(n, (rows, columns), image, (each[0], each[1]), offset, shapes)
    boxes = fn.clip(boxes, 0, 1) if n.attr_int("8", 0) else boxes
    count = n.extent(boxes, 0)
    flat = n.reshape(boxes, (4 * count,))
    if is_mxnet:
        return flat
    factors = [n.attr_float(str(key), default) for key, default in zip(range(3, 7), _VARIANCES)]
    both = (
        n.reshape(flat, (1, 4 * count)),
        n.const(np.tile(np.array(factors, np.float32), (1, count))),
    )
    return n.add(slicing.Concat(0), *both)


_VARIANCES = 0.1, 0.1, 0.2, 0.2


@ncnn_layer("DetectionOutput")
def detection_output(n: LayerNode) -> Result:
    """SSD's best boxes, [count, 6]: class, score and box, by descending score."""
    location, confidence, priors = (n.input(i) for i in range(3))
    classes, least = n.attr_int("0", 0), n.attr_float("4", 0.5)
    if classes == _OPEN:  # MXNet's: [classes, count], and priors [count, 4]
        scores, count = confidence, n.extent(confidence, 1)
        boxes = n.reshape(priors, (count, 4))
        factors = [n.attr_float(str(k), default) for k, default in zip(range(5, 9), _VARIANCES)]
        variances = n.const(np.tile(np.array(factors, np.float32), (count, 1)))
    else:
        count = n.extent(priors, 1) // 4
        scores = n.reshape(confidence, (count, classes)).transpose(1, 0)
        boxes, variances = (n.reshape(v, (count, 4)) for v in _halves(n, priors))
    codes = n.reshape(location, (1, 1, count, 4))
    corners = decoded(n, codes, boxes, variances, "CENTER_SIZE")
    one = n.reshape(scores, (1, n.extent(scores, 0), count))
    ((table, _),) = detections(
        n,
        corners,
        one,
        least,
        n.attr_float("1", 0.05),
        n.attr_int("2", 300),
        n.attr_int("3", 100),
        background=0,
    )
    chosen = table.type.shape[0]
    _, order = n.add(sort.TopK(chosen, 0), column(n, table, 1))
    return n.add(gather.Gather(0), table, order)


def _halves(n: LayerNode, v: Value) -> tuple[Value, Value]:
    return n.add(slicing.Split(0, (1, 1)), v)


@ncnn_layer("YoloDetectionOutput", "Yolov3DetectionOutput")
def yolo_detection_output(n: LayerNode) -> Result:
    """YOLO's best boxes of all heads, [count, 6]: class from 1, score and box, by descending score.

    Boxes of different classes suppress each other, too.
    """
    is_third = n.layer.kind == "Yolov3DetectionOutput"
    classes, number = n.attr_int("0", 20, 1), n.attr_int("1", 5, 1)
    anchors = np.array(n.attr_floats("4"), np.float32).reshape(-1, 2)
    masks = n.attr_ints("5", ()) if is_third else range(number)
    scales = n.attr_floats("6", ()) if is_third else (1,)
    if len(scales) < len(n.slots) or len(masks) < number * len(n.slots):
        n.bad(f"expected a scale and {number} masks for each of {len(n.slots)} inputs")
    if min(masks) < 0 or max(masks) >= len(anchors):
        n.bad(f"expected masks from 0 to {len(anchors) - 1}, found {list(masks)}")
    tables = []
    for head in range(len(n.slots)):
        x, own = n.input(head), masks[head * number : (head + 1) * number]
        rows, columns = (n.extent(x, axis) for axis in (1, 2))
        image = [int(scales[head] * extent) for extent in (columns, rows)]
        cells = n.reshape(x, (number, 5 + classes, rows, columns))
        place, size, score, kinds = n.add(slicing.Split(1, (2, 2, 1, classes)), cells)
        corner = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)))[None]
        grid = np.array([columns, rows], np.float32).reshape(1, 2, 1, 1)
        sides = anchors[np.array(own)].reshape(number, 2, 1, 1) / np.array(
            image, np.float32
        ).reshape(1, 2, 1, 1)
        centre = (n.add(act.Sigmoid(), place) + n.const(corner.astype(np.float32))) / n.const(grid)
        half = fn.exp(size) * n.const(sides) * 0.5
        if is_third:
            # As ncnn computes it; the product of both sigmoids would have another bracket.
            best = kinds.max((1,), keepdims=True)
            confidence = 1 / (fn.exp(-score) * (fn.exp(-best) + 1) + 1)
        else:
            kinds = n.add(norm.Softmax(1), kinds)
            confidence = n.add(act.Sigmoid(), score) * kinds.max((1,), keepdims=True)
        label = n.add(reduce.ArgMax(1), kinds).cast(f32) + 1
        parts = label, confidence, centre - half, centre + half
        table = n.add(slicing.Concat(1), *parts).transpose(0, 2, 3, 1)
        tables.append(n.reshape(table, (number * rows * columns, 6)))
    every = tables[0] if len(tables) == 1 else n.add(slicing.Concat(0), *tables)
    count = every.type.shape[0]
    boxes = n.add(slicing.Slice((2,), (6,), (1,), (1,)), every)
    scores = n.reshape(column(n, every, 1), (1, 1, count))
    # A score that equals the threshold is enough.
    least = np.nextafter(np.float32(n.attr_float("2", 0.01)), np.float32(-np.inf))
    overlap = n.const([n.attr_float("3", 0.45)], f32)
    limits = n.of_dims((count,)), overlap, n.const(least.reshape(1))
    chosen = suppressed(n, n.reshape(boxes, (1, count, 4)), scores, limits)
    return n.add(gather.Gather(0), every, column(n, chosen, 2).cast(i64))
