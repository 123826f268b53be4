"""Kernels that repeat short rows have loops for few and for many copies."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Fused, Graph, InPlace
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import compare
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import Dim, TensorType
from tilesmith.loop.nodes import For, If, Stmt
from tilesmith.loop.text import print_func
from tilesmith.loop.visit import children
from tilesmith.ops.elementwise import Add
from tilesmith.ops.shape import Expand, Reshape
from tilesmith.search_space.groups import lower_group
from tilesmith.strategy.cpu.versions import LONG, repeated_rows
from tilesmith.support.options import Options

SESSION = driver.Session.of(Options())


def _repeated(copies: Dim, row: int) -> Graph:
    """Each row of x [6, 1, row] as often as `count` has elements."""
    b = Builder("g")
    x = b.input("x", TensorType(f32, (6, 1, row)))
    count = b.input("count", TensorType(f32, (copies,)))
    return b.finish([b.add(Expand((6, copies, row)), x), b.add(Add(), count, count)], ["y", "z"])


@pytest.mark.parametrize("row", [1, 3, 8])
def test_few_and_many_copies_of_a_short_row(row: int) -> None:
    exe = driver.compile(_repeated(symbol("n"), row), options=Options(use_cache=False))
    x = np.arange(6 * row, dtype=np.float32).reshape(6, 1, row)
    for n in (1, 2, 5, LONG, LONG + 1, 3 * LONG + 2):
        found = exe.run({"x": x, "count": np.zeros(n, np.float32)})["y"]
        np.testing.assert_array_equal(found, np.repeat(x, n, 1))


@pytest.mark.parametrize(
    ("copies", "row", "has_both"),
    [(symbol("n"), 3, True), (symbol("n"), LONG, False), (4, 3, False)],
)
def test_only_open_numbers_of_short_rows_need_both(copies: Dim, row: int, has_both: bool) -> None:
    b = Builder("g")
    x = b.input("x", TensorType(f32, (6, 1, row)))
    body = b.finish([b.add(Expand((6, copies, row)), x)], ["y"])
    assert (repeated_rows(body) is not None) == has_both


def _tiled(extents: tuple[Dim, ...], repeats: tuple[Dim, ...]) -> Graph:
    """x repeated along each axis: [r0, d0, r1, d1, ...]."""
    b = Builder("g")
    apart = tuple(n for d in extents for n in (1, d))
    wide = tuple(n for r, d in zip(repeats, extents, strict=True) for n in (r, d))
    x = b.input("x", TensorType(f32, extents))
    counts = [
        b.input(f"count{i}", TensorType(f32, (r,)))
        for i, r in enumerate(repeats)
        if not isinstance(r, int)
    ]
    y = b.add(Expand(wide), b.add(Reshape(apart), x))
    return b.finish([y, *(b.add(Add(), c, c) for c in counts)], ["y", *(c.name for c in counts)])


@pytest.mark.parametrize(
    "extents",
    [(symbol("h"), symbol("w"), symbol("c")), (symbol("h"), symbol("w"), 3), (5, 7, 3)],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_one_copy_of_short_rows_between_copies_of_others(
    extents: tuple[Dim, ...], threads: int
) -> None:
    repeats = tuple(symbol(f"r{i}", low=0) for i in range(3))
    exe = driver.compile(
        _tiled(extents, repeats), options=Options(use_cache=False, threads=threads)
    )
    x = np.arange(5 * 7 * 3, dtype=np.float32).reshape(5, 7, 3)
    for numbers in ((1, 1, 1), (2, 3, 1), (2, 3, 2), (3, 1, 40), (1, 20, 1), (2, 0, 1), (2, 2, 0)):
        counts = {f"count{i}": np.zeros(n, np.float32) for i, n in enumerate(numbers)}
        found = exe.run({"x": x, **counts})["y"]
        want = x.reshape(1, 5, 1, 7, 1, 3)
        shape = [n for r, d in zip(numbers, x.shape, strict=True) for n in (r, d)]
        np.testing.assert_array_equal(found, np.broadcast_to(want, shape))


def test_rows_without_copies_between_them_are_one_loop() -> None:
    b = Builder("g")
    h, w, c, r, t = map(symbol, "hwcrt")
    x = b.input("x", TensorType(f32, (h, 1, w, 1, c)))
    body = b.finish([b.add(Expand((h, r, w, t, c)), x)], ["y"])
    func = lower_group(body, SESSION.target, SESSION.backend.rules, "k")
    assert isinstance(func.body, If)
    assert func.body.cond is compare("eq", t, 1)

    def depth(s: Stmt) -> int:
        return isinstance(s, For) + max(map(depth, children(s)), default=0)

    assert func.body.otherwise is not None
    assert depth(func.body.then) < depth(func.body.otherwise) - 1


@pytest.mark.parametrize(
    ("extents", "repeats", "is_apart"),
    [((5, 7, 3), (2, 3, 1), True), ((5, 40), (2, 3), True), ((5, 40), (1, 1), False)],
)
def test_a_reshape_behind_copies_of_rows_is_a_view(
    extents: tuple[int, ...], repeats: tuple[int, ...], is_apart: bool
) -> None:
    graph = _joined(extents, repeats)
    nodes = driver.optimise(graph, SESSION).nodes
    assert (len(nodes) == 2 and isinstance(nodes[-1].op, InPlace)) == is_apart
    assert isinstance(nodes[0].op, Fused)
    func = driver.run_loop_passes(SESSION.group(nodes[0].op.body).lower("k"), SESSION)
    assert "%" not in print_func(func)
    x = np.arange(np.prod(extents), dtype=np.float32).reshape(extents)
    found = driver.compile(graph, options=Options(use_cache=False)).run({"x": x})["y"]
    np.testing.assert_array_equal(found, np.tile(x, repeats))


def test_a_reshape_behind_copies_of_elements_is_computed_with_them() -> None:
    b = Builder("g")
    x = b.input("x", TensorType(f32, (5, 7, 1)))
    graph = b.finish([b.add(Reshape((5, 14)), b.add(Expand((5, 7, 2)), x))], ["y"])
    assert len(driver.optimise(graph, SESSION).nodes) == 1


def _joined(extents: tuple[int, ...], repeats: tuple[int, ...]) -> Graph:
    """x repeated along each axis, with the extents of a tile."""
    b = Builder("g")
    x = b.input("x", TensorType(f32, extents))
    apart = tuple(n for d in extents for n in (1, d))
    wide = tuple(n for r, d in zip(repeats, extents, strict=True) for n in (r, d))
    whole = tuple(r * d for r, d in zip(repeats, extents, strict=True))
    y = b.add(Reshape(whole), b.add(Expand(wide), b.add(Reshape(apart), x)))
    return b.finish([y], ["y"])


def test_rows_that_differ_are_no_copies() -> None:
    n = symbol("n")
    b = Builder("g")
    x, y = b.input("x", TensorType(f32, (6, n, 3))), b.input("y", TensorType(f32, (6, 1, 3)))
    assert repeated_rows(b.finish([b.add(Add(), x, y)], ["y"])) is None
