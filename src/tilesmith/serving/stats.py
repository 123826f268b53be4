"""What a batcher counts.  The memory of all counts is constant, however many requests there are."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SECONDS = tuple(2.0**n * 1e-5 for n in range(24))
"""Upper bounds of the ranges in which times are counted: 10 us to 84 s, each twice the one before.
"""

OUTCOMES = ("answered", "failed", "cancelled", "expired", "refused")
"""How requests end.  failed: their run raised an error.  expired: their deadline passed.  refused:
they were not accepted, as the queue was full or the batcher closed.
"""

STAGES = ("queue", "gather", "run", "scatter")
"""Where an answered request spends its time."""


@dataclass(slots=True)
class Histogram:
    """Numbers counted by ranges.

    bounds: inclusive upper bounds of the ranges, ascending; one more range has no bound.
    counts: count of numbers in each range.
    total: sum of all numbers.
    largest: the largest number; 0 if there is none.
    """

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    largest: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, number: float, times: int = 1) -> None:
        self.counts[bisect.bisect_left(self.bounds, number)] += times
        self.total += number * times
        self.largest = max(self.largest, number)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def percentile(self, share: float) -> float:
        """Upper bound of the range that contains the percentile `share`, from 0 to 100; nan if no
        number was counted.
        """
        wanted, below = self.count * share / 100, 0
        if not self.count:
            return math.nan
        for bound, n in zip(self.bounds, self.counts):
            below += n
            if below >= wanted:
                return min(bound, self.largest)
        return self.largest

    def plus(self, other: Histogram) -> Histogram:
        counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        largest = max(self.largest, other.largest)
        return Histogram(self.bounds, counts, self.total + other.total, largest)

    def copy(self) -> Histogram:
        return Histogram(self.bounds, list(self.counts), self.total, self.largest)


@dataclass(frozen=True, slots=True)
class BatcherStats:
    """Counts of a batcher since it was made.

    requests: for each of `answered`, `failed`, `cancelled`, `expired` and `refused`, the number of
        requests that ended so.
    waiting: requests that wait for a run now.
    running: calls of the executable now.
    batches: number of calls by their number of rows.
    waits: seconds that requests waited from submission to the start of their run.
    latencies: seconds from submission to the answer.
    seconds: for `queue`, `gather`, `run` and `scatter`, the time that answered requests spent there
        in total.  A call of 8 requests counts 8 times.
    """

    requests: Mapping[str, int]
    waiting: int
    running: int
    batches: Mapping[int, int]
    waits: Histogram
    latencies: Histogram
    seconds: Mapping[str, float]

    @property
    def mean_batch(self) -> float:
        """Mean number of rows of a call; 0 without calls."""
        calls = sum(self.batches.values())
        return sum(rows * n for rows, n in self.batches.items()) / calls if calls else 0.0


def combined(a: BatcherStats | None, b: BatcherStats) -> BatcherStats:
    """The counts of two batchers together."""
    if a is None:
        return b
    return BatcherStats(
        {k: a.requests[k] + n for k, n in b.requests.items()},
        a.waiting + b.waiting,
        a.running + b.running,
        dict(sorted((Counter(a.batches) + Counter(b.batches)).items())),
        a.waits.plus(b.waits),
        a.latencies.plus(b.latencies),
        {k: a.seconds[k] + seconds for k, seconds in b.seconds.items()},
    )
