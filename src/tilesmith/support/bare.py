"""Arrays with more than plain numbers: some elements are masked, or the numbers have a unit.  NumPy
drops both silently when it makes a plain array of one, so they are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import ModelError

_MASK = "mask"
_UNITS = ("unit", "units")
"""Properties of the classes of such arrays: `numpy.ma`, and packages of units (astropy, pint,
unyt).  The C runtime knows the same names (csrc/module.c).
"""


def check_bare(value: Any, what: str) -> None:
    """Raises ModelError for an array with masked elements or with a unit.

    what: the array in messages.
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
    """The array that NumPy makes of `value`.  Raises as `check_bare` does."""
    check_bare(value, what)
    return np.asarray(value)


def _is_property(kind: type, name: str) -> bool:
    """Whether a name is a property of instances; in pandas and others these names are methods."""
    member = getattr(kind, name, None)
    return member is not None and not callable(member)
