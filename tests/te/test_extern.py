"""Stages that are written as loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Var
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import For
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import walk
from tilesmith.support.errors import ExpressionError, ScheduleError


def sort_rows(b: te.LoopBuilder, x, y) -> None:
    """Each row by insertion."""
    rows, n = x.buffer.shape
    with b.independent(rows, "r") as r, b.loop(n, "i") as i:
        value = b.let("value", x[r, i])
        place = b.variable("place", i)
        with b.loop(i, "k") as k:
            j = b.let("j", i - 1 - k)
            with b.when(te.all(place.value == j + 1, y[r, j] > value)):
                y[r, place.value] = y[r, j]
                place.value = j
        y[r, place.value] = value


def histogram(bins: int) -> Callable[..., None]:
    def count(b: te.LoopBuilder, x, h) -> None:
        (n,) = x.buffer.shape
        with b.loop(bins) as k:
            h[k] = 0
        with b.loop(n) as i:
            h[x[i]] = h[x[i]] + 1

    return count


def runs(b: te.LoopBuilder, x, values, lengths, count) -> None:
    """Run-length encoding; the elements after the runs are 0."""
    (n,) = x.buffer.shape
    with b.loop(n) as i:
        values[i] = 0
        lengths[i] = 0
    found = b.variable("found", te.const(0))
    with b.loop(n) as i:
        new = te.any(i == 0, x[te.maximum(i - 1, 0)] != x[i])
        with b.when(new):
            values[found.value] = x[i]
            found.value = found.value + 1
        last = b.let("last", found.value - 1)
        lengths[last] = lengths[last] + 1
    count[0] = found.value


def answers(
    s: te.Schedule, args: list[te.Tensor], data: list[np.ndarray], **sizes: int
) -> list[np.ndarray]:
    """The outputs by the interpreter, which machine code confirms."""
    shapes = [tuple(sizes.get(str(n), n) for n in a.shape) for a in args[len(data) :]]
    found, native = (
        [np.zeros(n, a.dtype.numpy) for n, a in zip(shapes, args[len(data) :], strict=True)]
        for _ in range(2)
    )
    func = te.lower(s, args)
    verify(func, "nest")
    interpret(func, [*data, *found, *sizes.values()])
    ts.build(s, args, threads=2)(*data, *native)
    for a, b in zip(found, native, strict=True):
        np.testing.assert_array_equal(a, b)
    return found


DATA = np.random.default_rng(0).integers(0, 9, (5, 12)).astype(np.float32)


def between() -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    """Loops between two computes."""
    x = te.placeholder((5, 12), name="X")
    a = te.compute((5, 12), lambda i, j: x[i, j] * 2.0 - x[i, 0], name="A")
    y = te.extern((5, 12), [a], sort_rows, name="sorted")
    z = te.compute((5, 6), lambda i, j: y[i, 2 * j] + 1.0, name="Z")
    return x, a, y, z


WANT = np.sort(DATA * 2 - DATA[:, :1], 1)[:, ::2] + 1


def test_between_computes() -> None:
    x, _, _, z = between()
    s = te.create_schedule(z.op)
    loops = [f for f in walk(te.lower(s, [x, z]).body) if isinstance(f, For)]
    assert [f.var.name for f in loops if f.kind == "parallel"] == ["r"]
    np.testing.assert_array_equal(answers(s, [x, z], [DATA])[0], WANT)


def test_inside_a_loop() -> None:
    x, a, y, z = between()
    s = te.create_schedule(z.op)
    s[y].compute_at(s[z], "i")
    s[a].compute_at(s[z], "i")
    np.testing.assert_array_equal(answers(s, [x, z], [DATA])[0], WANT)


def test_layouts_of_arguments_and_results() -> None:
    x, a, y, z = between()
    s = te.create_schedule(z.op)
    s.transform_layout(a, "1 0")
    s.transform_layout(y, lambda i, j: (j // 4, i, j % 4))
    np.testing.assert_array_equal(answers(s, [x, z], [DATA])[0], WANT)


def test_schedules_by_rule() -> None:
    x, _, _, z = between()
    found = np.zeros((5, 6), np.float32)
    ts.build("auto", [x, z])(DATA, found)
    np.testing.assert_array_equal(found, WANT)


def test_a_histogram_is_an_output() -> None:
    x = te.placeholder((40,), "i64", name="X")
    h = te.extern(7, [x], histogram(7), name="H")
    data = np.random.default_rng(1).integers(0, 7, 40)
    (found,) = answers(te.create_schedule(h.op), [x, h], [data])
    np.testing.assert_array_equal(found, np.bincount(data, minlength=7))


def test_several_results_of_several_shapes() -> None:
    x = te.placeholder((10,), "i64", name="X")
    values, lengths, count = te.extern([(10,), (10,), (1,)], [x], runs, name="runs")
    data = np.array([3, 3, 3, 1, 1, 4, 4, 4, 4, 3])
    found = answers(te.create_schedule(values.op), [x, values, lengths, count], [data])
    np.testing.assert_array_equal(found[0][:4], [3, 1, 4, 3])
    np.testing.assert_array_equal(found[1], [3, 2, 4, 1, 0, 0, 0, 0, 0, 0])
    assert found[2][0] == 4


def test_symbolic_shapes() -> None:
    n = Var("n", i64)
    x = te.placeholder((n,), "i64", name="X")
    h = te.extern(5, [x], histogram(5), name="H")
    y = te.compute((5,), lambda i: h[i] * 2, name="Y")
    data = np.random.default_rng(2).integers(0, 5, 33)
    (found,) = answers(te.create_schedule(y.op), [x, y], [data], n=33)
    np.testing.assert_array_equal(found, 2 * np.bincount(data, minlength=5))


def test_text_tells_loops_apart() -> None:
    x = te.placeholder((40,), "i64", name="X")
    one, same, other = (te.extern(n, [x], histogram(n), name="H") for n in (7, 7, 8))
    schedules = [te.create_schedule(h.op) for h in (one, same, other)]
    assert schedules[0].hash() == schedules[1].hash() != schedules[2].hash()
    assert "H[X[i_1]] = H[X[i_1]] + 1" in te.print_ops(schedules[0].ops)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s: s["sorted"].compute_inline(), "it is loops, not an expression"),
        (lambda s: s["A"].compute_inline(), "sorted is loops, which read memory"),
        (lambda s: s["sorted"].split("r", 2), "has no axis 'r'; its loops are none"),
        (lambda s: s.cache_write(s["sorted"].op.outputs[0], "heap"), "it is loops"),
        (lambda s: s.cache_read(s["A"].op.outputs[0], "heap", ["sorted"]), "is loops, whose reads"),
        (lambda s: s.flatten_axes(s["A"].op.outputs[0], "i", "j"), "is loops, whose reads"),
    ],
)
def test_loops_are_opaque(step: Callable[[te.Schedule], object], message: str) -> None:
    _, _, _, z = between()
    s = te.create_schedule(z.op)
    with pytest.raises(ScheduleError, match=message):
        step(s)


def of(body: Callable[..., None]) -> te.Tensor:
    return te.extern((4,), [te.placeholder((4,), name="X")], body, name="E")


def store(b: te.LoopBuilder, array, index, value) -> None:
    array[index] = value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: of(lambda b, x, y: store(b, x, 0, 1.0)), "E.*X.*(not written|only read|written)"),
        (lambda: of(lambda b, x, y: store(b, y, (0, 1), 1.0)), "rank|indices"),
        (lambda: of(lambda b, x, y: store(b, y, 0, te.const(1, i64))), "i64"),
        (lambda: of(lambda b, x, y: store(b, y, x[0], 1.0)), "f32"),
        (lambda: of(lambda b, x, y: store(b, y, Var("v", i64), 1.0)), "'v' is not in scope"),
        (lambda: te.extern((4,), [], lambda b, y: None), "dtype of the result must be given"),
        (lambda: te.extern([(4,), (2,)], [], print, dtype=["f32"]), "2 shapes, but 1 element"),
    ],
)
def test_malformed_loops(make: Callable[[], te.Tensor], message: str) -> None:
    with pytest.raises(ExpressionError, match=message) as e:
        make()
    assert "report it" not in str(e.value)


def test_loops_cannot_read_a_state() -> None:
    state = te.placeholder((5, 12), name="state")
    step = te.extern((5, 12), [state], sort_rows, name="step")
    first = te.compute((1, 12), lambda t, i: te.const(0.0), name="first")
    with pytest.raises(ExpressionError, match="step is loops, which can't read a state"):
        te.scan(first, step, state)
