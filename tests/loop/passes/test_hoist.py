"""Invariant conditions move out of loops; what follows from them is decided there."""

from __future__ import annotations

import numpy as np
import pytest
from loop_programs import loop

from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Broadcast, Load, Ramp, Var, VectorReduce, const
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Buffer, For, Func, If, seq
from tilesmith.loop.nodes import Store as S
from tilesmith.loop.passes.hoist import CONDITION_LIMIT, hoist
from tilesmith.loop.visit import walk

X, Y = Buffer("X", f32, (32,)), Buffer("Y", f32, (4,))


def _rows(count: int) -> Func:
    """A tile of `count` rows, of which the first n are there."""
    n, k = Var("n"), Var("k")
    rows = []
    for row in range(count):
        sum_ = Load(X, (const(row),)) + Load(Y, (k,))
        rows.append(If(const(row) < n, S(X, (const(row),), sum_), None, True))
    return Func("rows", (X, Y, n), (X,), loop(k, 4, seq(*rows)))


def test_a_condition_that_the_simplifier_does_not_decide_is_decided_once() -> None:
    n, k = Var("n"), Var("k")
    some = VectorReduce("or", Ramp(const(0), const(5), 3) < Broadcast(n, 3))
    sum_ = Load(X, (const(0),)) + Load(Y, (k,))
    after = S(X, (const(1),), Load(X, (const(1),)) + 1.0)
    rows = seq(If(some, S(X, (const(0),), sum_)), after)
    found = hoist(Func("some", (X, Y, n), (X,), loop(k, 4, rows)))
    assert isinstance(found.body, If)
    for size in range(-1, 3):
        x, y = np.zeros(32, np.float32), np.arange(4, dtype=np.float32)
        interpret(found, [x, y, size])
        assert x[0] == (6 if size > 0 else 0) and x[1] == 4


@pytest.mark.parametrize("count", [2, 6, CONDITION_LIMIT, CONDITION_LIMIT + 1, 13])
def test_guards_of_rows_make_a_version_for_each_number_of_rows(count: int) -> None:
    func = _rows(count)
    found = hoist(func)
    loops = sum(isinstance(s, For) for s in walk(found.body))
    assert loops == (count if count <= CONDITION_LIMIT else 1)  # none for no rows
    for n in range(count + 2):
        x, y = np.arange(32, dtype=np.float32), np.arange(4, dtype=np.float32)
        want = x + np.where(np.arange(32) < min(n, count), y.sum(), 0).astype(np.float32)
        interpret(found, [x, y, n])
        np.testing.assert_array_equal(x, want)
