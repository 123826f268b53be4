"""Extents of resized images: floor(extent * factor), rounded as the model's engine does."""

from __future__ import annotations

import math

import numpy as np

from tilesmith.ir import extents
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim
from tilesmith.ops.resize import short_fraction
from tilesmith.support.errors import OpenDimensionError

_CHECKED = 1 << 16
"""The rounding of an engine is compared with exact arithmetic for all extents below this one."""


def scaled(extent: Dim, factor: float, number_type: type[np.floating], what: str) -> Dim:
    """floor(extent * factor), multiplied in `number_type`: in f32, 0.7 * 10 is 7 and not 6.

    Raises OpenDimensionError if the extent is open and the result depends on the rounding of the
    product; `what` names the extent.
    """
    if isinstance(extent, int):
        return math.floor(float(number_type(extent) * number_type(factor)))
    number, by = short_fraction(factor).as_integer_ratio()
    some = np.arange(_CHECKED)
    rounded = np.floor(some.astype(number_type) * number_type(factor)).astype(np.int64)
    if not np.array_equal(rounded, some * number // by):
        raise OpenDimensionError(
            f"{what}: floor({extent} * {factor}) depends on rounding; give the input its size "
            "with shapes=",
            (extent,),
        )
    return as_dim(as_expr(extents.product((extent, number))) // by)
