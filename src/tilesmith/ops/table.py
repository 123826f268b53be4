"""The complete operator table.  Importing this module defines every operator.

`OPS` maps an operator's name to its class; `FAMILIES` lists the modules that define them, in the
order of the documentation.
"""

from __future__ import annotations

from types import ModuleType

from . import (
    activation,
    attention,
    columns,
    conv,
    coupling,
    deform,
    divisor,
    einsum,
    elementwise,
    fixed_point,
    fourier,
    gather,
    linalg,
    lookup,
    matmul,
    norm,
    packed,
    pool,
    quantize,
    random,
    reduce,
    resample,
    resize,
    runtime_shape,
    sample,
    scan,
    scatter,
    select,
    shape,
    sizes,
    slicing,
    sort,
    suppression,
    trees,
    vjp,
    winograd,
)
from .base import OPS

FAMILIES: tuple[ModuleType, ...] = (
    elementwise,
    activation,
    reduce,
    matmul,
    packed,
    einsum,
    conv,
    columns,
    deform,
    winograd,
    pool,
    norm,
    attention,
    quantize,
    fixed_point,
    shape,
    runtime_shape,
    sizes,
    slicing,
    gather,
    divisor,
    scatter,
    select,
    sort,
    suppression,
    lookup,
    trees,
    coupling,
    scan,
    resample,
    resize,
    sample,
    random,
    fourier,
    linalg,
    vjp,
)

__all__ = ["FAMILIES", "OPS"]
