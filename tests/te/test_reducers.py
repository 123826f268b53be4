"""Reducers are what their definition says, not what they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.dtypes import DType, f32, i32
from tilesmith.loop.interpret import interpret
from tilesmith.te.tensor import MAX, MIN, PROD, SUM, Reduce, Reducer
from tilesmith.te.text import canonical

KNOWN: list[tuple[Reducer, Callable[[Any, Any], Any], Callable[[DType], Any], DType]] = [
    (SUM, lambda a, b: a + b, lambda d: te.const(0, d), f32),
    (SUM, lambda a, b: b + a, lambda d: 0, i32),
    (PROD, lambda a, b: a * b, lambda d: te.const(1, d), f32),
    (MIN, te.minimum, lambda d: te.const(d.max, d), f32),
    (MAX, te.maximum, lambda d: te.const(d.min, d), i32),
]


def reduced(reducer: Any, dtype: DType = f32) -> Reduce:
    a, k = te.placeholder((4, 8), dtype), te.reduce_axis(8)
    return te.compute((4,), lambda i: reducer(a[i, k], axis=k)).op.body[0]


@pytest.mark.parametrize(("known", "combine", "identity", "dtype"), KNOWN)
def test_a_known_reducer_by_another_name(
    known: Reducer, combine: Callable, identity: Callable, dtype: DType
) -> None:
    assert reduced(te.comm_reducer(combine, identity, "mine"), dtype).reducer is known


def test_another_start_keeps_the_way_to_combine() -> None:
    relu = te.comm_reducer(te.maximum, lambda d: te.const(0, d), "relu")
    found = reduced(relu).reducer
    assert found is not MAX and found.operation == "max"
    reciprocal = te.comm_reducer(lambda a, b: 1 / (1 / a + 1 / b), lambda d: te.const(np.inf, d))
    assert reduced(reciprocal).reducer.operation is None
    shifted = te.comm_reducer(lambda a, b: a + b + 0 * a, lambda d: te.const(0, d), "sum")
    assert reduced(shifted).reducer.operation is None


def test_names_are_labels_in_keys() -> None:
    def other(a: Any, b: Any) -> Any:
        return a + b - a * b

    def of(name: str) -> te.Tensor:
        a, k = te.placeholder((4, 8)), te.reduce_axis(8)
        either = te.comm_reducer(other, lambda d: te.const(0, d), name)
        return te.compute((4,), lambda i: either(a[i, k], axis=k))

    assert canonical((of("sum").op,)) == canonical((of("noisy_or").op,))


@pytest.mark.parametrize(
    ("combine", "identity", "message"),
    [
        (lambda a, b: a + b, lambda d: 1, "reducer 'mine' starts from 1"),
        (lambda a, b: a * b, lambda d: 0, "which changes a prod"),
        (lambda a, b: a < b, lambda d: 0, "combines values of type bool; it reduces f32"),
        (
            lambda a, b: a + b,
            lambda d: te.const(0, "i32"),
            "starts with values of type i32; it reduces f32",
        ),
        (lambda a, b: (a, b), lambda d: 0, "combines values of type f32, f32; it reduces f32"),
    ],
)
def test_what_is_no_reducer(combine: Callable, identity: Callable, message: str) -> None:
    with pytest.raises(ts.TilesmithError, match=message):
        reduced(te.comm_reducer(combine, identity, "mine"))


def product_of(reducer: Any, m: int, n: int, k: int) -> tuple[te.Tensor, ...]:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, "r")
    c = te.compute((m, n), lambda i, j: reducer(a[i, r] * b[r, j], axis=r), name="C")
    return a, b, c


def test_a_reducer_named_sum_that_multiplies() -> None:
    """Its two factors make no matrix product."""
    lies = te.comm_reducer(lambda a, b: a * b, lambda d: te.const(1, d), "sum")
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0, 0.5, 2.0], (24, 16)).astype(np.float32)
    y = rng.choice([-1.0, 1.0, 0.5, 2.0], (16, 40)).astype(np.float32)
    a, b, c = product_of(lies, 24, 40, 16)
    got = np.zeros((24, 40), np.float32)
    ts.build("auto", [a, b, c])(x, y, got)
    np.testing.assert_allclose(got, (x[:, :, None] * y[None]).prod(1), rtol=1e-5)


@pytest.mark.parametrize(
    ("combine", "start"), [(lambda a, b: a + b - a * b, 0), (lambda a, b: a * b, 1)]
)
def test_no_winograd_of_what_is_only_called_a_sum(combine: Callable, start: int) -> None:
    lies = te.comm_reducer(combine, lambda d: te.const(start, d), "sum")
    x, w = te.placeholder((10, 10, 4)), te.placeholder((3, 3, 4, 8))
    p, q, c = te.reduce_axis(3), te.reduce_axis(3), te.reduce_axis(4)
    y = te.compute(
        (8, 8, 8), lambda i, j, o: lies(x[i + p, j + q, c] * w[p, q, c, o], axis=(p, q, c))
    )
    with pytest.raises(ts.ScheduleError):
        te.create_schedule(y.op).winograd(y, 2)


def test_a_sum_by_another_name_gets_the_fast_road() -> None:
    """The same kernel, to the letter."""
    total = te.comm_reducer(lambda a, b: a + b, lambda d: te.const(0, d), "total")
    mine, usual = (product_of(r, 24, 40, 16) for r in (total, te.sum))
    assert canonical((mine[2].op,)) == canonical((usual[2].op,))


def test_lanes_of_a_maximum_with_another_start() -> None:
    lowest = te.comm_reducer(
        te.maximum, lambda d: te.const(float(np.finfo(np.float32).min), d), "max"
    )
    a, k = te.placeholder((4, 32)), te.reduce_axis(32)
    c = te.compute((4,), lambda i: lowest(a[i, k], axis=k))
    s = te.create_schedule(c.op)
    _, inner = s[c].split(k, 8)
    s[c].vectorize(inner)
    x = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)
    out = np.zeros(4, np.float32)
    interpret(te.lower(s, [a, c]), [x, out])
    np.testing.assert_array_equal(out, x.max(1))
