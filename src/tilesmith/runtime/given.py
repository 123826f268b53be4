"""What users give for inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import to_numpy
from .program import TensorSpec


def as_array(value: Any, spec: TensorSpec) -> np.ndarray:
    """A user's value for an input, of the input's shape; one of a host type is checked and boxed.

    Raises ModelError for what is no array.
    """
    if spec.dtype.is_host:
        from .hosting import boxed

        return boxed(value, spec)
    return to_numpy(value, f"input {spec.name!r}")
