"""Small loops before and after passes, as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilesmith.loop.compare import assert_structural_equal
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.loop.passes.bind_parts import bind_parts
from tilesmith.loop.passes.scalarize import without_threads
from tilesmith.loop.passes.share import share
from tilesmith.loop.passes.tensorize import (
    tensorize,
    without_intrinsics,
    without_own_intrinsics,
)
from tilesmith.loop.passes.vector_copies import vector_copies
from tilesmith.strategy.intrinsics import SHIPPED
from tilesmith.support.errors import ScheduleError

assert any(i.name == "pmaddwd_4" for i in SHIPPED)  # the texts name it


def check(run: Callable[[Func], Func], before: str, after: str) -> None:
    assert_structural_equal(run(parse_func(before)), parse_func(after))


def check_unchanged(run: Callable[[Func], Func], text: str) -> None:
    func = parse_func(text)
    assert run(func) is func


DOTS = """\
def f(A: i16[64], W: i16[128], C: i32[4]) -> C:
    for k in range(16):
        tensor pmaddwd_4:
            for j in vectorized(4):
                for q in unrolled(2):
                    C[j] = C[j] + i32(A[k * 2 + q]) * i32(W[k * 8 + j * 2 + q])
"""
CALL = (
    "C[ramp(0, 1, 4)] = tensor_pmaddwd_4("
    "C[ramp(0, 1, 4)], A[ramp(k * 2, 1, 2)], W[ramp(k * 8, 1, 8)])"
)
LOOPS = """\
def f(A: i16[64], W: i16[128], C: i32[4]) -> C:
    for k in range(16):
        for j in vectorized(4):
            for q in unrolled(2):
                C[j] = C[j] + i32(A[k * 2 + q]) * i32(W[k * 8 + j * 2 + q])
"""


def test_loops_become_a_call() -> None:
    after = f"""\
def f(A: i16[64], W: i16[128], C: i32[4]) -> C:
    for k in range(16):
        {CALL}
"""
    check(tensorize, DOTS, after)


def test_the_order_of_loops_and_factors_does_not_matter() -> None:
    text = """\
def f(A: i16[64], W: i16[128], C: i32[4]) -> C:
    for k in range(16):
        tensor pmaddwd_4:
            for q in unrolled(2):
                for j in vectorized(4):
                    C[j] = C[j] + i32(W[k * 8 + j * 2 + q]) * i32(A[k * 2 + q])
"""
    assert_structural_equal(tensorize(parse_func(text)), tensorize(parse_func(DOTS)))


def test_a_tail_keeps_its_loops() -> None:
    guarded = "if k * 4 + j < 62:\n                        C[j] ="
    after = f"""\
def f(A: i16[64], W: i16[128], C: i32[4]) -> C:
    for k in range(16):
        if k < 15:
            {CALL}
        else:
            for j in vectorized(4):
                for q in unrolled(2):
                    if k * 4 + j < 62:
                        C[j] = C[j] + i32(A[k * 2 + q]) * i32(W[k * 8 + j * 2 + q])
"""
    check(tensorize, DOTS.replace("C[j] =", guarded), after)


def test_a_tile_in_another_order_is_refused() -> None:
    func = parse_func(DOTS.replace("k * 8 + j * 2 + q", "k * 8 + q * 4 + j"))
    with pytest.raises(ScheduleError, match="must lie in memory with strides 2, 1 along n, k"):
        tensorize(func)


@pytest.mark.parametrize("run", [without_intrinsics, without_own_intrinsics])
def test_targets_without_the_instruction_keep_the_loops(run: Callable[[Func], Func]) -> None:
    check(run, DOTS, LOOPS)


@pytest.mark.parametrize("run", [tensorize, without_intrinsics, without_own_intrinsics])
def test_plain_loops_stay(run: Callable[[Func], Func]) -> None:
    check_unchanged(run, LOOPS)


COPY = """\
def f(X: f32[64], Y: f32[64]) -> Y:
    for t in range(16):
        for v in vectorized(4):
            Y[t * 4 + v] = X[t * 4 + v]
"""


def test_a_copy_is_one_vector() -> None:
    after = """\
def f(X: f32[64], Y: f32[64]) -> Y:
    for t in range(16):
        Y[ramp(t * 4, 1, 4)] = X[ramp(t * 4, 1, 4)]
"""
    check(vector_copies, COPY, after)


def test_a_copy_under_a_condition_is_one_of_two_vectors() -> None:
    after = """\
def f(X: f32[64], Y: f32[64]) -> Y:
    for t in range(16):
        if t < 9:
            Y[ramp(t * 4, 1, 4)] = X[ramp(t * 4, 1, 4)]
        else:
            Y[ramp(t * 4, 1, 4)] = broadcast(0.0, 4)
