"""Conditions and bounds that read memory are no facts once that memory is written."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.loop.interpret import interpret
from tilesmith.loop.parse import parse_func

_BODIES = {
    "a condition inside its own branch": """\
    for i in range(4):
        if kept[0] < n[0]:
            for j in range(16):
                if kept[0] < n[0]:
                    kept[0] = kept[0] + 1
""",
    "what failed, in the other branch": """\
    if kept[0] > n[0]:
        kept[0] = 0
    else:
        for j in range(4):
            kept[0] = kept[0] + 3
            if kept[0] > n[0]:
                kept[0] = kept[0] - 100
""",
    "a guard around the whole body of a loop": """\
    kept[0] = n[0]
    for i in range(16):
        if i < kept[0]:
            kept[0] = kept[0] - 1
""",
    "the extent of a loop": """\
    kept[0] = n[0]
    for i in range(kept[0]):
        kept[0] = kept[0] - 2
        if i < kept[0]:
            kept[0] = kept[0] + 1
""",
    "one of two conditions": """\
    for i in range(8):
        if kept[0] < n[0] and n[0] > 2:
            kept[0] = kept[0] + 3
            if kept[0] < n[0] and n[0] > 2:
                kept[0] = kept[0] + 2
""",
}


@pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES.keys())
def test_what_is_written_is_looked_at_again(body: str) -> None:
    func = parse_func(f"""\
def f(n: i64[1], y: i64[1]) -> y:
    alloc kept: i64[1] register
    kept[0] = 0
{body}    y[0] = kept[0]
""")
    lowered = driver.lower_loops(func, driver.Session.of(None, threads=1))
    for n in (0, 1, 3, 5, 9):
        want, got = np.zeros(1, np.int64), np.zeros(1, np.int64)
        interpret(func, [np.array([n]), want])
        interpret(lowered, [np.array([n]), got])
        assert got == want
