"""Funcs with several updates, and steps of schedules on updates that are loops."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import tilesmith.compat.halide as hl
from tilesmith.support.errors import ScheduleError

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
