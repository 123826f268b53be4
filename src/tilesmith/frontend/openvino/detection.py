"""OpenVINO's operators for object detection: suppression, SSD's and YOLO's heads, regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilesmith.frontend.common.blocks import first_reorganisation
from tilesmith.frontend.common.boxes import (
    best_of_images,
    detections,
    numbered,
    prior_boxes,
    prior_sizes,
    ssd_boxes,
)
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.regions import max_regions
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.suppression import suppressed
from tilesmith.frontend.openvino.elements import element_type, openvino_layer
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.types import Dim
from tilesmith.ops import activation as act
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, norm, sample, scatter, slicing, sort

_PRIORS = "caffe.PriorBoxParameter."
"""A prefix that the name of a code may have."""


@openvino_layer("NonMaxSuppression")
def non_max_suppression(n: LayerNode) -> Result:
    """The kept boxes as (batch, class, box) and as (batch, class, score), and their number."""
    boxes, scores = n.input(0), n.input(1)
    if n.optional(5) is not None and n.scalar(n.input(5), "sigma"):
        n.unsupported("scores that overlaps lower (a sigma other than 0)")
    limits = tuple(
        n.const([0], dtype) if n.optional(i) is None else listed(n.input(i), dtype)
        for i, dtype in ((2, i64), (3, f32), (4, f32))
    )
    centred = n.attr_string("box_encoding", "corner", ("corner", "center")) == "center"
    rows = suppressed(n, boxes, scores, (limits[0], limits[1], limits[2]), centred)
    count = rows.type.shape[0]
    score = n.add(gather.GatherNd(), scores, rows)
    if n.attr_flag("sort_result_descending", True):
        score, order = n.add(sort.TopK(count, 0), score)
        rows = n.add(gather.Gather(0), rows, order)
    own, _ = n.add(slicing.Split(1, (2, 1)), rows)
    table = n.add(slicing.Concat(1), own.cast(f32), n.reshape(score, (count, 1)))
    dtype = element_type(n, "output_type", "i64")
    return rows.cast(dtype), table, n.of_dims((count,)).cast(dtype)


@openvino_layer("MulticlassNms")
def multiclass_nms(n: LayerNode) -> Result:
    """The best boxes of all images, [count, 6]; their numbers, and the number of each image's."""
    if len(n.slots) > 2:
        n.unsupported("boxes of regions, whose number differs from image to image")
    order = n.attr_string("sort_result_type", "none", ("none", "classid", "score"))
    if order != "none" and n.attr_flag("sort_result_across_batch", False):
        n.unsupported("boxes that are sorted across images")
    if n.attr_float("nms_eta", 1) != 1:
        n.unsupported(f"a threshold that shrinks by {n.attr_float('nms_eta')}")
    dtype = element_type(n, "output_type", "i64")
    rows, *numbers = best_of_images(
        n,
        n.input(0),
        n.input(1),
        n.attr_float("score_threshold", 0),
        n.attr_float("iou_threshold", 0),
        n.attr_int("nms_top_k", -1),
        n.attr_int("keep_top_k", -1),
        n.attr_int("background_class", -1),
        n.attr_flag("normalized", True),
        by_score=order != "classid",
    )
    return rows, *(v.cast(dtype) for v in numbers)


