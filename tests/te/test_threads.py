"""Schedules with blocks of threads: their loops, their barriers, and races in the interpreter."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tilesmith as ts
from common.blocks_of_threads import barriers, blocked, product, run
from tilesmith import te
from tilesmith.loop.compare import assert_structural_equal
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Barrier, Func, Seq, Stmt
from tilesmith.loop.parse import parse_func
from tilesmith.loop.passes.barriers import add_barriers
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import map_stmt
from tilesmith.support.errors import ScheduleError


def without_barriers(func: Func) -> Func:
    def drop(s: Stmt) -> Stmt:
        return Seq(()) if isinstance(s, Barrier) else s

    return Func(func.name, func.params, func.outputs, map_stmt(func.body, f_stmt=drop))


def test_product(golden):
    func = blocked()
    verify(func, "nest")
    golden(print_func(func))
    run(func, (16, 16, 8))
    assert_structural_equal(parse_func(print_func(func)), func)
    assert barriers(func) == 2  # before it is loaded again, and before it is read
    with pytest.raises(ScheduleError, match=r"data race: threads .* no barrier stands between"):
        run(without_barriers(func), (16, 16, 8))


def test_random_products_have_no_races():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    done = 0
    while done < 12:
        shape = tuple(rng.randint(1, 14) for _ in range(3))
        threads = rng.choice((1, 2, 3)), rng.choice((1, 2, 4))
        block = tuple(n * rng.randint(1, 3) for n in threads)
        cached = rng.choice((("A", "B"), ("A",), ("B",), ()))
        tail = rng.choice(("guard", "peel", "roundup"))
        func = blocked(shape, block, threads, rng.randint(1, 5), tail, cached, "stack")
        verify(func, "nest")
        run(func, shape)
        done += 1


def reversed_rows(barrier: bool = True) -> Func:
    """Each thread writes one element of shared memory and reads another thread's."""
    text = f"""def main(x: f32[2, 8], y: f32[2, 8]) -> y:
    for b in block_x(2):
        alloc t: f32[8] shared
        for i in thread_x(8):
            t[i] = x[b, i]
            {"barrier" if barrier else "pass"}
            y[b, i] = t[7 - i]
"""
    return parse_func(text)


def test_threads_wait_at_barriers():
    x, y = np.arange(16, dtype=np.float32).reshape(2, 8), np.zeros((2, 8), np.float32)
    func = reversed_rows()
    verify(func, "nest")
    assert "barrier" in print_func(func)
    interpret(func, [x, y])
    np.testing.assert_array_equal(y, x[:, ::-1])
    with pytest.raises(ScheduleError, match=r"threads .* of block 0 both use element \d of 't'"):
        interpret(reversed_rows(barrier=False), [x, y])


RACES = {
    "blocks write one element": (
        "for b in block_x(2):\n        for i in thread_x(8):\n            y[0, i] = x[b, i]",
        "blocks 0 and 1 both use element 0 of 'y'",
    ),
    "threads write one element": (
        "for i in thread_x(8):\n        y[0, i // 2] = x[0, i]",
        r"threads \(0, 0, 0\) and \(1, 0, 0\) of block 0 both use element 0 of 'y'",
    ),
    "a block reads what another writes": (
        "for b in block_x(2):\n        for i in thread_x(8):\n            y[b, i] = x[b, i] + "
        "y[1 - b, i]",
        "nothing orders blocks",
    ),
    "some threads do not come": (
        "for i in thread_x(8):\n        if i < 4:\n            barrier\n        y[0, i] = x[0, i]",
        r"thread \(0, 0, 0\) .* waits at a barrier where thread \(4, 0, 0\) does not wait",
    ),
    "other threads come to other barriers": (
        "for i in thread_x(8):\n        if i < 4:\n            barrier\n        else:\n"
        "            barrier\n        y[0, i] = x[0, i]",
        "waits at a barrier where thread",
    ),
}


@pytest.mark.parametrize("name", RACES)
def test_races(name):
    body, message = RACES[name]
    func = parse_func(f"def main(x: f32[2, 8], y: f32[2, 8]) -> y:\n    {body}\n")
    verify(func, "nest")
    x, y = np.ones((2, 8), np.float32), np.zeros((2, 8), np.float32)
    with pytest.raises(ScheduleError, match=message):
        interpret(func, [x, y])


