"""Timing several ways of doing one thing so that their ratio can be trusted.

A machine's speed drifts by tens of percent within seconds (other load, clock, temperature).  Two
times taken one after the other compare moments.  `interleave` takes turns: in every round each
contender runs for a short while, and only ratios within rounds are meaningful.  Threads that spin
after their work (OpenBLAS's do for tens of milliseconds) would take a core from the next contender,
so a turn begins when this process rests.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

REST_SECONDS, LONGEST_REST = 2e-3, 0.3
"""How long the process must have slept before a turn, and how long that is waited for."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Times of repeated runs.

    times: seconds of single runs, in the order taken.
    rounds: each round's median in seconds.
    """

    times: tuple[float, ...]
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def minimum(self) -> float:
        return min(self.times)

    @property
    def p90(self) -> float:
        """The time that nine runs in ten do not exceed."""
        ordered = sorted(self.times)
        return ordered[min(len(ordered) - 1, (9 * len(ordered)) // 10)]

    def as_dict(self) -> dict[str, float | int]:
        """Milliseconds, for tables and JSON."""
        return {
            "median_ms": self.median * 1e3,
            "min_ms": self.minimum * 1e3,
            "p90_ms": self.p90 * 1e3,
            "runs": len(self.times),
        }


def interleave(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 10,
    turn_seconds: float = 0.1,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Samples]:
    """Time each contender `rounds` times for about `turn_seconds`, taking turns.

    The first run of a turn is not counted, since it meets caches and threads as the others left
    them.  `progress(done, rounds)` is called after each round.
    """
    taken: dict[str, list[list[float]]] = {name: [] for name in contenders}
    names = list(contenders)
    for done in range(rounds):
        # Turning the order round each time keeps a contender from always following the same one.
        for name in names if done % 2 == 0 else reversed(names):
            taken[name].append(_turn(contenders[name], turn_seconds))
        if progress is not None:
            progress(done + 1, rounds)
    return {
        name: Samples(
            tuple(t for turn in turns for t in turn), tuple(statistics.median(t) for t in turns)
        )
        for name, turns in taken.items()
    }


def measure(run: Callable[[], object], *, seconds: float = 2.0) -> Samples:
    """Time one thing for about `seconds`, at least three runs after a warm-up."""
    return interleave({"": run}, rounds=max(int(seconds / 0.2), 1), turn_seconds=0.2)[""]


def ratio(a: Samples, b: Samples) -> float:
    """Time of `a` relative to `b`: the median over rounds of the ratio within a round."""
    return statistics.median(x / y for x, y in zip(a.rounds, b.rounds, strict=True))


def _turn(run: Callable[[], object], seconds: float) -> list[float]:
    _rest()
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def _rest() -> None:
    """Sleep until no thread of this process computes."""
    end = time.perf_counter() + LONGEST_REST
    while time.perf_counter() < end:
        used = time.process_time()
        time.sleep(REST_SECONDS)
        if time.process_time() - used < REST_SECONDS / 4:
            return
