"""Caffe's layers for object detection: SSD's priors and SSD's output, and pools over regions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesmith.frontend.caffe.layers import caffe_layer
from tilesmith.frontend.common.boxes import (
    detections,
    numbered,
    prior_boxes,
    prior_sizes,
    ssd_boxes,
)
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.regions import max_regions
from tilesmith.frontend.common.slots import Result
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32
from tilesmith.ops import functions as fn
from tilesmith.ops import slicing


def _prior_sizes(n: LayerNode) -> list[tuple[float, float]]:
    """The width and height of each prior of a cell.  Caffe rounds min_size and max_size down."""
    least, most = n.attr_floats("min_size"), n.attr_floats("max_size", ())
    ratios, flip = n.attr_floats("aspect_ratio", ()), n.attr_flag("flip", True)
    return prior_sizes(n, [*map(int, least)], [*map(int, most)], ratios, flip)


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
    images = n.extent(location, 0)
    is_encoded = n.attr_flag("variance_encoded_in_target", False)
    code = n.attr_string("code_type", "CORNER", ("CORNER", "CENTER_SIZE", "CORNER_SIZE"))
    groups = 1 if shared else classes
    corners, scores = ssd_boxes(n, location, confidence, priors, groups, is_encoded, code)
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
    rows = numbered(n, tables)
    none = np.full((images, 7), -1, np.float32)
    none[:, 0] = np.arange(images)
    total = n.of_dims((extents.total(t.type.shape[0] for t in rows),))
    (length,) = n.measured(fn.where(total.equals(np.int64(0)), np.int64(images), total))
    every = n.add(slicing.Concat(0), *rows, n.const(none))
    shown = n.add(slicing.Slice((0,), (length,), (0,), (1,)), every)
    return n.reshape(shown, (1, 1, length, 7))


@caffe_layer("ROIPooling")
def roi_pooling(n: LayerNode) -> Result:
    size = n.attr_int("pooled_h", low=1), n.attr_int("pooled_w", low=1)
    regions = n.reshape(n.input(1), (*n.input(1).type.shape[:1], 5))
    return max_regions(n, n.input(0), regions, size, n.attr_float("spatial_scale", 1))