"""
    check(
        vector_copies, COPY.replace("= X[t * 4 + v]", "= select(t < 9, X[t * 4 + v], 0.0)"), after
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("= X[t * 4 + v]", "= X[t * 3 + v]"),
        ("= X[t * 4 + v]", "= X[t * 4 + v + 1]"),
        ("= X[t * 4 + v]", "= X[t * 4 + 3 - v]"),
        ("= X[t * 4 + v]", "= X[t * 4 + v] + 1.0"),
        ("= X[t * 4 + v]", "= select(v < 2, X[t * 4 + v], 0.0)"),
        ("vectorized(4)", "vectorized(8)"),
        ("vectorized(4)", "vectorized(3)"),
    ],
    ids=["stride", "offset", "reversed", "arithmetic", "lanes differ", "32 bytes", "12 bytes"],
)
def test_what_is_no_vector_is_a_serial_loop(old: str, new: str) -> None:
    text = COPY.replace(old, new).replace("f32[64]", "f32[80]")
    check(vector_copies, text, text.replace("vectorized", "range"))


def test_loops_without_vectors_stay() -> None:
    check_unchanged(vector_copies, COPY.replace("vectorized", "range"))


def chain(length: int) -> str:
    """A value that `length` selects in each other use in both branches."""
    value = "X[i]"
    for k in range(length):
        value = f"select({value} < {k}.0, {value} + 1.0, {value} * 2.0)"
    return f"def f(X: f32[8], Y: f32[8]) -> Y:\n    for i in range(8):\n        Y[i] = {value}\n"


def test_a_value_in_many_branches_has_a_name() -> None:
    inner = "select(t < 0.0, t + 1.0, t * 2.0)"
    after = f"""\
def f(X: f32[8], Y: f32[8]) -> Y:
    for i in range(8):
        let t: f32 = X[i]
        Y[i] = select({inner} < 1.0, {inner} + 1.0, {inner} * 2.0)
"""
    check(share, chain(2), after)


def test_one_select_needs_no_name() -> None:
    check_unchanged(share, chain(1))


def test_a_value_of_a_branch_is_computed_where_that_runs() -> None:
    value = chain(3).partition("= ")[2].strip()
    before = f"""\
def f(X: f32[8], c: i64, Y: f32[8]) -> Y:
    for i in range(8):
        Y[i] = select(i < c, {value}, 0.0)
"""
    inner = "select(t < 1.0, t + 1.0, t * 2.0)"
    after = f"""\
def f(X: f32[8], c: i64, Y: f32[8]) -> Y:
    for i in range(8):
        let wanted: bool = i < c
        let t: f32 = select(wanted, select(X[i] < 0.0, X[i] + 1.0, X[i] * 2.0), 0.0)
        Y[i] = select(wanted, select({inner} < 2.0, {inner} + 1.0, {inner} * 2.0), 0.0)
"""
    check(share, before, after)


DEEP = """\
def f(X: f32[8], c: i64, Y: f32[8]) -> Y:
    for i in range(8):
        Y[i] = {value}
"""
ONES = " + 1.0"


def test_a_deep_sum_is_divided() -> None:
    part = f"let part: f32 = X[i]{ONES * 99}\n        Y[i] = part{ONES * 6}"
    after = DEEP.replace("Y[i] = {value}", part)
    check(bind_parts, DEEP.format(value=f"X[i]{ONES * 105}"), after)


def test_a_part_of_a_branch_reads_memory_only_if_the_branch_would() -> None:
    before = DEEP.format(value=f"select(i < c, X[i]{ONES * 105}, 0.0)")
    after = DEEP.replace(
        "Y[i] = {value}",
        "let is_needed: bool = i < c\n"
        f"        let part: f32 = select(is_needed, X[i], 0.0){ONES * 99}\n"
        f"        Y[i] = select(i < c, part{ONES * 6}, 0.0)",
    )
    check(bind_parts, before, after)


def test_what_both_branches_read_needs_no_guard() -> None:
    before = DEEP.format(value=f"select(i < c, X[i]{ONES * 105}, X[i])")
    after = DEEP.replace(
        "Y[i] = {value}",
        f"let part: f32 = X[i]{ONES * 99}\n        Y[i] = select(i < c, part{ONES * 6}, X[i])",
    )
    check(bind_parts, before, after)


def test_a_sum_of_a_hundred_levels_is_not_divided() -> None:
    check_unchanged(bind_parts, DEEP.format(value=f"X[i]{ONES * 98}"))


def test_threads_become_serial_loops() -> None:
    before = COPY.replace("range(16)", "parallel(16)")
    check(without_threads, before, COPY)
    check_unchanged(without_threads, COPY)
