"""ONNX Resize (and Upsample): resampling, one axis after the other, at ONNX's coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tilesmith.ir import extents
from tilesmith.ir.types import Dim, same_dim
from tilesmith.support.errors import OpenDimensionError

from . import rules
from .base import GraphBuilder, Op
from .matmul import MatMul
from .resample import NEAREST as NEAREST
from .resample import Resample, keys


@dataclass(frozen=True)
class Resize(Op):
    """x resampled to `sizes` (one per axis), as ONNX Resize defines it.

    scales: factors of the extents, one per axis, for the coordinates; empty: size / extent.
    mode: "nearest", "linear" or "cubic".
    coordinates: half_pixel, half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric,
        tf_half_pixel_for_nn or tf_crop_and_resize.
    rounding, cubic_a, exclude_outside: as in `resample`.
    extrapolation: value of samples outside of x, for tf_crop_and_resize.
    antialias: whether the kernel is widened by the factor along axes that shrink.
    roi: region of x, for tf_crop_and_resize: the starts along all axes, then the ends.
    """

    heavy_reference = True

    sizes: tuple[Dim, ...]
    scales: tuple[float, ...] = ()
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    extrapolation: float = 0.0
    antialias: bool = False
    roi: tuple[float, ...] = ()

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        shape = x.type.shape
        rank = len(shape)
        if len(self.sizes) != rank or len(self.scales) not in (0, rank):
            rules.reject(self.name, f"{rank} sizes and scales", (self.sizes, self.scales))
        if self.coordinates == "tf_crop_and_resize" and len(self.roi) != 2 * rank:
            rules.reject(self.name, f"{2 * rank} numbers in roi", self.roi)
        for axis, size in enumerate(self.sizes):
            if self.scales or self.roi or not same_dim(shape[axis], size):
                x = self._resample(b, x, axis, shape[axis], size)
        return x

    def _scale(self, axis: int, extent: int, size: int) -> Fraction:
        if not self.scales:
            return Fraction(size, extent) if extent else Fraction(1)
        return short_fraction(self.scales[axis])

    def _coordinates(self, axis: int, extent: Dim, size: Dim) -> tuple[Dim, Dim, Dim]:
        """(step, start, d) such that sample i is at (step * i + start) / d, by ONNX's formulas."""
        crops = self.coordinates == "tf_crop_and_resize"
        if isinstance(extent, int) and isinstance(size, int):
            if crops:
                return self._crop(axis, extent, size)
        elif crops or self.antialias:
            what = "antialiasing" if self.antialias else self.coordinates
            raise OpenDimensionError(
                f"{self.name}: {what} needs numbers, found extent {extent} and size {size}; give "
                "them with shapes=",
                (extent, size),
            )
        product, total, difference = extents.product, extents.total, extents.difference
        num, den = size, extent  # numerator and denominator of the scale
        if self.scales:
            num, den = short_fraction(self.scales[axis]).as_integer_ratio()
        elif same_dim(size, 0) or same_dim(extent, 0):
            num = den = 1
        else:
            grows, shrinks = extents.quotient(size, extent), extents.quotient(extent, size)
            if grows is not None:
                num, den = grows, 1
            elif shrinks is not None:
                num, den = 1, shrinks
        twice, step = product((2, num)), product((2, den))
        centred = difference(den, num)
        match self.coordinates:
            case "half_pixel":
                return step, centred, twice
            case "half_pixel_symmetric":
                offset = difference(product((extent, num)), product((size, den)))
                return step, total((offset, centred)), twice
            case "pytorch_half_pixel":  # a single sample is at 0
                several = extents.smaller(difference(size, 1), 1)
                return step, product((centred, several)), twice
            case "tf_half_pixel_for_nn":
                if self.scales:
                    return step, den, twice
                apart = extents.larger(difference(extent, size), difference(size, extent))
                # The offset is 0 if the extent does not change.
                return step, product((den, extents.smaller(apart, 1))), twice
            case "align_corners":
                last = extents.larger(difference(size, 1), 1)
                return difference(extent, 1), 0, last
            case "asymmetric":
                return den, 0, num
        return rules.reject(self.name, "a known coordinate transformation", repr(self.coordinates))

    def _crop(self, axis: int, extent: int, size: int) -> tuple[int, int, int]:
        """(step, start, d), as in `_coordinates`, for samples between the ends of `roi`."""
        ends = (self.roi[axis], self.roi[axis + len(self.sizes)])
        low, high = (Fraction(r).limit_denominator(10_000) * (extent - 1) for r in ends)
        step, start = Fraction(1), (low + high) / 2
        if size > 1:
            step, start = (high - low) / (size - 1), low
        common = math.lcm(step.denominator, start.denominator)
        return int(step * common), int(start * common), common

    def _along(self, axis: int, size: Dim, step: Dim, start: Dim, common: Dim) -> Resample:
        crops = self.coordinates == "tf_crop_and_resize"
        return Resample(
            axis,
            size,
            step,
            start,
            common,
            self.mode,
            self.rounding,
            self.cubic_a,
            self.exclude_outside,
            self.extrapolation if crops else None,
        )

    def _resample(self, b: GraphBuilder, x: Any, axis: int, extent: Dim, size: Dim) -> Any:
        """x with `size` samples along an axis.  `extent` and `size` may be symbolic."""
        step, start, common = self._coordinates(axis, extent, size)
        if isinstance(extent, int) and isinstance(size, int):
            numbers = (rules.static(self.name, v, "a coordinate") for v in (step, start))
            by, first = (
                Fraction(v, rules.static(self.name, common, "a coordinate")) for v in numbers
            )
            if size <= 1 and self.coordinates in ("align_corners", "pytorch_half_pixel"):
                by = Fraction(1)  # a single sample is at 0, whatever the step
            scale = self._scale(axis, extent, size)
            moves = extent != size or by != 1 or first != 0
            if moves and self.antialias and self.mode != "nearest" and scale < 1:
                if not x.type.dtype.is_float:  # integers can't represent the weights
                    rules.reject(self.name, f"floats for mode {self.mode}", x.type.dtype)
                weights = self._kernel(extent, size, by, first, scale)
                return _product_along(b, x, axis, weights.astype(x.type.dtype.numpy))
            # A limit on the denominator keeps `step` and `start` small.  It changes `first` only
            # for unusual values of `roi`.
            first = first.limit_denominator(1 << 20)
            common = math.lcm(by.denominator, first.denominator)
            step, start = int(by * common), int(first * common)
        if same_dim(extent, size) and same_dim(step, common) and same_dim(start, 0):
            return x
        return b.add(self._along(axis, size, step, start, common), x)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        y = rules.exact(inputs[0])
        for axis, n in enumerate(self.sizes):
            size = rules.static(self.name, n, "a size")
            extent = y.shape[axis]
            scale = self._scale(axis, extent, size)
            if scale == 1 and size == extent and not self.roi:
                continue  # the axis is unchanged, even if the formula shifts it by half a sample
            places = [self._place(i, axis, extent, size, scale) for i in range(size)]
            if self.mode == "nearest":
                y = np.take(y, [self._nearest(p, extent) for p in places], axis)
            else:
                rows = [self._taps(float(p), extent, float(scale)) for p in places]
                y = np.moveaxis(
                    np.tensordot(y, np.reshape(rows, (size, extent)), (axis, 1)), -1, axis
                )
            if self.coordinates == "tf_crop_and_resize":
                beyond = [i for i, p in enumerate(places) if not 0 <= p <= extent - 1]
                y[(slice(None),) * axis + (beyond,)] = self.extrapolation
        return y.astype(inputs[0].dtype)

    def _place(self, i: int, axis: int, extent: int, size: int, scale: Fraction) -> Fraction:
        """The position of sample `i` along an axis, by the formulas of ONNX."""
        centre = (i + Fraction(1, 2)) / scale
        match self.coordinates:
            case "half_pixel":
                return centre - Fraction(1, 2)
            case "half_pixel_symmetric":
                adjusted = 1 - size / (scale * extent)
                return Fraction(extent, 2) * adjusted + centre - Fraction(1, 2)
            case "pytorch_half_pixel":
                return centre - Fraction(1, 2) if size > 1 else Fraction(0)
            case "tf_half_pixel_for_nn":
                return centre
            case "align_corners":
                return Fraction(i * (extent - 1), size - 1) if size > 1 else Fraction(0)
            case "tf_crop_and_resize":
                ends = (self.roi[axis], self.roi[axis + len(self.sizes)])
                low, high = (Fraction(r).limit_denominator(10_000) * (extent - 1) for r in ends)
                return low + i * (high - low) / (size - 1) if size > 1 else (low + high) / 2
            case _:
                return i / scale

    def _nearest(self, place: Fraction, extent: int) -> int:
        half = Fraction(1, 2)
        nearest = {
            "floor": math.floor(place),
            "ceil": math.ceil(place),
            "round_prefer_floor": math.ceil(place - half),
            "round_prefer_ceil": math.floor(place + half),
        }[self.rounding]
        return min(max(nearest, 0), extent - 1)

    def _taps(self, place: float, extent: int, scale: float) -> np.ndarray:
        """The weights of all elements of a line, for the sample at `place`."""
        narrow = min(scale, 1.0) if self.antialias else 1.0
        reach = math.ceil((1 if self.mode == "linear" else 2) / narrow)
        line = np.zeros(extent)
        total = 0.0
        for tap in range(math.floor(place) - reach, math.floor(place) + reach + 2):
            d = abs(tap - place) * narrow
            a = self.cubic_a
            if self.mode == "linear":
                weight = max(1 - d, 0.0)
            elif d <= 1:
                weight = ((a + 2) * d - (a + 3)) * d * d + 1
            else:
                weight = ((d - 5) * d + 8) * d * a - 4 * a if d < 2 else 0.0
            drops = self.exclude_outside and (self.mode == "cubic" or narrow < 1)
            if not (drops and not 0 <= tap < extent):
                line[min(max(tap, 0), extent - 1)] += weight
                total += weight
        return line / total

    def _kernel(
        self, extent: int, size: int, step: Fraction, start: Fraction, scale: Fraction
    ) -> np.ndarray:
        """Weights [size, extent] of the widened kernel.  Each row sums to 1."""
        centre = (np.arange(size) * float(step) + float(start))[:, None]
        radius = int(np.ceil((1 if self.mode == "linear" else 2) / float(scale))) + 1
        taps = np.floor(centre).astype(np.int64) + np.arange(-radius, radius + 1)
        distance = np.abs((taps - centre) * float(scale))
        if self.mode == "linear":
            weights = np.maximum(1 - distance, 0)
        else:
            near = keys(distance, 0, self.cubic_a)
            far = keys(distance - 1, -1, self.cubic_a)
            weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
        if self.exclude_outside:
            weights = np.where((taps >= 0) & (taps < extent), weights, 0)
        weights = weights / weights.sum(1, keepdims=True)
        matrix = np.zeros((size, extent))
        rows = np.broadcast_to(np.arange(size)[:, None], taps.shape)
        np.add.at(matrix, (rows, np.clip(taps, 0, extent - 1)), weights)
        return matrix


def short_fraction(scale: float) -> Fraction:
    """The short fraction of which an f32 scale is the rounded value, such as 3/5 for 0.6."""
    exact = Fraction(scale)
    short = exact.limit_denominator(10_000)
    return short if abs(short - exact) <= abs(exact) * Fraction(1, 1 << 22) else exact


def _product_along(b: GraphBuilder, x: Any, axis: int, matrix: np.ndarray) -> Any:
    """`matrix` applied to every line of `x` along `axis`."""
    rank = x.type.rank
    w = b.constant(matrix)
    if axis == rank - 1:
        return b.add(MatMul(transpose_b=True), x, w)
    if axis == rank - 2:
        return b.add(MatMul(), w, x)
    perm = (*(a for a in range(rank) if a != axis), axis)
    y = b.add(MatMul(transpose_b=True), x.transpose(*perm), w)
    return y.transpose(*(perm.index(a) for a in range(rank)))
