"""ONNX's Resize where sizes, scales or the region are computed by the model.

Each axis is resampled by itself, at coordinates that a run computes: as f32 from scales, like other
engines, and as f64 from sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.frontend.common.numbers import Numbers
from tilesmith.frontend.onnx.computed import along, iota, of_dims, taken
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, f64, i64
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import elementwise as ew
from tilesmith.ops import reduce
from tilesmith.ops.functions import where


@dataclass(frozen=True, slots=True)
class Resampling:
    """The attributes of a Resize.

    mode: nearest, linear or cubic.
    coordinates: the coordinate transformation.
    rounding: the nearest mode.
    cubic_a: coefficient of the cubic kernel.
    exclude_outside: weights of places outside are 0.
    extrapolation: the value of samples outside, for crops.
    antialias: the kernel is widened where the image shrinks.
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
    """What part of the input is resized.

    starts, ends: its ends along each axis, fractions of the extent, f32.
    """

    starts: Numbers
    ends: Numbers


def by_scales(
    n: OnnxNode,
    x: Value,
    axes: Sequence[int],
    scales: Value,
    op: Resampling,
    region: Region | None = None,
) -> Value:
    """Resized by a factor for each of `axes`."""
    given = Numbers.of(n, scales, f32)
    part = given if region is None else given * (region.ends - region.starts)
    dims = [x.type.shape[a] for a in axes]
    wanted = (of_dims(n, dims).cast(f32) * part).mapped(ew.Floor()).cast(i64)
    sizes = n.measured(wanted.value)
    for i, a in enumerate(axes):
        x = _along(n, x, a, sizes[i], given[i], _one(n, 1.0), op, region, i)
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
    own, wanted = of_dims(n, dims), Numbers.of(n, sizes)
    known = n.elements(sizes, "sizes")
    ratio: Numbers | None = None
    if policy != "stretch":
        make = reduce.ReduceMin if policy == "not_larger" else reduce.ReduceMax
        ratio = wanted.cast(f64).divided(own.cast(f64)).summed(0, make).shaped(1)
        wanted = (own.cast(f64) * ratio + 0.5).mapped(ew.Floor()).cast(i64)
        known = [None] * len(axes)
    found = n.measured(wanted.value, known)
    for i, a in enumerate(axes):
        if ratio is None and same_dim(found[i], dims[i]) and region is None:
            continue  # each sample is an element
        if ratio is None:
            scale, by = of_dims(n, (found[i],)).cast(f64), of_dims(n, (dims[i],)).cast(f64)
        else:
            scale, by = ratio, ratio * 0.0 + 1.0
        x = _along(n, x, a, found[i], scale, by, op, region, i, keeps=ratio is None)
    return x


def _one(n: OnnxNode, number: float) -> Numbers:
    return Numbers(n, n.const([number], f32))


def _along(
    n: OnnxNode,
    x: Value,
    axis: int,
    size: Dim,
    scale: Numbers,
    by: Numbers,
    op: Resampling,
    region: Region | None,
    number: int,
    keeps: bool = False,
) -> Value:
    """x with `size` samples along `axis`, scaled by `scale` / `by`.

    keeps: whether an axis that keeps its extent is not resampled, as where sizes are given.
    """
    extent = x.type.shape[axis]
    wide = scale.dtype
    limit = of_dims(n, (extents.difference(extent, 1),))
    at = _coordinates(n, size, extent, scale, by, op.coordinates, region, number, keeps)
    rank = x.type.rank
    if op.mode == "nearest":
        y = taken(n, x, axis, _rounded(at, op.rounding).cast(i64).clipped(0, limit))
    else:
        y = _weighted(n, x, axis, at, scale.divided(by), op)
    if op.coordinates != "tf_crop_and_resize":
        return y
    outside = at.below(0.0).either(limit.cast(wide).below(at))
    fill = n.const(op.extrapolation, x.dtype)
    return where(along(outside, axis, rank).value, fill, y)


