"""ONNX's operators that read images at positions in a tensor, and Fourier transforms."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.limits import checked_dims, checked_shape
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx import computed_transforms
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim
from tilesmith.ops import columns, fourier, gather, sample, shape, slicing
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops.base import Op

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic",
          "bicubic": "cubic"}  # fmt: skip


@onnx_op("GridSample", since=16)
def grid_sample(n: OnnxNode) -> Result:
    # `_MODES` has the names of the modes in all versions.
    mode = n.attr_string("mode", "linear", among=tuple(_MODES))
    padding = n.attr_string("padding_mode", "zeros", among=("zeros", "border", "reflection"))
    op = sample.GridSample(_MODES[mode], padding, n.attr_flag("align_corners"))
    return n.add(op, n.input(0), n.input(1))


@onnx_op("AffineGrid", since=20)
def affine_grid(n: OnnxNode) -> Result:
    theta = n.input(0)
    size = n.extents(n.input(1), "size")
    if len(size) not in (4, 5):
        n.bad(f"size: expected [N,C,spatial] for theta {theta.type}, found {list(size)}")
    n.builder.require_equal(size[0], theta.type.shape[0])
    extents = checked_dims(size[2:], "size")
    return n.add(sample.AffineGrid(extents, n.attr_flag("align_corners")), theta)


@onnx_op("RoiAlign", since=10)
def roi_align(n: OnnxNode) -> Result:
    size = (n.attr_int("output_height", 1), n.attr_int("output_width", 1))
    samples = n.attr_int("sampling_ratio", 0)
    if min(size) < 1 or samples < 0:
        n.bad(f"expected a size of at least 1x1 and samples of at least 0, found {size}, {samples}")
    where = "output_half_pixel"
    if n.version >= 16:
        names = ("half_pixel", "output_half_pixel")
        where = n.attr_string("coordinate_transformation_mode", "half_pixel", among=names)
    op = sample.RoiAlign(
        size,
        samples,
        n.attr_float("spatial_scale", 1.0),
        n.attr_string("mode", "avg", among=("avg", "max")),
        where == "half_pixel",
    )
    return n.add(op, n.input(0), n.input(1), n.input(2))


@onnx_op("MaxRoiPool", since=1)
def max_roi_pool(n: OnnxNode) -> Result:
    """Maxima over the bins of each region, first along rows and then along columns."""
    x, rois = n.input(0), n.input(1)
    pooled = n.attr_ints("pooled_shape") or ()
    fits = x.type.rank == 4 and rois.type.rank == 2 and n.extent(rois, 1) == 5
    if len(pooled) != 2 or min(pooled) < 1 or not fits:
        n.bad(
            "expected X [N, C, H, W], rois [R, 5] and a pooled_shape of two, found "
            f"{x.type}, {rois.type} and {list(pooled)}"
        )
    regions, (_, channels, height, width) = rois.type.shape[0], x.type.shape
    checked_dims((regions, channels, *pooled, width), "the result")
    corners = rois * n.attr_float("spatial_scale", 1.0)
    corners = fn.floor(corners + 0.5)
    columns, wide = _bins(n, corners, 1, pooled[1], width)
    rows, high = _bins(n, corners, 2, pooled[0], height)
    image = n.add(gather.Gather(0), x, _column(n, rois, 0).cast(i64))
    lowest = n.const(-np.inf, x.dtype)
    rows = n.reshape(rows, (regions, 1, pooled[0], height, 1))
    image = n.reshape(image, (regions, channels, 1, height, width))
    image = fn.where(rows, image, lowest).max((3,), keepdims=True)
    columns = n.reshape(columns, (regions, 1, 1, pooled[1], width))
    y = fn.where(columns, image, lowest).max((4,))
    is_high = n.reshape(high, (regions, 1, pooled[0], 1))
    there = is_high & n.reshape(wide, (regions, 1, 1, pooled[1]))
    return fn.where(there, y, 0)  # a bin outside of the image gives 0


def _column(n: OnnxNode, rois: Value, at: int) -> Value:
    column = n.add(slicing.Slice((at,), (at + 1,), (1,), (1,)), rois)
    return n.reshape(column, rois.type.shape[:1])


def _bins(n: OnnxNode, corners: Value, at: int, count: int, extent: Dim) -> tuple[Value, Value]:
    """Whether each position of an axis is in each bin, bool [R, count, extent], and whether a bin
    has any position.
    """
    regions = corners.type.shape[0]
    start, end = (n.reshape(_column(n, corners, at + i), (regions, 1)) for i in (0, 2))
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


@onnx_op("Col2Im", since=18)
def col2im(n: OnnxNode) -> Result:
    image = n.extents(n.input(1), "image_shape")
    kernel = n.extents(n.input(2), "block_shape")
    op = columns.Col2Im(
        checked_dims(image, "image_shape"),
        checked_dims(kernel, "block_shape"),
        n.attr_ints("strides") or (),
        n.attr_ints("pads") or (),
        n.attr_ints("dilations") or (),
    )
    x = n.input(0)
    if not all(isinstance(d, int) for d in (*image, *kernel)) and x.type.rank == 3:
        for first, second in op.equal_extents(x.type.shape):
            n.builder.require_equal(first, second)
    return n.add(op, x)


@onnx_op("DFT", since=17)
def dft(n: OnnxNode) -> Result:
    axis = n.optional(2) if n.version >= 20 else n.const(n.attr_int("axis", 1), i64)
    axis = n.const(-2, i64) if axis is None else axis
    flags = n.attr_flag("inverse"), n.attr_flag("onesided")
    return _transformed(n, n.input(0), axis, n.optional(1), *flags)


def _transformed(
    n: OnnxNode, x: Value, axis: Value, length: Value | None, inverse: bool, onesided: bool
) -> Value:
    """The discrete Fourier transform of x along an axis, cut or padded to `length` elements."""
    if n.known(axis) is not None:
        number = n.axis(int(n.scalar(axis, "axis")), x.type.rank)
        is_known = length is None or n.known(length) is not None
        if is_known and isinstance(x.type.shape[number], int):
            count = 0 if length is None else int(n.scalar(length, "dft_length"))
            if length is not None and count < 1:
                n.bad(f"dft_length: expected at least 1, found {count}")
            return n.add(fourier.Dft(number, count, inverse, onesided), x)
    return computed_transforms.transformed(n, x, axis, length, inverse, onesided)


@onnx_op("STFT", since=17)
def stft(n: OnnxNode) -> Result:
    signal, stride = n.input(0), n.input(1)
    window, length = n.optional(2), n.optional(3)
    onesided = n.attr_flag("onesided", True)
    if window is not None:
        size = n.of_dims(window.type.shape)
        if length is not None:
            n.builder.require_equal(n.extents(length, "frame_length")[0], window.type.shape[0])
    elif length is not None:
        size = listed(length)
    else:
        n.bad("expected a window or frame_length, found neither")
    if all(n.known(v) is not None for v in (stride, size, window) if v is not None):
        count = checked_shape(n.int_list(size, "frame_length"), "frame_length")
        window = n.const(np.ones(count, signal.type.dtype.numpy)) if window is None else window
        step = int(n.scalar(stride, "frame_step"))
        return n.add(fourier.Stft(step, onesided), signal, window)
    parts = computed_transforms.frames(n, signal, stride, size)
    if window is not None:
        parts = parts * n.add(shape.Unsqueeze((1,)), window)
    return _transformed(n, parts, n.const(2, i64), None, False, onesided)
