"""Floats that `floor(x + 0.5)` rounds to the wrong whole number, ties, and neighbours of both."""

from __future__ import annotations

import numpy as np

_BELOW_HALF = np.nextafter(np.float32(0.5), np.float32(0))
_LARGE = 2.0**23 + 1
_X = np.float32([_BELOW_HALF, 0.5, 1.5, 2.25, 2.5, 2.75, _LARGE, 2.0**24 + 2])
_NEAREST_OR_AWAY = np.float32([0, 1, 2, 2, 3, 3, _LARGE, 2.0**24 + 2])
_NEAREST_OR_UNDER = np.float32([0, 0, 1, 2, 2, 3, _LARGE, 2.0**24 + 2])

X = np.concatenate([_X, -_X, np.float32([0.0, np.inf, -np.inf, np.nan])])
_REST = X[-4:]
AWAY = np.concatenate([_NEAREST_OR_AWAY, -_NEAREST_OR_AWAY, _REST])
"""The nearest whole numbers of `X`; ties round away from zero."""
DOWN = np.concatenate([_NEAREST_OR_UNDER, -_NEAREST_OR_AWAY, _REST])
"""The nearest whole numbers of `X`; ties round down."""
