"""The knapsack of schemes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from tilesmith.quantisation.assign import Option, cheapest, hull, path


def _options(seed: int, layers: int = 6) -> dict[int, list[Option]]:
    rng = np.random.default_rng(seed)
    found: dict[int, list[Option]] = {}
    for layer in range(layers):
        found[layer] = [Option("f32", float(rng.uniform(2, 3)), 0.0)]
        for scheme in ("a", "b", "c"):
            seconds, noise = float(rng.uniform(0.5, 3)), float(rng.exponential())
            found[layer].append(Option(scheme, seconds, noise))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_hull_holds_the_best_option_for_every_price(seed: int):
    (options,) = _options(seed, 1).values()
    found = hull(options)
    assert [o.seconds for o in found] == sorted(o.seconds for o in found)
    assert [o.noise for o in found] == sorted((o.noise for o in found), reverse=True)
    for price in np.logspace(-3, 3, 50):
        best = min(o.seconds + price * o.noise for o in options)
        assert min(o.seconds + price * o.noise for o in found) == pytest.approx(best)


def _total(options: Mapping[int, list[Option]], chosen: Mapping[int, str]) -> Option:
    taken = [next(o for o in options[k] if o.scheme == s) for k, s in chosen.items()]
    return Option("", sum(o.seconds for o in taken), sum(o.noise for o in taken))


@pytest.mark.parametrize("seed", range(20))
def test_the_assignment_keeps_the_limit_and_is_nearly_the_best(seed: int):
    """Against all assignments; the relaxation may miss the best by less than one step."""
    options = _options(seed)
    fastest, steps = path(options)
    limit = _total(options, fastest).noise / 2
    found = _total(options, cheapest(options, lambda c: _total(options, c).noise <= limit))
    schemes = [[o.scheme for o in several] for several in options.values()]
    every = (_total(options, dict(enumerate(c))) for c in itertools.product(*schemes))
    best = min(o.seconds for o in every if o.noise <= limit)
    assert found.noise <= limit
    assert found.seconds <= best + max(s.seconds for s in steps)


def test_measured_loss_decides_not_the_estimate():
    """Two layers are harmless by themselves and harmful together."""
    options = {k: [Option("int8", 1.0, 0.1), Option("f32", 2.0, 0.0)] for k in "abc"}
    asked = []

    def keeps(chosen: Mapping[str, str]) -> bool:
        asked.append(dict(chosen))
        return not (chosen["a"] == chosen["b"] == "int8")

    found = cheapest(options, keeps)
    assert sorted(found.values()) == ["f32", "int8", "int8"] and keeps(found)
    assert len(asked) < 2**3


def test_the_fastest_is_taken_where_it_keeps_the_limit():
    options = {"a": [Option("int8", 1.0, 0.1), Option("f32", 2.0, 0.0)]}
    assert cheapest(options, lambda _: True) == {"a": "int8"}
    assert cheapest(options, lambda _: False) == {"a": "f32"}
