"""Trim: loops end where their guards do."""

from __future__ import annotations

import numpy as np
import pytest
from loop_programs import run

from tilesmith import te
from tilesmith.ir.expr import Const, Expr, Select, const, post_order
from tilesmith.loop.nodes import For, Func
from tilesmith.loop.passes.flatten import flatten
from tilesmith.loop.passes.simplify import simplify_func
from tilesmith.loop.passes.trim import trim
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import exprs, walk

M, N, K = 43, 3, 80

MASKS = {
    "lower": lambda i, k: k <= i,
    "upper": lambda i, k: k >= i,
    "every second": lambda i, k: k * 2 <= i,
    "backwards": lambda i, k: k + i < K,
    "band": lambda i, k: te.all(k >= i, k < i + 30),
    "beyond": lambda i, k: k >= i + 30,
    "the rest": lambda i, k: k * 3 < i * 2 + 5,
}


def product(mask, factor: int | None, unroll: int | None, reduce=te.sum, none: float = 0.0) -> Func:
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis(K, "k")

    def term(i: Expr, j: Expr) -> Expr:
        return reduce(te.if_then_else(mask(i, k.var), A[i, k] * B[k, j], none), axis=k)

    C = te.compute((M, N), term, "C", ("i", "j"))
    s = te.create_schedule(C.op)
    if factor is not None:
        i, j = s[C].axis
        io, ii = s[C].split(i, factor=factor)
        s[C].reorder(io, j, s[C].reduce_axis[0], ii)
        s[C].unroll(ii)
    if unroll is not None:
        _, near = s[C].split(s[C].reduce_axis[0], factor=unroll)
        s[C].unroll(near)
    return flatten(simplify_func(te.lower(s, [A, B, C])))


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = ((M, K), (K, N), (M, N))
    return [rng.standard_normal(s, np.float32).reshape(-1) for s in shapes]


def results(func: Func) -> np.ndarray:
    return run(func, arrays())[0]


def free_loops(func: Func) -> list[For]:
    """The loops over k that test nothing."""
    loops = [s for s in walk(func.body) if isinstance(s, For) and s.var.name.startswith("k")]
    return [
        s for s in loops
        if not any(isinstance(n, Select) for e in exprs(s) for n in post_order(e))
    ]  # fmt: skip


@pytest.mark.parametrize("unroll", [None, 4])
@pytest.mark.parametrize("factor", [None, 4])
@pytest.mark.parametrize("name", MASKS)
def test_trimmed_loops_give_the_same_answers(name, factor, unroll):
    func = product(MASKS[name], factor, unroll)
    new = trim(func)
    verify(new, "flat", after="trim")
    np.testing.assert_allclose(results(new), results(func), rtol=1e-5, atol=1e-6)
    assert new is not func
    free = free_loops(new)
    assert free, "some loop tests nothing"
    assert not all(isinstance(s.extent, Const) and s.start is const(0) for s in free)


def test_a_product_with_a_triangle_does_half_the_work():
    func = trim(product(MASKS["lower"], None, None))
    text = print_func(func)
    assert "for k in range(i + 1)" in text and "select" not in text


def test_other_reductions_are_trimmed_too():
    lowest = float(np.finfo(np.float32).min)
    func = product(MASKS["lower"], 4, None, te.max, te.const(lowest))
    np.testing.assert_allclose(results(trim(func)), results(func))


def test_a_value_that_is_no_identity_stays():
    func = product(MASKS["lower"], None, None, none=1.0)
    new = trim(func)
    np.testing.assert_allclose(results(new), results(func), rtol=1e-5)
    assert "+ 1.0" in print_func(new)


def test_bounds_do_not_differ_between_lanes():
    A = te.placeholder((64,), name="A")
    k = te.reduce_axis(64, "k")
    C = te.compute((64,), lambda i: te.sum(te.if_then_else(k.var <= i, A[k], 0.0), axis=k), "C")
    s = te.create_schedule(C.op)
    _, lane = s[C].split(s[C].axis[0], factor=16)
    s[C].reorder(lane, s[C].reduce_axis[0])
    s[C].vectorize(lane)
    func = flatten(simplify_func(te.lower(s, [A, C])))
    assert trim(func) is func
