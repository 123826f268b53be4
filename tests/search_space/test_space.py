"""Knobs, spaces and searches, on functions that cost nothing."""

from __future__ import annotations

import random

import pytest

from tilesmith import te
from tilesmith.search_space.space import Candidate, Space, candidate_key, candidate_of
from tilesmith.support.errors import ScheduleError, UsageError
from tilesmith.te.knobs import ANALYTIC, Config, split_factors
from tilesmith.tuning.search import SEARCHES, search


def bowl(cfg: Config) -> None:
    """Two numbers, and a third that exists for large ones only and is bounded by the first."""
    a = cfg.choice("a", range(10), 5)
    cfg.choice("b", range(10), 5)
    if a > 5:
        cfg.choice("c", lambda: range(a), 0)
    if a == 9:
        raise ScheduleError("nine does not work")


def cost(candidate: Candidate) -> float:
    a, b = (int(str(candidate.get(k, 5))) for k in "ab")
    return 1 + (a - 7) ** 2 + (b - 2) ** 2 - 0.1 * int(str(candidate.get("c", 0)))


def test_analytic_config_asks_nothing() -> None:
    def options() -> list[int]:
        raise AssertionError("nobody wants to know")

    assert ANALYTIC.choice("x", options, 3) == 3


def test_value_outside_of_its_knob_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="knob a: 11 is none of"):
        bowl(Config({"a": 11}))
    with pytest.raises(ScheduleError, match="knob a: True is none of"):
        bowl(Config({"a": True}))


def test_parts_have_knobs_of_their_own() -> None:
    seen = {}
    cfg = Config({"pack.vectors": 2}, seen)
    assert cfg.choice("vectors", (1, 2), 1) == 1
    assert cfg.under("pack").choice("vectors", (1, 2), 1) == 2
    assert list(seen) == ["vectors", "pack.vectors"]


def test_candidates_name_what_differs_from_the_analytic_schedule() -> None:
    space = Space(bowl)
    assert space.start == {}
    assert space.legal({"a": 5, "b": 6}) == {"b": 6}
    assert space.legal({"a": 3, "c": 2}) == {"a": 3}  # there is no c
    assert space.legal({"a": 6, "c": 8}) == {"a": 6}  # c can't be that large
    assert space.legal({"a": 9}) is None
    assert candidate_of(candidate_key({"t": (4, 2), "a": 1})) == {"a": 1, "t": (4, 2)}


def test_neighbours_differ_in_one_knob() -> None:
    found = list(Space(bowl).neighbours({"a": 7}))
    assert {"a": 8} in found and {"a": 6} in found and {} in found  # 5 is the default
    assert {"a": 7, "b": 4} in found and {"a": 7, "c": 1} in found
    assert {"a": 9} not in found
    assert len(found) == len({candidate_key(c) for c in found})


def test_neighbours_trade_one_number_for_another() -> None:
    """What counts is that many registers are used: each single knob makes it worse."""

    def tile(cfg: Config) -> None:
        rows = cfg.choice("rows", range(1, 31), 14)
        vectors = cfg.choice("vectors", range(1, 7), 2)
        cfg.choice("order", ("ij", "ji"), "ij")
        cfg.choice("skip", range(3), 0)
        if rows * vectors > 30:
            raise ScheduleError("registers")

    found = [c for c in Space(tile).neighbours({}) if len(c) > 1]
    assert found == [{"rows": 15, "vectors": 1}, {"rows": 9, "vectors": 3}]


def test_pinned_knobs_stay() -> None:
    space = Space(bowl, {"b": 3})
    assert space.start == {"b": 3}
    rng = random.Random(0)
    assert all(space.random(rng)["b"] == 3 for _ in range(20))
    with pytest.raises(ScheduleError, match="no knob 'z'; the knobs are a, b"):
        Space(bowl, {"z": 1})


@pytest.mark.parametrize("name", SEARCHES)
def test_search_is_deterministic_and_never_repeats_itself(name: str) -> None:
    def run() -> tuple[list[str], float]:
        s = search(name, Space(bowl), seed=3)
        s.observe({}, cost({}))
        tried: list[str] = []
        while len(tried) < 60 and (batch := s.propose(4)):
            for c in batch:
                tried.append(candidate_key(c))
                s.observe(c, cost(c))
        return tried, s.best_cost

    tried, best = run()
    assert len(tried) == len(set(tried)) >= 50
    assert (tried, best) == run()
    assert best < cost({})
    if name in ("coordinate", "evolution"):
        assert best <= 0.6  # the optimum is 0.4


def test_coordinate_descent_needs_few_trials() -> None:
    s = search("coordinate", Space(bowl))
    s.observe({}, cost({}))
    for count in range(1, 100):  # noqa: B007
        (c,) = s.propose(1)
        s.observe(c, cost(c))
        if s.best_cost <= 1:
            break
    assert count <= 30


def test_grid_is_complete() -> None:
    s = search("grid", Space(bowl))
    assert len(s.propose(1000)) == 9 * 10 - 1  # a = 9 is impossible, the start is known
    assert s.propose(1) == []


def test_unknown_search() -> None:
    with pytest.raises(UsageError, match="no search 'bogus'; there are coordinate"):
        search("bogus", Space(bowl))


def test_split_factors() -> None:
    assert split_factors(12, 2) == [(1,), (2,), (3,), (4,), (6,), (8,), (12,)]
    assert all(a * b <= 12 for a, b in split_factors(12, 3))


def test_template_knobs_are_applied() -> None:
    def template(cfg: Config) -> te.Schedule:
        a = te.placeholder((64, 48), name="a")
        b = te.compute((64, 48), lambda i, j: a[i, j] + 1.0, name="b")
        s = te.create_schedule(b.op)
        i, j = s[b].axis
        io, im, ii = cfg.split("i", s[b], i, parts=3)
        jo, ji = cfg.split("j", s[b], j, default=(16,))
        cfg.reorder("order", s[b], [io, jo, im])
        s[b].reorder(ii, ji)
        cfg.annotate("ji", s[b], ji, ("vectorize", "unroll", "none"))
        return s

    space = Space(template)
    assert set(space.knobs(space.start)) == {"i", "j", "order", "ji"}
    s = template(Config({"i": (4, 2), "order": (1, 0, 2), "ji": "unroll"}))
    stage = s["b"]
    assert [x.extent for x in stage.leaf_axes] == [3, 8, 2, 4, 16]
    assert stage.kind(stage.leaf_axes[-1]) == "unrolled"
    rng = random.Random(1)
    for _ in range(20):
        template(Config(space.random(rng)))
    with pytest.raises(ScheduleError, match="name the orders"):
        cfg = Config({}, {})
        cfg.reorder("o", s["b"], list("abcdef"))
