"""The analytic performance model: the seconds that a kernel's work takes on a measured machine.

A loop body takes as long as its scarcest resource: the vector pipes, the load and store ports, the
    front end, or the dependence chain between iterations.  Data moves between the caches at the
    same time; hardware prefetching hides most of the shorter of the two times, not all of it.  A
    parallel loop takes as long as its busiest thread.

Where a buffer's bytes come from depends on what ran before.  Constants are in the nearest level
that holds all of the program's constants together.  Intermediate values were written a moment ago;
they are as near as their kernel's whole footprint allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tilesmith.ir.target import Target
from tilesmith.perf.work import LoopBody, ParallelRegion, Work

from .machine import Machine, Rates

Place = Literal["l1", "l2", "l3", "dram"]
PLACES: tuple[Place, ...] = ("l1", "l2", "l3", "dram")

CALL_SECONDS = 30e-9
"""Seconds of calling a kernel."""
HIDDEN = 0.95
"""Share of the shorter of computing and moving data that overlaps with the longer."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a kernel runs.

    threads: number of threads.
    places: for each argument, the memory level that holds its bytes before the call.
    """

    threads: int
    places: Sequence[Place] = field(default=())


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted time of a kernel.

    seconds: the whole.
    compute: seconds of executing instructions.
    memory: seconds of moving data.
    overhead: seconds of starting threads.
    """

    seconds: float
    compute: float
    memory: float
    overhead: float

    @property
    def bound(self) -> str:
        """The part that takes most of the time."""
        parts = {"compute": self.compute, "memory": self.memory, "threads": self.overhead}
        return max(parts, key=lambda k: parts[k])


def predict(work: Work, machine: Machine, target: Target, setting: Setting) -> Prediction:
    """The time that the model predicts for a kernel."""
    seconds = overhead = CALL_SECONDS
    compute = memory = 0.0
    for region in work.regions:
        busy, core, moving, join = region_seconds(region, machine, target, setting)
        compute, memory, overhead = compute + core, memory + moving, overhead + join
        seconds += busy + join
    return Prediction(seconds, compute, memory, overhead)


def region_seconds(
    region: ParallelRegion, machine: Machine, target: Target, setting: Setting
) -> tuple[float, float, float, float]:
    """Seconds that a region takes, and that computing, moving data, and starting threads take."""
    threads = max(min(setting.threads, math.floor(region.extent)), 1)
    share = math.ceil(region.extent / threads) / max(region.extent, 1)
    rates = machine.at(threads)
    core = sum(_body_seconds(b, rates, target, threads) for b in region.bodies) * share
    moving = _memory_seconds(region, rates, target, setting, threads, share)
    join = region.entries * rates.fork_join if threads > 1 else 0.0
    return max(core, moving) + (1 - HIDDEN) * min(core, moving), core, moving, join


def _body_seconds(b: LoopBody, rates: Rates, target: Target, threads: int) -> float:
    """One thread's time for all iterations of a body."""
    lanes = target.vector_bits // 32
    vector = target.vector_bits // 8
    fma = 2 * lanes * threads / rates.flops
    cycle = fma * target.model.fma_ports
    trip = max(
        b.fma * fma,
        (b.fma + b.alu) * cycle / target.model.vector_ports,
        b.slow * cycle,
        b.load * vector * threads / rates.l1_load,
        b.store * vector * threads / rates.l1_store,
        (b.issued + 1) * cycle / target.model.issue_width,
        b.chain * cycle,
    )
    return b.trips * trip + b.entries * target.model.entry_cycles * cycle


def _memory_seconds(
    region: ParallelRegion,
    rates: Rates,
    target: Target,
    setting: Setting,
    threads: int,
    share: float,
) -> float:
    """The slowest link between two levels."""
    footprint = sum(max(s.footprint) for s in region.streams)
    near = _fits(footprint / threads, target)
    read = {"l2": 0.0, "l3": 0.0, "dram": 0.0}
    write = dict(read)
    for s in region.streams:
        place = near
        if 0 <= s.argument < len(setting.places):
            place = max(setting.places[s.argument], near, key=PLACES.index)
        portion = 1.0 if s.shared else share
        for level, inner, crossing in (
            ("l2", "l1", s.l1),
            ("l3", "l2", s.l2),
            ("dram", "l3", s.l3),
        ):
            for moved, first, again in zip((read, write), s.footprint, crossing, strict=True):
                fresh = first if PLACES.index(place) > PLACES.index(inner) else 0.0
                moved[level] += (max(again - first, 0.0) + fresh) * portion
    per_thread = {
        "l2": (rates.l2, rates.l2_write),
        "l3": (rates.l3, rates.l3_write),
        "dram": (rates.dram, rates.dram_write),
    }
    return max(
        threads * (read[k] / reading + write[k] / writing)
        for k, (reading, writing) in per_thread.items()
    )


def _fits(size: float, target: Target) -> Place:
    """The nearest level that holds `size` bytes."""
    if size <= target.model.l1_bytes:
        return "l1"
    if size <= target.model.l2_bytes:
        return "l2"
    return "l3" if size <= target.model.l3_bytes else "dram"


def constants_place(size: float, target: Target) -> Place:
    """The level that holds the constants when the program reads them again.

    `size` is the bytes of all constants and of the intermediate values, which evict them.  Other
    programs have their share of L3.
    """
    place = _fits(size, target)
    return "dram" if place == "l3" and size > target.model.l3_bytes / 2 else place