def _coordinates(
    n: OnnxNode,
    size: Dim,
    extent: Dim,
    scale: Numbers,
    by: Numbers,
    kind: str,
    region: Region | None,
    number: int,
    keeps: bool,
) -> Numbers:
    """Where the samples lie along an axis, in elements of the input."""
    wide = scale.dtype
    i = iota(n, size).cast(wide)
    count, given = (of_dims(n, (d,)).cast(wide) for d in (size, extent))
    several = of_dims(n, (size,)).equals(1).mapped(ew.LogicalNot())
    centred = ((i + 0.5) * by).divided(scale) - 0.5
    if kind == "half_pixel_symmetric":
        adjusted = (count * by).divided(scale * given)
        return centred + given * 0.5 * (1.0 - adjusted)
    if kind == "pytorch_half_pixel":
        return several.chooses(centred, 0.0)
    if kind == "align_corners":
        return (i * (given - 1.0)).divided((count - 1.0).most(1.0))
    if kind == "asymmetric":
        return (i * by).divided(scale)
    if kind == "tf_half_pixel_for_nn":
        shift = scale * 0.0 + 0.5
        return centred + (scale.equals(by).chooses(scale * 0.0, shift) if keeps else shift)
    if kind == "tf_crop_and_resize":
        assert region is not None
        start, end = (v[number].cast(wide) for v in (region.starts, region.ends))
        step = ((end - start) * (given - 1.0)).divided((count - 1.0).most(1.0))
        middle = (start + end) * (given - 1.0) * 0.5
        return several.chooses(start * (given - 1.0) + i * step, middle)
    return centred


def _rounded(at: Numbers, rounding: str) -> Numbers:
    if rounding == "floor":
        return at.mapped(ew.Floor())
    if rounding == "ceil":
        return at.mapped(ew.Ceil())
    if rounding == "round_prefer_floor":
        return (at - 0.5).mapped(ew.Ceil())
    return (at + 0.5).mapped(ew.Floor())


def _weighted(
    n: OnnxNode, x: Value, axis: int, at: Numbers, scale: Numbers, op: Resampling
) -> Value:
    """Sums of elements around each of the places `at`, weighted by the kernel of the mode.

    The axis that is summed is in front of that of the samples, so that lanes run along samples.
    """
    extent, rank = x.type.shape[axis], x.type.rank
    wide = f32 if x.dtype.bits <= 32 and x.dtype.is_float else f64
    reach = 1 if op.mode == "linear" else 2
    limit = of_dims(n, (extents.difference(extent, 1),))
    if op.antialias:
        narrow = scale.least(1.0)
        radius = (narrow * 0.0 + float(reach)).divided(narrow).mapped(ew.Ceil()).cast(i64)
        (taps,) = n.measured((radius * 2 + 2).value)
    else:
        narrow, taps = scale * 0.0 + 1.0, 2 * reach
        radius = of_dims(n, (reach,))
    offsets = along(iota(n, taps) - radius + 1, 0, 2)
    places = along(at.mapped(ew.Floor()).cast(i64), 1, 2) + offsets
    distance = ((places.cast(at.dtype) - along(at, 1, 2)) * narrow).mapped(ew.Abs())
    weight = _kernel(distance, op)
    if op.exclude_outside:
        inside = places.below(0).either(limit.below(places)).mapped(ew.LogicalNot())
        weight = inside.chooses(weight, 0.0)
    if op.antialias or op.exclude_outside:
        weight = weight.divided(weight.summed(0).shaped(1, -1))
    elements = taken(n, x, axis, places.clipped(0, limit)).cast(wide)
    spread = weight.cast(wide).value
    if rank - axis - 1:
        spread = spread.reshape(*spread.type.shape, *[1] * (rank - axis - 1))
    product = elements * spread
    return product.sum((axis,)).cast(x.dtype)


def _kernel(distance: Numbers, op: Resampling) -> Numbers:
    d, a = distance, op.cubic_a
    if op.mode == "linear":
        return (1.0 - d).most(0.0)
    near = (d * (a + 2) - (a + 3)) * d * d + 1.0
    far = ((d - 5.0) * d + 8.0) * d * a - 4 * a
    beyond = d.below(2.0).chooses(far, 0.0)
    return d.below(1.0).chooses(near, beyond)
