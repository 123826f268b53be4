"""Resampling along axes: ONNX Resize (and Upsample), one axis at a time.

Source coordinates are rational numbers, kept as integers over a common denominator.  So compiled
code and the reference read exactly the same elements, whatever the float precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Expr, cast, const, select
from tilesmith.te import tensor as te

from . import rules
from .base import GraphBuilder, Op
from .matmul import MatMul
from .shape import Transpose

MODES = ("nearest", "linear", "cubic")
NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


@dataclass(frozen=True)
class Resample(Op):
    """`size` samples along `axis`; sample i lies at (`step` * i + `start`) / `denominator` of the
    input.

    mode: "nearest", "linear" or "cubic" (Keys' kernel).
    rounding: how "nearest" rounds.
    cubic_a: coefficient of Keys' kernel.
    exclude_outside: a cubic kernel drops places outside, which otherwise read the border.
    outside: value of samples whose centre is outside; None: the border.
    """

    heavy_reference = True

    axis: int
    size: int
    step: int
    start: int
    denominator: int
    mode: str = "nearest"
    rounding: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    outside: float | None = None

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        axis = rules.normalize_axis(self.name, self.axis, x.rank)
        extent = rules.static(self.name, x.shape[axis], "a resampled axis")
        self._check(x.dtype, extent)
        shape = (*x.shape[:axis], self.size, *x.shape[axis + 1 :])

        def body(*i: Expr) -> Expr:
            position = _linear(i[axis], self.step, self.start)

            def load(at: Expr, low: int, high: int) -> Expr:
                at = ir.maximum(at, 0) if low < 0 else at
                at = ir.minimum(at, extent - 1) if high >= extent else at
                return rules.widen(x[(*i[:axis], at, *i[axis + 1 :])])

            value = self._sample(position, extent, load)
            if self.outside is not None:
                last = (extent - 1) * self.denominator
                inside = ir.all_of(position >= 0, position <= last)
                value = select(inside, value, const(self.outside, value.dtype))
            return cast(value, x.dtype)

        return te.compute(shape, body, self.name)

    def _check(self, dtype: DType, extent: int) -> None:
        if self.mode not in MODES or self.rounding not in NEAREST:
            rules.reject(self.name, f"a mode of {MODES} and {NEAREST}", (self.mode, self.rounding))
        if self.mode != "nearest" and not dtype.is_float:
            rules.reject(self.name, f"floats for mode {self.mode}", dtype)
        if extent < 1 or self.denominator < 1:
            rules.reject(self.name, "an input with elements", f"extent {extent}")

    def _sample(self, position: Expr, extent: int, load: Callable[[Expr, int, int], Expr]) -> Expr:
        """The value at `position`; `load` gets an index and its minimum and maximum over all
        samples.
        """
        d = self.denominator
        if self.mode == "nearest":
            scale, shift, by = _rounding(self.rounding, d)
            at = (
                _linear(position, scale, shift) // by if by > 1 else _linear(position, scale, shift)
            )
            ends = [(scale * p + shift) // by for p in self._ends()]
            return load(at, min(ends), max(ends))
        base = position // d if d > 1 else position
        low, high = sorted(p // d for p in self._ends())
        taps = range(2) if self.mode == "linear" else range(-1, 3)
        values = [load(base + t if t else base, low + t, high + t) for t in taps]
        dtype = values[0].dtype
        f = cast(position % d, dtype) / float(d) if d > 1 else const(0.0, dtype)
        if self.mode == "linear":
            return values[0] * (1.0 - f) + values[1] * f
        weights = [_keys(f, t, self.cubic_a) for t in taps]
        if self.exclude_outside and (low < 1 or high + 2 >= extent):
            weights = [
                select(ir.all_of(base + t >= 0, base + t < extent), w, const(0.0, dtype))
                for w, t in zip(weights, taps, strict=True)
            ]
            total = weights[0] + weights[1] + weights[2] + weights[3]
            weights = [w / total for w in weights]
        v, w = values, weights
        return v[0] * w[0] + v[1] * w[1] + v[2] * w[2] + v[3] * w[3]

    def _ends(self) -> tuple[int, int]:
        """Positions (in 1/denominator) of the first and last sample."""
        return self.start, self.step * max(self.size - 1, 0) + self.start

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        axis = rules.normalize_axis(self.name, self.axis, x.ndim)
        extent = x.shape[axis]
        self._check(to_dtype(x.dtype), extent)
        position = np.arange(self.size, dtype=np.int64) * self.step + self.start
        d = self.denominator
        spread = (-1, *[1] * (x.ndim - 1 - axis))

        def take(at: np.ndarray) -> np.ndarray:
            return np.take(x, np.clip(at, 0, extent - 1), axis)

        if self.mode == "nearest":
            scale, shift, by = _rounding(self.rounding, d)
            result = take((scale * position + shift) // by)
        else:
            base, f = position // d, (position % d) / d
            linear = self.mode == "linear"
            taps = np.arange(2) if linear else np.arange(-1, 3)
            at = base[:, None] + taps
            if linear:
                w = np.stack([1 - f, f], -1)
            else:
                w = np.stack([_keys(f, int(t), self.cubic_a) for t in taps], -1)
                if self.exclude_outside:
                    w = np.where((at >= 0) & (at < extent), w, 0)
                    w = w / w.sum(-1, keepdims=True)
            result = sum(
                take(at[:, t]).astype(np.float64) * w[:, t].reshape(spread)
                for t in range(len(taps))
            )
        if self.outside is not None:
            inside = (position >= 0) & (position <= (extent - 1) * d)
            result = np.where(inside.reshape(spread), result, self.outside)
        return np.asarray(result).astype(x.dtype)


def _linear(i: Expr, scale: int, shift: int) -> Expr:
    scaled = i * scale if scale != 1 else i
    return scaled + shift if shift else scaled


def _rounding(rounding: str, d: int) -> tuple[int, int, int]:
    """(scale, shift, divisor): rounded(p / d) = (scale * p + shift) // divisor, in integers."""
    return {
        "floor": (1, 0, d),
        "ceil": (1, d - 1, d),
        "round_prefer_floor": (2, d - 1, 2 * d),
        "round_prefer_ceil": (2, d, 2 * d),
    }[rounding]


def _keys(f: Any, tap: int, a: float) -> Any:
    """Weight of tap -1, 0, 1 or 2 at fraction f (Keys 1981, "Cubic convolution interpolation")."""
    if tap in (0, 1):
        t = f if tap == 0 else 1.0 - f
        return ((a + 2) * t - (a + 3)) * t * t + 1.0
    t = 1.0 + f if tap == -1 else 2.0 - f
    return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a


@dataclass(frozen=True)
class Resize(Op):
    """x resampled to `sizes` (one per axis), as ONNX Resize defines it.

    scales: the factors for coordinates; empty: size / extent.
    mode: "nearest", "linear" or "cubic".
    coordinates: half_pixel, half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric,
        tf_half_pixel_for_nn or tf_crop_and_resize.
    rounding, cubic_a, exclude_outside: as in `resample`.
    extrapolation: value outside, for tf_crop_and_resize.
    antialias: a kernel that shrinks is widened by the factor.
    roi: all starts, then all ends, for tf_crop_and_resize.
    """

    heavy_reference = True

    sizes: tuple[int, ...]
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
            if shape[axis] == size and not self.roi and self._scale(axis, size, size) == 1:
                continue
            extent = rules.static(self.name, shape[axis], f"axis {axis}")
            x = self._resample(b, x, axis, extent, size)
        return x

    def _scale(self, axis: int, extent: int, size: int) -> Fraction:
        if not self.scales:
            return Fraction(size, extent) if extent else Fraction(1)
        exact = Fraction(self.scales[axis])
        short = exact.limit_denominator(10_000)  # 0.6 in f32 was meant as 3/5
        return short if abs(short - exact) <= abs(exact) * Fraction(1, 1 << 22) else exact

    def _resample(self, b: GraphBuilder, x: Any, axis: int, extent: int, size: int) -> Any:
        scale = self._scale(axis, extent, size)
        step, start = self._coordinates(axis, extent, size, scale)
        crops = self.coordinates == "tf_crop_and_resize"
        if step == 1 and start == 0 and extent == size:
            return x
        if self.antialias and self.mode != "nearest" and scale < 1:
            weights = self._kernel(extent, size, step, start, scale)
            return _along(b, x, axis, weights.astype(x.type.dtype.numpy))
        # exact for all but odd values of roi, where it keeps the integers small
        start = start.limit_denominator(1 << 20)
        common = math.lcm(step.denominator, start.denominator)
        return b.add(
            Resample(
                axis,
                size,
                int(step * common),
                int(start * common),
                common,
                self.mode,
                self.rounding,
                self.cubic_a,
                self.exclude_outside,
                self.extrapolation if crops else None,
            ),
            x,
        )

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        y = rules.exact(inputs[0])
        for axis, size in enumerate(self.sizes):
            extent = y.shape[axis]
            scale = self._scale(axis, extent, size)
            if scale == 1 and size == extent and not self.roi:
                continue  # as it is, also where the formula shifts it by half a sample
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
        """Where sample `i` lies along an axis: the formulas of ONNX, one by one."""
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
        found = {
            "floor": math.floor(place),
            "ceil": math.ceil(place),
            "round_prefer_floor": math.ceil(place - half),
            "round_prefer_ceil": math.floor(place + half),
        }[self.rounding]
        return min(max(found, 0), extent - 1)

    def _taps(self, place: float, extent: int, scale: float) -> np.ndarray:
        """The weights of a line's elements for the sample at `place`."""
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

    def _coordinates(
        self, axis: int, extent: int, size: int, scale: Fraction
    ) -> tuple[Fraction, Fraction]:
        """(step, start): sample i lies at step * i + start.  Formulas: ONNX operator Resize."""
        half = Fraction(1, 2)
        one = Fraction(1)
        step = 1 / scale if scale else one
        match self.coordinates:
            case "half_pixel":
                return step, half * step - half
            case "half_pixel_symmetric":
                adjusted = Fraction(size) / (scale * extent)
                offset = Fraction(extent, 2) * (1 - adjusted)
                return step, offset + half * step - half
            case "pytorch_half_pixel":
                return (step, half * step - half) if size > 1 else (one, Fraction(0))
            case "tf_half_pixel_for_nn":
                return step, half * step
            case "align_corners":
                return (
                    (Fraction(extent - 1, size - 1), Fraction(0))
                    if size > 1
                    else (one, Fraction(0))
                )
            case "asymmetric":
                return step, Fraction(0)
            case "tf_crop_and_resize":
                low, high = (
                    Fraction(self.roi[axis + n]).limit_denominator(10_000)
                    for n in (0, len(self.sizes))
                )
                if size > 1:
                    return (high - low) * (extent - 1) / (size - 1), low * (extent - 1)
                return one, (low + high) * (extent - 1) / 2
        return rules.reject(self.name, "a known coordinate transformation", repr(self.coordinates))

    def _kernel(
        self, extent: int, size: int, step: Fraction, start: Fraction, scale: Fraction
    ) -> np.ndarray:
        """Weights [size, extent] of the widened kernel, each row summing to 1."""
        centre = (np.arange(size) * float(step) + float(start))[:, None]
        radius = int(np.ceil((1 if self.mode == "linear" else 2) / float(scale))) + 1
        taps = np.floor(centre).astype(np.int64) + np.arange(-radius, radius + 1)
        distance = np.abs((taps - centre) * float(scale))
        if self.mode == "linear":
            weights = np.maximum(1 - distance, 0)
        else:
            near = _keys(distance, 0, self.cubic_a)
            far = _keys(distance - 1, -1, self.cubic_a)
            weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
        if self.exclude_outside:
            weights = np.where((taps >= 0) & (taps < extent), weights, 0)
        weights = weights / weights.sum(1, keepdims=True)
        matrix = np.zeros((size, extent))
        rows = np.broadcast_to(np.arange(size)[:, None], taps.shape)
        np.add.at(matrix, (rows, np.clip(taps, 0, extent - 1)), weights)
        return matrix


def _along(b: GraphBuilder, x: Any, axis: int, matrix: np.ndarray) -> Any:
    """`matrix` applied to every line of `x` along `axis`."""
    rank = x.type.rank
    w = b.constant(matrix)
    if axis == rank - 1:
        return b.add(MatMul(transpose_b=True), x, w)
    if axis == rank - 2:
        return b.add(MatMul(), w, x)
    perm = (*(a for a in range(rank) if a != axis), axis)
    y = b.add(MatMul(transpose_b=True), b.add(Transpose(perm), x), w)
    return b.add(Transpose(tuple(perm.index(a) for a in range(rank))), y)
