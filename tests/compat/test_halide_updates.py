"""Funcs with several updates, and steps of schedules on updates that are loops."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import tilesmith.compat.halide as hl
from tilesmith.support.errors import ScheduleError, UsageError

x, y = hl.Var("x"), hl.Var("y")
SIZE = 6


def _sum(f: hl.Func) -> None:
    f[x] += hl.RDom([(0, 4)]).x * (x + 1)


def _largest(f: hl.Func) -> None:
    f[x] = hl.max(f[x], 3 * hl.RDom([(0, 5)]).x)


def _element(f: hl.Func) -> None:
    f[2] = f[2] * 2 + 7


def _running(f: hl.Func) -> None:
    r = hl.RDom([(1, SIZE - 1)])
    f[r] = f[r - 1] + f[r]


def _scatter(f: hl.Func) -> None:
    r = hl.RDom([(0, 9)])
    f[r % 3] += r


def _numpy(update: Callable[[hl.Func], None], a: np.ndarray) -> np.ndarray:
    """What `update` makes of `a`."""
    a = a.copy()
    if update is _sum:
        return a + 6 * np.arange(1, SIZE + 1)
    if update is _largest:
        return np.maximum(a, 12)
    if update is _element:
        a[2] = a[2] * 2 + 7
    if update is _running:
        return np.cumsum(a)
    if update is _scatter:
        np.add.at(a, np.arange(9) % 3, np.arange(9))
    return a


UPDATES = [_sum, _largest, _element, _running, _scatter]


@pytest.mark.parametrize("first", UPDATES)
@pytest.mark.parametrize("start", [0, 5])
def test_each_update_goes_on_from_the_results_of_the_one_before(first, start):
    for second, third in itertools.product(UPDATES, (None, _scatter)):
        f, expected = hl.Func("f"), np.full(SIZE, start)
        f[x] = start
        for update in (first, second, third):
            if update is not None:
                update(f)
                expected = _numpy(update, expected)
        np.testing.assert_array_equal(f.realize([SIZE]), expected, f"{second} {third}")


def test_a_step_cannot_change_the_order_in_which_an_update_reads_its_own_results():
    f, r = hl.Func("f"), hl.RDom([(0, 3), (0, 4)])
    f[x] = 1
    f[0] = f[0] * 2 + r.x + 10 * r.y
    f.update().reorder(r.y, r.x)
    with pytest.raises(ScheduleError, match=r"cannot reorder .*expected the order"):
        f.realize([1])


def _running_sums() -> tuple[hl.Func, hl.RDom]:
    f, r = hl.Func("f"), hl.RDom([(1, 7)])
    f[x, y] = x + y
    f[r, y] = f[r - 1, y] + f[r, y]
    return f, r


EXPECTED = np.cumsum(np.arange(8) + np.arange(3)[:, None], 1)


def test_steps_without_effect_on_an_update_that_is_loops_are_named_in_a_warning():
    f, r = _running_sums()
    f.vectorize(x, 4)
    f.update().reorder(r, y).split(y, y, hl.Var("yi"), 2).parallel(y)
    with pytest.warns(hl.ScheduleWarning) as told:
        np.testing.assert_array_equal(f.realize([8, 3]), EXPECTED)
    texts = [str(w.message) for w in told]
    assert any("split of x; vectorize of x" in t for t in texts), texts
    assert any("f: split of y; parallel of y: no effect" in t for t in texts), texts


def test_an_order_that_an_update_of_loops_takes_is_no_reason_for_a_warning():
    f, r = _running_sums()
    f.update().reorder(y, r)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(f.realize([8, 3]), EXPECTED)


def test_compute_at_of_a_func_whose_update_is_loops_warns_that_it_is_computed_whole():
    f, _ = _running_sums()
    g = hl.Func("g")
    g[x, y] = f[x, y]
    f.compute_at(g, y)
    with pytest.warns(hl.ScheduleWarning, match=r"f.compute_at\(g, y\): no effect"):
        np.testing.assert_array_equal(g.realize([8, 3]), EXPECTED)


def test_a_step_on_a_loop_that_an_update_does_not_have_is_an_error():
    f, _ = _running_sums()
    f.update().vectorize(hl.Var("nosuch"))
    with pytest.raises(ScheduleError, match="f has no loop nosuch; its loops are"):
        f.realize([8, 3])


def test_a_shift_by_a_negative_number_goes_in_the_other_direction():
    values, bits = np.array([64, -64, 5], np.int32), np.array([-1, 2, 0], np.int32)
    f = hl.Func("f")
    f[x] = (hl.Buffer(values)[x] << hl.Buffer(bits)[x], hl.Buffer(values)[x] >> hl.Buffer(bits)[x])
    left, right = f.realize([3])
    np.testing.assert_array_equal(left, [32, -256, 5])
    np.testing.assert_array_equal(right, [128, -16, 5])


def test_updates_stay_inside_of_what_other_updates_make_larger() -> None:
    r, q = hl.RDom([(0, 3)]), hl.RDom([(20, 4)])
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = 0
    f[x, x + r] += 1
    f[q, 0] = 1
    g[x, y] = f[x, y]
    expected = np.zeros((24, 26), int)
    for place, step in itertools.product(range(24), range(3)):
        expected[place, place + step] += 1
    expected[20:, 0] = 1
    assert "f: i32[26, 24]" in str(g.loops(4, 4))
    assert np.array_equal(np.asarray(g.realize([4, 4])), expected[:4, :4].T)


def test_a_read_of_the_own_diagonal_is_part_of_what_an_update_uses() -> None:
    r = hl.RDom([(1, 2)])
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = x + y
    f[x, r] = f[x, r - 1] + f[x, x]
    g[x, y] = f[x + 5, y]
    expected = np.add.outer(np.arange(10), np.arange(10))  # expected[x, y]
    for place, row in itertools.product(range(10), (1, 2)):
        expected[place, row] = expected[place, row - 1] + expected[place, place]
    assert np.array_equal(np.asarray(g.realize([3, 3])), expected[5:8, :3].T)


def test_updates_that_enlarge_each_other_without_end_are_refused() -> None:
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = 0
    f[x, x + 1] = 1
    f[y + 1, y] = 1
    g[x, y] = f[x, y]
    with pytest.raises(UsageError, match=r"f: expected updates that use a bounded part"):
        g.realize([4, 4])


def test_an_update_of_one_element_changes_no_other_one() -> None:
    f = hl.Func("f")
    f[x, y] = 0
    f[0, 0] = 5
    assert np.asarray(f.realize([3, 3])).tolist() == [[5, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_a_definition_that_an_update_replaces_needs_no_stage() -> None:
    f = hl.Func("f")
    f[x] = 7
    f[x] = x + 1
    f.update().vectorize(x, 4)
    assert np.asarray(f.realize([4])).tolist() == [1, 2, 3, 4]


def test_a_func_that_a_parameter_leaves_out_needs_no_stage() -> None:
    f, g, p = hl.Func("f"), hl.Func("g"), hl.Param(hl.Int(32), "p", 0)
    g[x] = x * x
    g.compute_root().vectorize(x, 4)
    f[x] = hl.select(p > 0, g[x], x)
    assert np.asarray(f.realize([4])).tolist() == [0, 1, 2, 3]
    p.set(1)
    assert np.asarray(f.realize([4])).tolist() == [0, 1, 4, 9]


def test_a_definition_and_its_update_may_both_have_steps() -> None:
    f = hl.Func("f")
    f[x, y] = x + y
    f[x, y] = f[x, y] * 2
    f.vectorize(x, 8)
    f.update().vectorize(x, 8)
    assert np.array_equal(np.asarray(f.realize([9, 3])), 2 * np.add.outer(range(3), range(9)))


def test_steps_of_the_start_of_a_reduction_name_its_loops() -> None:
    f = hl.Func("f")
    f[x] = 0
    f[x] += hl.RDom([(0, 4)]).x
    f.vectorize(y)
    f.update().unroll(x, 2)
    with pytest.raises(ScheduleError, match="f has no loop y; its loops are x"):
        f.realize([4])
