"""Resampling along one axis, at positions that are rational numbers.

Positions are integers over a common denominator.  So compiled code and the reference read exactly
the same elements, whatever the float precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Expr, as_expr, cast, const, select
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, same_dim
from tilesmith.te import tensor as te

from . import rules
from .base import Op

MODES = ("nearest", "linear", "cubic")
NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


@dataclass(frozen=True)
class Resample(Op):
    """`size` samples along `axis`; sample i is at (`step` * i + `start`) / `denominator` of the
    input.

    mode: "nearest", "linear" or "cubic" (Keys' kernel).
    rounding: rounding of positions in mode "nearest".
    cubic_a: coefficient of Keys' kernel.
    exclude_outside: whether a cubic kernel drops taps outside.  Otherwise they read the border.
    outside: value of samples whose position is outside of the input; None: the border.
    """

    heavy_reference = True

    axis: int
    size: Dim
    step: Dim
    start: Dim
    denominator: Dim
    mode: str = "nearest"
    rounding: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    outside: float | None = None

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        axis = rules.normalize_axis(self.name, self.axis, x.rank)
        extent = x.shape[axis]
        self._check(x.dtype, extent)
        shape = (*x.shape[:axis], self.size, *x.shape[axis + 1 :])

        def body(*i: Expr) -> Expr:
            position, last = _linear(i[axis], self.step, self.start), extents.difference(extent, 1)
            # With a symbolic step, the position can't be proved to stay between its ends.
            is_proved = isinstance(self.step, int)

            def load(n: Expr, low: Dim, high: Dim) -> Expr:
                n = n if is_proved and extents.is_at_most(0, low) else ir.maximum(n, 0)
                n = n if is_proved and extents.is_at_most(high, last) else ir.minimum(n, last)
                return rules.widen(x[(*i[:axis], n, *i[axis + 1 :])])

            value = self._sample(position, extent, load)
            if self.outside is not None:
                end = extents.product((last, self.denominator))
                inside = ir.all_of(position >= 0, position <= as_expr(end))
                value = select(inside, value, const(self.outside, value.dtype))
            return cast(value, x.dtype)

        return te.compute(shape, body, self.name)

    def _check(self, dtype: DType, extent: Dim) -> None:
        if self.mode not in MODES or self.rounding not in NEAREST:
            rules.reject(self.name, f"a mode of {MODES} and {NEAREST}", (self.mode, self.rounding))
        if self.mode != "nearest" and not dtype.is_float:
            rules.reject(self.name, f"floats for mode {self.mode}", dtype)
        if any(isinstance(n, int) and n < 1 for n in (extent, self.denominator)):
            rules.reject(self.name, "an input with elements", f"extent {extent}")

    def _sample(self, position: Expr, extent: Dim, load: Callable[[Expr, Dim, Dim], Expr]) -> Expr:
        """The sample at `position`.  `load` is called with an index, and with the smallest and the
        largest index over all samples.
        """
        d = self.denominator
        if self.mode == "nearest":
            scale, shift, by = _rounding(self.rounding, d)
            nearest = _quotient(_linear(position, scale, shift), by)
            ends = [as_dim(_quotient(_linear(as_expr(p), scale, shift), by)) for p in self._ends()]
            return load(nearest, extents.smaller(*ends), extents.larger(*ends))
        base = _quotient(position, d)
        ends = [as_dim(_quotient(as_expr(p), d)) for p in self._ends()]
        low, high = extents.smaller(*ends), extents.larger(*ends)
        taps = range(2) if self.mode == "linear" else range(-1, 3)
        values = [
            load(base + t if t else base, extents.total((low, t)), extents.total((high, t)))
            for t in taps
        ]
        dtype = values[0].dtype
        if isinstance(d, int):
            f = cast(position % d, dtype) / float(d) if d > 1 else const(0.0, dtype)
        else:
            f = cast(position % d, dtype) / cast(d, dtype)
        if self.mode == "linear":
            return values[0] * (1.0 - f) + values[1] * f
        weights = [keys(f, t, self.cubic_a) for t in taps]
        may_leave = not (
            extents.is_at_most(1, low) and extents.is_at_most(extents.total((high, 3)), extent)
        )
        if self.exclude_outside and may_leave:
            weights = [
                select(ir.all_of(base + t >= 0, base + t < extent), w, const(0.0, dtype))
                for w, t in zip(weights, taps, strict=True)
            ]
            total = weights[0] + weights[1] + weights[2] + weights[3]
            weights = [w / total for w in weights]
        v, w = values, weights
        return v[0] * w[0] + v[1] * w[1] + v[2] * w[2] + v[3] * w[3]

    def _ends(self) -> tuple[Dim, Dim]:
        """Positions of the first and the last sample, in units of 1 / `denominator`."""
        last = extents.larger(extents.difference(self.size, 1), 0)
        return self.start, extents.total((extents.product((self.step, last)), self.start))

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        axis = rules.normalize_axis(self.name, self.axis, x.ndim)
        extent = x.shape[axis]
        self._check(to_dtype(x.dtype), extent)
        size, step, start, d = (
            rules.static(self.name, n, "the size")
            for n in (self.size, self.step, self.start, self.denominator)
        )
        position = np.arange(size, dtype=np.int64) * step + start
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
            positions = base[:, None] + taps
            if linear:
                w = np.stack([1 - f, f], -1)
            else:
                w = np.stack([keys(f, int(t), self.cubic_a) for t in taps], -1)
                if self.exclude_outside:
                    w = np.where((positions >= 0) & (positions < extent), w, 0)
                    w = w / w.sum(-1, keepdims=True)
            result = sum(
                take(positions[:, t]).astype(np.float64) * w[:, t].reshape(spread)
                for t in range(len(taps))
            )
        if self.outside is not None:
            inside = (position >= 0) & (position <= (extent - 1) * d)
            result = np.where(inside.reshape(spread), result, self.outside)
        return np.asarray(result).astype(x.dtype)


def _linear(i: Expr, scale: Dim, shift: Dim) -> Expr:
    scaled = i if same_dim(scale, 1) else i * scale
    return scaled if same_dim(shift, 0) else scaled + shift


def _quotient(e: Expr, by: Dim) -> Expr:
    return e if same_dim(by, 1) else e // by


def _rounding(rounding: str, d: Any) -> tuple[int, Any, Any]:
    """(scale, shift, divisor) such that p / d rounds to (scale * p + shift) // divisor."""
    return {
        "floor": (1, 0, d),
        "ceil": (1, d - 1, d),
        "round_prefer_floor": (2, d - 1, 2 * d),
        "round_prefer_ceil": (2, d, 2 * d),
    }[rounding]


def keys(f: Any, tap: int, a: float) -> Any:
    """The weight of tap -1, 0, 1 or 2 for a position at fraction f between taps 0 and 1 (Keys 1981,
    "Cubic convolution interpolation").
    """
    if tap in (0, 1):
        t = f if tap == 0 else 1.0 - f
        return ((a + 2) * t - (a + 3)) * t * t + 1.0
    t = 1.0 + f if tap == -1 else 2.0 - f
    return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
