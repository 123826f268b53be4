"""Division of a program's time among threads, from the trip counts of its parallel loops.

A kernel is a sequence of regions: parallel loops, and serial code between them.  Threads run equal
parts of a parallel loop's iterations, so the loop takes as long as its busiest thread.  Serial code
takes as long as with one thread.  Only losses of the schedules count: clock frequency and shared
bandwidth are left out.
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
    """One kernel's time with `threads` threads, as fractions of its time with one thread.

    threads: number of threads.
    serial: fraction of the time outside of parallel loops.
    busiest: fraction of the time that the busiest thread takes; at least 1 / threads.
    forks: number of times that a parallel loop starts.
    """

    threads: int
    serial: float
    busiest: float
    forks: float

    @property
    def imbalance(self) -> float:
        """Load imbalance: the time by which the busiest thread exceeds an equal share of the
        parallel loops, as a fraction of the time with one thread.
        """
        return max(self.busiest - self.serial - (1 - self.serial) / self.threads, 0.0)


@dataclass(frozen=True, slots=True)
class Scaling:
    """A program's time with `threads` threads.

    threads: number of threads.
    one: seconds with one thread.
    serial: fraction of `one` outside of parallel loops.
    imbalance: fraction of `one` by which busiest threads exceed equal shares.
    seconds: expected seconds with `threads` threads, including the start of threads.
    """

    threads: int
    one: float
    serial: float
    imbalance: float
    seconds: float

    @property
    def efficiency(self) -> float:
        """Parallel efficiency: one-thread time / (threads * time with `threads` threads)."""
        return self.one / (self.threads * self.seconds) if self.seconds else 1.0


def division(work: Work, target: Target, machine: Machine, threads: int) -> Division:
    """The division of a kernel's time among threads, from the predicted times of its regions."""
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
    """The time of a program with several threads, from the times of its kernels with one thread.
    All times are in seconds, measured or predicted.

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
