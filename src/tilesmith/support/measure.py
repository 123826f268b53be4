"""Timing of several alternatives, with reliable ratios.

A machine's speed drifts by tens of percent within seconds (other load, clock, temperature).  So two
runs in succession compare the machine's speeds, not the programs.  `interleave` alternates instead:
in every round each contender runs for a short while.  Only ratios within a round are meaningful.
Threads that spin after their work (OpenBLAS's do for tens of milliseconds) would take a core from
the next contender, so a turn begins only when this process is idle.

`compare` quantifies the remaining noise: it returns an interval for the ratio, and the fraction of
the cores that other programs used during the measurement.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

BUSY = 0.1
"""Load of other programs, as a fraction of the cores, above which measurements are less
reliable.
"""
REST_SECONDS, LONGEST_REST = 2e-3, 0.3
"""Seconds for which the process must be idle before a turn, and the longest wait for that."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Times of repeated runs.

    times: seconds of single runs, in the order taken.
    rounds: the median of each round in seconds.
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

    def percentile(self, percent: float) -> float:
        """The least time that at least `percent` percent of the runs do not exceed."""
        ordered = sorted(self.times)
        return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]

    def as_dict(self) -> dict[str, float | int]:
        """The statistics in milliseconds, for tables and JSON."""
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
    least: int = 3,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Samples]:
    """Time each contender `rounds` times for about `turn_seconds`, alternately.

    A contender's turn begins with a run that is not counted, since caches and threads are in
    another state.  At least `least` other runs are counted.  `progress(done, rounds)` is called
    after each round.
    """
    taken: dict[str, list[list[float]]] = {name: [] for name in contenders}
    names = list(contenders)
    for done in range(rounds):
        # The order is reversed each time, so that no contender always follows the same one.
        for name in names if done % 2 == 0 else reversed(names):
            taken[name].append(_turn(contenders[name], turn_seconds, least))
        if progress is not None:
            progress(done + 1, rounds)
    return {
        name: Samples(
            tuple(t for turn in turns for t in turn), tuple(statistics.median(t) for t in turns)
        )
        for name, turns in taken.items()
    }


def measure(run: Callable[[], object], *, seconds: float = 2.0) -> Samples:
    """Time `run` for about `seconds`, with at least three runs after a warm-up."""
    return interleave({"": run}, rounds=max(int(seconds / 0.2), 1), turn_seconds=0.2)[""]


def count_runs(run: Callable[[], object], iters: int, warmup: int = 1) -> Samples:
    """Time `iters` runs in succession, after `warmup` runs that are not timed."""
    for _ in range(warmup):
        run()
    times = []
    for _ in range(iters):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return Samples(tuple(times), (statistics.median(times),))


def ratio(a: Samples, b: Samples) -> float:
    """Time of `a` relative to `b`: the median over rounds of the ratio within a round."""
    return statistics.median(_ratios(a, b))


def _ratios(a: Samples, b: Samples) -> list[float]:
    return sorted(x / y for x, y in zip(a.rounds, b.rounds, strict=True))


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of the times of two contenders.

    median: median over rounds of the ratio within a round.
    low, high: an interval that contains the true median with a probability of 95% or more.  With
        fewer than six rounds: the least and the largest ratio, with a lower probability.
    rounds: number of rounds.
    load: fraction of the cores that other programs used during the measurement; None if unknown.
    """

    median: float
    low: float
    high: float
    rounds: int
    load: float | None = None

    @property
    def is_certain(self) -> bool:
        """Whether the interval excludes a ratio of 1."""
        return not self.low <= 1 <= self.high


def compare(
    a: Callable[[], object], b: Callable[[], object], rounds: int, turn_seconds: float = 0.1
) -> Ratio:
    """The time of `a` divided by the time of `b`, measured alternately."""
    before = clocks()
    samples = interleave({"a": a, "b": b}, rounds=rounds, turn_seconds=turn_seconds)
    return with_interval(samples["a"], samples["b"], share_of_others(before, clocks()))


def with_interval(a: Samples, b: Samples, load: float | None = None) -> Ratio:
    """Like `ratio`, but also gives a confidence interval of 95%.  Its ends are two of the
    sorted ratios of the rounds, so no distribution is assumed.
    """
    ordered = _ratios(a, b)
    count = len(ordered)
    # The probability that at most `outside` - 1 of `count` ratios are below the true median is at
    # most 2.5%.
    outside, tail = 0, 0.5**count
    while tail <= 0.025:
        outside += 1
        tail += math.comb(count, outside) * 0.5**count
    cut = max(outside - 1, 0)
    return Ratio(statistics.median(ordered), ordered[cut], ordered[-1 - cut], count, load)


Clocks: TypeAlias = tuple[float, float, float]


def clocks() -> Clocks | None:
    """Three clocks, in seconds: work of all programs on the cores that this process may use, work
    of this process, and wall time.  None if the system does not report them.
    """
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return None
    cores = {f"cpu{n}" for n in os.sched_getaffinity(0)}
    rows = [line.split() for line in lines if line.partition(" ")[0] in cores]
    # ticks in the states: user, nice, system, hard and soft interrupts, stolen by other virtual
    # machines
    ticks = sum(int(row[i]) for row in rows for i in (1, 2, 3, 6, 7, 8))
    return ticks / os.sysconf("SC_CLK_TCK"), time.process_time(), time.perf_counter()


def share_of_others(before: Clocks | None, after: Clocks | None) -> float | None:
    """Fraction of the cores' time that other processes used between two readings of `clocks`."""
    if before is None or after is None:
        return None
    busy, ours, wall = (b - a for a, b in zip(before, after, strict=True))
    time_of_cores = wall * len(os.sched_getaffinity(0))
    return min(max((busy - ours) / time_of_cores, 0.0), 1.0) if time_of_cores > 0 else None


def _turn(run: Callable[[], object], seconds: float, least: int) -> list[float]:
    _rest()
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def _rest() -> None:
    """Sleep until no thread of this process computes, for `LONGEST_REST` at most."""
    end = time.perf_counter() + LONGEST_REST
    while time.perf_counter() < end:
        used = time.process_time()
        time.sleep(REST_SECONDS)
        if time.process_time() - used < REST_SECONDS / 4:
            return