def rows(n: int = 8):
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, n), lambda i, j: b[i, j] + b[i, n - 1 - j], name="C")
    return a, b, c, te.create_schedule([c.op])


def test_a_stage_in_shared_memory_is_computed_once():
    """Along an index to which none of its loops is bound, one thread computes it."""
    a, b, c, s = rows()
    i, j = s[c].op.axis
    s[c].bind(i, "threadIdx.y")
    s[c].bind(j, "threadIdx.x")
    s[b].compute_at(s[c], j)
    s[b].set_scope("shared")
    s[b].bind(s[b].op.axis[1], "threadIdx.x")
    func = te.lower(s, [a, c])
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    y = np.zeros_like(x)
    interpret(func, [x, y])
    np.testing.assert_array_equal(y, 2 * x + 2 * x[:, ::-1])
    assert barriers(func) == 1


def test_wrong_use():
    a, b, c, s = rows()
    i, j = s[c].op.axis
    with pytest.raises(ScheduleError, match=r"cannot bind C.i to 'threadIdx': expected blockIdx.x"):
        s[c].bind(i, "threadIdx")
    s[c].bind(j, "threadIdx.x")
    with pytest.raises(ScheduleError, match=r"use rfactor to give each part a result"):
        stage = te.create_schedule([product(8, 8, 8)[2].op])["C"]
        stage.bind(stage.op.reduce_axis[0], "blockIdx.x")
    with pytest.raises(ScheduleError, match=r"C.j is bound to it; fuse the two"):
        s[c].bind(i, "threadIdx.x")
    s[b].set_scope("shared")
    with pytest.raises(ScheduleError, match=r"expected compute_at inside a loop that is bound"):
        te.lower(s, [a, c])
    s[b].compute_at(s[c], j)
    s[b].set_scope("heap")
    with pytest.raises(ScheduleError, match=r"set_scope\('shared'\), or 'register' or 'stack'"):
        te.lower(s, [a, c])
    s[b].set_scope("shared")
    s[b].bind(s[b].op.axis[1], "threadIdx.x")
    te.lower(s, [a, c])
    s[b].compute_root()
    s[c].serial(j)
    s[c].bind(s[c].split(j, nparts=4)[0], "threadIdx.x")
    s[b].compute_at(s[c], s[c].leaf_axes[1])
    with pytest.raises(ScheduleError, match="has 8 iterations, expected at most 4"):
        te.lower(s, [a, c])


def test_a_barrier_that_some_threads_do_not_reach():
    text = """def main(x: f32[8], y: f32[8]) -> y:
    alloc t: f32[8] shared
    for i in thread_x(8):
        if i < n:
            t[i] = x[i]
            y[i] = t[7 - i]
"""
    assert barriers(add_barriers(parse_func(text.replace("i < n", "x[0] < 1.0")))) == 1
    for varying in ("i < 4", "x[i] < 1.0", "y[0] < 1.0"):
        with pytest.raises(ScheduleError, match="branch or loop that only some of the threads"):
            add_barriers(parse_func(text.replace("i < n", varying)))


def test_a_launch_under_a_condition_has_its_barriers():
    text = """def main(x: f32[8], y: f32[8], n: i64) -> y:
    if n < 4:
        for i in thread_x(8):
            alloc t: f32[8] shared
            t[i] = x[i]
            y[i] = t[7 - i]
"""
    assert barriers(add_barriers(parse_func(text))) == 1


def test_lanes_that_are_off_are_no_race():
    text = """def main(x: f32[8], y: f32[16]) -> y:
    for i in thread_x(2):
        alloc t: f32[16] shared
        t[i] = x[i]
        y[ramp(i * 8, 1, 8)] = t[ramp(i, 1, 8), mask=ramp(i, 1, 8) < broadcast(i + 1, 8)]
"""
    x, y = np.ones(8, np.float32), np.zeros(16, np.float32)
    interpret(parse_func(text), [x, y])
    np.testing.assert_array_equal(y, ([1] + [0] * 7) * 2)


def test_cpus_have_no_blocks():
    a, _, c, s = rows()
    s[c].bind(s[c].op.axis[0], "blockIdx.x")
    with pytest.raises(ScheduleError, match=r"bound to blockIdx.x, and the target is a CPU"):
        ts.build(s, [a, c])
