"""Schedules at the edges of what can be computed: loops without iterations, tails beyond the memory
of a producer, steps of a scan that read fewer axes than its state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.loop.builder import LoopBuilder
from tilesmith.loop.interpret import interpret
from tilesmith.support.errors import ScheduleError


def answer(s: te.Schedule, args: list[te.Tensor], *data: np.ndarray) -> np.ndarray:
    """The output by the interpreter, which machine code confirms."""
    shape = tuple(int(n) for n in args[-1].shape)
    found, native = (np.zeros(shape, args[-1].dtype.numpy) for _ in range(2))
    interpret(te.lower(s, args), [*data, found])
    ts.build(s, args)(*data, native)
    np.testing.assert_allclose(native, found, rtol=1e-6)
    return found


@pytest.mark.parametrize("kind", ["unroll", "vectorize", "parallel"])
def test_a_stage_inside_a_loop_without_iterations(kind: str) -> None:
    x = te.placeholder((3, 0), name="X")
    a = te.compute((3, 0), lambda i, j: x[i, j] + 1.0, "A")
    b = te.compute((3, 0), lambda i, j: a[i, j] * 2.0, "B")
    s = te.create_schedule(b.op)
    s[a].compute_at(s[b], "i" if kind == "vectorize" else "j")
    getattr(s[b], kind)("j")
    assert answer(s, [x, b], np.zeros((3, 0), np.float32)).shape == (3, 0)


@pytest.mark.parametrize("over", ["i", "k"])
@pytest.mark.parametrize("rows", [0, 3])
def test_prefetch_of_another_stages_loop_without_iterations(over: str, rows: int) -> None:
    a, b = te.placeholder((rows, 8), name="A"), te.placeholder((8, 4), name="B")
    k = te.reduce_axis(8, "k")
    c = te.compute((rows, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    d = te.compute((rows, 4), lambda i, j: c[i, j] + 1.0, "D")
    s = te.create_schedule(d.op)
    s[c].compute_at(s[d], "i")
    s[c].prefetch(b, s[d]["i"], 1, over, 2)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, n).astype(np.float32) for n in ((rows, 8), (8, 4)))
    np.testing.assert_array_equal(answer(s, [a, b, d], x, y), x @ y + 1)


def test_a_tail_beyond_the_result_of_an_extern() -> None:
    x = te.placeholder((20,), "i64", "X")

    def count(b: LoopBuilder, x: Any, bins: Any) -> None:
        with b.loop(4) as k:
            bins[k] = 0
        with b.loop(20) as i:
            bins[x[i] % 4] = bins[x[i] % 4] + 1

    h = te.extern(4, [x], count, name="H")
    o = te.compute((4,), lambda j: h[3 - j] + j, "o")
    s = te.create_schedule(o.op)
    copy = s.cache_read(h, "stack", [o])
    s[copy].split("i0", 5, tail="roundup")
    found = answer(s, [x, o], np.arange(20))
    np.testing.assert_array_equal(found, np.full(4, 5) + np.arange(4))


def test_a_step_that_would_read_past_the_end_of_its_scan() -> None:
    n = 26
    x, state = te.placeholder((n,), "i32", "X"), te.placeholder((n,), "i32", "state")
    first = te.compute((1,), lambda i: x[0], "first")
    step = te.compute((n,), lambda i: state[i - 1] + x[i], "step")
    total = te.scan(first, step, state, name="total")
    y = te.compute((n,), lambda i: total[i] * 2, "y")
    s = te.create_schedule(y.op)
    s[step].compute_at(s[total], "t")
    s[step].split("i", 8, tail="roundup")
    with pytest.raises(ScheduleError, match="cannot round up axis i of step"):
        te.lower(s, [x, y])


def test_a_step_that_reads_a_reduction_of_fewer_axes() -> None:
    t, n = 6, 8
    x, state = te.placeholder((t, n), name="X"), te.placeholder((t, n), name="state")
    k = te.reduce_axis(n, "k")
    total = te.compute((t,), lambda i: te.sum(state[i - 1, k], axis=k), "total")
    step = te.compute((t, n), lambda i, j: state[i - 1, j] / total[i] + x[i, j], "step")
    y = te.scan(te.compute((1, n), lambda i, j: x[0, j], "first"), step, state, name="y")
    data = np.random.default_rng(0).random((t, n), np.float32) + 1
    rows = [data[0]]
    for row in data[1:]:
        rows.append(rows[-1] / rows[-1].sum() + row)
    found = answer(te.create_schedule(y.op), [x, y], data)
    np.testing.assert_allclose(found, np.stack(rows), rtol=1e-6)
