"""ONNX's operators that read images at places given as data, and Fourier transforms."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.limits import checked_shape
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.ops import conv, fourier, sample

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic",
          "bicubic": "cubic"}  # fmt: skip


@onnx_op("GridSample", since=16)
def grid_sample(n: OnnxNode) -> Result:
    words = ("bilinear", "nearest", "bicubic")
    if n.version >= 20:
        words = ("linear", "nearest", "cubic")
    mode = n.attr_string("mode", words[0], among=words)
    padding = n.attr_string("padding_mode", "zeros", among=("zeros", "border", "reflection"))
    op = sample.GridSample(_MODES[mode], padding, n.attr_flag("align_corners"))
    return n.add(op, n.input(0), n.input(1))


@onnx_op("AffineGrid", since=20)
def affine_grid(n: OnnxNode) -> Result:
    theta = n.input(0)
    size = n.int_list(n.input(1), "size")
    if len(size) not in (4, 5) or size[0] != n.shape(theta)[0]:
        n.bad(f"size: expected [N,C,spatial] for theta {theta.type}, found {list(size)}")
    shape = checked_shape(size[2:], "size")
    return n.add(sample.AffineGrid(shape, n.attr_flag("align_corners")), theta)


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


@onnx_op("Col2Im", since=18)
def col2im(n: OnnxNode) -> Result:
    image = n.int_list(n.input(1), "image_shape")
    kernel = n.int_list(n.input(2), "block_shape")
    return n.add(
        conv.Col2Im(
            checked_shape(image, "image_shape"),
            checked_shape(kernel, "block_shape"),
            n.attr_ints("strides") or (),
            n.attr_ints("pads") or (),
            n.attr_ints("dilations") or (),
        ),
        n.input(0),
    )


@onnx_op("DFT", since=17)
def dft(n: OnnxNode) -> Result:
    x, length = n.input(0), n.optional(1)
    if n.version < 20:
        axis = n.attr_int("axis", 1)
    else:
        given = n.optional(2)
        axis = -2 if given is None else int(n.scalar(given, "axis"))
    inverse, onesided = n.attr_flag("inverse"), n.attr_flag("onesided")
    count = 0 if length is None else int(n.scalar(length, "dft_length"))
    if length is not None and count < 1:
        n.bad(f"dft_length: expected at least 1, found {count}")
    return n.add(fourier.Dft(n.axis(axis, x.type.rank), count, inverse, onesided), x)


@onnx_op("STFT", since=17)
def stft(n: OnnxNode) -> Result:
    signal, step = n.input(0), int(n.scalar(n.input(1), "frame_step"))
    window, length = n.optional(2), n.optional(3)
    if window is None:
        if length is None:
            n.bad("expected a window or frame_length, found neither")
        count = int(n.scalar(length, "frame_length"))
        (count,) = checked_shape((count,), "frame_length")
        window = n.const(np.ones(count, signal.type.dtype.numpy))
    elif length is not None and n.shape(window) != (int(n.scalar(length, "frame_length")),):
        n.bad(f"frame_length: expected the length of window {window.type}")
    return n.add(fourier.Stft(step, n.attr_flag("onesided", True)), signal, window)
