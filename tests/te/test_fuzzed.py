"""What random schedules found (`python -m benchmarks.fuzz --schedules`)."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import te
from tilesmith.loop.interpret import interpret
from tilesmith.support.errors import ScheduleError


def test_an_attached_output_of_which_the_caller_takes_one_value() -> None:
    """The other value is memory of the kernel; both were stored where only that one had room."""
    x = te.placeholder((5,), "i64", "X")
    first, second = te.compute((5, 3), lambda i, j: (x[i] + j, x[i] * 2 - j), "T")
    for taken, read in ((first, second), (second, first)):
        u = te.compute((5, 3), lambda i, j, read=read: read[i, j] + 1, "U")
        s = te.create_schedule([taken, u])
        s[taken].compute_at(s[u], "j")
        data = np.arange(5)
        got = [np.full((5, 3), -9) for _ in range(2)]
        interpret(te.lower(s, [x, taken, u]), [data, *got])
        j = np.arange(3)
        values = {first: data[:, None] + j, second: data[:, None] * 2 - j}
        np.testing.assert_array_equal(got[0], values[taken])
        np.testing.assert_array_equal(got[1], values[read] + 1)


@pytest.mark.parametrize("scope", ["stack", "shared"])
def test_threads_that_compute_parts_of_memory_of_their_own_are_refused(scope: str) -> None:
    """Each computed one part of what it read whole."""
    x = te.placeholder((12,), "i32", "X")
    t = te.compute((14,), lambda i: te.if_then_else(te.all(i >= 1, i < 13), x[i - 1], 0), "T")
    u = te.compute((12,), lambda i: t[i + 1] + t[i + 2], "U")
    s = te.create_schedule(u)
    _, inner = s[t].split("i", factor=9, tail="guard")
    s[t].bind(inner, "threadIdx.x")
    block, thread = s[u].split("i", factor=7)
    s[u].bind(block, "blockIdx.x")
    s[u].bind(thread, "threadIdx.x")
    s[t].set_scope(scope)
    s[t].compute_at(s[u], thread)
    if scope == "stack":
        with pytest.raises(ScheduleError, match="each thread has memory of its own for T"):
            te.lower(s, [x, u])
        return
    s[t].serial(inner)
    data, got = np.arange(12, dtype=np.int32), np.full(12, -9, np.int32)
    interpret(te.lower(s, [x, u]), [data, got])
    np.testing.assert_array_equal(got, data + np.append(data[1:], 0))


def test_memory_of_a_thread_that_threads_fill_together_is_refused() -> None:
    """Each filled its own, and read elements that others had."""
    x = te.placeholder((12,), "i32", "X")
    t = te.compute((12,), lambda i: x[i] * 3, "T")
    u = te.compute((12,), lambda i: t[11 - i], "U")
    for scope in ("stack", "shared"):
        s = te.create_schedule(u)
        block, thread = s[u].split("i", factor=4)
        s[u].bind(block, "blockIdx.x")
        s[u].bind(thread, "threadIdx.x")
        s[t].bind("i", "threadIdx.x")
        s[t].set_scope(scope)
        s[t].compute_at(s[u], block)
        if scope == "stack":
            with pytest.raises(ScheduleError, match="what reads it needs all of it"):
                te.lower(s, [x, u])
            continue
        data, got = np.arange(12, dtype=np.int32), np.full(12, -9, np.int32)
        interpret(te.lower(s, [x, u]), [data, got])
        np.testing.assert_array_equal(got, data[::-1] * 3)


@pytest.mark.parametrize("scope", ["stack", "shared"])
def test_more_threads_than_the_one_around_are_refused(scope: str) -> None:
    """A loop of threads stood inside another one: an internal error."""
    x = te.placeholder((12,), "i32", "X")
    t = te.compute((12,), lambda i: x[i] * 3, "T")
    u = te.compute((11,), lambda i: t[i] + t[i + 1], "U")
    s = te.create_schedule(u)
    _, thread = s[u].split("i", factor=1)
    s[u].bind(thread, "threadIdx.x")
    s[t].bind("i", "threadIdx.x")
    s[t].set_scope(scope)
    s[t].compute_at(s[u], thread)
    with pytest.raises(ScheduleError, match=r"and the loop ii around it|expected at most 1"):
        te.lower(s, [x, u])


def test_an_attached_output_that_loops_by_hand_write_is_refused() -> None:
    """Its check of reads ended in a ValueError."""
    x = te.placeholder((4,), "i64", "X")

    def body(b, x, y):
        with b.loop(4, "i") as i:
            y[i] = x[i] * 2

    e = te.extern(4, [x], body, name="E")
    t = te.compute((3, 4), lambda i, j: e[j] + i, "T")
    s = te.create_schedule([e, t])
    with pytest.raises(ScheduleError, match="loops written by hand write all of it"):
        s[e].compute_at(s[t], "i")
