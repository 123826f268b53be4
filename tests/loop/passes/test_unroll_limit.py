"""Loops that are too long to be unrolled are refused: nothing hangs."""

from __future__ import annotations

import pytest

from tilesmith.loop.parse import parse_func
from tilesmith.loop.passes.unroll import unroll
from tilesmith.support.errors import ScheduleError

ROWS = """\
def k(x: f32[{0}]) -> x:
    for i in unrolled({0}):
        x[i] = 1.0
"""

NESTED = """\
def k(x: f32[{0}, {0}]) -> x:
    for i in unrolled({0}):
        for j in unrolled({0}):
            x[i, j] = 1.0
"""


@pytest.mark.parametrize("text", (ROWS.format(1 << 40), NESTED.format(1 << 16)))
def test_too_many_copies(text: str) -> None:
    with pytest.raises(ScheduleError, match=r"the unrolled loop over [ij] has \d+ iterations"):
        unroll(parse_func(text))
