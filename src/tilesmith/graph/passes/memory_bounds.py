"""Upper bounds on data-dependent sizes.  The bounds are known earlier than the sizes."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.graph.measure import Stage
from tilesmith.ir.bounds import eliminate
from tilesmith.ir.expr import Expr, Var, free_vars
from tilesmith.ir.extents import values_of
from tilesmith.ir.simplify import interval
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.symbols import as_dim, expected
from tilesmith.ir.types import Dim
from tilesmith.perf.limits import LOOSE_BYTES

FACTOR = 4
"""A bound of more than `LOOSE_BYTES` is used only up to this multiple of the expected size."""

_LARGEST_NUMBER = 1 << 48
"""Upper bound on the constant factors of a bound in bytes, so that the rest of the formula can't
overflow.
"""


def known_before(factors: Sequence[Dim], stages: Sequence[Stage]) -> Dim | Stage:
    """An upper bound on the product of `factors`, in bytes, that is known before the consecutive
    `stages`.  No factor is negative.  If no bound is known, or if the bound is far larger than the
    expected size, returns the last stage on which the product depends.
    """
    size, most, number, last, is_bounded = 1, 1, 1, -1, True
    for factor in factors:
        bound, behind = _bound(factor, stages)
        size, last = size * factor, max(last, behind)
        if bound is None:
            is_bounded = False
        else:
            number *= bound if isinstance(bound, int) else 1
            most = most * bound if number <= _LARGEST_NUMBER else most
    if not is_bounded:
        return stages[last]
    if last < 0:
        return as_dim(size)
    fits = number <= _LARGEST_NUMBER and expected(most) <= max(LOOSE_BYTES, FACTOR * expected(size))
    return as_dim(most) if fits else stages[last]


def largest_shape(shape: Sequence[Dim], stages: Sequence[Stage]) -> tuple[Dim, ...] | None:
    """Upper bounds of a value's extents that are known before `stages`.  None if one bound is only
    the general limit `LARGEST`.
    """
    bounds: list[Dim] = []
    for extent in shape:
        bound, _ = _bound(extent, stages)
        least = None if bound is None else values_of(bound).lo
        if bound is None or (least is not None and least >= LARGEST):
            return None
        bounds.append(bound)
    return tuple(bounds)


def _bound(factor: Dim, stages: Sequence[Stage]) -> tuple[Dim | None, int]:
    """An upper bound of a factor, and the number of the last stage on which the factor depends.

    The bound is None if no bound is known, or if it might not fit 64 bits.
    """
    last, is_exact = -1, isinstance(factor, int) or interval(factor).hi is not None
    for i, stage in reversed(list(enumerate(stages))):
        for symbol, limit in zip(stage.symbols[::-1], stage.bounds[::-1], strict=True):
            if isinstance(factor, Expr) and symbol in free_vars(factor):
                last = max(last, i)
                most = _most(factor, symbol, limit) if is_exact else None
                if most is None:
                    return None, last
                factor = most
    return factor, last


def _most(size: Expr, symbol: Var, limit: Dim) -> Dim | None:
    """An upper bound of `size` without `symbol` in it, where `symbol` is at most `limit`."""
    assert symbol.sizes is not None
    high = min(limit, symbol.sizes.high) if isinstance(limit, int) else limit
    interval = eliminate(size, {symbol: (symbol.sizes.low, high)})
    return None if interval is None else as_dim(interval[1])
