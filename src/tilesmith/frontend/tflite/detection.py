"""TFLite's selections of boxes: suppression of boxes that overlap, and detectors' last operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.recurrence import over_time
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.suppression import suppressed
from tilesmith.frontend.tflite.convolutions import check_floats
from tilesmith.frontend.tflite.flexbuffer import read_options
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import CUSTOM, tflite_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i32, i64
from tilesmith.ir.types import Dim
from tilesmith.ops import gather, reduce, scatter, slicing, sort
from tilesmith.ops.functions import exp, maximum, minimum, where

_MOST = 1 << 20
"""Upper bound on the counts in options.  A larger count means that the model is damaged."""


def _padded(n: TfliteNode, rows: Value, most: Dim) -> Value:
    """Pad `rows` with zeros to `most` rows."""
    zeros = n.const(0, rows.dtype).expand(most, *rows.type.shape[1:])
    places = n.reshape(n.positions(rows.type.shape[0]), (rows.type.shape[0], 1))
    return n.add(scatter.ScatterNd(), zeros, places, rows)


def _column(n: TfliteNode, rows: Value, number: int) -> Value:
    one = n.add(slicing.Slice((number,), (number + 1,), (1,), (1,)), rows)
    return n.reshape(one, (rows.type.shape[0],))


@tflite_op("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(n: TfliteNode) -> Result:
    boxes, scores = n.input(0), n.input(1)
    check_floats(n, boxes, scores)
    if boxes.type.rank != 2 or scores.type.rank != 1:
        n.bad(f"expected boxes [N, 4] and scores [N], found {boxes.type} and {scores.type}")
    has_scores = n.operator.kind.endswith("V5")
    sigma = float(n.scalar(n.input(5), "the deviation of scores")) if has_scores else 0.0
    if sigma > 0:
        return _softly_suppressed(n, boxes, scores, sigma)
    (most,) = n.extents(n.input(2), "the number of boxes")
    overlap, least = (listed(n.input(i), f32) for i in (3, 4))
    count = boxes.type.shape[0]
    of_classes = n.reshape(scores, (1, 1, count))
    limits = n.of_dims((most,)), overlap, least
    kept = _column(n, suppressed(n, n.reshape(boxes, (1, count, 4)), of_classes, limits), 2)
    valid = n.of_dims((kept.type.shape[0],), ()).cast(i32)
    indices = _padded(n, kept.cast(i32), most)
    if not has_scores:
        return indices, valid
    return indices, _padded(n, n.add(gather.Gather(0), scores, kept), most), valid


def _softly_suppressed(n: TfliteNode, boxes: Value, scores: Value, sigma: float) -> Result:
    """The best boxes one by one.  Each lowers the scores of boxes that overlap it, and removes
    those that overlap it more than the limit.
    """
    most = n.one_extent(n.input(2), "the number of boxes")
    overlap, least = (n.reshape(n.input(i), ()) for i in (3, 4))
    rows = n.add(slicing.Split(1, (1, 1, 1, 1)), boxes)
    (y0, x0, y1, x1) = (n.reshape(r, (boxes.type.shape[0],)) for r in rows)
    low, high = (minimum(y0, y1), minimum(x0, x1)), (maximum(y0, y1), maximum(x0, x1))
    edges = *low, *high, (high[0] - low[0]) * (high[1] - low[1])
    removed = float(np.finfo(np.float32).min)

    def step(
        body: Body, _: Value, __: Value, before: Sequence[Value]
    ) -> tuple[Sequence[Value], Value]:
        inner, (now,) = replace(n, builder=body), before
        top, left, bottom, right, area = map(body.capture, edges)
        best = inner.add(reduce.ArgMax(0, False), now)

        def of_best(v: Value) -> Value:
            return inner.add(gather.Gather(0), v, best)

        height = maximum(minimum(bottom, of_best(bottom)) - maximum(top, of_best(top)), 0.0)
        width = maximum(minimum(right, of_best(right)) - maximum(left, of_best(left)), 0.0)
        common, own = height * width, of_best(area)
        is_area = (area > 0) & (own > 0)
        share = where(is_area, common / where(is_area, area + own - common, 1.0), 0.0)
        lowered = now * exp(share * share * (-0.5 / sigma))
        is_best = inner.positions(now.type.shape[0]).equals(best)
        after = where(is_best | (share >= body.capture(overlap)), removed, lowered)
        is_taken = of_best(now) > body.capture(least)
        shown = inner.add(slicing.Concat(0), *(inner.reshape(v, (1,)) for v in (
            best.cast(f32), of_best(now), is_taken.cast(f32))))  # fmt: skip
        return (where(is_taken, after, now),), where(is_taken, shown, 0.0)

    _, shown = over_time(n, "suppression", n.positions(most), (scores,), step)
    indices, chosen, taken = (_column(n, shown, i) for i in range(3))
    return indices.cast(i32), chosen, taken.sum((0,)).cast(i32)


def _option(n: TfliteNode, options: dict[str, Any], name: str, default: Any = None) -> Any:
    value = options.get(name, default)
    if not isinstance(value, (int, float)) or not np.isfinite(value):
        n.bad(f"option {name!r}: expected a number, found {value!r}")
    return value


def _count(n: TfliteNode, options: dict[str, Any], name: str, default: int | None = None) -> int:
    value = int(_option(n, options, name, default))
    if not 1 <= value < _MOST:
        n.bad(f"option {name!r}: expected 1 to {_MOST - 1}, found {value}")
    return value


def _corners(n: TfliteNode, codes: Value, anchors: Value, options: dict[str, Any]) -> Value:
    """Boxes [N, (y, x, y, x)], from their distances to anchors (y, x, height, width)."""
    count = anchors.type.shape[0]
    scales = [_option(n, options, f"{axis}_scale") for axis in "yxhw"]
    if not all(scales):
        n.bad(f"expected scales other than 0, found {scales}")
    codes = n.add(slicing.Slice((0,), (4,), (1,), (1,)), codes) / n.const(scales, f32)
    middle, size = n.add(slicing.Split(1, (2, 2)), codes)
    anchor, anchor_size = n.add(slicing.Split(1, (2, 2)), anchors)
    middle, half = middle * anchor_size + anchor, exp(size) * anchor_size * 0.5
    return n.reshape(n.add(slicing.Concat(1), middle - half, middle + half), (count, 4))


@tflite_op("TFLite_Detection_PostProcess", domain=CUSTOM)
def detections(n: TfliteNode) -> Result:
    """The best boxes: their corners, classes and scores, and their number.

    Inputs: codes of boxes [1, N, 4 or more], scores [1, N, classes], or [1, N, 1 + classes] with
    the background first, and anchors [N, 4].
    """
    codes, scores, anchors = (n.input(i) for i in range(3))
    check_floats(n, codes, scores, anchors)
    options = read_options(n.operator.custom_options, n.operator.name)
    classes, most = _count(n, options, "num_classes"), _count(n, options, "max_detections")
    each = _count(n, options, "max_classes_per_detection")
    if codes.type.rank != 3 or scores.type.rank != 3 or n.extent(scores, 0) != 1:
        n.bad(f"expected codes and scores of one image, found {codes.type} and {scores.type}")
    count, background = scores.type.shape[1], n.extent(scores, 2) - classes
    if background not in (0, 1):
        n.bad(f"expected scores of {classes} classes, found {scores.type}")
    scores = n.reshape(scores, (count, classes + background))
    scores = n.add(slicing.Slice((background,), (classes + background,), (1,), (1,)), scores)
    codes = n.reshape(codes, codes.type.shape[1:])
    boxes = _corners(n, codes, anchors, options)
    # Scores must exceed `least`, so that a score equal to the threshold suffices.
    least = np.nextafter(
        np.float32(_option(n, options, "nms_score_threshold")), np.float32(-np.inf)
    )
    overlap = n.const([_option(n, options, "nms_iou_threshold")], f32)
    of_one = n.reshape(boxes, (1, count, 4))

    def kept(of_classes: Value, limit: int) -> Value:
        limits = n.const([limit], i64), overlap, n.const([least], f32)
        return suppressed(n, of_one, of_classes, limits)

    if options.get("use_regular_nms"):
        limit = _count(n, options, "detections_per_class", 100)
        rows = kept(n.reshape(scores.transpose(1, 0), (1, classes, count)), limit)
        places = n.add(gather.Gather(1), rows, n.const([2, 1], i64))
        of_rows = n.add(gather.GatherNd(), scores, places)
        length = extents.smaller(rows.type.shape[0], most)
        best, order = n.add(sort.TopK(length, 0), of_rows)
        rows = n.add(gather.Gather(0), rows, order)
        chosen, of_class = _column(n, rows, 2), _column(n, rows, 1)
        width = per_box = 1
    else:
        rows = kept(n.reshape(scores.max((1,)), (1, 1, count)), most)
        width, per_box, length = min(each, classes), each, rows.type.shape[0]
        chosen = _column(n, rows, 2)
        best, of_class = n.add(sort.TopK(width, 1), n.add(gather.Gather(0), scores, chosen))

    slots = most * each // per_box

    def shown(values: Value) -> Value:
        """`values`, one per box and class [length, width], padded with 0 to [1, most * each]."""
        values = _padded(n, n.reshape(values, (length, width)), slots)
        values = n.add(slicing.Pad((0, 0, 0, per_box - width)), values)
        return n.reshape(values, (1, most * each))

    corners = _padded(n, n.add(gather.Gather(0), boxes, chosen), slots)
    corners = n.expand(n.reshape(corners, (slots, 1, 4)), (slots, per_box, 4))
    corners = n.reshape(corners, (1, most * each, 4))
    number = n.of_dims((length,)).cast(f32)
    return corners, shown(of_class.cast(f32)), shown(best), number
