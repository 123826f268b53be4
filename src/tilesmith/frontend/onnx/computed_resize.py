"""ONNX's Resize where sizes, scales or the region are computed by the model.

Each axis is resampled separately, at coordinates that a run computes: as f32 from scales, like
other engines, and as f64 from sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.frontend.common.computed import along, taken
from tilesmith.frontend.common.lists import listed, picked
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, f64, i64
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import reduce
from tilesmith.ops.functions import ceil, clamp, floor, maximum, minimum, where


@dataclass(frozen=True, slots=True)
class Resampling:
    """The attributes of a Resize.

    mode: nearest, linear or cubic.
    coordinates: the coordinate transformation.
    rounding: the nearest mode.
    cubic_a: coefficient of the cubic kernel.
    exclude_outside: whether weights of positions outside are 0.
    extrapolation: the value of samples outside, for crops.
    antialias: whether the kernel is widened where the image shrinks.
    """

    mode: str
    coordinates: str
    rounding: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    extrapolation: float = 0.0
    antialias: bool = False


@dataclass(frozen=True, slots=True)
class Region:
    """The part of the input that is resized.

    starts, ends: its ends along each axis, fractions of the extent, f32.
    """

    starts: Value
    ends: Value


def by_scales(
    n: OnnxNode,
    x: Value,
    axes: Sequence[int],
    scales: Value,
    op: Resampling,
    region: Region | None = None,
) -> Value:
    """Resized by a factor for each of `axes`."""
    factors = listed(scales, f32)
    part = factors if region is None else factors * (region.ends - region.starts)
    dims = [x.type.shape[a] for a in axes]
    wanted = floor(n.of_dims(dims).cast(f32) * part).cast(i64)
    sizes = n.measured(wanted)
    for i, a in enumerate(axes):
        x = _along(n, x, a, sizes[i], picked(factors, i), _one(n, 1.0), op, region, i)
    return x


def by_sizes(
    n: OnnxNode,
    x: Value,
    axes: Sequence[int],
    sizes: Value,
    op: Resampling,
    policy: str = "stretch",
    region: Region | None = None,
) -> Value:
    """Resized to an extent for each of `axes`."""
    dims = [x.type.shape[a] for a in axes]
    own, wanted = n.of_dims(dims), listed(sizes)
    known = n.elements(sizes, "sizes")
    ratio: Value | None = None
    if policy != "stretch":
        make = reduce.ReduceMin if policy == "not_larger" else reduce.ReduceMax
        ratio = n.add(make((0,), False), wanted.cast(f64) / own.cast(f64)).reshape(1)
        wanted = floor(own.cast(f64) * ratio + 0.5).cast(i64)
        known = [None] * len(axes)
    extents = n.measured(wanted, known)
    for i, a in enumerate(axes):
        if ratio is None and same_dim(extents[i], dims[i]) and region is None:
            continue  # each sample is an element
        if ratio is None:
            scale, by = n.of_dims((extents[i],)).cast(f64), n.of_dims((dims[i],)).cast(f64)
        else:
            scale, by = ratio, ratio * 0.0 + 1.0
        x = _along(n, x, a, extents[i], scale, by, op, region, i, keeps=ratio is None)
    return x


def _one(n: OnnxNode, number: float) -> Value:
    return n.const([number], f32)


def _along(
    n: OnnxNode,
    x: Value,
    axis: int,
    size: Dim,
    scale: Value,
    by: Value,
    op: Resampling,
    region: Region | None,
    number: int,
    keeps: bool = False,
) -> Value:
    """x with `size` samples along `axis`, scaled by `scale` / `by`.

    keeps: whether an axis that keeps its extent is copied instead of resampled, as for given sizes.
    """
    extent = x.type.shape[axis]
    wide = scale.dtype
    limit = n.of_dims((extents.difference(extent, 1),))
    positions = _coordinates(n, size, extent, scale, by, op.coordinates, region, number, keeps)
    rank = x.type.rank
    if op.mode == "nearest":
        y = taken(n, x, axis, clamp(_rounded(positions, op.rounding).cast(i64), 0, limit))
    else:
        y = _weighted(n, x, axis, positions, scale / by, op)
    if op.coordinates != "tf_crop_and_resize":
        return y
    outside = (positions < 0.0) | (limit.cast(wide) < positions)
    fill = n.const(op.extrapolation, x.dtype)
    return where(along(outside, axis, rank), fill, y)


def _coordinates(
    n: OnnxNode,
    size: Dim,
    extent: Dim,
    scale: Value,
    by: Value,
    kind: str,
    region: Region | None,
    number: int,
    keeps: bool,
) -> Value:
    """The positions of the samples along an axis, in elements of the input."""
    wide = scale.dtype
    i = n.positions(size).cast(wide)
    count, samples = (n.of_dims((d,)).cast(wide) for d in (size, extent))
    several = ~n.of_dims((size,)).equals(1)
    centred = (i + 0.5) * by / scale - 0.5
    if kind == "half_pixel_symmetric":
        adjusted = count * by / (scale * samples)
        return centred + samples * 0.5 * (1.0 - adjusted)
    if kind == "pytorch_half_pixel":
        return where(several, centred, 0.0)
    if kind == "align_corners":
        return i * (samples - 1.0) / maximum(count - 1.0, 1.0)
    if kind == "asymmetric":
        return i * by / scale
    if kind == "tf_half_pixel_for_nn":
        shift = scale * 0.0 + 0.5
        return centred + (where(scale.equals(by), scale * 0.0, shift) if keeps else shift)
    if kind == "tf_crop_and_resize":
        assert region is not None
        start, end = (picked(v, number).cast(wide) for v in (region.starts, region.ends))
        step = (end - start) * (samples - 1.0) / maximum(count - 1.0, 1.0)
        middle = (start + end) * (samples - 1.0) * 0.5
        return where(several, start * (samples - 1.0) + i * step, middle)
    return centred


def _rounded(at: Value, rounding: str) -> Value:
    if rounding == "floor":
        return floor(at)
    if rounding == "ceil":
        return ceil(at)
    if rounding == "round_prefer_floor":
        return ceil(at - 0.5)
    return floor(at + 0.5)


def _weighted(n: OnnxNode, x: Value, axis: int, at: Value, scale: Value, op: Resampling) -> Value:
    """Sums of elements around each of the positions `at`, weighted by the kernel of the mode.

    The summed axis precedes the axis of the samples, so that lanes run along samples.
    """
    extent, rank = x.type.shape[axis], x.type.rank
    wide = f32 if x.dtype.bits <= 32 and x.dtype.is_float else f64
    reach = 1 if op.mode == "linear" else 2
    limit = n.of_dims((extents.difference(extent, 1),))
    if op.antialias:
        narrow = minimum(scale, 1.0)
        radius = ceil((narrow * 0.0 + float(reach)) / narrow).cast(i64)
        (taps,) = n.measured(radius * 2 + 2)
    else:
        narrow, taps = scale * 0.0 + 1.0, 2 * reach
        radius = n.of_dims((reach,))
    offsets = along((n.positions(taps) - radius) + 1, 0, 2)
    places = along(floor(at).cast(i64), 1, 2) + offsets
    distance = abs((places.cast(at.dtype) - along(at, 1, 2)) * narrow)
    weight = _kernel(distance, op)
    if op.exclude_outside:
        inside = ~((places < 0) | (limit < places))
        weight = where(inside, weight, 0.0)
    if op.antialias or op.exclude_outside:
        weight = weight / weight.sum((0,)).reshape(1, -1)
    elements = taken(n, x, axis, clamp(places, 0, limit)).cast(wide)
    spread = weight.cast(wide)
    if rank - axis - 1:
        spread = spread.reshape(*spread.type.shape, *[1] * (rank - axis - 1))
    product = elements * spread
    return product.sum((axis,)).cast(x.dtype)


def _kernel(distance: Value, op: Resampling) -> Value:
    d, a = distance, op.cubic_a
    if op.mode == "linear":
        return maximum(1.0 - d, 0.0)
    near = (d * (a + 2) - (a + 3)) * d * d + 1.0
    far = ((d - 5.0) * d + 8.0) * d * a - 4 * a
    beyond = where(d < 2.0, far, 0.0)
    return where(d < 1.0, near, beyond)
