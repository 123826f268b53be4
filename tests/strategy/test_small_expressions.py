"""Rules choose a schedule for results of one element, of none, and for scans."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.loop.interpret import interpret

X = te.placeholder((4, 4), "i32", "X")


def number() -> list[te.Tensor]:
    """A number that several rows read."""
    first = te.compute((), lambda: X[1, 2] * 3, "first")
    return [te.compute((4,), lambda i: first[()] + X[i, 0] * first[()], "out")]


def one_element() -> list[te.Tensor]:
    """Stages of several readers before a row of one element."""
    border = te.compute((6, 6), lambda i, j: te.if_then_else(
        te.all(i >= 1, i < 5, j >= 1, j < 5), X[i - 1, j - 1], 0), "border")  # fmt: skip
    window = te.compute((1, 1), lambda i, j: border[i, j + 1] + border[i + 2, j] * 2, "window")
    return [te.compute((1,), lambda i: border[i, i % 3] - window[i, i] + X[i, 0], "out")]


def none() -> list[te.Tensor]:
    rows = te.compute((0, 4), lambda i, j: X[i, j] + X[i, 3 - j], "rows")
    return [te.compute((0, 4), lambda i, j: rows[i, j] * rows[i, 3 - j], "out")]


def reduced_scan() -> list[te.Tensor]:
    """A step of a scan that is a stage of its own, and reads the scan."""
    state = te.placeholder((4, 4), "i32", "state")
    k = te.reduce_axis(4, "k")
    first = te.compute((1, 4), lambda t, i: X[0, i], "first")
    most = te.compute((4, 1), lambda t, u: te.max(state[t - 1, k], axis=k), "most")
    step = te.compute((4, 4), lambda t, i: X[t, i] - most[t, 0], "step")
    scan = te.scan(first, step, state, name="scan")
    doubled = te.compute((4, 4), lambda t, i: scan[t, i] * 2, "doubled")
    return [te.compute((4, 4), lambda t, i: doubled[t, i] + doubled[t, 3 - i], "out")]


@pytest.mark.parametrize("make", [number, one_element, none, reduced_scan])
def test_auto_keeps_the_answer(make: Callable[[], list[te.Tensor]]) -> None:
    args = [X, *make()]
    plain = te.create_schedule(args[1:])
    data = np.arange(16, dtype=np.int32).reshape(4, 4) * 7 % 11
    results = []
    for s in (plain, ts.auto_schedule(args)):
        results.append(np.full(args[1].shape, -9, np.int32))
        interpret(te.lower(s, args), [data, results[-1]])
    np.testing.assert_array_equal(results[1], results[0])
