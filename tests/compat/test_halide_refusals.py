"""What Halide's names refuse, and what may change between two runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilesmith.compat.halide as hl
from tilesmith.support.errors import ExpressionError, UsageError

x, y = hl.Var("x"), hl.Var("y")


def _squares() -> hl.Func:
    f = hl.Func("f")
    f[x] = x * x
    return f


@pytest.mark.parametrize("high", [300, 3.5, hl.i32(x)])
def test_clamp_refuses_a_bound_that_the_type_does_not_hold(high: Any) -> None:
    with pytest.raises(ExpressionError, match="clamp of u8: expected bounds"):
        hl.clamp(hl.u8(x), 0, high)


def test_clamp_takes_bounds_of_smaller_types() -> None:
    f = hl.Func("f")
    f[x] = hl.clamp(hl.i32(x) - 2, hl.i8(0), hl.u8(3))
    assert np.asarray(f.realize([8])).tolist() == [0, 0, 0, 1, 2, 3, 3, 3]


def test_undef_is_answered_with_the_old_value() -> None:
    with pytest.raises(UsageError, match="undef has no counterpart: use the old value"):
        hl.undef(hl.Int(32))


@pytest.mark.parametrize("value", [300, -1, 1.5, "1", True, np.int64(256)])
def test_a_parameter_refuses_a_number_that_its_type_does_not_hold(value: Any) -> None:
    with pytest.raises(UsageError, match="p: expected a number of type u8"):
        hl.Param(hl.UInt(8), "p", 0).set(value)


@pytest.mark.parametrize("given", [("p", 0, 0, 10), (0, 0, 10)])
def test_a_parameter_stays_in_its_range(given: tuple[Any, ...]) -> None:
    p = hl.Param(hl.UInt(8), *given)
    p.set(np.uint8(10))
    assert p.get() == 10
    with pytest.raises(UsageError, match="expected 0 to 10, found 11"):
        p.set(11)
    with pytest.raises(UsageError, match="expected 0 to 10, found 12"):
        hl.Param(hl.UInt(8), "p", 12, 0, 10)


def test_an_estimate_allows_other_sizes() -> None:
    image, f = hl.ImageParam(hl.Int(32), 1), hl.Func("f")
    image.set_estimates([(0, 24)])
    f[x] = image[x] + image.width()
    assert "i32[24]" in str(f.loops(4))
    image.set(hl.Buffer(np.arange(30, dtype=np.int32)))
    assert np.asarray(f.realize([3])).tolist() == [30, 31, 32]


def test_a_promise_after_a_run_holds_for_the_next_run() -> None:
    image, f = hl.ImageParam(hl.Int(32), 1), hl.Func("f")
    f[x] = image[x]
    image.set(hl.Buffer(np.arange(30, dtype=np.int32)))
    f.realize([3])
    image.dim(0).set_bounds(0, 24)
    with pytest.raises(UsageError, match="expected extent 24, found 30"):
        f.realize([3])
    image.dim(0).set_bounds(0, 30)
    f.output_buffer().dim(0).set_extent(4)
    with pytest.raises(UsageError, match="expected extent 4, found 3"):
        f.realize([3])


def test_a_condition_after_a_run_holds_for_the_next_run() -> None:
    r, f = hl.RDom([(0, 5)]), hl.Func("f")
    f[x] = 0
    f[x] += r.x
    assert np.asarray(f.realize([1])).tolist() == [10]
    r.where(r.x > 2)
    assert np.asarray(f.realize([1])).tolist() == [7]


def test_a_special_case_of_a_special_case_may_depend_on_a_parameter() -> None:
    f, p = _squares(), hl.Param(hl.Int(32), "p", 1)
    f.specialize(f.output_buffer().width() == 8).specialize(p == 1).vectorize(x, 4)
    for p_is in (1, 0):
        p.set(p_is)
        assert ("vectorized" in str(f.loops(8))) == bool(p_is)
        assert np.asarray(f.realize([8])).tolist() == [n * n for n in range(8)]
