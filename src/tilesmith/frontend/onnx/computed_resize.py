"""ONNX's Resize where sizes, scales or the region are computed by the model.

Each axis is resampled separately.  A run computes the coordinates: in f32 from scales, like other
engines, and in f64 from sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.common.arithmetic import rounded_away
from tilesmith.frontend.common.computed import along, taken
from tilesmith.frontend.common.lists import listed, picked
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import f32, f64, i64
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import reduce
from tilesmith.ops.functions import ceil, clamp, floor, maximum, minimum, where
from tilesmith.ops.resize import Resize


def by_scales(
    n: OnnxNode,
    x: Value,
    axes: Sequence[int],
    scales: Value,
    op: Resize,
    roi: Value | None = None,
) -> Value:
    """x resized by a factor for each of `axes`.

    op: holds the attributes.  Its sizes and scales are not used.
    roi: for mode "tf_crop_and_resize", the starts and then the ends of the region along the axes.
    """
    factors, count = listed(scales, f32), len(axes)
    part = factors
    if roi is not None:
        starts, ends = (picked(roi, range(i, i + count)) for i in (0, count))
        part = factors * (ends - starts)
    dims = [x.type.shape[a] for a in axes]
    sizes = n.measured(floor(n.of_dims(dims).cast(f32) * part).cast(i64))
    return _resampled(n, x, axes, sizes, factors, op, roi)


def by_sizes(
    n: OnnxNode,
    x: Value,
    axes: Sequence[int],
    sizes: Value,
    op: Resize,
    policy: str = "stretch",
    roi: Value | None = None,
) -> Value:
    """x resized to an extent for each of `axes`.  Operands as for `by_scales`.

    policy: "stretch" resizes each axis to its extent.  "not_larger" and "not_smaller" resize all
        axes by the smallest or the largest of their factors.
    """
    dims = [x.type.shape[a] for a in axes]
    own, wanted = n.of_dims(dims).cast(f64), listed(sizes)
    if policy == "stretch":
        measured = n.measured(wanted, n.elements(sizes, "sizes"))
        scale = n.of_dims(measured).cast(f64)
        return _resampled(n, x, axes, measured, scale, op, roi, own)
    make = reduce.ReduceMin if policy == "not_larger" else reduce.ReduceMax
    ratio = n.add(make((0,), True), wanted.cast(f64) / own)
    measured = n.measured(floor(own * ratio + 0.5).cast(i64))
    return _resampled(n, x, axes, measured, ratio.expand(len(axes)), op, roi)


def _resampled(
    n: OnnxNode,
    x: Value,
    axes: Sequence[int],
    sizes: Sequence[Dim],
    scales: Value,
    op: Resize,
    roi: Value | None,
    divisors: Value | None = None,
) -> Value:
    """x resized to `sizes` along `axes`, by the factors `scales` / `divisors`.

    divisors: the extents of x along `axes`, if each axis is stretched to a computed size.  Then an
        axis that keeps its extent is copied.  None stands for 1.
    """
    for i, a in enumerate(axes):
        if divisors is not None and roi is None and same_dim(sizes[i], x.type.shape[a]):
            continue  # each sample is an element of x, so the axis is unchanged
        by = n.const([1.0], scales.dtype) if divisors is None else picked(divisors, i)
        ends = None if roi is None else [picked(roi, j) for j in (i, i + len(axes))]
        scale = picked(scales, i)
        x = _along(n, x, a, sizes[i], scale, by, op, ends, keeps=divisors is not None)
    return x


def _along(
    n: OnnxNode,
    x: Value,
    axis: int,
    size: Dim,
    scale: Value,
    by: Value,
    op: Resize,
    ends: Sequence[Value] | None,
    keeps: bool,
) -> Value:
    """x resized to `size` along `axis`, by the factor `scale` / `by`.

    ends: start and end of the region to resize; None for the whole axis.
    keeps: whether an axis that keeps its extent is copied.
    """
    extent = x.type.shape[axis]
    wide = scale.dtype
    limit = n.of_dims((extents.difference(extent, 1),))
    positions = _coordinates(n, size, extent, scale, by, op.coordinates, ends, keeps)
    rank = x.type.rank
    if op.mode == "nearest":
        y = taken(n, x, axis, clamp(_rounded(positions, op.rounding).cast(i64), 0, limit))
    else:
        y = _weighted(n, x, axis, positions, scale / by, op)
    if ends is None:
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
    ends: Sequence[Value] | None,
    keeps: bool,
) -> Value:
    """The positions of the samples along an axis, in elements of the input."""
    wide = scale.dtype
    i = n.positions(size).cast(wide)
    count, samples = (n.of_dims((d,)).cast(wide) for d in (size, extent))
    several = ~n.of_dims((size,)).equals(1)
    if ends is not None:
        start, end = (v.cast(wide) for v in ends)
        step = (end - start) * (samples - 1.0) / maximum(count - 1.0, 1.0)
        middle = (start + end) * (samples - 1.0) * 0.5
        return where(several, start * (samples - 1.0) + i * step, middle)
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
    return centred


def _rounded(at: Value, rounding: str) -> Value:
    if rounding == "floor":
        return floor(at)
    if rounding == "ceil":
        return ceil(at)
    if rounding == "round_prefer_floor":
        return ceil(at - 0.5)
    return rounded_away(at)


def _weighted(n: OnnxNode, x: Value, axis: int, at: Value, scale: Value, op: Resize) -> Value:
    """Sums of elements around each of the positions `at`, weighted by the kernel of the mode.

    The summed axis precedes the axis of the samples, so that vector lanes run along samples.
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


def _kernel(distance: Value, op: Resize) -> Value:
    d, a = distance, op.cubic_a
    if op.mode == "linear":
        return maximum(1.0 - d, 0.0)
    near = (d * (a + 2) - (a + 3)) * d * d + 1.0
    far = ((d - 5.0) * d + 8.0) * d * a - 4 * a
    beyond = where(d < 2.0, far, 0.0)
    return where(d < 1.0, near, beyond)
