"""Relay's operators for object detection: pools over regions, and suppression of boxes."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.boxes import column
from tilesmith.frontend.common.computed import taken
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.regions import max_regions
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.suppression import suppressed
from tilesmith.frontend.relay.node import RelayNode, relay_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, i32, i64
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, sample, scatter, slicing, sort


@relay_op("vision.roi_align")
def roi_align(n: RelayNode) -> Result:
    n.text("layout", "NCHW", ("NCHW",))
    x, regions = n.inputs
    images, boxes = n.add(slicing.Split(1, (1, 4)), regions)
    mode = n.text("mode", "avg", ("avg", "max"))
    samples, scale = max(n.int("sample_ratio", -1), 0), n.get("spatial_scale", 1.0)
    op = sample.RoiAlign(pair(n, "pooled_size"), samples, scale, mode, half_pixel=False)
    return n.add(op, x, boxes, n.reshape(images, images.type.shape[:1]).cast(i64))


def pair(n: RelayNode, name: str) -> tuple[int, int]:
    """An attribute of two integers.  A single integer stands for both."""
    numbers = n.ints(name)
    if len(numbers) not in (1, 2):
        n.bad(f"attribute {name!r}: expected two integers, found {list(numbers)}")
    return numbers[0], numbers[-1]


@relay_op("vision.roi_pool")
def roi_pool(n: RelayNode) -> Result:
    n.text("layout", "NCHW", ("NCHW",))
    x, regions = n.inputs
    return max_regions(n, x, regions, pair(n, "pooled_size"), n.get("spatial_scale", 1.0))


@relay_op("vision.all_class_non_max_suppression")
def all_class_suppression(n: RelayNode) -> Result:
    """The indices (batch, class, box) of each kept box, and the number of kept boxes."""
    boxes, scores, most, overlap, least = n.inputs
    n.text("output_format", "onnx", ("onnx",))
    limits = listed(most), listed(overlap, f32), listed(least, f32)
    kept = suppressed(n, boxes, scores, limits)
    return kept, n.of_dims((kept.type.shape[0],))


def _entry(n: RelayNode, rows: Value, number: int, count: int = 1) -> Value:
    """`count` entries of each row of a tensor [images, rows, entries], from entry `number` on."""
    one = n.add(slicing.Slice((number,), (number + count,), (2,), (1,)), rows)
    return one if count > 1 else n.reshape(one, rows.type.shape[:2])


@relay_op("vision.get_valid_counts")
def valid_counts(n: RelayNode) -> Result:
    """For each image: the number of valid boxes, the boxes, and their indices.

    A valid box has a score above the threshold.  Valid boxes come first; other boxes and their
    indices are -1.
    """
    x = n.input(0)
    threshold = n.input(1) if len(n.slots) > 1 else n.const(n.get("score_threshold", 0.0), f32)
    is_valid = _entry(n, x, n.int("score_index", 1)) > n.reshape(threshold, ())
    if (label := n.int("id_index", 0)) >= 0:
        is_valid = is_valid & (_entry(n, x, label) >= 0.0)
    images, count, _ = x.type.shape
    flags, order = n.add(sort.TopK(count, 1), is_valid.cast(i32))
    rows = n.expand(n.reshape(order, (images, count, 1)), x.type.shape)
    moved = n.add(gather.GatherElements(1), x, rows)
    is_first = flags > 0
    boxes = fn.where(n.reshape(is_first, (images, count, 1)), moved, -1.0)
    return is_valid.cast(i32).sum((1,)), boxes, fn.where(is_first, order.cast(i32), -1)


@relay_op("vision.non_max_suppression")
def non_max_suppression(n: RelayNode) -> Result:
    """The indices of the kept boxes of one image, and their number.

    The best box comes first; -1 follows the last one.
    """
    x, valid, places, most, overlap = n.inputs
    label, is_forced = n.int("id_index", 0), n.get("force_suppress", False)
    gives_places, best = n.get("return_indices", True), n.int("top_k", -1)
    if (label >= 0 and not is_forced) or not gives_places or best > 0:
        n.unsupported("a suppression by classes, of the best boxes only, or without places")
    n.get("invalid_to_bottom")
    images, count, _ = x.type.shape
    if n.extent(x, 0) != 1:
        n.unsupported(f"a suppression for {images} images")
    is_valid = n.positions(count, 2, 1) < n.reshape(valid.cast(i64), (images, 1))
    scores = fn.where(is_valid, _entry(n, x, n.int("score_index", 1)), -np.inf)
    boxes = _entry(n, x, n.int("coord_start", 2), 4)
    wanted = listed(most)
    wanted = fn.where(wanted < 0, n.of_dims((count,)), wanted)
    limits = wanted, listed(overlap, f32), n.const([-np.inf], f32)
    kept = column(n, suppressed(n, boxes, n.reshape(scores, (images, 1, count)), limits), 2)
    chosen = taken(n, n.reshape(places, (count,)), 0, kept)
    none = n.expand(n.const([-1], i32), (count,))
    number = kept.type.shape[0]
    result = n.add(scatter.ScatterElements(0), none, n.positions(number), chosen)
    return n.reshape(result, (images, count)), n.of_dims((number,), (1, 1)).cast(i32)
