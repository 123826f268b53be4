"""Scans: computes that read their own results of earlier steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Var
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Allocate, Func
from tilesmith.loop.visit import walk
from tilesmith.support.errors import ExpressionError, ScheduleError

from .families import FAMILIES

T, N = 12, 20


def running_sum(t: int = T, n: int = N) -> tuple[te.Tensor, te.Tensor]:
    x, state = te.placeholder((t, n), name="X"), te.placeholder((t, n), name="state")
    first = te.compute((1, n), lambda i, j: x[0, j], name="first")
    step = te.compute((t, n), lambda i, j: state[i - 1, j] + x[i, j], name="step")
    return x, te.scan(first, step, state, name="total")


def rnn(t: int = T, n: int = 8) -> tuple[list[te.Tensor], te.Tensor]:
    x, w = te.placeholder((t, n), name="X"), te.placeholder((n, n), name="W")
    state = te.placeholder((t, n), name="state")
    k = te.reduce_axis(n, "k")
    product = te.compute((t, n), lambda i, j: te.sum(state[i - 1, k] * w[k, j], k), name="P")
    step = te.compute((t, n), lambda i, j: te.tanh(product[i, j] + x[i, j]), name="step")
    first = te.compute((1, n), lambda i, j: te.tanh(x[0, j]), name="first")
    return [x, w], te.scan(first, step, state, name="h")


def rows_of(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    rows = [np.tanh(x[0])]
    for row in x[1:]:
        rows.append(np.tanh(rows[-1] @ w + row))
    return np.stack(rows)


def answer(s: te.Schedule, args: list[te.Tensor], *data: np.ndarray) -> np.ndarray:
    """The output by the interpreter, which machine code confirms."""
    shape = tuple(int(n) for n in args[-1].shape)
    found, native = (np.zeros(shape, args[-1].dtype.numpy) for _ in range(2))
    interpret(te.lower(s, args), [*data, found])
    ts.build(s, args, threads=2)(*data, native)
    np.testing.assert_allclose(native, found, rtol=1e-5, atol=1e-5, err_msg=s.text())
    return found


def allocations(func: Func) -> dict[str, tuple[object, ...]]:
    found = (s.buffer for s in walk(func.body) if isinstance(s, Allocate))
    return {b.name: b.shape for b in found}


DATA = np.random.default_rng(0).integers(-4, 5, (T, N)).astype(np.float32)


def test_running_sum() -> None:
    x, total = running_sum()
    s = te.create_schedule(total.op)
    np.testing.assert_array_equal(answer(s, [x, total], DATA), DATA.cumsum(0))


def test_axes_that_do_not_mix_are_outside_of_time() -> None:
    x, total = running_sum()
    s = te.create_schedule(total.op)
    s["first"].compute_inline()
    outer, inner = s[total].split("i1", 8)
    s[total].reorder(outer, "t", inner)
    s[total].parallel(outer)
    s[total].vectorize(inner)
    time, steps = s[total].split("t", 5)
    s[total].unroll(steps)
    assert time.name == "to"
    np.testing.assert_array_equal(answer(s, [x, total], DATA), DATA.cumsum(0))


def test_fibonacci_reads_two_steps_back() -> None:
    state = te.placeholder((40,), "i64", name="state")
    first = te.compute((2,), lambda t: te.cast(t, i64) * 0 + 1, name="first")
    step = te.compute((40,), lambda t: state[t - 1] + state[t - 2], name="step")
    fib = te.scan(first, step, state, name="fib")
    last = te.compute((1,), lambda i: fib[39], name="last")
    s = te.create_schedule(last.op)
    assert answer(s, [last])[0] == 102334155
    assert allocations(te.lower(s, [last]))["fib"] == (4,)  # 3, rounded up to a power of two


def test_rows_of_a_table() -> None:
    """The longest common subsequence: a step reads its neighbours in the row before."""
    a, b = "dynamic programming", "a drama in pyramids"
    n, m = len(a) + 1, len(b) + 1
    x, y = te.placeholder((n,), "i64", name="A"), te.placeholder((m,), "i64", name="B")
    state = te.placeholder((n + m, m), "i64", name="state")

    def cell(t, j):  # diagonals t = i + j, so that a step reads only earlier ones
        i = t - j
        inside = te.all(i >= 1, i < n, j >= 1)
        left = te.maximum(j - 1, 0)
        same = x[te.maximum(te.minimum(i, n - 1), 0)] == y[j]
        longer = te.maximum(state[t - 1, left], state[t - 1, j])
        return te.if_then_else(inside, te.select(same, state[t - 2, left] + 1, longer), 0)

    step = te.compute((n + m, m), cell, name="step")
    first = te.compute((2, m), lambda t, j: te.cast(t, i64) * 0, name="first")
    table = te.scan(first, step, state, name="table")
    last = te.compute((1,), lambda i: table[n + m - 2, m - 1], name="last")
    codes = [np.array([0, *map(ord, text)]) for text in (a, b)]
    lengths = np.zeros((n, m), int)
    for i in range(1, n):
        for j in range(1, m):
            best = max(lengths[i - 1, j], lengths[i, j - 1])
            lengths[i, j] = lengths[i - 1, j - 1] + 1 if a[i - 1] == b[j - 1] else best
    s = te.create_schedule(last.op)
    assert answer(s, [x, y, last], *codes)[0] == lengths[-1, -1]
    assert allocations(te.lower(s, [x, y, last]))["table"] == (4, m)
    with pytest.raises(ScheduleError, match=r"loop table\.i1 cannot be outside of loop t"):
        s[table].reorder("i1", "t")


def test_products_run_inside_a_step() -> None:
    args, h = rnn()
    s = te.create_schedule(h.op)
    assert str(s["P"].attach) == "h.t"
    s["P"].reorder(*s["P"].reduce_axis, "j")
    s["P"].vectorize("j")
    x, w = DATA[:, :8] / 4, DATA[:8, 8:16] / 8
    np.testing.assert_allclose(answer(s, [*args, h], x, w), rows_of(x, w), rtol=1e-5)


def test_only_the_last_steps_are_stored_if_no_others_are_read() -> None:
    x, total = running_sum()
    last = te.compute((N,), lambda j: total[T - 1, j] * 2.0, name="last")
    s = te.create_schedule(last.op)
    assert allocations(te.lower(s, [x, last]))["total"] == (2, N)
    np.testing.assert_array_equal(answer(s, [x, last], DATA), DATA.sum(0) * 2)
    s[total].compute_at(s[last], "j")
    assert allocations(te.lower(s, [x, last]))["total"] == (2, 1)
    np.testing.assert_array_equal(answer(s, [x, last], DATA), DATA.sum(0) * 2)
    s[total].fold_storage("t", 3)
    assert allocations(te.lower(s, [x, last]))["total"] == (3, 1)
    s[total].fold_storage("t", 1)
    with pytest.raises(ScheduleError, match=r"need the last 2 steps.*found 1"):
        te.lower(s, [x, last])


def test_all_steps_are_stored_if_they_are_read() -> None:
    x, total = running_sum()
    y = te.compute((T, N), lambda i, j: total[T - 1 - i, j], name="Y")
    s = te.create_schedule(y.op)
    assert allocations(te.lower(s, [x, y]))["total"] == (T, N)
    np.testing.assert_array_equal(answer(s, [x, y], DATA), DATA.cumsum(0)[::-1])


def test_symbolic_time() -> None:
    n = Var("n", i64)
    x, state = te.placeholder((n, 4), name="X"), te.placeholder((n, 4), name="state")
    first = te.compute((1, 4), lambda i, j: te.const(0.0), name="first")
    step = te.compute((n, 4), lambda i, j: te.maximum(state[i - 1, j], x[i, j]), name="step")
    top = te.scan(first, step, state, name="top")
    last = te.compute((4,), lambda j: top[n - 1, j] + 1.0, name="last")
    s = te.create_schedule(last.op)
    assert allocations(te.lower(s, [x, last]))["top"] == (2, 4)
    found = np.zeros(4, np.float32)
    ts.build(s, [x, last])(DATA[:, :4].copy(), found)
    np.testing.assert_array_equal(found, np.maximum(DATA[1:, :4].max(0), 0) + 1)


@pytest.mark.parametrize("name", ["filtered", "recurrent"])
def test_schedules_by_rule(name: str) -> None:
    family = FAMILIES[name]()
    data = family.data(3)
    outputs = [np.zeros(t.shape, t.dtype.numpy) for t in family.outputs]
    ts.build("auto", [*family.inputs, *family.outputs], threads=2)(*data, *outputs)
    for got, want in zip(outputs, family.reference(*data), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(40, 1000), (3, 70), (1, 5)])
def test_rules_share_what_does_not_mix(shape: tuple[int, int]) -> None:
    x, total = running_sum(*shape)
    s = ts.auto_schedule([x, total])
    assert ("parallel" in s.text()) == (shape[0] == 40)
    data = np.random.default_rng(1).integers(-4, 5, shape).astype(np.float32)
    np.testing.assert_array_equal(answer(s, [x, total], data), data.cumsum(0))


@pytest.mark.parametrize(("t", "n"), [(4, 8), (3, 37), (3, 600)])
def test_rules_put_products_into_registers(t: int, n: int) -> None:
    args, h = rnn(t, n)
    s = ts.auto_schedule([*args, h])
    assert "s.cache_write('P', 'register')" in s.text()
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(k, np.float32) / 8 for k in ((t, n), (n, n)))
    np.testing.assert_allclose(answer(s, [*args, h], x, w), rows_of(x, w), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s: s["h"].parallel("t"), r"loop h\.t runs over time and cannot be parallel"),
        (lambda s: s["h"].vectorize("t"), r"loop h\.t runs over time and cannot be vectorized"),
        (lambda s: s["h"].reorder("i1", "t"), r"loop h\.i1 cannot be outside of loop t"),
        (lambda s: s["P"].compute_root(), "reads the state of h and cannot be computed at root"),
        (lambda s: s["step"].compute_at(s["h"], "t") or s["step"].compute_root(), "at root"),
        (lambda s: s["Y"].compute_at(s["h"], "t"), "no stage reads it"),
        (lambda s: s["P"].store_root(), "its values are new in each step"),
        (lambda s: s["P"].double_buffer(), "its values are new in each step"),
        (lambda s: s["h"].compute_inline(), "it is a scan"),
        (lambda s: s.cache_write(s["h"].op.outputs[0], "heap"), "it is a scan"),
        (lambda s: s.flatten_axes(s["h"].op.outputs[0], "t", "i1"), "it is a scan"),
        (lambda s: s.cache_read(s["h"].op.outputs[0], "heap", ["P"]), "cannot read a copy of it"),
    ],
)
def test_steps_follow_each_other(step: Callable[[te.Schedule], object], message: str) -> None:
    _, h = rnn()
    y = te.compute((T, 8), lambda i, j: h[i, j] + 1.0, name="Y")
    s = te.create_schedule(y.op)
    with pytest.raises(ScheduleError, match=message):
        step(s)


def test_a_scan_in_shared_memory_that_a_number_reads() -> None:
    x, total = running_sum()
    last = te.compute((), lambda: total[T - 1, 0] * 2.0, name="last")
    s = te.create_schedule(last.op)
    s["total"].set_scope("shared")
    with pytest.raises(ScheduleError, match="total is to be in shared memory"):
        te.lower(s, [x, last])


def test_parts_of_time_keep_their_order() -> None:
    _, total = running_sum()
    s = te.create_schedule(total.op)
    s[total].split("t", 4)
    with pytest.raises(ScheduleError, match="must stand in the order to, ti, found ti, to"):
        s[total].reorder("ti", "to")
    with pytest.raises(ScheduleError, match=r"cannot fuse or skew with the time axis total\.ti"):
        s[total].fuse("ti", "i1")
    with pytest.raises(ScheduleError, match=r"cannot fuse or skew with the time axis total\.ti"):
        s[total].skew("i1", "ti", 1, 4)


def test_a_state_that_readers_need_whole_begins_at_its_first_element() -> None:
    """Also where the reader is rounded up, and reads it forwards and backwards."""
    family = FAMILIES["filtered"]()
    s = te.create_schedule([t.op for t in family.outputs])
    s["Y"].split("j", factor=1, tail="roundup")
    s["step"].compute_at(s["steps"], "t")
    s["steps"].compute_at(s["Y"], "jo")
    x = np.arange(90, dtype=np.float32).reshape(9, 10) % 7
    y = np.zeros(10, np.float32)
    interpret(te.lower(s, [*family.inputs, *family.outputs]), [x, y])
    np.testing.assert_array_equal(y, family.reference(x)[0])


def test_a_scan_inside_of_a_reader_that_is_inside_of_another() -> None:
    x, total = running_sum()
    y = te.compute((N,), lambda j: total[T - 1, j] * 2.0, name="Y")
    z = te.compute((N,), lambda j: y[j] + 1.0, name="Z")
    s = te.create_schedule(z.op)
    outer, _ = s[z].split("j", 7, tail="guard")
    s[y].compute_at(s[z], outer)
    s[total].compute_at(s[y], "j")
    s["step"].compute_at(s[total], "t")
    found = answer(s, [x, z], DATA)
    np.testing.assert_array_equal(found, DATA.sum(0) * 2 + 1)


def test_a_copy_of_a_step_is_not_rounded_up_beyond_the_part_of_a_scan() -> None:
    x, total = running_sum(T, 9)
    y = te.compute((T, 9), lambda i, j: total[i, j] * 2.0, name="Y")
    s = te.create_schedule(y.op)
    outer, _ = s[y].split("j", 7, tail="guard")
    s[total].compute_at(s[y], outer)
    s["step"].compute_at(s[total], "t")
    s.cache_write("step", "stack")
    s["step"].split("j", 32, tail="roundup")
    with pytest.raises(ScheduleError, match="step_stack grows with it and reads the steps of tot"):
        te.lower(s, [x, y])


def test_scans_are_stored_where_they_are_computed() -> None:
    _, total = running_sum()
    last = te.compute((N,), lambda j: total[T - 1, j], name="last")
    s = te.create_schedule(last.op)
    s[total].compute_at(s[last], "j")
    with pytest.raises(ScheduleError, match="its steps begin anew"):
        s[total].store_root()
    with pytest.raises(ScheduleError, match="cannot double-buffer total"):
        s[total].double_buffer()


def scan_of(
    update: Callable[..., object], given: int = 1, shape: tuple[int, ...] = (T, N)
) -> te.Tensor:
    state = te.placeholder((T, N), name="state")
    first = te.compute((given, *shape[1:]), lambda *_: te.const(0.0), name="first")
    step = te.compute(shape, lambda *i: update(state, *i), name="step")
    return te.scan(first, step, state, name="S")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: scan_of(lambda s, t, i: s[t, i]), "a step from 1 to 1 before its own"),
        (
            lambda: scan_of(lambda s, t, i: s[t - 2, i]),
            "a step from 1 to 1 before its own",
        ),
        (
            lambda: scan_of(lambda s, t, i: s[i - 1, i]),
            "a step from 1 to 1 before its own",
        ),
        (lambda: scan_of(lambda s, t: s[t - 1, 0], shape=(T,)), r"expected shape \[12, 20\]"),
        (lambda: scan_of(lambda s, t, i: te.cast(s[t - 1, i], i64)), "have one element type"),
        (lambda: scan_of(lambda s, t, i: s[t - 1, i], given=0), "a constant number of first steps"),
        (lambda: te.scan([], [], []), "as many first steps and updates as states"),
        (lambda: through_another_step(), "is read at its own step"),
        (lambda: te.scan(*(running_sum()[1],) * 3), "a state is a te.placeholder"),
    ],
)
def test_malformed_scans(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        make()


def through_another_step() -> te.Tensor:
    state = te.placeholder((T, N), name="state")
    twice = te.compute((T, N), lambda t, i: state[t - 1, i] * 2.0, name="twice")
    step = te.compute((T, N), lambda t, i: twice[te.maximum(t - 1, 0), i], name="step")
    return te.scan(te.compute((1, N), lambda t, i: te.const(0.0)), step, state)


@pytest.mark.parametrize("where", [None, "t", "i1"])
@pytest.mark.parametrize("steps", [2, 3])
def test_one_step_that_is_not_given(steps: int, where: str | None) -> None:
    """Whose number is known then: stages inside need memory for that step alone."""
    x, state = (te.placeholder((steps, N), name=name) for name in ("X", "state"))
    first = te.compute((1, N), lambda i, j: x[0, j], name="first")
    k = te.reduce_axis(N, "k")
    top = te.compute((steps, 1), lambda i, u: te.max(state[i - 1, k], axis=k), name="top")
    step = te.compute((steps, N), lambda i, j: x[i, j] - top[i, 0], name="step")
    y = te.scan(first, step, state, name="y")
    s = te.create_schedule(y.op)
    if where:
        s[step].compute_at(s[y], where)
    data = np.random.default_rng(0).standard_normal((steps, N)).astype(np.float32)
    wanted = data.copy()
    for i in range(1, steps):
        wanted[i] -= wanted[i - 1].max()
    np.testing.assert_allclose(answer(s, [x, y], data), wanted, rtol=1e-5)


@pytest.mark.parametrize("factor", [2, 64])
def test_steps_of_a_scan_that_is_rounded_up_lie_where_its_state_does(factor: int) -> None:
    x, total = running_sum()
    y = te.compute((T, N), lambda i, j: total[i, j] * 2.0, name="Y")
    s = te.create_schedule(y.op)
    s[total].split("i1", factor, tail="roundup")
    s[y].split("j", 2)
    s["step"].compute_at(s[total], "t")
    s[total].compute_at(s[y], "jo")
    data = np.random.default_rng(0).standard_normal((T, N)).astype(np.float32)
    np.testing.assert_allclose(answer(s, [x, y], data), data.cumsum(0) * 2, rtol=1e-4, atol=1e-5)
