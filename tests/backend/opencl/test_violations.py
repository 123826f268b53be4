"""Data races and broken limits of devices: each is refused, or reported by the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest

from common.blocks_of_threads import blocked
from tilesmith import te
from tilesmith.ir.device import Device
from tilesmith.ir.expr import Const
from tilesmith.loop.interpret import interpret
from tilesmith.loop.launches import check_limits, launches
from tilesmith.loop.nodes import Barrier, Func, Seq, Stmt
from tilesmith.loop.parse import parse_func
from tilesmith.loop.passes.barriers import add_barriers
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import map_stmt, walk
from tilesmith.support.errors import ScheduleError, VerifyError


def run(func: Func) -> None:
    """Run a kernel on small numbers."""
    verify(func, "nest")
    arrays = [
        np.ones([int(d.value) if isinstance(d, Const) else d for d in b.shape], b.dtype.numpy)
        for b in func.buffers
    ]
    interpret(func, arrays)


def without(func: Func, number: int) -> Func:
    """`func` without one of its barriers."""
    seen = count()

    def drop(s: Stmt) -> Stmt:
        return Seq(()) if isinstance(s, Barrier) and next(seen) == number else s

    return replace(func, body=map_stmt(func.body, f_stmt=drop))


def sums(threads: int, scope: str = "shared") -> Func:
    """The threads of a block add up parts of a row."""
    x, k = te.placeholder((3, 24), name="x"), te.reduce_axis(24, "k")
    y = te.compute((3,), lambda i: te.sum(x[i, k], axis=k), "y")
    s = te.create_schedule(y.op)
    _, inner = s[y].split(s[y].reduce_axis[0], factor=threads)
    first = s.rfactor(y, inner)
    row, own = s[y].split(s[y].axis[0], factor=1)
    s[y].bind(row, "blockIdx.x")
    s[y].bind(own, "threadIdx.x")
    s[first].compute_at(s[y], row)
    s[first].set_scope(scope)  # type: ignore[arg-type]  # a name
    s[first].bind(next(a for a in s[first].axis if a.extent == threads), "threadIdx.x")
    return te.lower(s, [x, y])


def turned(rows: int, columns: int) -> Func:
    """A tile that threads load along rows and store along columns."""
    x = te.placeholder((rows, columns), name="x")
    y = te.compute((columns, rows), lambda i, j: x[j, i], "y")
    s = te.create_schedule(y.op)
    copy = s.cache_read(x, "shared", [y])
    i, j = s[y].axis
    block, _ = s[y].split(i, factor=columns)
    s[y].bind(block, "blockIdx.x")
    s[y].bind(j, "threadIdx.x")
    s[copy].compute_at(s[y], block)
    s[copy].bind(s[copy].axis[1], "threadIdx.x")
    return te.lower(s, [x, y])


KERNELS: dict[str, Callable[[], Func]] = {
    "product": blocked,
    "product, uneven": lambda: blocked((7, 9, 5), (4, 6), (2, 3), 2),
    "product, one operand": lambda: blocked((8, 8, 8), (4, 4), (2, 2), 4, "guard", ("A",)),
    "product, peeled": lambda: blocked((9, 6, 7), (6, 4), (3, 2), 3, "peel", ("B",), "stack"),
    "product, long steps": lambda: blocked((8, 8, 8), (8, 8), (4, 2), 4, "roundup"),
    "sums": lambda: sums(8),
    "sums of few": lambda: sums(3),
    "turned": lambda: turned(4, 4),
}


def missing_barriers() -> Iterator[tuple[str, Callable[[], None]]]:
    for name, kernel in KERNELS.items():
        func = kernel()
        for n in range(sum(isinstance(s, Barrier) for s in walk(func.body))):
            yield f"{name}: without barrier {n}", partial(run, without(func, n))


def limits() -> Iterator[tuple[str, Callable[[], None]]]:
    """Each kernel fits what it needs, and not a device that has one less."""
    for name, kernel in KERNELS.items():
        func = kernel()
        found = launches(func)
        (launch,) = found
        threads = launch.threads
        needed = {"block_threads": threads[0] * threads[1] * threads[2]}
        needed |= {f"block_{i}": n for i, n in zip("xyz", threads, strict=True)}
        needed["shared_bytes"] = launch.shared_bytes
        for field, most in needed.items():
            if most > 1:
                check_limits(func, found, replace(Device(), **{field: most}))
                less = replace(Device(), **{field: most - 1})
                yield f"{name}: {field} below {most}", partial(check_limits, func, found, less)


HEAD = "def main(x: f32[2, 8], y: f32[2, 8]) -> y:\n"
LOOPS = "    for b in block_x(2):\n        for i in thread_x(8):\n"

RACES = {
    "all blocks write one row": "    for b in block_x(2):\n        for i in thread_x(8):\n"
    "            y[0, i] = x[b, i]",
    "two threads write one element": LOOPS + "            y[b, i // 2] = x[b, i]",
    "a neighbour is read while it is written": LOOPS + "            y[b, i] = y[b, 7 - i] + 1.0",
    "another block is read": LOOPS + "            y[b, i] = x[b, i] + y[1 - b, i]",
    "a block writes another's row behind a barrier": LOOPS
    + "            y[b, i] = x[b, i]\n            barrier\n            y[1 - b, i] = 0.0",
    "shared memory is read without waiting": "    for b in block_x(2):\n"
    "        alloc t: f32[8] shared\n        for i in thread_x(8):\n            t[i] = x[b, i]\n"
    "            y[b, i] = t[7 - i]",
    "shared memory is overwritten without waiting": "    for b in block_x(2):\n"
    "        alloc t: f32[8] shared\n        for i in thread_x(8):\n            t[i] = x[b, i]\n"
    "            barrier\n            y[b, i] = t[7 - i]\n            t[i] = 0.0",
    "an accumulator of all threads": "    for b in block_x(2):\n        alloc t: f32[1] shared\n"
    "        for i in thread_x(8):\n            t[0] = t[0] + x[b, i]\n            y[b, i] = 0.0",
    "a barrier for some": LOOPS + "            if i < 4:\n                barrier\n"
    "            y[b, i] = x[b, i]",
    "two barriers for two halves": LOOPS + "            if i < 4:\n                barrier\n"
    "            else:\n                barrier\n            y[b, i] = x[b, i]",
    "a loop of different lengths around a barrier": LOOPS + "            for k in range(i):\n"
    "                barrier\n            y[b, i] = x[b, i]",
    "a step reads what the next one writes": "    for b in block_x(2):\n"
    "        alloc t: f32[8] shared\n        for i in thread_x(8):\n"
    "            for k in range(3):\n                t[i] = x[b, i]\n"
    "                barrier\n                y[b, i] = t[7 - i]",
}

ALIKE = {
    "an index that only an inner stage has": "    for b in block_x(2):\n"
    "        alloc t: f32[8] shared\n        for i in thread_x(8):\n            t[i] = x[b, i]\n"
    "        for j in range(8):\n            y[b, j] = t[7 - j]",
    "an index along which nothing is divided": "    for b in block_x(2):\n"
    "        alloc t: f32[8] shared\n        for i in thread_x(8):\n"
    "            for j in thread_y(2):\n                t[i] = x[b, i]\n            y[b, i] = t[i]",
}


def texts() -> Iterator[tuple[str, Callable[[], None]]]:
    for name, body in RACES.items():
        yield name, partial(run, parse_func(f"{HEAD}{body}\n"))
    for name, body in ALIKE.items():
        yield name, partial(add_barriers, parse_func(f"{HEAD}{body}\n"))


def schedules() -> Iterator[tuple[str, Callable[[], None]]]:
    """Schedules that lowering refuses."""
    x = te.placeholder((8, 8), name="x")
    b = te.compute((8, 8), lambda i, j: x[i, j] * 2.0, "b")
    y = te.compute((8, 8), lambda i, j: b[i, j] + b[i, 7 - j], "y")

    def refused(steps: Callable[[te.Schedule], None]) -> None:
        s = te.create_schedule(y.op)
        steps(s)
        te.lower(s, [x, y])

    def blocks_inside_threads(s: te.Schedule) -> None:
        s[y].bind(s[y].axis[0], "threadIdx.x")
        s[y].bind(s[y].axis[1], "blockIdx.x")

    def blocks_inside_a_loop(s: te.Schedule) -> None:
        s[y].bind(s[y].axis[1], "blockIdx.x")

    def twice(s: te.Schedule) -> None:
        for axis in s[y].axis:
            s[y].bind(axis, "threadIdx.x")

    def shared_at_the_root(s: te.Schedule) -> None:
        s[y].bind(s[y].axis[0], "blockIdx.x")
        s[b].set_scope("shared")

    def heap_in_a_launch(s: te.Schedule) -> None:
        s[y].bind(s[y].axis[0], "blockIdx.x")
        s[b].compute_at(s[y], s[y].axis[0])
        s[b].set_scope("heap")

    def more_iterations_than_threads(s: te.Schedule) -> None:
        _, inner = s[y].split(s[y].axis[1], factor=4)
        s[y].bind(s[y].axis[0], "blockIdx.x")
        s[y].bind(inner, "threadIdx.x")
        s[b].compute_at(s[y], inner)
        s[b].set_scope("shared")
        s[b].bind(s[b].axis[1], "threadIdx.x")

    def an_index_of_an_inner_stage(s: te.Schedule) -> None:
        s[y].bind(s[y].axis[0], "blockIdx.x")
        s[b].compute_at(s[y], s[y].axis[0])
        s[b].set_scope("shared")
        s[b].bind(s[b].axis[1], "threadIdx.x")

    def blocks_of_an_inner_stage(s: te.Schedule) -> None:
        s[y].bind(s[y].axis[0], "blockIdx.x")
        s[b].compute_at(s[y], s[y].axis[0])
        s[b].set_scope("shared")
        s[b].bind(s[b].axis[1], "blockIdx.y")

    for steps in (
        blocks_inside_threads,
        blocks_inside_a_loop,
        twice,
        shared_at_the_root,
        heap_in_a_launch,
        more_iterations_than_threads,
        an_index_of_an_inner_stage,
        blocks_of_an_inner_stage,
    ):
        yield steps.__name__.replace("_", " "), partial(refused, steps)


CASES = dict([*missing_barriers(), *limits(), *texts(), *schedules()])


def test_there_are_fifty():
    assert len(CASES) >= 50


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_legal(name):
    run(KERNELS[name]())


@pytest.mark.parametrize("name", CASES)
def test_violation(name):
    with pytest.raises((ScheduleError, VerifyError)):
        CASES[name]()
