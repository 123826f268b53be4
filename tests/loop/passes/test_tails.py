"""Tails of open extents: what peeling makes of register tiles whose last rows only a run knows."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import te
from tilesmith.ir.expr import Expr, const, substitute
from tilesmith.ir.symbols import symbol
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import For, Func, If
from tilesmith.loop.passes.flatten import flatten
from tilesmith.loop.passes.peel import peel
from tilesmith.loop.passes.simplify import simplify_func
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import map_stmt, walk

COLUMNS, STEPS, ROWS = 4, 5, 4


def _product(n: Expr, parallel: bool, rows: int = ROWS) -> Func:
    """[n, STEPS] @ [STEPS, COLUMNS], in tiles of `rows` rows."""
    A, B = te.placeholder((n, STEPS), name="A"), te.placeholder((STEPS, COLUMNS), name="B")
    k = te.reduce_axis(STEPS, "k")
    C = te.compute((n, COLUMNS), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), "C", ("i", "j"))
    s = te.create_schedule(C.op)
    tile = s.cache_write(C, "register")
    io, ii = s[C].split(s[C].axis[0], factor=rows)
    s[C].unroll(ii)
    s[C].vectorize(s[C].axis[1])
    if parallel:
        s[C].parallel(io)
    s[tile].compute_at(s[C], io)
    s[tile].reorder(*s[tile].reduce_axis, *s[tile].axis)
    s[tile].unroll(s[tile].axis[0])
    s[tile].vectorize(s[tile].axis[1])
    return flatten(simplify_func(te.lower(s, [A, B, C])))


def _rows(func: Func) -> list[int]:
    """The extents of the unrolled loops, in order."""
    loops = (s for s in walk(func.body) if isinstance(s, For) and s.kind == "unrolled")
    return [int(s.extent.value) for s in loops]  # type: ignore[attr-defined]  # numbers


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("expected", [8, 10, 3])
def test_every_size_is_right(expected: int, parallel: bool) -> None:
    func = _product(symbol("n", 1, 64, expected), parallel)
    peeled = peel(func)
    verify(peeled, "flat")
    rng = np.random.default_rng(0)
    for n in range(1, 14):
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((n, STEPS), (STEPS, COLUMNS)))
        c = np.zeros(n * COLUMNS, np.float32)
        interpret(peeled, [a.reshape(-1), b.reshape(-1), c, n])
        np.testing.assert_allclose(c.reshape(n, COLUMNS), a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("expected", [8, 10, 3])
def test_sums_over_an_open_extent_add_no_term_twice(expected: int) -> None:
    """Unrolled steps of a sum look like rows, but share their registers."""
    n = symbol("n", 1, 64, expected)
    A, B = te.placeholder((n,), name="A"), te.placeholder((n, COLUMNS), name="B")
    k = te.reduce_axis(n, "k")
    C = te.compute((COLUMNS,), lambda j: te.sum(A[k] * B[k, j], axis=k), "C")
    s = te.create_schedule(C.op)
    total = s.cache_write(C, "register")
    ko, ki = s[total].split(s[total].reduce_axis[0], factor=4)
    s[total].reorder(ko, ki, *s[total].axis)
    s[total].unroll(ki)
    s[total].vectorize(s[total].axis[0])
    s[C].vectorize(s[C].axis[0])
    peeled = peel(flatten(simplify_func(te.lower(s, [A, B, C]))))
    for size in range(1, 14):
        a, b = np.arange(1.0, size + 1), np.arange(1.0, size * COLUMNS + 1)
        c = np.zeros(COLUMNS, np.float32)
        interpret(peeled, [a.astype(np.float32), b.astype(np.float32), c, size])
        np.testing.assert_array_equal(c, a @ b.reshape(size, COLUMNS))


def test_there_are_versions_for_the_rows_that_are_expected_and_for_one() -> None:
    parts = {ROWS, ROWS // 2}
    assert set(_rows(peel(_product(symbol("n", 1, 64, 11), False)))) == parts | {11 % ROWS, 1}
    assert set(_rows(peel(_product(symbol("n", 1, 64, 8), False)))) == parts | {1}


@pytest.mark.parametrize(("left", "computed"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (7, 8)])
def test_few_rows_are_not_computed_as_a_whole_tile(left: int, computed: int) -> None:
    n = symbol("n", 1, 64, 16)
    peeled = peel(_product(n, False, rows=8))
    known: dict[Expr, Expr] = {n: const(left)}
    body = map_stmt(peeled.body, lambda e: substitute(e, known))
    assert max(_rows(simplify_func(peeled.with_body(body))), default=1) == computed


def test_an_extent_may_be_a_formula() -> None:
    """As behind a stride of 2: 10 of 19 rows."""
    n = symbol("n", 1, 64, 19)
    assert set(_rows(peel(_product((n + 1) // 2, False)))) == {ROWS, ROWS // 2, 10 % ROWS, 1}


def test_only_what_leaves_the_registers_is_guarded() -> None:
    peeled = peel(_product(symbol("n", 1, 64, 8), False))
    guarded = [s for s in walk(peeled.body) if isinstance(s, If) and s.likely]
    assert len(guarded) == 2, "in the tails of half a tile and of a whole one"
    for text in print_func(peeled).split("likely")[1:]:
        assert "C[" in text.split("\n")[2]
