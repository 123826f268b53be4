"""Checks of indices that a loop does not change are made in front of it, and report the same."""

from __future__ import annotations

import numpy as np
import pytest
from loop_programs import loop

from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Expr, Load, Var, const, post_order, select
from tilesmith.ir.intrinsics import checked_index, is_check
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Assert, Buffer, For, Func, If, LetStmt, Stmt, WaveReduce, seq
from tilesmith.loop.nodes import Store as S
from tilesmith.loop.passes.hoist_checks import hoist_checks
from tilesmith.loop.text import print_func
from tilesmith.loop.visit import exprs, walk

X, AT, Y = Buffer("X", f32, (12,)), Buffer("AT", i64, (2,)), Buffer("Y", f32, (8,))
i, j, n = Var("i"), Var("j"), Var("n")


def _place(at: Expr = i, position: Expr = i * 4 + j) -> Expr:
    return checked_index(Load(AT, (at,)), const(3), position)


def _copy(place: Expr, buffer: Buffer = Y) -> Stmt:
    return S(buffer, (i * 4 + j,), Load(X, (place * 4 + j,)))


def _rows(body: Stmt, extent: Expr | int = 4) -> Func:
    return Func("rows", (X, AT, Y, n), (Y,), loop(i, 2, loop(j, extent, body)))


def _inside(func: Func) -> int:
    """The checks in the innermost loop."""
    (inner,) = (s for s in walk(func.body) if isinstance(s, For) and s.var is j)
    return sum(is_check(e) for root in exprs(inner.body) for e in post_order(root))


def test_a_row_is_checked_once_at_the_position_of_its_first_element() -> None:
    found = hoist_checks(_rows(_copy(_place())))
    assert _inside(found) == 0
    (let,) = (s for s in walk(found.body) if isinstance(s, LetStmt))
    assert "check_index(AT[i], 3, i * 4 + 0)" in print_func(found)
    assert hoist_checks(found) is found
    assert let.value.dtype is i64


@pytest.mark.parametrize("size", [0, 1, 4])
def test_a_loop_that_may_not_run_is_asked_first(size: int) -> None:
    before = _rows(_copy(_place()), n)
    after = hoist_checks(before)
    assert _inside(after) == 0 and "select(n > 0" in print_func(after).replace("0 < n", "n > 0")
    x, at = np.arange(12, dtype=np.float32), np.array([2, -3])
    results = []
    for func in (before, after):
        y = np.zeros(8, np.float32)
        interpret(func, [x, at, y, size])
        results.append(y)
    np.testing.assert_array_equal(*results)


def test_both_branches_of_a_condition_make_the_check() -> None:
    low, high = _copy(_place()), _copy(_place(position=i * 4 + j + 1 - 1))
    assert _inside(hoist_checks(_rows(If(j < 2, low, high)))) == 0
    assert _inside(hoist_checks(_rows(If(j < 2, low)))) == 1


@pytest.mark.parametrize(
    "body",
    [
        _copy(_place(j)),  # differs in the loop
        _copy(select(j < 2, _place(), const(0))),  # is not made in each iteration
        seq(S(AT, (i,), const(1)), _copy(_place())),  # reads what the loop writes
        seq(Assert(j < n, "too many"), _copy(_place())),  # may not be reached
    ],
)
def test_other_checks_stay(body: Stmt) -> None:
    func = _rows(body)
    assert hoist_checks(func) is func


def test_a_place_that_threads_combine_stays_behind_the_combination() -> None:
    v = Var("v")
    place = checked_index(v, const(3), const(0))
    body = WaveReduce(v, "max", Load(AT, (i,)), 1, _copy(place))
    func = _rows(body)
    assert hoist_checks(func) is func
