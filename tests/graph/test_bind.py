"""Symbols of a program replaced by numbers."""

from __future__ import annotations

import pytest

from tilesmith.graph.bind import bind, expected_graph
from tilesmith.graph.builder import Builder
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.text import print_graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.sizes import Sizes
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.ops import matmul, shape
from tilesmith.ops.activation import Relu
from tilesmith.support.errors import ParseError


def _graph(n, m):
    b = Builder("g")
    x = b.input("x", TensorType(f32, (n, m, 6)))
    w = b.input("w", TensorType(f32, (6, 6)))
    y = b.add(matmul.MatMul(), x, w)
    z = b.add(shape.Reshape((n, m, 2, 3)), y)
    return b.finish([b.add(Relu(), z)])


def test_every_symbol_becomes_a_number() -> None:
    n, m = symbol("n"), symbol("m", expected=7)
    g = _graph(n, m)
    assert g.symbols == (n, m)
    assert print_graph(bind(g, {n: 4, m: 5})) == print_graph(_graph(4, 5))
    assert print_graph(expected_graph(g)) == print_graph(_graph(128, 7))


def test_some_symbols_stay() -> None:
    n, m = symbol("n"), symbol("m")
    assert print_graph(bind(_graph(n, m), {n: 4})) == print_graph(_graph(4, m))


def test_symbols_are_part_of_the_text() -> None:
    text = print_graph(_graph(symbol("n", 1, 64, 8), symbol("m", 0, 9)))
    assert text.startswith("graph g<n 1..64~8, m 0..9~9>(%x: f32[n,m,6], ")
    again = parse_graph(text)
    assert print_graph(again) == text
    assert [v.sizes for v in again.symbols] == [Sizes(1, 64, 8), Sizes(0, 9, 9)]


def test_wrong_sizes_are_refused() -> None:
    text = print_graph(_graph(symbol("n", 1, 64, 8), symbol("m")))
    with pytest.raises(ParseError, match=r"expected 65, high 64"):
        parse_graph(text.replace("~8", "~65"))
    with pytest.raises(ParseError, match="this name is taken"):
        parse_graph(text.replace("<n ", "<m "))


def test_nothing_to_replace_gives_the_same_graph() -> None:
    n, m = symbol("n"), symbol("m")
    g = _graph(3, 5)
    assert bind(g, {n: 1, m: 1}) is g
    other = _graph(n, m)
    assert bind(other, {}) is other
