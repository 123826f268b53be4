"""Kernels that repeat short rows have loops for few and for many copies."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.elementwise import Add
from tilesmith.ops.shape import Expand
from tilesmith.strategy.cpu.repeats import LONG, repeated_rows
from tilesmith.support.options import Options


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


def test_rows_that_differ_are_no_copies() -> None:
    n = symbol("n")
    b = Builder("g")
    x, y = b.input("x", TensorType(f32, (6, n, 3))), b.input("y", TensorType(f32, (6, 1, 3)))
    assert repeated_rows(b.finish([b.add(Add(), x, y)], ["y"])) is None
