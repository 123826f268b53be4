"""Symbolic dimensions: what their expressions are worth, and what stays of them."""

from __future__ import annotations

import random

import pytest

from tilesmith.ir.expr import Var, const
from tilesmith.ir.simplify import EMPTY
from tilesmith.ir.sizes import Sizes
from tilesmith.ir.symbols import (
    as_dim,
    bound,
    expected,
    expected_size,
    symbol,
    symbols_of,
    value_of,
)


def test_a_symbol_has_a_range_and_an_expected_size() -> None:
    assert symbol("n").sizes == Sizes(1, (1 << 31) - 1, 128)
    assert symbol("n", 0, 10).sizes == Sizes(0, 10, 10)
    assert symbol("n", 200).sizes == Sizes(200, (1 << 31) - 1, 200)
    with pytest.raises(ValueError, match=r"low <= expected <= high.*found low 3, expected 2"):
        symbol("n", 3, 8, expected=2)


def test_symbols_are_found_in_order_of_use() -> None:
    n, m = symbol("n"), symbol("m")
    assert symbols_of([3, m + 1, n * m]) == (m, n)
    assert symbols_of([1, 2]) == ()


def test_decisions_reckon_with_expected_sizes() -> None:
    n, m = symbol("n", expected=4), symbol("m", expected=10)
    assert expected((m - 3) // 2 + 1) == 4
    assert expected_size([n, 3, m]) == 120


def test_an_extent_without_a_value() -> None:
    n = symbol("n", 0)
    with pytest.raises(ValueError, match="has no value"):
        value_of(8 // n, {n: 0})
    with pytest.raises(KeyError):
        value_of(n, {})


def test_some_symbols_put_in() -> None:
    n, m = symbol("n"), symbol("m")
    assert bound(n * 2 + m, {n: 3, m: 1}) == 7
    left = bound(n * 2 + m, {n: 3})
    assert symbols_of([left]) == (m,) and value_of(left, {m: 5}) == 11


def test_simplified_extents_have_the_same_value() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    n, m = symbol("n"), symbol("m")
    for _ in range(200):
        e = n if rng.random() < 0.5 else m
        for _ in range(rng.randint(1, 6)):
            other = rng.choice([n, m, rng.randint(1, 9)])
            op = rng.choice(["+", "-", "*", "//"])
            positive = other if op != "//" else rng.randint(1, 9)
            e = {"+": e + other, "-": e - other, "*": e * other, "//": e // positive}[op]
        values = {n: rng.randint(1, 50), m: rng.randint(1, 50)}
        assert value_of(as_dim(e), values) == value_of(e, values), str(e)


def test_quotients_and_remainders_of_a_fused_index_are_in_range() -> None:
    n, m, f = symbol("n"), symbol("m"), Var("f")
    blocks = (m + 15) // 16
    facts = EMPTY.with_var(f, 0, n * blocks * 4 - 1)
    assert facts.simplify(f // blocks // 4 < n) is const(True)
    assert facts.simplify(f % blocks < blocks) is const(True)
    assert facts.simplify(f // blocks < n * 4 - 1) is not const(True)
