"""Core ML's operators that resample images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilesmith.frontend.common.scaled import scaled
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i64
from tilesmith.ir.types import Dim
from tilesmith.ops import gather, rules, sample, slicing
from tilesmith.ops import resize as rs

_COORDINATES = {
    "STRICT_ALIGN_CORNERS": "align_corners",
    "ALIGN_CORNERS": "align_corners",
    "DEFAULT": "asymmetric",
    "UNALIGN_CORNERS": "half_pixel",
    "OFFSET_CORNERS": "",
}
"""For each sampling mode the equal coordinate mode of Resize; empty if there is none."""


def _resized(n: MilNode, x: Value, sizes: Sequence[Dim], mode: str, coordinates: str) -> Value:
    """x with its last axes resized to `sizes`."""
    kept = x.type.shape[: x.type.rank - len(sizes)]
    return n.add(rs.Resize((*kept, *sizes), (), mode, coordinates, "floor"), x)


def _linear(n: MilNode, x: Value, sizes: Sequence[Dim], mode: str) -> Value:
    """Linear interpolation along the last axes, at the coordinates of sampling mode `mode`."""
    axes = range(x.type.rank - len(sizes), x.type.rank)
    if mode == "OFFSET_CORNERS":
        for axis, size in zip(axes, sizes, strict=True):
            extent = n.extent(x, axis)
            count = rules.static(n.kind, size, "a size")
            places = (np.arange(count) + 0.5) * (max(1, extent - 1) / count)
            x = _at(n, x, axis, np.clip(places, 0, extent - 1))
        return x
    if mode == "ALIGN_CORNERS":
        for axis, size in zip(axes, sizes, strict=True):
            if isinstance(size, int) and size == 1:  # one sample lies in the middle
                x = _at(n, x, axis, np.array([(n.extent(x, axis) - 1) / 2]))
    return _resized(n, x, sizes, "linear", _COORDINATES[mode])


def _at(n: MilNode, x: Value, axis: int, places: np.ndarray) -> Value:
    """x interpolated at fractional positions along an axis."""
    low = np.floor(places).astype(np.int64)
    high = np.minimum(low + 1, n.extent(x, axis) - 1)
    share = (places - low).reshape(-1, *[1] * (x.type.rank - axis - 1))
    share = n.const(share.astype(x.dtype.numpy))
    first, second = (n.add(gather.Gather(axis), x, n.const(p)) for p in (low, high))
    return first + (second - first) * share


def _scales(n: MilNode, x: Value) -> list[Dim]:
    """The height and width of x times the scale factors."""
    factors = [n.number(f"scale_factor_{name}", 1) for name in ("height", "width")]
    if min(factors) <= 0:
        n.bad(f"expected factors above 0, found {factors}")
    pairs = zip(x.type.shape[-2:], factors, strict=True)
    return [scaled(d, f, np.float32, n.kind) for d, f in pairs]


def _target(n: MilNode) -> list[Dim]:
    return [n.int(f"target_size_{name}", 1) for name in ("height", "width")]


@mil_op("upsample_nearest_neighbor")
def upsample_nearest_neighbor(n: MilNode) -> Result:
    x = n.input("x")
    return _resized(n, x, _scales(n, x), "nearest", "asymmetric")


@mil_op("upsample_bilinear")
def upsample_bilinear(n: MilNode) -> Result:
    x, is_centred = n.input("x"), n.flag("half_pixel_centers", True)
    mode = "UNALIGN_CORNERS" if is_centred else "DEFAULT"
    mode = "STRICT_ALIGN_CORNERS" if n.flag("align_corners", True) else mode
    return _linear(n, x, _scales(n, x), mode)


@mil_op("resize_nearest_neighbor")
def resize_nearest_neighbor(n: MilNode) -> Result:
    return _resized(n, n.input("x"), _target(n), "nearest", "asymmetric")


@mil_op("resize_bilinear")
def resize_bilinear(n: MilNode) -> Result:
    mode = n.text("sampling_mode", "DEFAULT", tuple(_COORDINATES))
    return _linear(n, n.input("x"), _target(n), mode)


@mil_op("resize")
def resize(n: MilNode) -> Result:
    x, count = n.input("x"), n.int("resized_dims")
    sizes = n.extents(n.input("shape"), "shape")[-count:]
    own = x.type.shape[x.type.rank - count :]
    pairs = zip(sizes, own, strict=True)
    sizes = tuple(d if isinstance(s, int) and s == 0 else s for s, d in pairs)
    mode = n.text("sampling_mode", "DEFAULT", tuple(_COORDINATES))
    if n.text("interpolation_mode", "LINEAR", ("LINEAR", "NEAREST_NEIGHBOR")) == "LINEAR":
        return _linear(n, x, sizes, mode)
    if mode not in ("DEFAULT", "UNALIGN_CORNERS"):
        n.unsupported(f"nearest elements with sampling_mode {mode!r}")
    centred = "tf_half_pixel_for_nn" if mode == "UNALIGN_CORNERS" else "asymmetric"
    return _resized(n, x, sizes, "nearest", centred)


# Coordinates computed at run time


_BOXES = {
    "CORNERS_HEIGHT_FIRST": (0, 1, 2, 3),
    "CORNERS_WIDTH_FIRST": (1, 0, 3, 2),
    "CENTER_SIZE_HEIGHT_FIRST": (0, 1, 2, 3),
    "CENTER_SIZE_WIDTH_FIRST": (1, 0, 3, 2),
}
"""The columns of a box with y and x of its first corner (or centre), then of its second corner (or
its height and width)."""


@mil_op("crop_resize")
def crop_resize(n: MilNode) -> Result:
    """Crop boxes of images and resize them, at the coordinates of a sampling mode."""
    x = n.input("x")
    if n.number("pad_value", 0.0):
        n.unsupported("a value other than 0 outside of the image")
    if x.type.rank != 4:
        n.bad(f"expected images [N, C, H, W], found {x.type}")
    stated = n.input("boxes" if n.has("boxes") else "roi")
    boxes = n.reshape(stated, (stated.type.shape[0], n.extent(stated, 1 if n.has("boxes") else 2)))
    regions, columns = boxes.type.shape[0], n.extent(boxes, 1)
    numbers = n.optional("box_indices")
    if columns == 5:
        numbers = n.add(slicing.Slice((0,), (1,), (1,), (1,)), boxes).cast(i64)
        boxes = n.add(slicing.Slice((1,), (5,), (1,), (1,)), boxes)
    if numbers is None:
        if n.extent(x, 0) != 1:
            n.unsupported("boxes for every image of a batch")
        numbers = n.const(np.zeros(1, np.int64))
    numbers = n.expand(n.reshape(numbers, numbers.type.shape[:1]), (regions,))
    image = n.add(gather.Gather(0), x, numbers)
    axes = [_places(n, boxes, a, n.extent(x, 2 + a)) for a in (0, 1)]
    rows, columns = n.int("target_height", 1), n.int("target_width", 1)
    shape = (regions, rows, columns, 1)
    y = n.expand(n.reshape(axes[0], (regions, rows, 1, 1)), shape)
    across = n.expand(n.reshape(axes[1], (regions, 1, columns, 1)), shape)
    grid = n.add(slicing.Concat(3), across, y)
    result = n.add(sample.GridSample("linear", "zeros", True), image, grid)
    if n.has("boxes"):
        return result
    return n.reshape(result, (regions, 1, *result.type.shape[1:]))


def _places(n: MilNode, boxes: Value, at: int, extent: int) -> Value:
    """Coordinates of samples along an axis, [regions, samples]; -1 to 1 spans the image."""
    mode = n.text("box_coordinate_mode", "CORNERS_HEIGHT_FIRST", tuple(_BOXES))
    order = _BOXES[mode]
    size = n.int(f"target_{('height', 'width')[at]}", 1)
    scale = n.number("spatial_scale", 1.0)
    scale *= max(extent - 1, 1) if n.flag("normalized_coordinates") else 1
    first, second = (
        n.add(slicing.Slice((c,), (c + 1,), (1,), (1,)), boxes) * scale
        for c in (order[at], order[at + 2])
    )
    if mode.startswith("CENTER"):
        first, second = first - second * 0.5, first + second * 0.5
    sampling = n.text("sampling_mode", "DEFAULT", tuple(_COORDINATES))
    i, span = np.arange(size), second - first

    def constant(numbers: Any) -> Value:
        return n.const(np.asarray(numbers).astype(boxes.dtype.numpy))

    if sampling == "OFFSET_CORNERS":
        places = first + span * constant((i + 0.5) / size)
    elif sampling == "DEFAULT":
        places = first + (span + 1) * constant(i / size)
    elif sampling == "UNALIGN_CORNERS":
        places = first + (span + 1) * constant((i + 0.5) / size) - 0.5
    elif size == 1 and sampling == "ALIGN_CORNERS":
        places = first + span * 0.5
    else:
        places = first + span * constant(i / max(size - 1, 1))
    if not n.has("pad_value"):
        places = places.clip(0, extent - 1)
    return places * (2 / max(extent - 1, 1)) - 1


_PADDING = {"constant": "zeros", "border": "border", "reflection": "reflection",
            "symmetric": "reflection"}  # fmt: skip


def _sampled(n: MilNode, x: Value, grid: Value, aligned: bool) -> Value:
    """x sampled at the coordinates of a grid; -1 to 1 spans the image."""
    mode = n.text("sampling_mode", among=("bilinear", "nearest"))
    padding = n.text("padding_mode", among=tuple(_PADDING))
    if padding == "constant" and n.number("padding_value", 0.0):
        n.unsupported("a padding_value other than 0")
    if padding in ("reflection", "symmetric") and aligned != (padding == "reflection"):
        n.unsupported(f"padding_mode {padding!r} with align_corners {aligned}")
    op = sample.GridSample("linear" if mode == "bilinear" else mode, _PADDING[padding], aligned)
    return n.add(op, x, grid)


@mil_op("resample")
def resample(n: MilNode) -> Result:
    x, grid = n.input("x"), n.input("coordinates").cast(n.input("x").dtype)
    modes = ("unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one")
    mode = n.text("coordinates_mode", among=modes)
    aligned = n.flag("align_corners") or mode == "unnormalized"
    if mode == "normalized_zero_to_one":
        grid = grid * 2 - 1
    elif mode == "unnormalized":
        steps = [2 / max(n.extent(x, a) - 1, 1) for a in (3, 2)]
        grid = grid * n.const(np.array(steps, x.dtype.numpy)) - 1
    return _sampled(n, x, grid, aligned)


@mil_op("affine")
def affine(n: MilNode) -> Result:
    x, matrix = n.input("x"), n.input("transform_matrix")
    n.text("coordinates_mode", among=("normalized_minus_one_to_one",))
    batch, aligned = x.type.shape[0], n.flag("align_corners")
    theta = n.reshape(n.expand(matrix, (batch, 6)), (batch, 2, 3))
    sizes = n.int("output_height"), n.int("output_width")
    return _sampled(n, x, n.add(sample.AffineGrid(sizes, aligned), theta), aligned)
