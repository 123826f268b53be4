"""Calibration: the choice of the range that integers represent, from statistics of a layer's input.

Every range includes zero, which integers represent exactly.  A smaller range has finer steps but
clips more values.  The calibration methods balance both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tilesmith.ir.dtypes import DType

from .histogram import Observed

PERCENTILE = 99.99
"""Percentage of the values that are inside the range of the method "percentile"."""
_SHRINKS = np.linspace(1.0, 0.2, 65)
"""Fractions of the largest magnitude that are tried as a range."""


@dataclass(frozen=True, slots=True)
class Affine:
    """The map of a tensor to integers: `q = round(x / scale) + zero`.

    scale: distance between adjacent representable values.
    zero: the integer that represents 0.
    to: element type of the integers.
    """

    scale: float
    zero: int
    to: DType

    @property
    def low(self) -> float:
        """The smallest value that is represented."""
        return (self.to.min - self.zero) * self.scale

    @property
    def high(self) -> float:
        return (self.to.max - self.zero) * self.scale

    def round(self, x: np.ndarray) -> np.ndarray:
        """The representable values nearest to those of `x`."""
        q = np.clip(np.rint(x / self.scale) + self.zero, self.to.min, self.to.max)
        return (q - self.zero) * self.scale


def affine(low: float, high: float, to: DType) -> Affine | None:
    """The map of the range from `low` to `high`, which includes 0.  None if the range is too small
    for a scale in f32.
    """
    scale = np.float32((high - low) / (int(to.max) - int(to.min)))
    if not scale > 0 or not np.isfinite(np.float32(1) / scale):
        return None
    zero = int(np.clip(np.rint(int(to.min) - low / float(scale)), to.min, to.max))
    return Affine(float(scale), zero, to)


def calibrated(seen: Observed, method: str, to: DType) -> Affine | None:
    """The map that one of `METHODS` chooses; None if all values are zero."""
    low, high = METHODS[method](seen, to)
    return affine(low, high, to)


def _min_max(seen: Observed, to: DType) -> tuple[float, float]:
    return seen.low, seen.high


def _percentile(seen: Observed, to: DType) -> tuple[float, float]:
    """The range that leaves out an equal share of the values on both sides."""
    total = seen.bins.sum()
    if not total:
        return seen.low, seen.high
    below = np.cumsum(seen.bins) / total
    tail = (1 - PERCENTILE / 100) / 2
    step = seen.reach / (len(seen.bins) // 2)
    first, last = np.searchsorted(below, tail, "right"), np.searchsorted(below, 1 - tail)
    low, high = first * step - seen.reach, (last + 1) * step - seen.reach
    return min(max(low, seen.low), 0.0), max(min(high, seen.high), 0.0)


def _least(seen: Observed, cost: Callable[[float, float], float]) -> tuple[float, float]:
    """The range of least cost.  First both ends are clipped at the same fraction of the largest
    magnitude, then each end by itself.
    """
    largest = max(-seen.low, seen.high)
    limits = [largest * float(s) for s in _SHRINKS]
    both = [(max(seen.low, -limit), min(seen.high, limit)) for limit in limits]
    low, high = min(both, key=lambda r: cost(*r))
    low = min((max(seen.low, -limit) for limit in limits), key=lambda end: cost(end, high))
    high = min((min(seen.high, limit) for limit in limits), key=lambda end: cost(low, end))
    return low, high


def _mean_squared(seen: Observed, to: DType) -> tuple[float, float]:
    """The range with the least mean squared error of rounding and clipping."""
    x, n = seen.centres, seen.bins

    def cost(low: float, high: float) -> float:
        mapping = affine(low, high, to)
        return np.inf if mapping is None else float((np.square(x - mapping.round(x)) * n).sum())

    return _least(seen, cost)


def _entropy(seen: Observed, to: DType) -> tuple[float, float]:
    """The range whose quantised distribution has the least Kullback-Leibler divergence (Migacz,
    8-bit Inference with TensorRT, 2017), generalised to ranges that are not symmetric.
    """
    x, n = seen.centres, seen.bins.astype(np.float64)
    bin_width = seen.reach / (len(n) // 2)

    def cost(low: float, high: float) -> float:
        mapping = affine(low, high, to)
        inside = (x >= low - bin_width) & (x <= high + bin_width)
        if mapping is None or not inside.any():
            return np.inf
        true = n[inside].copy()
        values, numbers = x[inside], np.rint(x[inside] / mapping.scale).astype(np.int64)
        true[0] += n[x < values[0]].sum()  # clipped values count in the outermost bins
        true[-1] += n[x > values[-1]].sum()
        kept = n[inside]
        numbers -= numbers.min()
        filled = np.bincount(numbers, kept > 0)
        share = np.divide(
            np.bincount(numbers, kept), filled, out=np.zeros(len(filled)), where=filled > 0
        )
        guess = np.where(kept > 0, share[numbers], 0.0)
        p, q = true / true.sum(), guess / max(guess.sum(), 1.0)
        tiny = 1e-9  # clipped values in an empty bin then have a high but finite cost
        used = p > 0
        return float((p[used] * np.log(p[used] / np.maximum(q[used], tiny))).sum())

    return _least(seen, cost)


METHODS: Mapping[str, Callable[[Observed, DType], tuple[float, float]]] = {
    "minmax": _min_max,
    "percentile": _percentile,
    "entropy": _entropy,
    "mse": _mean_squared,
}
"""Calibration methods: functions from a tensor's statistics and an element type to a range."""
