"""Upper bounds on models, so that a small hostile file can't fill the machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import SupportsInt

from tilesmith.ir.types import Dim
from tilesmith.support.errors import ModelError

MAX_ELEMENTS = 1 << 36
"""Upper bound on a tensor's elements, given or computed.  A model beyond it (256 GiB of f32) is
damaged or hostile.
"""

MAX_NODES = 500_000
"""Upper bound on the nodes that a model unfolds into (functions in functions, long loops)."""

MAX_DEPTH = 64
"""Upper bound on the nesting of functions and sub-graphs."""


def checked_dims(dims: Iterable[Dim], what: str) -> tuple[Dim, ...]:
    """Dimensions, some symbolic.  The numbers among them are checked as in `checked_shape`."""
    shape = tuple(dims)
    checked_shape([d for d in shape if isinstance(d, int)], what)
    return shape


def checked_shape(dims: Iterable[SupportsInt], what: str) -> tuple[int, ...]:
    """Dimensions as numbers.  Raises ModelError for negative ones and for too many elements."""
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