@openvino_layer("DetectionOutput")
def detection_output(n: LayerNode) -> Result:
    """The best boxes, [1, 1, images * most, 7]: image, class, score and box.  -1 follows the last
    box, then zeros.
    """
    location, confidence, priors = (n.input(i) for i in range(3))
    if len(n.slots) > 3 or not n.attr_flag("normalized", False):
        n.unsupported("boxes that a first detector refines, and priors in pixels")
    if any(n.attr_flag(name, False) for name in ("clip_before_nms", "decrease_label_id")):
        n.unsupported("boxes that are cut before suppression, and classes without a background")
    is_encoded = n.attr_flag("variance_encoded_in_target", False)
    codes = [f"{prefix}{c}" for c in ("CORNER", "CENTER_SIZE") for prefix in ("", _PRIORS)]
    code = n.attr_string("code_type", "CORNER", codes).removeprefix(_PRIORS)
    count = n.extent(priors, 2) // 4
    classes = n.extent(confidence, 1) // max(count, 1)
    groups = 1 if n.attr_flag("share_location", True) else classes
    boxes, scores = ssd_boxes(n, location, confidence, priors, groups, is_encoded, code)
    most, candidates = n.attr_ints("keep_top_k")[0], n.attr_int("top_k", -1)
    tables = detections(
        n,
        boxes,
        scores,
        n.attr_float("confidence_threshold", 0),
        n.attr_float("nms_threshold"),
        candidates,
        most,
        n.attr_int("background_label_id", 0),
    )
    rows = n.add(slicing.Concat(0), *numbered(n, tables))
    if n.attr_flag("clip_after_nms", False):
        head, box = n.add(slicing.Split(1, (3, 4)), rows)
        rows = n.add(slicing.Concat(1), head, fn.clip(box, 0, 1))
    per_image = (
        most if most > 0 else classes * (min(candidates, count) if candidates > 0 else count)
    )
    total = n.extent(location, 0) * per_image
    end = np.zeros((1, 7), np.float32)
    end[0, 0] = -1
    length = rows.type.shape[0]
    empty = n.const(np.zeros((total + 1, 7), np.float32))
    place = n.reshape(n.positions(extents.total((length, 1))), (extents.total((length, 1)), 1))
    rows = n.add(scatter.ScatterNd(), empty, place, n.add(slicing.Concat(0), rows, n.const(end)))
    shown = n.add(slicing.Slice((0,), (total,), (0,), (1,)), rows)
    return n.reshape(shown, (1, 1, total, 7))


def _pair(n: LayerNode, index: int, what: str) -> tuple[Dim, Dim]:
    """An input of rows and columns."""
    dims = n.dims(n.input(index), what)
    if len(dims) != 2:
        n.bad(f"{what}: expected rows and columns, found {list(dims)}")
    return dims[0], dims[1]


