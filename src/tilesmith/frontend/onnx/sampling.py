"""ONNX's operators that read images at positions in a tensor, and Fourier transforms."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.limits import checked_dims, checked_shape
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.regions import max_regions
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx import computed_transforms
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i64
from tilesmith.ops import columns, fourier, sample, shape

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
    x, rois = n.input(0), n.input(1)
    pooled = n.attr_ints("pooled_shape") or ()
    fits = x.type.rank == 4 and rois.type.rank == 2 and n.extent(rois, 1) == 5
    if len(pooled) != 2 or min(pooled) < 1 or not fits:
        n.bad(
            "expected X [N, C, H, W], rois [R, 5] and a pooled_shape of two, found "
            f"{x.type}, {rois.type} and {list(pooled)}"
        )
    size = (pooled[0], pooled[1])
    return max_regions(n, x, rois, size, n.attr_float("spatial_scale", 1.0))


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
