"""The custom operators of MediaPipe's models.  Older ones have C structures of numbers as options,
newer ones maps.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tilesmith.frontend.common.arithmetic import angle
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.windows import Geometry, channels_last, channels_second, spread
from tilesmith.frontend.tflite.activations import FUSED, activated
from tilesmith.frontend.tflite.convolutions import check_floats, check_images
from tilesmith.frontend.tflite.flexbuffer import read_options
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import CUSTOM, tflite_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ops import gather, pool, sample, scatter, slicing
from tilesmith.ops.functions import cos, sin, where

_SAME = 1
_POOL = ("padding", "stride_w", "stride_h", "filter_w", "filter_h", "activation")


def structure(n: TfliteNode, names: tuple[str, ...]) -> dict[str, int]:
    """The i32 numbers at the beginning of a C structure of options, by `names`."""
    content = n.operator.custom_options
    if len(content) < 4 * len(names):
        n.bad(f"expected {len(names)} numbers as options, found {len(content)} bytes")
    numbers = dict(zip(names, struct.unpack_from(f"<{len(names)}i", content), strict=True))
    for name, number in numbers.items():
        least = 0 if name in ("padding", "activation") else 1
        if not least <= number < 1 << 30:
            n.bad(f"option {name!r}: expected at least {least}, found {number}")
    return numbers


def numbered(n: TfliteNode, options: dict[str, Any], name: str) -> Any:
    """The required option `name`, which is a number."""
    value = options.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        n.bad(f"option {name!r}: expected a number, found {value!r}")
    return value


@tflite_op("Convolution2DTransposeBias", domain=CUSTOM)
def transposed_convolution(n: TfliteNode) -> Result:
    x, w, bias = (n.input(i) for i in range(3))
    check_floats(n, x, w, bias)
    check_images(n, x, w, 4)
    o = structure(n, ("padding", "stride_w", "stride_h"))
    strides, w = (o["stride_h"], o["stride_w"]), w.transpose(3, 0, 1, 2)
    g = Geometry(x.type.shape[1:3], n.shape(w)[2:], strides, (1, 1), (0,) * 4)
    if o["padding"] == _SAME:
        totals = [
            extents.larger(as_dim(k - 1 - (as_expr(extents.difference(e, 1)) % s)), 0)
            for e, k, s in zip(g.extents, g.kernel, g.strides, strict=True)
        ]
        before = [as_dim(as_expr(t) // 2) for t in totals]
        g.pads = (*before, *(extents.difference(t, b) for t, b in zip(totals, before, strict=True)))
    return channels_last(spread(n, channels_second(x), w, g)) + bias


def _windows(o: dict[str, int], x: Value) -> Geometry:
    kernel, strides = (o["filter_h"], o["filter_w"]), (o["stride_h"], o["stride_w"])
    g = Geometry(x.type.shape[1:3], kernel, strides, (1, 1), (0,) * 4)
    if o["padding"] == _SAME:
        g.pads = g.same_pads()
    return g


@tflite_op("MaxPoolingWithArgmax2D", domain=CUSTOM)
def max_pool_with_positions(n: TfliteNode) -> Result:
    """Maxima, and the position of each in its window, as a float."""
    x, o = n.input(0), structure(n, _POOL)
    check_floats(n, x)
    check_images(n, x, x, 4)
    g, (h, w) = _windows(o, x), x.type.shape[1:3]
    y, flat = n.add(pool.MaxPoolIndices(g.kernel, g.strides, g.pads), channels_second(x))
    inside = flat % n.of_dims((extents.product((h, w)),))
    width = n.of_dims((w,))
    rows = inside / width - _starts(n, y, g, 0)
    columns = inside % width - _starts(n, y, g, 1)
    number = o["activation"]
    if number >= len(FUSED):
        n.bad(f"option 'activation': expected a number below {len(FUSED)}, found {number}")
    # If a later operator truncates a position that rounding made smaller, 0.1 keeps it correct.
    places = (rows * g.kernel[1] + columns).cast(f32) + 0.1
    return activated(n, channels_last(y), FUSED[number]), channels_last(places)


def _starts(n: TfliteNode, y: Value, g: Geometry, axis: int) -> Value:
    """The first element of each window of `y` [N, C, H, W] along a spatial axis."""
    positions = n.positions(y.type.shape[2 + axis], 4, 2 + axis) * g.strides[axis]
    return positions - n.of_dims((g.pads[axis],))


@tflite_op("MaxUnpooling2D", domain=CUSTOM)
def max_unpool(n: TfliteNode) -> Result:
    x, places, o = n.input(0), n.input(1), structure(n, _POOL)
    check_floats(n, x, places)
    check_images(n, x, places, 4)
    h, w = o["filter_h"], o["filter_w"]
    if (o["stride_h"], o["stride_w"]) != (h, w):
        n.unsupported("windows that overlap, or do not touch")
    x, place = channels_second(x), channels_second(places).cast(i64)
    batch, channels, rows, columns = x.type.shape
    # An element of `x` whose position lies outside of its window is left out.
    is_inside = (place >= 0) & (place < h * w)
    place = where(is_inside, place, 0)
    row = n.positions(rows, 4, 2) * h + place / w
    column = n.positions(columns, 4, 3) * w + place % w
    dims = (batch, channels, extents.product((rows, h)), extents.product((columns, w)))
    plane = n.reshape(n.positions(extents.product((batch, channels))), (batch, channels, 1, 1))
    flat = (plane * n.of_dims(dims[2:3]) + row) * n.of_dims(dims[3:]) + column
    zeros = n.const([0], f32).expand(extents.product(dims))
    flat, x = flat.reshape(-1), where(is_inside, x, 0.0).reshape(-1)
    return channels_last(n.add(scatter.ScatterElements(0), zeros, flat, x).reshape(*dims))


def _check_version(n: TfliteNode) -> None:
    if n.operator.version != 2:
        n.unsupported(f"version {n.operator.version}; version 2 is supported")


def _numbers(n: TfliteNode, x: Value, *index: int) -> Value:
    """One number of a tensor, as [1]."""
    for axis, i in enumerate(index):
        x = n.add(slicing.Slice((i,), (i + 1,), (axis,), (1,)), x)
    return x.reshape(1)


@tflite_op("Landmarks2TransformMatrix", domain=CUSTOM)
def landmarks_to_matrix(n: TfliteNode) -> Result:
    """The matrix [1, 4, 4] that maps pixels of an upright crop around some of the landmarks
    [1, count, 3] to pixels of the image.
    """
    _check_version(n)
    o = read_options(n.operator.custom_options, n.operator.name)
    points, count = n.input(0), n.extent(n.input(0), 1)
    left, right = (int(numbered(n, o, f"{side}_rotation_idx")) for side in ("left", "right"))
    subset = o.get("subset_idxs") or []
    if not subset or not all(isinstance(i, int) and 0 <= i < count for i in (*subset, left, right)):
        n.bad(f"expected numbers of {count} landmarks, found {left}, {right} and {subset}")

    def of(i: int, axis: int) -> Value:
        return _numbers(n, points, 0, i, axis)

    tilt = angle(n, of(right, 1) - of(left, 1), of(right, 0) - of(left, 0))
    turn = numbered(n, o, "target_rotation_radians") - tilt
    c, s = cos(turn), sin(turn)
    chosen = n.add(gather.Gather(0), points.reshape(count, 3), n.const(subset, i64))
    x, y, _ = n.add(slicing.Split(1, (1, 1, 1)), chosen)
    along, across = x * c - y * s, x * s + y * c
    middle, size = [], []
    for v in (along, across):
        low, high = v.min((0,)), v.max((0,))
        middle.append((high + low) * 0.5)
        size.append(high - low)
    wide, high = (numbered(n, o, f"output_{axis}") for axis in ("width", "height"))
    if min(wide, high) <= 0:
        n.bad(f"expected a crop with pixels, found {wide} x {high}")
    by_x = size[0] * (numbered(n, o, "scale_x") / wide)
    by_y = size[1] * (numbered(n, o, "scale_y") / high)
    (a, b), (d, e) = (c * by_x, s * by_y), (-s * by_x, c * by_y)
    left_edge = middle[0] * c + middle[1] * s - (a * (wide / 2) + b * (high / 2))
    top = middle[1] * c - middle[0] * s - (d * (wide / 2) + e * (high / 2))
    zero, one = n.const([0], f32), n.const([1], f32)
    rows = (a, b, zero, left_edge, d, e, zero, top, zero, zero, one, zero, zero, zero, zero, one)
    return n.add(slicing.Concat(0), *rows).reshape(1, 4, 4)


def _mapped(n: TfliteNode, matrix: Value, x: Value, y: Value) -> tuple[Value, Value]:
    """Apply the transformation [1, 4, 4] of the plane to points."""
    rows = [[_numbers(n, matrix, 0, row, column) for column in (0, 1, 3)] for row in (0, 1)]
    first, second = (x * a + y * b + c for a, b, c in rows)
    return first, second


@tflite_op("TransformLandmarks", domain=CUSTOM)
def transform_landmarks(n: TfliteNode) -> Result:
    """Apply a matrix [1, 4, 4] to landmarks [1, count, 2 or 3]; a third coordinate is kept."""
    _check_version(n)
    points = n.input(0)
    if points.type.rank != 3 or n.extent(points, 2) not in (2, 3):
        n.bad(f"expected landmarks [1, count, 2 or 3], found {points.type}")
    parts = n.add(slicing.Split(2, (1,) * n.extent(points, 2)), points)
    return n.add(slicing.Concat(2), *_mapped(n, n.input(1), *parts[:2]), *parts[2:])


@tflite_op("TransformTensorBilinear", domain=CUSTOM)
def transform_image(n: TfliteNode) -> Result:
    """A crop of images [1, H, W, C].  A matrix [1, 4, 4] maps pixels of the crop to pixels of the
    image.  Pixels outside of the image are zeros.
    """
    _check_version(n)
    o = read_options(n.operator.custom_options, n.operator.name)
    images = n.input(0)
    check_floats(n, images)
    check_images(n, images, images, 4)
    rows, columns = (int(numbered(n, o, f"output_{axis}")) for axis in ("height", "width"))
    if not 0 < rows < 1 << 16 or not 0 < columns < 1 << 16:
        n.bad(f"expected a crop with pixels, found {rows} x {columns}")
    y, x = (n.const(np.arange(count) + 0.5, f32) for count in (rows, columns))
    grid = _mapped(n, n.input(1), n.reshape(x, (1, 1, columns, 1)), n.reshape(y, (1, rows, 1, 1)))
    last = [n.extent(images, axis) - 1 for axis in (2, 1)]
    pixels = [v - 0.5 for v in grid]
    is_inside = [(v >= 0) & (v <= end) for v, end in zip(pixels, last, strict=True)]
    places = [v * (2 / max(end, 1)) - 1 for v, end in zip(pixels, last, strict=True)]
    op = sample.GridSample(align_corners=True)
    y = channels_last(n.add(op, channels_second(images), n.add(slicing.Concat(3), *places)))
    return where(is_inside[0] & is_inside[1], y, 0.0)