def _priors(
    n: LayerNode,
    sizes: Sequence[tuple[float, float]],
    steps: tuple[float, float],
    offset: float,
) -> Result:
    """The priors of all cells and their variances, [2, count * 4].

    steps: the distances of rows and of columns in pixels; both 0: the image's extents / cells.
    offset: as in `prior_boxes`.
    """
    cells, image = _pair(n, 0, "the cells"), _pair(n, 1, "the image")
    height, width = (n.of_dims((d,), ()).cast(f32) for d in image)
    way: tuple[Any, Any] = steps
    if not any(steps):
        rows, columns = (n.of_dims((d,), ()).cast(f32) for d in cells)
        way = height / rows, width / columns
    boxes = prior_boxes(n, cells, (height, width), way, offset, sizes)
    if n.attr_flag("clip", False):
        boxes = fn.clip(boxes, 0, 1)
    variance = n.attr_floats("variance", ()) or (0.1,)
    if len(variance) not in (1, 4):
        n.bad(f"variance: expected 1 or 4 numbers, found {list(variance)}")
    factors = np.array(variance * (4 // len(variance)), np.float32).reshape(1, 4)
    both = boxes, n.expand(n.const(factors), boxes.type.shape)
    flat = (v.reshape(1, extents.product(boxes.type.shape)) for v in both)
    return n.add(slicing.Concat(0), *flat)


@openvino_layer("PriorBox")
def prior_box(n: LayerNode) -> Result:
    if any(n.attr_floats(name, ()) for name in ("density", "fixed_ratio", "fixed_size")):
        n.unsupported("several priors of a size in a cell")
    if not n.attr_flag("scale_all_sizes", True):
        n.unsupported("ratios of the first size only")
    least, most = n.attr_floats("min_size", ()), n.attr_floats("max_size", ())
    ratios, flip = n.attr_floats("aspect_ratio", ()), n.attr_flag("flip", False)
    last = not n.attr_flag("min_max_aspect_ratios_order", True)
    sizes = prior_sizes(n, least, most, ratios, flip, last)
    step = n.attr_float("step", 0)
    # OpenVINO reads the offset only if there is a step.
    return _priors(n, sizes, (step, step), n.attr_float("offset", 0.5) if step else 0.5)


@openvino_layer("PriorBoxClustered")
def clustered_prior_box(n: LayerNode) -> Result:
    widths, heights = n.attr_floats("width"), n.attr_floats("height")
    if len(widths) != len(heights):
        n.bad(f"expected as many heights as widths, found {list(widths)} and {list(heights)}")
    step = n.attr_float("step", 0)
    names = ("step_heights", "step_h"), ("step_widths", "step_w")
    height, width = (n.attr_float(a, n.attr_float(b, 0)) or step for a, b in names)
    sizes = [*zip(widths, heights, strict=True)]
    return _priors(n, sizes, (height, width), n.attr_float("offset", 0.5))


@openvino_layer("RegionYolo")
def region_yolo(n: LayerNode) -> Result:
    """YOLO's cells with centres, confidences and scores as probabilities."""
    x, classes, coords = n.input(), n.attr_int("classes", low=1), n.attr_int("coords", 4, 1)
    is_second = n.attr_flag("do_softmax", True)
    count = n.attr_int("num", low=1) if is_second else len(n.attr_ints("mask"))
    batch, _, rows, columns = x.type.shape
    cells = n.reshape(x, (batch, count, coords + 1 + classes, rows, columns))
    place, size, confidence, scores = n.add(slicing.Split(2, (2, coords - 2, 1, classes)), cells)
    place, confidence = n.add(act.Sigmoid(), place), n.add(act.Sigmoid(), confidence)
    scores = n.add(norm.Softmax(2) if is_second else act.Sigmoid(), scores)
    y = n.reshape(n.add(slicing.Concat(2), place, size, confidence, scores), x.type.shape)
    if not is_second:
        return y
    first, last = (n.axis(n.attr_int(name), 4) for name in ("axis", "end_axis"))
    flat = extents.product(x.type.shape[first : last + 1])
    return n.reshape(y, (*x.type.shape[:first], flat, *x.type.shape[last + 1 :]))


@openvino_layer("ReorgYolo")
def reorg_yolo(n: LayerNode) -> Result:
    return first_reorganisation(n, n.input(), n.attr_ints("stride")[0])


@openvino_layer("ROIAlign")
def roi_align(n: LayerNode) -> Result:
    """Means of the samples of each bin, or the largest sample above 0."""
    kinds = ("asymmetric", "half_pixel", "half_pixel_for_nn")
    kind = n.attr_string("aligned_mode", "asymmetric", kinds)
    rows, columns = n.attr_int("pooled_h", low=1), n.attr_int("pooled_w", low=1)
    samples, scale = n.attr_int("sampling_ratio", 0, 0), n.attr_float("spatial_scale", 1)
    x, regions = n.input(0), n.input(1)
    regions = regions + 0.5 if kind == "half_pixel" else regions
    is_mean = n.attr_string("mode", "avg", ("avg", "max")) == "avg"
    if is_mean:
        op = sample.RoiAlign((rows, columns), samples, scale, "avg", kind != "asymmetric")
        return n.add(op, x, regions, n.input(2))
    if not samples:
        n.unsupported("maxima of as many samples as pixels")
    size = rows * samples, columns * samples
    op = sample.RoiAlign(size, 1, scale, "avg", kind != "asymmetric")
    y = n.add(op, x, regions, n.input(2))
    dims = y.type.shape[:2]
    y = n.reshape(y, (*dims, rows, samples, columns, samples))
    return fn.maximum(y.max((3, 5)), 0)


@openvino_layer("ROIPooling")
def roi_pooling(n: LayerNode) -> Result:
    if n.attr_string("method", "max") != "max":
        n.unsupported("regions that are interpolated")
    if n.has("output_size"):
        size = n.attr_ints("output_size")
    else:
        size = n.attr_int("pooled_h", low=1), n.attr_int("pooled_w", low=1)
    scale = n.attr_float("spatial_scale")
    return max_regions(n, n.input(0), n.input(1), (size[0], size[1]), scale)
