"""Random inputs, to run a model without an example."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def sample_array(
    dtype: np.dtype, shape: Sequence[int], rng: np.random.Generator, limit: int | None = None
) -> np.ndarray:
    """A random array: floats are standard normal; integers are 0 or 1, so that they are valid both
    as indices into a table and as a mask.

    limit: for integers that are indices, the number of elements that they index.
    """
    if dtype.kind == "b":
        return rng.integers(0, 2, tuple(shape)).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0, 2 if limit is None else limit, tuple(shape)).astype(dtype)
    return rng.standard_normal(tuple(shape), dtype=np.float32).astype(dtype)
