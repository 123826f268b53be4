"""Boxes of SSD-like detectors: priors on a grid, decoding, and suppression.

A box is (left, top, right, bottom).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilesmith.frontend.common.node import NodeContext
from tilesmith.frontend.common.suppression import suppressed
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.types import Dim
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, scatter, slicing, sort


def prior_boxes(
    n: NodeContext,
    grid: tuple[Dim, Dim],
    image: tuple[Any, Any],
    steps: tuple[Any, Any],
    offset: float,
    sizes: Sequence[tuple[float, float]],
) -> Value:
    """The boxes around the cells of a grid, f32 [rows * columns * sizes, 4], as fractions of the
    image.

    grid: rows and columns.
    image: height and width, numbers or scalars.
    steps: distances of rows and of columns in pixels, numbers or scalars.
    offset: position of a box's centre in its cell, as a fraction of the step.
    sizes: widths and heights in pixels.
    """
    count, dims = len(sizes), (*grid, len(sizes))
    widths, heights = np.array(sizes, np.float32).reshape(count, 2).T / 2
    sides = []
    for axis, halves in ((1, widths), (0, heights)):
        centres = (n.positions(grid[axis], 3, axis).cast(f32) + offset) * steps[axis]
        half = n.const(halves.reshape(1, 1, count))
        sides += [((centres - half) / image[axis], (centres + half) / image[axis])]
    (left, right), (top, bottom) = sides
    corners = [n.expand(v, dims).reshape(*dims, 1) for v in (left, top, right, bottom)]
    return n.add(slicing.Concat(3), *corners).reshape(extents.product(dims), 4)


def prior_sizes(
    n: NodeContext,
    least: Sequence[float],
    most: Sequence[float],
    ratios: Sequence[float],
    flip: bool,
    is_most_last: bool = False,
) -> list[tuple[float, float]]:
    """The width and height of each prior of a cell, in pixels.

    least, most: for each square, its side and the side whose geometric mean with it is the side of
        another square.
    ratios: width / height of further priors.
    flip: whether there are priors of the inverse ratios, too.
    is_most_last: whether the other square follows the priors of the ratios.
    """
    if (most and len(most) != len(least)) or min((*least, *ratios), default=0) <= 0:
        n.bad(
            f"expected sizes and ratios above 0, as many max_size as min_size, found {least}, "
            f"{most} and {ratios}"
        )
    every = [1.0]
    for ratio in ratios:
        if all(abs(ratio - r) >= 1e-6 for r in every):
            every += [ratio, 1 / ratio] if flip else [ratio]
    sizes: list[tuple[float, float]] = []
    for i, size in enumerate(least):
        other = [(math.sqrt(size * most[i]),) * 2] if most else []
        wide = [(size * math.sqrt(r), size / math.sqrt(r)) for r in every if abs(r - 1) >= 1e-6]
        sizes += [(size, size), *(wide + other if is_most_last else other + wide)]
    return sizes


def decoded(
    n: NodeContext, codes: Value, priors: Value, variances: Value | None, code: str
) -> Value:
    """Boxes [..., N, 4] from their distances `codes` to `priors` [N, 4].

    variances: factors of the codes, [N, 4]; None means 1.
    code: the meaning of codes.  "CORNER": distances of corners.  "CORNER_SIZE": distances of
        corners in units of the prior's size.  "CENTER_SIZE": the distance of the centre in units
        of the prior's size, and the logarithm of the ratio of sizes.
    """
    scaled = codes if variances is None else codes * variances
    if code == "CORNER":
        return priors + scaled
    low, high = n.add(slicing.Split(1, (2, 2)), priors)
    size = high - low
    if code == "CORNER_SIZE":
        return priors + scaled * n.add(slicing.Concat(1), size, size)
    last = codes.type.rank - 1
    moved, grown = n.add(slicing.Split(last, (2, 2)), scaled)
    centre, half = moved * size + (low + high) * 0.5, fn.exp(grown) * size * 0.5
    return n.add(slicing.Concat(last), centre - half, centre + half)


def column(n: NodeContext, rows: Value, number: int) -> Value:
    """A column of a matrix."""
    one = n.add(slicing.Slice((number,), (number + 1,), (1,), (1,)), rows)
    return n.reshape(one, (rows.type.shape[0],))


def detections(
    n: NodeContext,
    boxes: Value,
    scores: Value,
    least: float,
    overlap: float,
    candidates: int,
    kept: int,
    background: int = -1,
) -> list[tuple[Value, Value]]:
    """For each image the best boxes, f32 [count, 6]: class, score and box; and their numbers among
    all boxes, i64 [count].  They are sorted by ascending class; in a class, by descending score.

    boxes: [images, 1 or classes, N, 4].
    scores: [images, classes, N].
    least: boxes with this score or a lower score are dropped.
    overlap: if two boxes of a class overlap by more than this, the box with the lower score is
        dropped.
    candidates: largest number of boxes of a class that are compared, those of the best scores and
        among equal scores the first ones; all if below 0.
    kept: largest number of boxes of an image; all if below 0.
    background: the class that means "no object"; below 0, there is no such class.
    """
    if boxes.type.rank != 4 or scores.type.rank != 3:
        n.bad(f"expected boxes [..., N, 4] and scores [B, C, N], found {boxes.type}, {scores.type}")
    images, classes, count = n.extent(scores, 0), n.extent(scores, 1), scores.type.shape[2]
    if n.extent(boxes, 0) != images:
        n.bad(f"expected boxes of {images} images, found {n.extent(boxes, 0)}")
    if background >= 0:
        is_background = np.arange(classes).reshape(1, classes, 1) == background
        scores = fn.where(n.const(is_background), -np.inf, scores)
    if candidates >= 0:
        best, places = n.add(sort.TopK(extents.smaller(candidates, count), 2), scores)
        none = n.expand(n.const(-np.inf, scores.dtype), scores.type.shape)
        scores = n.add(scatter.ScatterElements(2), none, places, best)
    return [
        _of_image(n, _image(n, boxes, i), _image(n, scores, i), least, overlap, kept)
        for i in range(images)
    ]


def _image(n: NodeContext, values: Value, number: int) -> Value:
    one = n.add(slicing.Slice((number,), (number + 1,), (0,), (1,)), values)
    return n.reshape(one, values.type.shape[1:])


def _of_image(
    n: NodeContext, boxes: Value, scores: Value, least: float, overlap: float, kept: int
) -> tuple[Value, Value]:
    (groups, count, _), classes = boxes.type.shape, scores.type.shape[0]
    limits = n.of_dims((count,)), n.const([overlap], f32), n.const([least], f32)
    # if each class has its own boxes, treat each class as an image
    by_class = n.reshape(scores, (groups, extents.quotient(classes, groups) or 1, count))
    rows = suppressed(n, boxes, by_class, limits)
    label = column(n, rows, 1) + column(n, rows, 0)  # one of the two columns is 0
    place = column(n, rows, 2)
    chosen = rows.type.shape[0]

    def picked(table: Value, *places: Value) -> Value:
        columns = (n.reshape(p, (chosen, 1)) for p in places)
        return n.add(gather.GatherNd(), table, n.add(slicing.Concat(1), *columns))

    score, box = picked(scores, label, place), picked(boxes, column(n, rows, 0), place)
    columns = n.reshape(label.cast(f32), (chosen, 1)), n.reshape(score, (chosen, 1)), box
    table = n.add(slicing.Concat(1), *columns)
    if kept < 0:
        return table, place
    length = extents.smaller(chosen, kept)
    _, order = n.add(sort.TopK(length, 0), score)
    order = n.add(sort.TopK(length, 0, False), order)[0].cast(i64)
    return n.add(gather.Gather(0), table, order), n.add(gather.Gather(0), place, order)


def ssd_boxes(
    n: NodeContext,
    location: Value,
    confidence: Value,
    priors: Value,
    groups: int,
    is_encoded: bool,
    code: str,
) -> tuple[Value, Value]:
    """The boxes [images, groups, N, 4] and the scores [images, classes, N] of SSD's heads.

    location: [images, N * groups * 4].
    confidence: [images, N * classes].
    priors: boxes and their variances, [1, 2, N * 4]; without variances if codes are multiplied by
        them already.
    groups: 1, or the number of classes if each class has its own boxes.
    is_encoded: whether codes are multiplied by the variances already.
    code: as in `decoded`.
    """
    images, count = n.extent(location, 0), extents.quotient(priors.type.shape[2], 4)
    if count is None or (isinstance(count, int) and not count):
        n.bad(f"expected 4 numbers for each prior, found {priors.type}")
    parts = n.extent(priors, 1)
    both = n.add(slicing.Split(1, (1,) * parts), priors) if parts > 1 else (priors,)
    boxes, *variances = (n.reshape(v, (count, 4)) for v in both)
    if not (is_encoded or variances):
        n.bad(f"expected priors with their variances, found {priors.type}")
    codes = n.reshape(location, (images, count, groups, 4)).transpose(0, 2, 1, 3)
    corners = decoded(n, codes, boxes, None if is_encoded else variances[0], code)
    classes = extents.quotient(confidence.type.shape[1], count)
    if classes is None:
        n.bad(f"expected a score of each class for {count} boxes, found {confidence.type}")
    return corners, n.reshape(confidence, (images, count, classes)).transpose(0, 2, 1)


def numbered(n: NodeContext, tables: Sequence[tuple[Value, Value]]) -> list[Value]:
    """The tables of `detections` with the image's number before each row, f32 [count, 7]."""
    rows = []
    for image, (table, _) in enumerate(tables):
        number = n.expand(n.const([[image]], f32), (table.type.shape[0], 1))
        rows.append(n.add(slicing.Concat(1), number, table))
    return rows


