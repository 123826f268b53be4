"""Numbers that are traced, and the paths of functions that look at them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from landscapes import LANDSCAPES

from tilesmith.ir.expr import Expr, Var, const
from tilesmith.search_space.paths import Paths
from tilesmith.search_space.space import Space, candidate_key
from tilesmith.search_space.traced import Asked, expression
from tilesmith.support.errors import ScheduleError
from tilesmith.te.knobs import Config

TRACED: list[Callable[[int, int], Any]] = [
    lambda a, b: a + 2 * b - 3, lambda a, b: 7 - a, lambda a, b: -(-a // b), lambda a, b: a % b,
    lambda a, b: divmod(100, b), lambda a, b: abs(b - a), lambda a, b: min(a, b, 5),
    lambda a, b: max(4, a), lambda a, b: a <= b, lambda a, b: a > 3, lambda a, b: a != b,
    lambda a, b: bool(a - b), lambda a, b: sum([a, b]), lambda a, b: math.prod((a, b)),
]  # fmt: skip
PLAIN: list[Callable[[int, int], Any]] = [
    lambda a, b: 1.5 * a, lambda a, b: a / b, lambda a, b: list(range(1, a)), lambda a, b: a**2,
    lambda a, b: {a: 1}, lambda a, b: f"{a}x{b:3d}", lambda a, b: [0] * a, lambda a, b: 1 << b,
    lambda a, b: math.gcd(a, b), lambda a, b: a.bit_length(), lambda a, b: "abcdefghijkl"[a],
    lambda a, b: a * 0.5 + b, lambda a, b: math.ceil(a / b), lambda a, b: a in {1, 2, b},
]  # fmt: skip


@pytest.mark.parametrize("f", TRACED + PLAIN)
@given(a=st.integers(1, 11), b=st.integers(1, 11))
def test_traced_numbers_are_the_numbers(f: Callable[[int, int], Any], a: int, b: int) -> None:
    asked = Asked(lambda *_: None)
    assert f(asked.number(Var("a"), a), asked.number(Var("b"), b)) == f(a, b)


@pytest.mark.parametrize("f", PLAIN)
def test_what_is_not_traced_asks_for_the_value(f: Callable[[int, int], Any]) -> None:
    questions: list[tuple[Expr, int]] = []
    asked = Asked(lambda question, answer: questions.append((question, answer)))
    a, b = Var("a"), Var("b")
    f(asked.number(a, 4), asked.number(b, 3))
    (asked_for, answer), *_ = questions
    assert (asked_for is a and answer == 4) or (asked_for is b and answer == 3)


def test_numbers_keep_their_expressions() -> None:
    questions: list[tuple[Expr, int]] = []
    asked = Asked(lambda question, answer: questions.append((question, answer)))
    v = Var("rows")
    rows = asked.number(v, 6)
    assert isinstance(rows, int) and not isinstance(rows, bool)
    assert expression(rows * 16 + 1) is v * 16 + 1
    assert not questions
    assert rows * 16 > 90
    assert questions == [(const(90) < v * 16, True)]
    asked.is_over = True
    assert rows < 7 and len(questions) == 1


def strategy(cfg: Config) -> int:
    rows = cfg.choice("rows", range(1, 15), 6)
    if 84 % rows == 0 and cfg.choice("share", (False, True), True):
        cfg.choice("blocks", lambda: range(1, rows + 1), rows)
    if rows > 12:
        raise ScheduleError("too tall")
    return rows


def test_what_gives_the_same_answers_is_run_once() -> None:
    runs: list[int] = []

    def counted(cfg: Config) -> int:
        runs.append(1)
        return strategy(cfg)

    paths = Paths(counted)
    first = paths.follow({"rows": 8}, {})
    assert paths.follow({"rows": 10}, {}) is first and paths.follow({"rows": 5}, {}) is first
    assert len(runs) == 1
    assert paths.follow({"rows": 6, "share": False}, {}) is not first
    assert paths.follow({"rows": 7, "share": False}, {}) is paths.follow(
        {"rows": 12, "share": False}, {}
    )
    assert len(runs) == 2
    seen: dict[str, Any] = {}
    with pytest.raises(ScheduleError, match="knob blocks: 7 is none of 1, 2, 3, 4, 5, 6"):
        paths.follow({"blocks": 7}, seen)
    assert list(seen) == ["rows", "share", "blocks"]
    assert paths.follow({"rows": 7, "blocks": 7}, {}) is not first  # other options
    for _ in range(2):
        with pytest.raises(ScheduleError, match="too tall"):
            paths.follow({"rows": 13}, {})


@pytest.mark.parametrize("function", [strategy, *LANDSCAPES])
def test_spaces_are_the_same_with_paths_and_without(function: Callable[[Config], Any]) -> None:
    def draw(space: Space) -> list[str]:
        rng = random.Random(5)
        found = [space.random(rng) for _ in range(60)]
        found += [space.mutated(space.start, rng, 2) for _ in range(20)]
        found += [n for c in found[:6] for n in space.neighbours(c)]
        return [f"{candidate_key(c)} {space.knobs(c)}" for c in found]

    traced, plain = Space(function), Space(function)
    plain.paths = None
    assert draw(traced) == draw(plain)
    assert traced.paths is not None


def test_a_function_that_needs_real_ints_is_run_for_each_candidate() -> None:
    def exact(cfg: Config) -> None:
        rows = cfg.choice("rows", range(1, 9), 4)
        assert type(rows) is int

    space = Space(exact)
    assert space.paths is None
    assert space.legal({"rows": 8}) == {"rows": 8} and space.legal({"rows": 9}) == {}


def test_a_function_that_changes_its_mind_is_run_for_each_candidate() -> None:
    names = iter("abcdefghijklmnop")

    def unsteady(cfg: Config) -> None:
        assert cfg.choice("first", (1, 2), 1) > 0
        cfg.choice(next(names), (False, True), False)

    space = Space(unsteady)
    space.legal({"first": 2})
    space.legal({"first": 1, "a": True})
    assert space.paths is None
