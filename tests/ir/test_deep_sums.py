"""Sums of thousands of terms, in each other, as extents."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilesmith import te
from tilesmith.ir.expr import Expr, Var, substitute
from tilesmith.ir.simplify import EMPTY, simplify
from tilesmith.ir.symbols import as_dim, value_of
from tilesmith.runtime.function import _steps

TERMS = 5000
N = Var("n")
STEPS: dict[str, tuple[Callable[[Expr, int], Expr], Callable[[int], int]]] = {
    "left": (lambda e, k: e + N // (k + 2), lambda n: n + sum(n // (k + 2) for k in range(TERMS))),
    "right": (lambda e, k: N // (k + 2) + e, lambda n: n + sum(n // (k + 2) for k in range(TERMS))),
    "differences": (lambda e, k: N // (k + 2) - e, lambda n: n + sum(
        (-1) ** (k + 1) * (n // (k + 2)) for k in range(TERMS))),
    "one term": (lambda e, k: e + N, lambda n: n * (TERMS + 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_deep_sum_is_an_extent(name: str) -> None:
    step, expected = STEPS[name]
    size: Expr = N
    for k in range(TERMS):
        size = step(size, k)
    simple = as_dim(size)
    assert isinstance(simple, Expr) and value_of(simple, {N: 1234}) == expected(1234)
    assert as_dim(simple) is simple
    assert len(_steps(simple, {N: 0})) >= (3 if name == "one term" else TERMS)


def test_a_sum_that_is_used_twice_in_each_other_is_added_once() -> None:
    """Each doubles the one before: 2**60 paths lead to the first."""
    e: Expr = N + Var("m")
    for _ in range(60):
        e = e + e
    assert EMPTY.affine(e)[0][N] == 2**60


def test_terms_that_cancel_are_gone() -> None:
    m = Var("m")
    e: Expr = m
    for k in range(TERMS):
        e = e + N // (k + 2) - N // (k + 2) if k % 2 else e * -1 * -1
    assert simplify(e) is m
    assert substitute(e, {m: N}) is not e


def test_multiples_of_sums_in_each_other() -> None:
    """Each level once had its whole sum built: minutes."""
    size: Expr = N + 0
    for k in range(TERMS):
        size = size * 3 + Var(f"n{k}")
    form, constant = EMPTY.affine(size)
    assert constant == 0 and form[N] == 3**TERMS and len(form) == TERMS + 1
    assert te.reduce_axis(size).extent is not None

    small: Expr = N + 0
    for k in range(TERMS):
        small = 2 * (small + k) - small
    assert simplify(small) is simplify(N + sum(2 * k for k in range(TERMS)))


def test_loops_by_hand_over_such_an_extent() -> None:
    n = te.var("n")
    size = n
    for k in range(TERMS):
        size = size + n // (k + 2)
    x = te.placeholder((n,), name="X")

    def body(b, x, y):
        with b.loop(size, "i") as i:
            y[i] = 1.0

    y = te.extern(size, [x], body, name="Y", dtype="f32")
    assert te.lower(te.create_schedule(y), [x, y]).name
