"""Searches on made-up landscapes: they find what is there, and the same again with a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

import numpy as np
import pytest
from landscapes import LANDSCAPES, best_after, nest, rough, tiles

from tilesmith.search_space.space import Candidate, Space, candidate_key
from tilesmith.te.knobs import Config
from tilesmith.tuning.cost_model import Array, Learner, LightGbmModel
from tilesmith.tuning.search import SEARCHES, search
from tilesmith.tuning.searches.guided import Guide, Guided, KnobFeatures
from tilesmith.tuning.searches.policy import Network

SEEDS = range(5)


class Oracle:
    """A cost model that knows: the feature is the cost."""

    def __init__(self) -> None:
        self.fits: list[int] = []

    def fit(self, features: Array, ratios: Array, groups: Array) -> None:
        assert features.dtype == np.float32 and ratios.shape == groups.shape == (len(features),)
        self.fits.append(len(ratios))

    def predict(self, features: Array) -> Array:
        return features[:, 0]


def oracle(cost: Callable[[Config], float]) -> Guide:
    def features(candidates: Sequence[Candidate]) -> Array:
        return np.array([[cost(Config(c))] for c in candidates], np.float32)

    return Guide(Learner(Oracle()), 0, features)


def mean_best(name: str, cost: Callable[[Config], float], trials: int) -> float:
    return fmean(best_after(name, cost, trials, seed)[0] for seed in SEEDS)


@pytest.mark.parametrize(
    ("name", "landscape"),
    # the space of `nest` is so small that 60 draws come near its optimum
    [(n, f) for n in ("model", "policy") for f in LANDSCAPES if (n, f) != ("policy", nest)],
)
def test_learning_beats_drawing_at_random(name: str, landscape: Callable[[Config], float]) -> None:
    assert mean_best(name, landscape, 60) < mean_best("random", landscape, 60)


@pytest.mark.parametrize("name", ["model", "policy", "evolution"])
def test_the_same_seed_and_measurements_give_the_same_proposals(name: str) -> None:
    first, again, other = (
        [candidate_key(c) for c in best_after(name, nest, 24, seed)[1]] for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other
    assert len(set(first)) == len(first) == 24


def test_a_model_that_knows_leads_to_the_best_at_once() -> None:
    best, tried = best_after("model", tiles, 12, 0, oracle(tiles))
    assert best <= mean_best("random", tiles, 200)
    costs = [tiles(Config(c)) for c in tried]
    drawn = [Space(tiles).random(random.Random(seed)) for seed in range(40)]
    assert fmean(costs[:4]) < fmean(tiles(Config(c)) for c in drawn)


def test_the_model_is_fitted_again_as_trials_arrive() -> None:
    guide = oracle(rough)
    best_after("model", rough, 24, 0, guide)
    fits = guide.learner.model.fits  # type: ignore[attr-defined]  # an Oracle
    assert len(fits) >= 4 and fits == sorted(set(fits))


def test_searches_of_one_run_share_what_is_learnt() -> None:
    """With what was measured of one space, the first proposals in another one are better."""

    def features(candidates: Sequence[Candidate]) -> Array:
        return KnobFeatures(Space(rough))(candidates)

    def first(learner: Learner) -> float:
        s = Guided(Space(rough), 1, Guide(learner, 1, features))
        return fmean(rough(Config(c)) for c in s.propose(8))

    experienced, fresh = Learner(LightGbmModel()), Learner(LightGbmModel())
    best_after("model", rough, 60, 0, Guide(experienced, 0, features))
    assert first(experienced) < first(fresh)


def test_failures_do_not_stop_a_search() -> None:
    for name in SEARCHES:
        s = search(name, Space(tiles), seed=1)
        s.observe(s.space.start, 1.0)
        for _ in range(6):
            for c in s.propose(4):
                s.observe(c, math.inf)
        assert s.best == s.space.start and s.best_cost == 1.0


@pytest.mark.parametrize("name", SEARCHES)
def test_a_small_space_is_exhausted(name: str) -> None:
    def small(cfg: Config) -> None:
        cfg.choice("a", range(3), 0)
        cfg.choice("b", (False, True), False)

    s = search(name, Space(small))
    s.observe({}, 1.0)
    found: list[Candidate] = []
    while batch := s.propose(4):
        for c in batch:
            s.observe(c, 1.0)
        found += batch
    assert len({candidate_key(c) for c in found}) == len(found) == 5


def test_crossing_takes_decisions_from_both_parents() -> None:
    space, rng = Space(rough), random.Random(0)
    names = list(space.knobs({}))
    a, b = dict.fromkeys(names, 1), dict.fromkeys(names, 2)
    runs = 0
    for _ in range(40):
        child = space.crossed(a, b, rng)
        taken = [child[n] == 2 for n in names]
        assert set(child.values()) <= {1, 2}
        runs += sum(x != y for x, y in pairwise(taken)) == 2
    assert runs >= 5  # steps one after another came from the second parent


def test_crossed_knobs_that_depend_on_others_stay_legal() -> None:
    space, rng = Space(nest), random.Random(0)
    a, b = {"order": "tiled", "depth": 6, "i": 8}, {"j": 16, "share": True}
    for _ in range(40):
        child = space.crossed(a, b, rng)
        assert space.legal(child) == child
        assert "depth" not in child or child.get("order") == "tiled"


def test_the_policy_learns_which_move_pays() -> None:
    network = Network(inputs=3, seed=0)
    moves, offsets = np.eye(3), np.zeros(3)
    rng = random.Random(0)
    for _ in range(200):
        p = network.policy(moves, offsets)
        taken = min(int(np.searchsorted(np.cumsum(p), rng.random())), 2)
        network.learn(moves, offsets, taken, 0.2 if taken == 1 else -0.1)
    assert network.policy(moves, offsets)[1] > 0.9


def test_knob_features_place_each_knob_among_its_options() -> None:
    f = KnobFeatures(Space(nest))
    assert f._names == ["depth", "i", "j", "order", "share"]
    rows = f([{}, {"order": "tiled", "depth": 8, "share": True}])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, [[-1, 0, 0, 0, 0], [1, 0, 0, 1, 1]])
