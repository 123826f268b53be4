"""Upper bounds on models, so that a small hostile file can't fill the machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import SupportsInt

from tilesmith.ir.types import Dim
from tilesmith.support.errors import ModelError

MAX_ELEMENTS = 1 << 36
"""Elements of a tensor, given or computed; 256 GiB of f32 is a damaged or hostile model."""

MAX_NODES = 500_000
"""Nodes that a model unfolds into (functions in functions, long loops)."""

MAX_DEPTH = 64
"""Functions and sub-graphs within one another."""


def checked_dims(dims: Iterable[Dim], what: str) -> tuple[Dim, ...]:
    """Dimensions, numbers or symbolic; the numbers are checked as in `checked_shape`."""
    shape = tuple(dims)
    checked_shape([d for d in shape if isinstance(d, int)], what)
    return shape


def checked_shape(dims: Iterable[SupportsInt], what: str) -> tuple[int, ...]:
    """Dimensions as numbers: none negative, few enough elements.  Raises ModelError."""
    shape = tuple(int(d) for d in dims)
    if any(d < 0 for d in shape):
        raise ModelError(f"{what}: expected dimensions >= 0, found {list(shape)}")
    elements = 1
    for d in shape:
        elements *= max(d, 1)
        if elements > MAX_ELEMENTS:
            raise ModelError(
                f"{what} has shape {list(shape)}: more than {MAX_ELEMENTS} elements, the most "
                "allowed"
            )
    return shape
