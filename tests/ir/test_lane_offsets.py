"""Vector indices close to each other become shuffles of whole vectors."""

from __future__ import annotations

import pytest

from tilesmith.ir.expr import Binary, Broadcast, Ramp, Var, const
from tilesmith.ir.lane_offsets import lane_offsets

BASE = Var("base")
LANES = Ramp(const(0), const(1), 8)


def splat(value):
    return Broadcast(const(value) if isinstance(value, int) else value, 8)


@pytest.mark.parametrize(
    ("index", "base", "offsets"),
    [
        (Ramp(BASE, const(2), 4), BASE, (0, 2, 4, 6)),
        (splat(BASE) + (LANES // splat(4)) * splat(4), BASE, (0, 0, 0, 0, 4, 4, 4, 4)),
        ((LANES % splat(3)) + splat(BASE), BASE, (0, 1, 2, 0, 1, 2, 0, 1)),
        (splat(BASE) - LANES, BASE, (0, -1, -2, -3, -4, -5, -6, -7)),
    ],
)
def test_offsets(index, base, offsets) -> None:
    assert lane_offsets(index) == (base, offsets)


def test_a_base_inside_a_quotient_has_no_offsets() -> None:
    assert lane_offsets(Binary("floordiv", Ramp(BASE, const(1), 8), splat(4))) is None
    assert lane_offsets(splat(3) - splat(BASE)) is None