def best_of_images(
    n: NodeContext,
    boxes: Value,
    scores: Value,
    least: float,
    overlap: float,
    candidates: int,
    kept: int,
    background: int,
    is_normalized: bool,
    by_score: bool = False,
) -> tuple[Value, Value, Value]:
    """The best boxes of all images, f32 [count, 6]: class, score and box; their numbers among the
    boxes of all images, i64 [count, 1]; and the number of boxes of each image, i64 [images].

    boxes: [images, N, 4].
    is_normalized: whether coordinates are fractions of the image.  A box in whole pixels includes
        its last row and column.  Boxes less than a pixel apart therefore overlap, as in OpenVINO;
        Paddle compares no boxes that are disjoint.  With whole coordinates there is no difference.
    by_score: whether boxes of an image are sorted by descending score, not by class.
    The other arguments are those of `detections`.
    """
    if boxes.type.rank != 3:
        n.bad(f"expected boxes [B, N, 4], found {boxes.type}")
    images, count, _ = boxes.type.shape
    compared = boxes if is_normalized else boxes + n.const(np.array([0, 0, 1, 1], np.float32))
    best = detections(
        n,
        compared.reshape(images, 1, count, 4),
        scores,
        least,
        overlap,
        candidates,
        kept,
        background,
    )
    every = n.reshape(boxes, (extents.product((images, count)), 4))
    tables, places, counts = [], [], []
    for image, (table, place) in enumerate(best):
        if by_score:
            _, order = n.add(sort.TopK(table.type.shape[0], 0), column(n, table, 1))
            table, place = (n.add(gather.Gather(0), v, order) for v in (table, place))
        place = place + n.of_dims((count,)) * image
        kind, _ = n.add(slicing.Split(1, (2, 4)), table)
        tables.append(n.add(slicing.Concat(1), kind, n.add(gather.Gather(0), every, place)))
        places.append(n.reshape(place, (place.type.shape[0], 1)))
        counts.append(place.type.shape[0])
    join = slicing.Concat(0)
    return n.add(join, *tables), n.add(join, *places), n.of_dims(counts)
