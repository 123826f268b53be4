"""Chains of stages that use their input in several branches: code grows with their length alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.expr import Expr
from tilesmith.loop.interpret import interpret
from tilesmith.runtime.function import NativeFunction

N = 37
Step = Callable[[Expr, Expr, Expr], Expr]
"""The next value, from the last one and the elements of two other tensors, those less a number that
differs from step to step: repeated conditions would be decided by the first of them.
"""


def offset(n: int) -> np.float32:
    return np.float32((n * 7 % 32) / 16 - 1)


STEPS: dict[str, tuple[Step, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]]] = {
    "magnitude": (
        lambda x, y, z: te.select(x > 0.0, x, -x), lambda x, y, z: np.where(x > 0, x, -x),
    ),
    "without NaN": (
        lambda x, y, z: te.select(
            te.isnan(x), 0.0, te.select(te.isinf(x), te.select(x > 0.0, 9.0, -9.0), x)
        ),
        lambda x, y, z: np.nan_to_num(x, nan=0, posinf=9, neginf=-9),
    ),
    "opposite": (
        lambda x, y, z: te.select(y > 0.0, x * 0.5, -x), lambda x, y, z: np.where(y > 0, x / 2, -x),
    ),
    "two conditions": (
        lambda x, y, z: te.select(y > 0.0, x, 0.25) + te.select(z > 0.5, x, 1.0) * 0.5,
        lambda x, y, z: np.where(y > 0, x, np.float32(0.25)) + np.where(z > 0.5, x, 1) / 2,
    ),
    "inner condition": (
        lambda x, y, z: te.select(y > x, te.select(z > x, x * 0.5, x - 1.0), -x),
        lambda x, y, z: np.where(y > x, np.where(z > x, x / 2, x - 1), -x),
    ),
}  # fmt: skip


def built(names: list[str], target: str, lanes: int) -> tuple[NativeFunction, te.Schedule, list]:
    tensors = [te.placeholder((N,), name=n) for n in "XYZ"]
    first, y, z = tensors
    last, stages = first, []
    for n, name in enumerate(names):
        step, c = STEPS[name][0], float(offset(n))
        last = te.compute(
            (N,), lambda i, x=last, step=step, c=c: step(x[i], y[i] - c, z[i] - c), "s"
        )
        stages.append(last)
    s = te.create_schedule(last)
    for stage in stages[:-1]:
        s[stage].compute_inline()
    if lanes > 1:
        s[last].vectorize(s[last].split("i", lanes)[1])
    read = set(last.op.inputs).union(*(stage.op.inputs for stage in stages))
    args = [*(t for t in tensors if t in read), last]
    return ts.build(s, args, target=target), s, args


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("name", STEPS)
def test_code_grows_with_the_length_of_a_chain(name: str, target: str, lanes: int) -> None:
    sizes = [len(built([name] * n, target, lanes)[0].source) for n in (16, 32)]
    assert sizes[1] < 3 * sizes[0]


@pytest.mark.parametrize(
    ("dtype", "step"),
    [
        ("f32", lambda x: x + x),
        ("i64", lambda x: x * x),
        ("i32", lambda x: te.maximum(x + x, x - 1)),
        ("bool", lambda x: x & x),
        ("bool", lambda x: x | (x == x)),
    ],
)
@pytest.mark.parametrize("target", ["native", "c"])
def test_a_value_that_is_used_twice_is_computed_once(dtype, step, target) -> None:
    def body(i: Expr) -> Expr:
        value = x[i]
        for _ in range(40):
            value = step(value)
        return value

    x = te.placeholder((N,), dtype, "X")
    y = te.compute((N,), body, "Y")
    s = te.create_schedule(y)
    s[y].vectorize(s[y].split("i", 8)[1])
    assert len(ts.build(s, [x, y], target=target).source) < 1 << 18


@pytest.mark.parametrize("seed", range(8))
def test_values_of_random_chains(seed: int) -> None:
    rng = random.Random(seed)
    # mixed with others, two conditions at a time still multiply
    names = rng.choices([name for name in STEPS if name != "two conditions"], k=20)
    data = np.random.default_rng(seed).uniform(-2, 2, (3, N)).astype(np.float32)
    data[0, :3] = np.nan, np.inf, -np.inf
    expected = data[0]
    for n, name in enumerate(names):
        y, z = data[1:] - offset(n)
        expected = STEPS[name][1](expected, y, z).astype(np.float32)
    for target, lanes in (("native", 1), ("native", 8), ("c", 1)):
        kernel, s, args = built(names, target, lanes)
        given = [a for a, n in zip(data, "XYZ", strict=True) if n in {t.name for t in args}]
        found = np.zeros((2, N), np.float32)
        kernel(*given, found[0])
        interpret(te.lower(s, args), [*given, found[1]])
        for result in found:
            np.testing.assert_allclose(
                result, expected, rtol=1e-6, err_msg=f"seed {seed}, {names}, {target}, {lanes}"
            )
