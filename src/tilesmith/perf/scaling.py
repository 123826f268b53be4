"""Division of a program's time among threads, from the trip counts of its parallel loops.

A kernel is a sequence of regions: parallel loops, and serial code between them.  Threads run equal
parts of a parallel loop's iterations, so it lasts as long as its busiest thread; serial code lasts
as long as with one thread.  Clock frequency and the bandwidth that cores share are left out: only
losses of the schedules count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilesmith.ir.target import Target

from .cost import Setting, region_seconds
from .machine import Machine
from .work import Work


@dataclass(frozen=True, slots=True)
class Division:
    """One kernel's time with `threads` threads, as fractions of its time with one.

    threads: number of threads.
    serial: fraction of the time outside of parallel loops.
    busiest: fraction of the time that the busiest thread takes; at least 1 / threads.
    forks: number of parallel loops that are started.
    """

    threads: int
    serial: float
    busiest: float
    forks: float

    @property
    def imbalance(self) -> float:
        """Load imbalance: fraction of the one-thread time by which the busiest thread exceeds its
        even part of all parallel loops.
        """
        return max(self.busiest - self.serial - (1 - self.serial) / self.threads, 0.0)


@dataclass(frozen=True, slots=True)
class Scaling:
    """A program's time with `threads` threads.

    threads: number of threads.
    one: seconds with one thread.
    serial: fraction of it outside of parallel loops.
    imbalance: fraction of it by which busiest threads exceed their even parts.
    seconds: expected with `threads` threads, starting them included.
    """

    threads: int
    one: float
    serial: float
    imbalance: float
    seconds: float

    @property
    def efficiency(self) -> float:
        """Fraction of the threads' time that is work: 1 if they take 1 / threads of the time."""
        return self.one / (self.threads * self.seconds) if self.seconds else 1.0


def division(work: Work, target: Target, machine: Machine, threads: int) -> Division:
    """The division of a kernel's time among threads; the performance model predicts its regions."""
    one = Setting(1)
    seconds = [region_seconds(r, machine, target, one)[0] for r in work.regions]
    total = sum(seconds) or 1.0
    serial = busiest = forks = 0.0
    for region, taken in zip(work.regions, seconds, strict=True):
        if region.extent <= 1:
            serial += taken / total
        else:
            forks += region.entries
        busiest += taken / total * busiest_share(region.extent, threads)
    if not work.regions:
        serial = busiest = 1.0
    return Division(threads, serial, busiest, forks)


def busiest_share(extent: float, threads: int) -> float:
    """Fraction of a loop's iterations that its busiest thread runs."""
    return math.ceil(extent / threads) / extent if extent > 1 else 1.0


def scaling(kernels: Iterable[tuple[Division, float]], threads: int, fork_join: float) -> Scaling:
    """A program's time from the measured or predicted one-thread times of its kernels, in seconds.

    fork_join: seconds to start and end a parallel loop.
    """
    rows: Sequence[tuple[Division, float]] = list(kernels)
    one = sum(t for _, t in rows)
    whole = one or 1.0
    return Scaling(
        threads,
        one,
        sum(d.serial * t for d, t in rows) / whole,
        sum(d.imbalance * t for d, t in rows) / whole,
        sum(d.busiest * t + d.forks * fork_join for d, t in rows),
    )
