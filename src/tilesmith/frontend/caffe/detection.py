"""Caffe's layers for object detection: SSD's priors and SSD's output, and pools over regions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilesmith.frontend.caffe.layers import caffe_layer
from tilesmith.frontend.common.boxes import decoded, detections, prior_boxes
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.regions import max_regions
from tilesmith.frontend.common.slots import Result
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32
from tilesmith.ops import functions as fn
from tilesmith.ops import slicing


def _prior_sizes(n: LayerNode) -> list[tuple[float, float]]:
    """The width and height of each prior of a cell.  Caffe rounds min_size and max_size down."""
    least, most = n.attr_floats("min_size"), n.attr_floats("max_size", ())
    if (most and len(most) != len(least)) or min(least, default=0) <= 0:
        n.bad(f"expected sizes above 0, as many max_size as min_size, found {least} and {most}")
    ratios = [1.0]
    for ratio in n.attr_floats("aspect_ratio", ()):
        if ratio <= 0:
            n.bad(f"aspect_ratio: expected a number above 0, found {ratio}")
        if all(abs(ratio - r) >= 1e-6 for r in ratios):
            ratios += [ratio, 1 / ratio] if n.attr_flag("flip", True) else [ratio]
    sizes = []
    for i, size in enumerate(map(int, least)):
        sides = [size, *([math.sqrt(size * int(most[i]))] if most else [])]
        sizes += [(side, side) for side in sides]
        sizes += [(size * math.sqrt(r), size / math.sqrt(r)) for r in ratios if abs(r - 1) >= 1e-6]
    return sizes


@caffe_layer("PriorBox")
def prior_box(n: LayerNode) -> Result:
    cells = n.input(0).type.shape[2:]
    if n.has("img_h") or n.has("img_size"):
        image = tuple(n.attr_int(f"img_{a}", n.attr_int("img_size", 0)) for a in "hw")
        height, width = (n.const(s, f32) for s in image)
    else:
        height, width = (n.of_dims((d,), ()).cast(f32) for d in n.input(1).type.shape[2:])
    step_h, step_w = (n.attr_float(f"step_{a}", n.attr_float("step", 0)) for a in "hw")
    steps: tuple[Any, Any] = step_h, step_w
    if 0 in steps:
        rows, columns = (n.of_dims((d,), ()).cast(f32) for d in cells)
        steps = height / rows, width / columns
    sizes = _prior_sizes(n)
    offset = n.attr_float("offset", 0.5)
    boxes = prior_boxes(n, (cells[0], cells[1]), (height, width), steps, offset, sizes)
    if n.attr_flag("clip", False):
        boxes = fn.clip(boxes, 0, 1)
    variance = n.attr_floats("variance", ()) or (0.1,)
    if len(variance) not in (1, 4):
        n.bad(f"variance: expected 1 or 4 numbers, found {list(variance)}")
    factors = np.array(variance * (4 // len(variance)), np.float32)
    count = boxes.type.shape[0]
    both = boxes, n.expand(n.const(factors.reshape(1, 4)), (count, 4))
    flat = (v.reshape(1, 1, extents.product((count, 4))) for v in both)
    return n.add(slicing.Concat(1), *flat)


@caffe_layer("DetectionOutput")
def detection_output(n: LayerNode) -> Result:
    """The best boxes, [1, 1, count, 7]: image, class, score and box.  If there are no boxes, there
    is a row of -1 for each image.
    """
    location, confidence, priors = (n.input(i) for i in range(3))
    classes = n.attr_int("num_classes", low=1)
    shared = n.attr_flag("share_location", True)
    images, count = n.extent(location, 0), extents.quotient(priors.type.shape[2], 4)
    if count is None:
        n.bad(f"expected 4 numbers for each prior, found {priors.type}")
    boxes, variances = (n.reshape(v, (count, 4)) for v in n.add(slicing.Split(1, (1, 1)), priors))
    groups = 1 if shared else classes
    codes = n.reshape(location, (images, count, groups, 4)).transpose(0, 2, 1, 3)
    is_encoded = n.attr_flag("variance_encoded_in_target", False)
    code = n.attr_string("code_type", "CORNER", ("CORNER", "CENTER_SIZE", "CORNER_SIZE"))
    corners = decoded(n, codes, boxes, None if is_encoded else variances, code)
    scores = n.reshape(confidence, (images, count, classes)).transpose(0, 2, 1)
    settings = n.layer.attributes.get("nms_param")
    overlap, candidates = 0.3, -1
    if settings is not None:
        overlap = settings.nms_threshold if settings.has("nms_threshold") else overlap
        candidates = settings.top_k if settings.has("top_k") else -1
        if settings.has("eta") and settings.eta != 1:
            n.unsupported(f"a threshold that adapts (eta {settings.eta})")
    least = n.attr_float("confidence_threshold", float(f32.min))
    kept, background = n.attr_int("keep_top_k", -1), n.attr_int("background_label_id", 0)
    tables = detections(n, corners, scores, least, overlap, candidates, kept, background)
    rows = [_numbered(n, table, i) for i, (table, _) in enumerate(tables)]
    none = np.full((images, 7), -1, np.float32)
    none[:, 0] = np.arange(images)
    total = n.of_dims((extents.total(t.type.shape[0] for t in rows),))
    (length,) = n.measured(fn.where(total.equals(np.int64(0)), np.int64(images), total))
    every = n.add(slicing.Concat(0), *rows, n.const(none))
    shown = n.add(slicing.Slice((0,), (length,), (0,), (1,)), every)
    return n.reshape(shown, (1, 1, length, 7))


def _numbered(n: LayerNode, table: Value, image: int) -> Value:
    number = n.expand(n.const([[image]], f32), (table.type.shape[0], 1))
    return n.add(slicing.Concat(1), number, table)


@caffe_layer("ROIPooling")
def roi_pooling(n: LayerNode) -> Result:
    size = n.attr_int("pooled_h", low=1), n.attr_int("pooled_w", low=1)
    regions = n.reshape(n.input(1), (*n.input(1).type.shape[:1], 5))
    return max_regions(n, n.input(0), regions, size, n.attr_float("spatial_scale", 1))
