"""Statistics of fixed size for the values that a layer reads, updated sample by sample."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

HALF = 2048
"""Number of bins on each side of zero."""

LEAST = float(np.finfo(np.float32).tiny) * 2 * HALF
"""Smaller magnitudes count as zero, since their bin widths and scales would be denormal in f32."""

_LARGEST_OF_F32 = float(np.finfo(np.float32).max) / 2 / HALF
"""Upper bound on numbers whose bins are computed in f32.  Beyond it, the product of a difference
and the number of bins overflows f32, so f64 is used.
"""


@dataclass(slots=True)
class Observed:
    """Statistics of one tensor over all samples.

    axis: the tensor's axis of channels.
    low, high: the minimum and the maximum of all values and 0.
    reach: upper end of the range that the bins cover; the lower end is its negative.
    bins: number of values in each bin, from the lowest bin up.
    count: number of values per channel.
    sums: sum of the values, per channel.
    squares: sum of the values' squares, per channel.
    largest: largest magnitude, per channel.
    ranges: `low` and `high` of each sample.
    moments: the second moments of the channels, the sum of x xT over all rows; only if
        `with_moments`.
    with_moments: whether `moments` are computed.
    """

    axis: int
    low: float = 0.0
    high: float = 0.0
    reach: float = 0.0
    bins: np.ndarray = field(default_factory=lambda: np.zeros(2 * HALF, np.int64))
    count: int = 0
    sums: np.ndarray | None = None
    squares: np.ndarray | None = None
    largest: np.ndarray | None = None
    ranges: list[tuple[float, float]] = field(default_factory=list)
    moments: np.ndarray | None = None
    with_moments: bool = False

    def add(self, x: np.ndarray) -> None:
        """Add the values of one sample."""
        low, high = (float(v) for v in (x.min(initial=0.0), x.max(initial=0.0)))
        low, high = low if low <= -LEAST else 0.0, high if high >= LEAST else 0.0
        self.ranges.append((low, high))
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._widen(max(-low, high))
        if self.reach:
            wide = x.astype(np.float64) if self.reach > _LARGEST_OF_F32 else x
            self.bins += np.histogram(wide, 2 * HALF, (-self.reach, self.reach))[0]
        rows = np.moveaxis(x, self.axis, -1).reshape(-1, x.shape[self.axis])
        sums = rows.sum(0, dtype=np.float64)
        largest = np.abs(rows).max(0, initial=0.0)
        self.count += len(rows)
        self.sums = sums if self.sums is None else self.sums + sums
        squares = np.einsum("ij,ij->j", rows, rows, dtype=np.float64)
        self.squares = squares if self.squares is None else self.squares + squares
        self.largest = largest if self.largest is None else np.maximum(self.largest, largest)
        if self.with_moments:
            moments = rows.T @ rows
            self.moments = moments if self.moments is None else self.moments + moments

    @property
    def mean(self) -> np.ndarray:
        """The mean value per channel."""
        assert self.sums is not None
        return self.sums / max(self.count, 1)

    def _widen(self, largest: float) -> None:
        """Double the range until it contains `largest`, and merge pairs of bins."""
        if not self.reach and largest:
            self.reach = largest
        while self.reach and self.reach < largest:
            self.reach *= 2
            pairs = self.bins.reshape(-1, 2).sum(1)
            self.bins = np.zeros_like(self.bins)
            self.bins[HALF // 2 : HALF // 2 + HALF] = pairs

    @property
    def centres(self) -> np.ndarray:
        """The middle of each bin."""
        return (np.arange(2 * HALF) + 0.5 - HALF) * (self.reach / HALF)
