"""Arrays of NumPy: the distance of two arrays, random arrays, and plain arrays from other objects.

Some arrays have more than plain numbers: elements are masked, or the numbers have a unit.  NumPy
drops masks and units silently when it makes a plain array, so such arrays are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import ModelError


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest absolute difference divided by the largest expected magnitude.  It is infinite if
    NaN or infinite elements of the arrays don't agree.
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
    """The `difference` from the first reference.  If that is above `bound`: the `difference` from
    the nearest values between the references (see `nearest`).
    """
    error = difference(found, references[0])
    if error <= bound or len(references) == 1:
        return error
    return difference(found, nearest(found, references))


def nearest(found: np.ndarray, references: Sequence[np.ndarray]) -> np.ndarray:
    """For each element of `found`, the nearest value between the least and the greatest reference,
    in f64.
    """
    spanned = np.stack([np.asarray(a, np.float64) for a in references])
    return np.clip(np.asarray(found, np.float64), spanned.min(0), spanned.max(0))


_MASK = "mask"
_UNITS = ("unit", "units")
"""Names of the properties by which arrays with masks or units are recognised: `numpy.ma`, and
packages of units (astropy, pint, unyt).  The C runtime uses the same names (csrc/module.c).
"""


def check_bare(value: Any, what: str) -> None:
    """Raises ModelError for an array with masked elements or with a unit.

    what: the array's description in messages.
    """
    kind = type(value)
    if kind is np.ndarray:
        return
    if _is_property(kind, _MASK) and np.any(value.mask):
        raise ModelError(
            f"{what}: expected an array without a mask, found a {kind.__name__} with masked "
            "elements; give .filled(value), where value is what the model shall read for them"
        )
    for name in _UNITS:
        unit = getattr(value, name) if _is_property(kind, name) else None
        if unit is not None and str(unit) not in ("", "dimensionless"):
            raise ModelError(
                f"{what}: expected bare numbers, found a {kind.__name__} in {unit}; convert it to "
                "the unit that the model expects and give its numbers (.magnitude or .value)"
            )


def bare(value: Any, what: str) -> np.ndarray:
    """The array that NumPy makes from `value`.  Raises as `check_bare` does."""
    check_bare(value, what)
    return np.asarray(value)


def _is_property(kind: type, name: str) -> bool:
    """Whether a name is a property of instances.  In pandas and other packages these names are
    methods.
    """
    member = getattr(kind, name, None)
    return member is not None and not callable(member)


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
