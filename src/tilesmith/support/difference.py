"""The distance between two arrays: the measure that accuracy policies bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference relative to the largest expected magnitude; infinite at a lone NaN or
    inf.
    """
    a, b = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    finite = np.isfinite(b)
    if not np.isfinite(a[finite]).all() or (~finite & ~same).any():
        return float("inf")
    scale = float(np.abs(b[finite]).max(initial=0.0)) or 1.0
    with np.errstate(invalid="ignore"):  # the difference of equal infinities is NaN
        return float(np.abs(np.where(same, 0.0, a - b)).max()) / scale


def least_difference(found: np.ndarray, references: Sequence[np.ndarray], bound: float) -> float:
    """The `difference` from the first reference; if it is above `bound`, that from the nearest
    values in the range that all references span.
    """
    error = difference(found, references[0])
    if error <= bound or len(references) == 1:
        return error
    return difference(found, nearest(found, references))


def nearest(found: np.ndarray, references: Sequence[np.ndarray]) -> np.ndarray:
    """For each element, the nearest value in the range that the references span, in f64."""
    spanned = np.stack([np.asarray(a, np.float64) for a in references])
    return np.clip(np.asarray(found, np.float64), spanned.min(0), spanned.max(0))
