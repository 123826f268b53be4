"""Intervals of ratios, with made-up times, and the load of others."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.support import measure
from tilesmith.support.measure import Ratio, Samples, with_interval


def samples(*rounds: float) -> Samples:
    return Samples(rounds, rounds)


def test_the_interval_is_made_of_ratios_by_rank() -> None:
    ones = samples(*[1.0] * 15)
    noisy = samples(9.0, *[1.0 + i / 100 for i in range(13)], 0.1)
    found = with_interval(noisy, ones, load=0.25)
    assert found == Ratio(1.06, 1.02, 1.1, 15, 0.25), (
        "the three outermost on each side are left out"
    )
    assert found.is_certain
    assert with_interval(samples(2, 3, 4), samples(1, 1, 1)) == Ratio(3, 2, 4, 3), "the range"
    assert not with_interval(samples(0.9, 1.0, 1.2), samples(1, 1, 1)).is_certain


@pytest.mark.parametrize("rounds", [6, 7, 10, 15, 20])
def test_the_interval_contains_the_truth_at_least_95_times_in_a_hundred(rounds: int) -> None:
    seed = 14
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    inside = 0
    for _ in range(2000):
        noise = np.clip(rng.standard_cauchy(rounds), -9, 9)  # bursts of others' work
        times = 1.05 * np.exp(0.3 * noise)
        found = with_interval(samples(*times), samples(*[1.0] * rounds))
        inside += found.low <= 1.05 <= found.high
    assert inside / 2000 > 0.94


def test_what_others_use_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure.os, "sched_getaffinity", lambda _: {0, 3})
    # 10 s of two cores: 14 s of work, 4 of them ours
    assert measure.share_of_others((100.0, 1.0, 50.0), (114.0, 5.0, 60.0)) == pytest.approx(0.5)
    assert measure.share_of_others((0.0, 0.0, 0.0), (1.0, 2.0, 10.0)) == 0.0  # clocks tick unevenly
    assert measure.share_of_others(None, (0.0, 0.0, 0.0)) is None


def test_things_are_compared_in_turns() -> None:
    order: list[str] = []
    found = measure.compare(lambda: order.append("a"), lambda: order.append("b"), 3, 0.0)
    assert found.rounds == 3 and found.low <= found.median <= found.high
    assert "".join(order).replace("aaaa", "A").replace("bbbb", "B") == "ABBAAB"
