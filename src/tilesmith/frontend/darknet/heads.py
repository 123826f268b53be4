"""Darknet's detection heads.

A head gives a row for each cell of a grid and each anchor of the cell: the box's centre, width and
height as fractions of the input, its objectness, and a score per class.  A score is the class's
probability times the objectness.  Darknet's threshold for scores is not part of a network.
"""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.darknet.layers import darknet_layer
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import Dim
from tilesmith.ops import activation as act
from tilesmith.ops import functions as fn
from tilesmith.ops import norm, slicing


def _grid(n: LayerNode, x: Value, anchors: int, sizes: tuple[int, ...]) -> tuple[Value, ...]:
    """Split `x` [N, anchors * sum of sizes, H, W] into a tensor [N, H, W, anchors, size] for each
    of `sizes`.
    """
    batch, _, rows, columns = x.type.shape
    cells = n.reshape(x, (batch, anchors, sum(sizes), rows, columns)).transpose(0, 3, 4, 1, 2)
    return n.add(slicing.Split(4, sizes), cells)


def _centres(n: LayerNode, offsets: Value) -> Value:
    """Positions in the image as fractions of its size, [N, H, W, anchors, 2].

    offsets: the positions (x, y) relative to their cells, in cells.
    """
    rows, columns = offsets.type.shape[1:3]
    places = [n.positions(d, 5, a).cast(f32) for d, a in ((columns, 2), (rows, 1))]
    grid = [n.expand(p, (1, rows, columns, 1, 1)) for p in places]
    return (offsets + n.add(slicing.Concat(4), *grid)) / _extents(n, columns, rows)


def _extents(n: LayerNode, *dims: Dim) -> Value:
    return n.of_dims(dims).cast(f32)


def _anchors(n: LayerNode, total: int) -> np.ndarray:
    numbers = n.attr_floats("anchors", (1.0,) * (2 * total))
    if len(numbers) < 2 * total:
        n.bad(f"anchors: expected {2 * total} numbers, found {len(numbers)}")
    return np.array(numbers[: 2 * total], np.float32).reshape(total, 2)


def _rows(n: LayerNode, *parts: Value) -> Value:
    """The rows [N, rows, numbers] of a head's result; `parts` are joined along the last axis."""
    y = n.add(slicing.Concat(4), *parts)
    batch, *cells, width = y.type.shape
    return n.reshape(y, (batch, extents.product(cells), width))


@darknet_layer("yolo")
def yolo(n: LayerNode) -> Result:
    x, classes = n.input(), n.attr_int("classes", 20, 1)
    anchors = _anchors(n, n.attr_int("num", 1, 1))
    mask = n.attr_ints("mask", ()) or tuple(range(len(anchors)))
    if any(not 0 <= m < len(anchors) for m in mask):
        n.bad(f"mask: expected numbers of {len(anchors)} anchors, found {list(mask)}")
    is_new = n.attr_int("new_coords", 0)
    centre, size, objectness, scores = _grid(n, x, len(mask), (2, 2, 1, classes))
    if not is_new:
        centre, objectness, scores = (n.add(act.Sigmoid(), v) for v in (centre, objectness, scores))
    spread = n.attr_float("scale_x_y", 1)
    centre = centre * spread - 0.5 * (spread - 1) if spread != 1 else centre
    growth = size * size * 4.0 if is_new else fn.exp(size)
    height, width = n.input(1).type.shape[2:]
    size = growth * n.const(anchors[list(mask)]) / _extents(n, width, height)
    return _rows(n, _centres(n, centre), size, objectness, scores * objectness)


@darknet_layer("region")
def region(n: LayerNode) -> Result:
    x, classes = n.input(), n.attr_int("classes", 20, 1)
    anchors = _anchors(n, n.attr_int("num", 1, 1))
    if n.has("tree"):
        n.unsupported("classes that form a tree")
    if n.attr_int("coords", 4) != 4:
        n.unsupported(f"boxes of {n.attr_int('coords')} numbers")
    centre, size, objectness, scores = _grid(n, x, len(anchors), (2, 2, 1, classes))
    centre, objectness = n.add(act.Sigmoid(), centre), n.add(act.Sigmoid(), objectness)
    if n.attr_int("softmax", 0):
        scores = n.add(norm.Softmax(4), scores)
    rows, columns = x.type.shape[2:]
    size = fn.exp(size) * n.const(anchors) / _extents(n, columns, rows)
    return _rows(n, _centres(n, centre), size, objectness, scores * objectness)


@darknet_layer("detection")
def detection(n: LayerNode) -> Result:
    """The head of the first YOLO.  Its input has the classes of all cells, then objectness of all
    anchors, then boxes.
    """
    x, side, classes = n.input(), n.attr_int("side", 7, 1), n.attr_int("classes", 1, 1)
    count, cells = n.attr_int("num", 1, 1), side * side
    if n.attr_int("coords", 1) != 4:
        n.unsupported(f"boxes of {n.attr_int('coords', 1)} numbers")
    batch = x.type.shape[0]
    flat = n.reshape(x, (batch, extents.product(x.type.shape[1:])))
    sizes = (cells * classes, cells * count, cells * count * 4)
    scores, objectness, boxes = n.add(slicing.Split(1, sizes), flat)
    scores = n.reshape(scores, (batch, side, side, 1, classes))
    if n.attr_int("softmax", 0):
        scores = n.add(norm.Softmax(4), scores)
    objectness = n.reshape(objectness, (batch, side, side, count, 1))
    boxes = n.reshape(boxes, (batch, side, side, count, 4))
    centre, size = n.add(slicing.Split(4, (2, 2)), boxes)
    size = size * size if n.attr_int("sqrt", 0) else size
    return _rows(n, _centres(n, centre), size, objectness, scores * objectness)
