"""MXNet's non-maximum suppression of boxes."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.boxes import column
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.suppression import suppressed
from tilesmith.frontend.mxnet.registry import mxnet_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, reduce, scatter, slicing, sort

_ABSENT = -1e30
"""The score that marks a row without a valid box."""


def _rows(n: LayerNode, table: Value, places: Value) -> Value:
    """Rows [B, N, K] of `table` at the indices `places` [B, N]."""
    index = n.reshape(places, (*places.type.shape, 1))
    return n.add(gather.GatherElements(1), table, n.expand(index, table.type.shape))


def _columns(n: LayerNode, rows: Value, first: int, count: int = 1) -> Value:
    """`count` columns of rows [B, N, K], from column `first` on.  A single column is [B, N]."""
    cut = n.add(slicing.Slice((first,), (first + count,), (2,), (1,)), rows)
    return n.reshape(cut, rows.type.shape[:2]) if count == 1 else cut


def _kept(n: LayerNode, boxes: Value, scores: Value, overlap: float, centred: bool) -> Value:
    """Whether suppression keeps each of the boxes [B, N, 4], bool [B, N].

    scores: [B, C, N].
    centred: whether a box is centre and size instead of two corners.
    """
    batch, count, _ = boxes.type.shape
    limits = n.of_dims((count,)), n.const([overlap], f32), n.const([_ABSENT / 2], f32)
    rows = suppressed(n, boxes, scores, limits, centred)
    chosen = rows.type.shape[0]
    places = [n.reshape(column(n, rows, i), (chosen, 1)) for i in (0, 2)]
    zeros = n.expand(n.const(0, i64), (batch, count))
    ones = n.expand(n.const(1, i64), (chosen,))
    flags = n.add(scatter.ScatterNd(), zeros, n.add(slicing.Concat(1), *places), ones)
    return flags.differs(0)


def _best(n: LayerNode, scores: Value, name: str) -> tuple[Value, Value, Value]:
    """Scores [B, N] in descending order, their indices, and whether each is a candidate.

    Only valid scores are candidates, and at most as many as attribute `name` says.
    """
    count = scores.type.shape[1]
    ordered, places = n.add(sort.TopK(count, 1), scores)
    limit = n.attr_int(name, -1)
    among = ordered > _ABSENT / 2
    if limit > 0:
        among = among & (n.positions(count, 2, 1) < limit)
    return ordered, places, among


@mxnet_op("_contrib_MultiBoxDetection", "_npx_multibox_detection")
def multibox_detection(n: LayerNode) -> Result:
    """A row for each anchor, best first: class, score and box.  Dropped boxes have class -1."""
    scores, codes, anchors = (n.input(i) for i in range(3))
    overlap = n.attr_float("nms_threshold", 0.5)
    if not 0 < overlap <= 1 or n.attr_int("background_id", 0):
        n.unsupported(f"nms_threshold {overlap}, or a background that is not class 0")
    batch, classes, count = n.extent(scores, 0), n.extent(scores, 1), scores.type.shape[2]
    objects = n.add(slicing.Slice((1,), (classes,), (1,), (1,)), scores)
    best = objects.max((1,))
    best = fn.where(best >= n.attr_float("threshold", 0.01), best, _ABSENT)
    ordered, places, among = _best(n, best, "nms_topk")
    label = n.add(reduce.ArgMax(1, False), objects).cast(f32)
    corner, far = n.add(slicing.Split(2, (2, 2)), n.reshape(anchors, (1, count, 4)))
    parts = n.const(n.attr_floats("variances", (0.1, 0.1, 0.2, 0.2)), f32)
    middle, size = n.add(slicing.Split(2, (2, 2)), n.reshape(codes, (batch, count, 4)) * parts)
    centre = middle * (far - corner) + (corner + far) / 2
    half = fn.exp(size) * (far - corner) / 2
    boxes = n.add(slicing.Concat(2), centre - half, centre + half)
    if n.attr_flag("clip", True):
        boxes = fn.clip(boxes, 0, 1)
    table = n.add(slicing.Concat(2), n.reshape(label, (batch, count, 1)), boxes)
    table = _rows(n, table, places)
    label, boxes = _columns(n, table, 0), _columns(n, table, 1, 4)
    of_classes = n.reshape(fn.where(among, ordered, _ABSENT), (batch, 1, count))
    if not n.attr_flag("force_suppress", False):
        numbers = n.const(np.arange(classes - 1).reshape(1, classes - 1, 1), f32)
        own = n.reshape(label, (batch, 1, count)).equals(numbers)
        of_classes = fn.where(own, of_classes, _ABSENT)
    # boxes whose overlap equals the threshold are dropped, too
    least = float(np.nextafter(np.float32(overlap), np.float32(-1)))
    kept = _kept(n, boxes, of_classes, least, False)
    there = ordered > _ABSENT / 2
    three = (batch, count, 1)
    shown = n.reshape(fn.where(kept, label, -1.0), three), n.reshape(ordered, three), boxes
    return fn.where(n.reshape(there, three), n.add(slicing.Concat(2), *shown), -1.0)


@mxnet_op("_contrib_box_nms", "_contrib_box_non_maximum_suppression")
def box_nms(n: LayerNode) -> Result:
    """The rows of the kept boxes, best first, then rows of -1."""
    x = n.input()
    formats = {n.attr_string(f"{side}_format", "corner") for side in ("in", "out")}
    if len(formats) > 1:
        n.unsupported("boxes that change their format")
    *lead, count, width = x.type.shape
    rows = n.reshape(x, (extents.product(lead), count, width))
    scores = _columns(n, rows, n.attr_int("score_index", 1, low=0))
    valid = scores > n.attr_float("valid_thresh", 0.0)
    by, background = n.attr_int("id_index", -1), n.attr_int("background_id", -1)
    if by >= 0 and background >= 0:
        valid = valid & _columns(n, rows, by).differs(float(background))
    ordered, places, among = _best(n, fn.where(valid, scores, _ABSENT), "topk")
    rows = _rows(n, rows, places)
    boxes = _columns(n, rows, n.attr_int("coord_start", 2, low=0), 4)
    if by >= 0 and not n.attr_flag("force_suppress", False):
        # move boxes of different classes apart, so that they can't overlap
        room = (boxes.max((1, 2), keepdims=True) - boxes.min((1, 2), keepdims=True)) * 2 + 1
        label = n.reshape(_columns(n, rows, by), (*rows.type.shape[:2], 1))
        moved = n.const([1, 1, 0, 0] if "center" in formats else [1, 1, 1, 1], f32)
        boxes = boxes + label * room * moved
    numbers = n.reshape(fn.where(among, ordered, _ABSENT), (rows.type.shape[0], 1, count))
    overlap = n.attr_float("overlap_thresh", 0.5)
    kept = _kept(n, boxes, numbers, overlap, "center" in formats)
    place = n.positions(count, 2, 1)
    _, front = n.add(sort.TopK(count, 1), fn.where(kept, -place + count, -place))
    flags = n.reshape(kept, (*rows.type.shape[:2], 1))
    return n.reshape(_rows(n, fn.where(flags, rows, -1.0), front), x.type.shape)
