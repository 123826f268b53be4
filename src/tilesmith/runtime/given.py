"""What users give for inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilesmith.support.errors import ModelError

from .arrays import to_numpy
from .program import TensorSpec


def as_array(value: Any, spec: TensorSpec) -> np.ndarray:
    """A user's value for an input, of the input's shape; one of a host type is checked and boxed.

    A Python number is one for an input without dimensions, if the input's type has it.

    Raises ModelError for what is no array.
    """
    if spec.dtype.is_host:
        from .hosting import boxed

        return boxed(value, spec)
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        return _number(value, spec)
    return to_numpy(value, f"input {spec.name!r}", spec.dtype)


def _number(value: bool | int | float, spec: TensorSpec) -> np.ndarray:
    """A Python number as an array without dimensions.  Raises ModelError unless the input is one of
    a type that has the number: floats round it, as far as they reach.
    """
    what = f"input {spec.name!r}"
    if spec.shape != ():
        raise ModelError(
            f"{what}: expected an array of shape {list(spec.shape)}, found the number {value!r}"
        )
    dtype = spec.dtype
    if isinstance(value, bool) or dtype.is_bool:
        fits = isinstance(value, bool) and dtype.is_bool
    elif dtype.is_float:
        fits = not (isinstance(value, int) or math.isfinite(value)) or abs(value) <= dtype.largest
    else:
        fits = isinstance(value, int) and dtype.min <= value <= dtype.max
    if not fits:
        raise ModelError(f"{what}: expected a number of type {dtype}, found {value!r}")
    return np.asarray(value, dtype.numpy)
