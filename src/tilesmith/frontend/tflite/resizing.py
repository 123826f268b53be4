"""TFLite's two resizes of images.  Its kernels compute coordinates in f32, ours as fractions.  If
rounding in f32 changes the nearest elements, the elements are gathered by a table.
"""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.options import OptionNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import channels_last, channels_second
from tilesmith.frontend.tflite.registry import stored_op, tflite_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import Dim
from tilesmith.ops import gather
from tilesmith.ops import resize as rs


def new_sizes(n: OptionNode, x: Value) -> tuple[Dim, ...]:
    """The height and width of the result."""
    sizes = n.extents(n.input(1), "the new size")
    if x.type.rank != 4 or len(sizes) != 2:
        n.bad(f"expected images of 4 axes and 2 sizes, found {x.type} and {len(sizes)} sizes")
    if any(isinstance(s, int) and s < 1 for s in sizes):
        n.bad(f"the new size: expected numbers above 0, found {list(sizes)}")
    return sizes


def coordinates(n: OptionNode, centred: str) -> str:
    """The name of the formula for coordinates.

    centred: the name to return if coordinates refer to the centres of pixels.
    """
    if n.option("align_corners"):
        if n.option("half_pixel_centers"):
            n.bad("expected one of align_corners and half_pixel_centers, found both")
        return "align_corners"
    return centred if n.option("half_pixel_centers") else "asymmetric"


@tflite_op("RESIZE_BILINEAR")
def resize_bilinear(n: OptionNode) -> Result:
    x = n.input(0)
    if x.dtype is not f32:
        n.unsupported(f"images {x.type}; f32 is supported")
    x, sizes = channels_second(x), new_sizes(n, x)
    op = rs.Resize((*x.type.shape[:2], *sizes), (), "linear", coordinates(n, "half_pixel"))
    return channels_last(n.add(op, x))


@stored_op("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest_neighbor(n: OptionNode) -> Result:
    x = n.input(0)
    sizes = new_sizes(n, x)
    how = coordinates(n, "tf_half_pixel_for_nn")
    x = channels_second(x)
    for axis, size in zip((2, 3), sizes, strict=True):
        x = _nearest(n, x, axis, size, how)
    return channels_last(x)


_LONGEST_TABLE = 1 << 20
"""Upper bound on the extents for which elements are gathered by a table."""


def _nearest(n: OptionNode, x: Value, axis: int, size: Dim, how: str) -> Value:
    """The nearest elements along one axis."""
    extent = x.type.shape[axis]
    known = [d for d in (extent, size) if isinstance(d, int) and d <= _LONGEST_TABLE]
    if len(set(known)) == 2:
        table, exact = (_table(how, known[0], known[1], kind) for kind in (np.float32, np.float64))
        if not np.array_equal(table, exact):
            return n.add(gather.Gather(axis), x, n.const(table))
    rounding = "round_prefer_ceil" if how == "align_corners" else "floor"
    sizes = (*x.type.shape[:axis], size, *x.type.shape[axis + 1 :])
    return n.add(rs.Resize(sizes, (), "nearest", how, rounding), x)


def _table(how: str, extent: int, size: int, kind: type[np.floating]) -> np.ndarray:
    """The nearest element of each sample, from coordinates computed in `kind`."""
    aligned = how == "align_corners" and size > 1
    by, to = (extent - 1, size - 1) if aligned else (extent, size)
    offset = kind(0.5 if how == "tf_half_pixel_for_nn" else 0)
    position = (np.arange(size, dtype=kind) + offset) * (kind(by) / kind(to))
    nearest = np.floor(position + kind(0.5)) if how == "align_corners" else np.floor(position)
    return np.clip(nearest.astype(np.int64), 0, extent - 1)
