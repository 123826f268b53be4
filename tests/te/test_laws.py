"""Steps that change the order of a reduction ask for the laws that keep its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.codegen.targets import target
from tilesmith.loop.interpret import interpret
from tilesmith.strategy.device import default_schedule

N = 24


def first_of_ties(a: Any, b: Any) -> Any:
    return te.select(a[1] >= b[1], a[0], b[0]), te.maximum(a[1], b[1])


def lower_of_ties(a: Any, b: Any) -> Any:
    is_a = te.any(a[1] > b[1], te.all(a[1] >= b[1], a[0] <= b[0]))
    return te.select(is_a, a[0], b[0]), te.maximum(a[1], b[1])


def welford(a: Any, b: Any) -> Any:
    """Count, mean and sum of squared differences."""
    count, difference = a[0] + b[0], b[1] - a[1]
    share = b[0] / te.maximum(count, 1.0)
    return count, a[1] + difference * share, a[2] + b[2] + difference * difference * a[0] * share


def reduced(combine: Callable, start: Any, *dtypes: str, **laws: bool) -> tuple[te.Tensor, ...]:
    """A reduction of N values of each of the types, behind its inputs."""
    x, k = [te.placeholder((N,), d, f"x{n}") for n, d in enumerate(dtypes)], te.reduce_axis(N, "k")
    values = tuple(v[k] for v in x)
    reduce = te.comm_reducer(combine, lambda *t: start, "mine", **laws)
    y = te.compute((), lambda: reduce(values if len(x) > 1 else values[0], axis=k), "y")
    return *x, *(y if isinstance(y, tuple) else (y,))


def laws_of(*args: Any, **laws: bool) -> tuple[bool, bool, bool]:
    found = reduced(*args, **laws)[-1].op.laws
    return found.associative, found.commutative, found.neutral


REDUCERS = {
    "x + y*y": (lambda x, y: x + y * y, 0, ("f32",), (False, False, False)),
    "difference": (lambda x, y: x - y, 0, ("i32",), (False, False, False)),
    "mean": (lambda x, y: (x + y) / 2.0, 0, ("f32",), (False, True, False)),
    "last": (lambda x, y: y, 0, ("f32",), (True, False, False)),
    "hypotenuse": (lambda x, y: te.sqrt(x * x + y * y), 0, ("f16",), (True, True, True)),
    "saturated": (lambda x, y: te.minimum(x + y, 7), 0, ("i8",), (False, True, False)),
    "all": (lambda x, y: te.all(x, y), True, ("bool",), (True, True, True)),
    "first": (first_of_ties, (-1, -np.inf), ("i64", "f32"), (True, False, True)),
    "lower": (lower_of_ties, (2**63 - 1, -np.inf), ("i64", "f32"), (True, True, True)),
}


@pytest.mark.parametrize("name", REDUCERS)
def test_laws_are_found(name: str) -> None:
    combine, start, dtypes, wanted = REDUCERS[name]
    assert laws_of(combine, start, *dtypes) == wanted


def test_claims() -> None:
    """A claim that holds for counts is taken, one that holds for nothing is not."""
    zeros, three = (0, 0, 0), ("f32", "f32", "f32")
    assert laws_of(welford, zeros, *three) == (False, False, False)
    claimed = laws_of(welford, zeros, *three, associative=True, commutative=True)
    assert claimed == (True, True, True)
    assert not laws_of(lambda a, b: a + b - a * b, 0, "f32", associative=False)[0]
    with pytest.raises(ts.TilesmithError, match=r"declared commutative and is not .*b \+ a is"):
        reduced(lambda a, b: a - b, 0, "f32", commutative=True)


def test_what_reads_a_tensor_is_not_tried() -> None:
    scale = te.placeholder((1,), name="scale")
    assert laws_of(lambda a, b: a + b * scale[0], 0, "f32") == (False, False, False)


@pytest.mark.parametrize(
    ("name", "step", "message"),
    [
        ("difference", "inner", r"not associative \(for a = .*\), so that partial results"),
        ("last", "outer", r"changed by its start \(for a = .*\), so that"),
        ("first", "inner", r"not commutative \(for a = \(.*rfactor the outermost reduction loop"),
        ("first", "reorder", r"not commutative \(for .*the order of its values counts"),
        ("mean", "reorder", "not associative"),
        ("first", "outer", ""),
        ("lower", "inner", ""),
        ("lower", "reorder", ""),
    ],
)
def test_steps_ask(name: str, step: str, message: str) -> None:
    """Steps that are taken keep the answer, also with ties."""
    combine, start, dtypes, _ = REDUCERS[name]
    args = reduced(combine, start, *dtypes)
    s = te.create_schedule(args[-1].op)
    stage = s[args[-1]]
    outer, inner = stage.split(stage.reduce_axis[0], factor=4)

    def take() -> None:
        if step == "reorder":
            stage.reorder(inner, outer)
        else:
            s.rfactor(args[-1], outer if step == "outer" else inner)

    if message:
        before = s.checkpoint()
        with pytest.raises(ts.ScheduleError, match=message):
            take()
        assert s.checkpoint() == before
        return
    take()
    x = np.zeros(N, np.float32)
    x[[6, 9]] = 2
    found = np.zeros((), np.int64), np.zeros((), np.float32)
    interpret(te.lower(s, list(args)), [np.arange(N), x, *found])
    assert found[0] == 6 and found[1] == 2


def matrices(n: int) -> list[te.Tensor]:
    """A product of n matrices of 2 x 2, in their order."""
    x, k = te.placeholder((4, n), name="x"), te.reduce_axis(n, "k")

    def product(a: Any, b: Any) -> Any:
        return tuple(a[i] * b[j] + a[i + 1] * b[j + 2] for i in (0, 2) for j in (0, 1))

    reduce = te.comm_reducer(product, lambda *t: (1, 0, 0, 1), "matmul")
    return [x, *te.compute((), lambda: reduce(tuple(x[i, k] for i in range(4)), axis=k), "y")]


@pytest.mark.parametrize("kind", ["cpu", "device"])
def test_automatic_schedules_keep_the_order(kind: str) -> None:
    n = 1 << 8
    args = matrices(n)
    turns = np.array([[1, 1, 0, 1], [0, 1, -1, 0], [0, -1, 1, 0], [1, 0, -1, 1]], np.float32)
    x = turns[np.random.default_rng(0).permutation(np.repeat([1, 2, 1, 2], n // 4))].T.copy()
    x[:, 100], x[:, 200] = turns[0], turns[3]
    wanted = np.eye(2)
    for matrix in x.T:
        wanted = wanted @ matrix.reshape(2, 2)
    found = [np.zeros((), np.float32) for _ in range(4)]
    if kind == "cpu":
        ts.build("auto", args, threads=2)(x, *found)
    else:
        schedule = default_schedule(args, target("cuda-sm_80"), 0.0)
        interpret(te.lower(schedule, args, "f"), [x, *found])
    np.testing.assert_array_equal(found, wanted.ravel())
