"""Max pools over regions of images."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.arithmetic import rounded_away
from tilesmith.frontend.common.boxes import column
from tilesmith.frontend.common.limits import checked_dims
from tilesmith.frontend.common.node import NodeContext
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, shape
from tilesmith.ops.base import Op


def max_regions(
    n: NodeContext, x: Value, rois: Value, pooled: tuple[int, int], scale: float
) -> Value:
    """Maxima over the bins of each region, [R, C, *pooled].  Empty bins give 0.

    x: images [N, C, H, W].
    rois: regions [R, 5]: the image's number, and left, top, right and bottom.
    pooled: number of bins along rows and along columns.
    scale: factor from the regions' units to pixels.
    """
    regions, (_, channels, height, width) = rois.type.shape[0], x.type.shape
    checked_dims((regions, channels, *pooled, width), "the result")
    corners = rounded_away(rois * scale)
    columns, wide = _bins(n, corners, 1, pooled[1], width)
    rows, high = _bins(n, corners, 2, pooled[0], height)
    image = n.add(gather.Gather(0), x, column(n, rois, 0).cast(i64))
    lowest = n.const(-np.inf, x.dtype)
    rows = n.reshape(rows, (regions, 1, pooled[0], height, 1))
    image = n.reshape(image, (regions, channels, 1, height, width))
    image = fn.where(rows, image, lowest).max((3,), keepdims=True)
    columns = n.reshape(columns, (regions, 1, 1, pooled[1], width))
    y = fn.where(columns, image, lowest).max((4,))
    is_high = n.reshape(high, (regions, 1, pooled[0], 1))
    there = is_high & n.reshape(wide, (regions, 1, 1, pooled[1]))
    return fn.where(there, y, 0)  # a bin outside of the image gives 0


def _bins(n: NodeContext, corners: Value, at: int, count: int, extent: Dim) -> tuple[Value, Value]:
    """Whether each bin contains each position of an axis, bool [R, count, extent], and whether it
    contains any position, bool [R, count].

    at: the column of `corners` with the first corner's coordinate on the axis.
    """
    regions = corners.type.shape[0]
    start, end = (n.reshape(column(n, corners, at + i), (regions, 1)) for i in (0, 2))
    d = corners.dtype
    one, limit = n.const(1, d), n.of_dims((extent,), ()).cast(d)
    size = fn.maximum(end - start + one, one)
    part = size / count

    def edge(bins: np.ndarray, to_whole: Op) -> Value:
        whole = n.add(to_whole, part * bins.reshape(1, count))
        place = whole + start
        return fn.minimum(fn.maximum(place, 0), limit)

    low, high = edge(np.arange(count), ew.Floor()), edge(np.arange(1, count + 1), ew.Ceil())
    places = n.positions(extent, 3, 2).cast(d)
    low_3, high_3 = (n.add(shape.Unsqueeze((2,)), v) for v in (low, high))
    inside = (places >= low_3) & (places < high_3)
    return inside, low < high
