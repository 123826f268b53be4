"""Shared memory that is filled ahead, by asynchronous copies: loops, races, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from common.blocks_of_threads import barriers, blocked, blocked_schedule, product, run
from common.pipelined_blocks import pipelined
from tilesmith import te
from tilesmith.loop.compare import assert_structural_equal
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import AsyncGroup, Barrier, Func, Seq, Stmt, Wait
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import map_stmt, walk
from tilesmith.support.errors import ParseError, ScheduleError, VerifyError

SHAPE = 16, 16, 20


def changed(func: Func, f: Callable[[Stmt], Stmt]) -> Func:
    return func.with_body(map_stmt(func.body, f_stmt=f))


def test_two_buffers(golden):
    func = pipelined(2, SHAPE)
    verify(func, "nest")
    golden(print_func(func))
    run(func, SHAPE)
    assert_structural_equal(parse_func(print_func(func)), func)
    assert barriers(func) == 1


@pytest.mark.parametrize("tail", ["guard", "peel", "roundup"])
@pytest.mark.parametrize("depth", [2, 3, 4, 9])
def test_depths(depth: int, tail: str):
    """Also more buffers than iterations, and tails."""
    shape = 13, 9, 14
    func = pipelined(depth, shape, (6, 8), (3, 4), 4, tail)
    verify(func, "nest")
    run(func, shape)
    (waits,) = {s.pending for s in walk(func.body) if isinstance(s, Wait)}
    assert waits == depth - 2
    assert sum(isinstance(s, AsyncGroup) for s in walk(func.body)) == depth


def no_waits(s: Stmt) -> Stmt:
    return Seq(()) if isinstance(s, Wait) else s


def late_waits(s: Stmt) -> Stmt:
    return Wait(s.pending + 1) if isinstance(s, Wait) else s


def no_barriers(s: Stmt) -> Stmt:
    return Seq(()) if isinstance(s, Barrier) else s


def no_groups(s: Stmt) -> Stmt:
    return s.body if isinstance(s, AsyncGroup) else s


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (no_waits, "which thread .* copies asynchronously: expected that it waits"),
        (late_waits, "which thread .* copies asynchronously: expected that it waits"),
        (no_barriers, "no barrier stands between"),
    ],
)
def test_races(depth: int, change: Callable[[Stmt], Stmt], why: str):
    with pytest.raises(ScheduleError, match=f"data race: .*{why}"):
        run(changed(pipelined(depth, SHAPE), change), SHAPE)


def test_an_early_overwrite_is_a_race():
    """With a buffer less, a copy changes what is still used."""
    text = print_func(pipelined(3, SHAPE)).replace("% 3", "% 2")
    with pytest.raises(ScheduleError, match="data race: "):
        run(parse_func(text), SHAPE)


def test_copies_at_once_have_the_same_answers():
    """As on a device without asynchronous copies."""
    run(changed(changed(pipelined(3, SHAPE), no_groups), no_waits), SHAPE)


def test_a_loop_around_has_a_barrier_before_its_copies():
    a, b = te.placeholder((4, 8, 8), name="A"), te.placeholder((4, 8, 8), name="B")
    p, r = te.reduce_axis(4, "p"), te.reduce_axis(8, "r")
    c = te.compute((8, 8), lambda i, j: te.sum(a[p, i, r] * b[p, r, j], axis=[p, r]), "C")
    s = te.create_schedule(c.op)
    own = s.cache_write(c, "register")
    shared = [s.cache_read(t, "shared", [own]) for t in (a, b)]
    i, j = s[c].axis
    s[c].bind(i, "threadIdx.y")
    s[c].bind(j, "threadIdx.x")
    s[own].compute_at(s[c], j)
    ro, ri = s[own].split(s[own].reduce_axis[1], factor=2)
    s[own].reorder(s[own].reduce_axis[0], ro, ri, *s[own].axis)
    for t in shared:
        s[t].compute_at(s[own], ro)
        rest = s[t].fuse(*s[t].axis)
        for index in ("threadIdx.x", "threadIdx.y"):
            rest, part = s[t].split(rest, factor=8, tail="guard")
            s[t].bind(part, index)
        s[t].pipeline(2)
    func = te.lower(s, [a, b, c])
    assert barriers(func) == 2
    x, y = np.random.default_rng(0).integers(-9, 9, (2, 4, 8, 8)).astype(np.float32)
    found = np.zeros((8, 8), np.float32)
    interpret(func, [x, y, found])
    np.testing.assert_array_equal(found, np.einsum("pir,prj->ij", x, y))


def test_sums_in_shared_memory_are_computed_ahead_at_once():
    """They read what they store, so no copy of them may happen later."""
    a = te.placeholder((6, 8, 4), name="A")
    r = te.reduce_axis(4, "r")
    b = te.compute((6, 8), lambda i, j: te.sum(a[i, j, r], axis=r), "B")
    c = te.compute((6, 8), lambda i, j: b[i, 7 - j], "C")
    s = te.create_schedule(c.op)
    i, j = s[c].axis
    s[c].reorder(j, i)
    s[c].bind(j, "threadIdx.x")
    s[b].compute_at(s[c], i)
    s[b].set_scope("shared")
    s[b].bind(s[b].axis[1], "threadIdx.x")
    s[b].pipeline(3)
    func = te.lower(s, [a, c])
    assert not any(isinstance(x, (AsyncGroup, Wait)) for x in walk(func.body))
    x, y = np.arange(192, dtype=np.float32).reshape(6, 8, 4), np.zeros((6, 8), np.float32)
    interpret(func, [x, y])
    np.testing.assert_array_equal(y, x.sum(2)[:, ::-1])


def test_shared_memory_inside_of_a_pipelined_stage():
    """It needs a barrier before it is read, so that nothing is copied later."""
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] * 2.0, "B")
    c = te.compute((8, 8), lambda i, j: b[i, 7 - j] + 1.0, "C")
    d = te.compute((8, 8), lambda i, j: c[i, 7 - j], "D")
    s = te.create_schedule(d.op)
    i, j = s[d].axis
    s[d].reorder(j, i)
    s[d].bind(j, "threadIdx.x")
    s[c].compute_at(s[d], i)
    s[c].set_scope("shared")
    s[c].bind(s[c].axis[1], "threadIdx.x")
    s[c].pipeline(2)
    s[b].compute_at(s[c], s[c].axis[0])
    s[b].set_scope("shared")
    s[b].bind(s[b].axis[1], "threadIdx.x")
    func = te.lower(s, [a, d])
    assert not any(isinstance(x, (AsyncGroup, Wait)) for x in walk(func.body))
    x, y = np.arange(64, dtype=np.float32).reshape(8, 8), np.zeros((8, 8), np.float32)
    interpret(func, [x, y])
    np.testing.assert_array_equal(y, x * 2 + 1)


def test_wrong_use():
    s, args = blocked_schedule(SHAPE)
    first, second = (n for n, x in s.state.stages.items() if x.scope == "shared")
    with pytest.raises(ScheduleError, match="needs at least 2 buffers, found depth=1"):
        s[first].pipeline(1)
    s[first].pipeline(2)
    s[second].pipeline(3)
    with pytest.raises(ScheduleError, match=f"same depth, found {first} 2, {second} 3"):
        te.lower(s, args)
    a, _, c = product(8, 8, 8)
    plain = te.create_schedule(c.op)
    copy = plain.cache_read(a, "shared", [c])
    with pytest.raises(ScheduleError, match="needs a loop to run ahead in: compute_at first"):
        plain[copy].pipeline(2)


BODY = """def main(x: f32[8], y: f32[8]) -> y:
    for i in thread_x(8):
        alloc t: f32[8] shared
        async:
            t[i] = x[i]
        wait 0
        barrier
        y[i] = t[7 - i]
"""


def test_text():
    func = parse_func(BODY)
    verify(func, "nest")
    assert print_func(func) == BODY
    for old, new, why in (
        (
            "        async:\n            t[i] = x[i]\n",
            "        async:\n            barrier\n",
            "bar",
        ),
        ("            t[i] = x[i]\n", "            wait 0\n", "a wait stands outside"),
        ("            t[i] = x[i]\n", "            async:\n                pass\n", "another one"),
        ("in thread_x(8)", "in range(8)", "outside of"),
    ):
        with pytest.raises(VerifyError, match=why):
            verify(parse_func(BODY.replace(old, new)), "nest")
    with pytest.raises(ParseError, match="expected a whole number"):
        parse_func(BODY.replace("wait 0", "wait i"))


def test_unpipelined_schedules_have_no_groups():
    assert not any(isinstance(s, (AsyncGroup, Wait)) for s in walk(blocked(SHAPE).body))
