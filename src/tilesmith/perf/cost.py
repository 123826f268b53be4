"""The analytic performance model: the seconds that a kernel's work takes on a measured machine.

A loop body takes as long as its scarcest resource: the vector pipes, the load and store ports, the
front end, or the dependence chain between iterations.  A parallel loop takes as long as its busiest
thread.

Each link between two levels of the memory hierarchy moves data while the core computes.  Some data
is first read in a fraction of the region's time (`Stream.during`), such as weights that all
iterations share.  If moving it takes longer than computing does in that fraction, the core waits
for the difference.  The remaining time of moving data overlaps with computing: prefetching hides
most of this time, but not all.

The level that holds a buffer's bytes depends on the kernels that ran before.  Constants are in the
nearest level that can hold all constants of the program.  Intermediate values were written
recently, but the kernel's own data evicts some of them.  If F bytes are read into a cache of C
bytes with random replacement, a line survives with probability exp(-F / C).  With n threads,
another core wrote the line with probability 1 - 1/n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tilesmith.ir.target import Target
from tilesmith.perf.work import LoopBody, ParallelRegion, Work

from .machine import Machine, Rates

Place = Literal["l1", "l2", "l3", "dram"]
PLACES: tuple[Place, ...] = ("l1", "l2", "l3", "dram")

CALL_SECONDS = 30e-9
"""Seconds to call a kernel."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The number of threads of a kernel, and the memory levels of its data.

    threads: number of threads.
    places: for each argument, the memory level that holds its bytes before the call.
    """

    threads: int
    places: Sequence[Place] = field(default=())


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted time of a kernel.

    seconds: total time.
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
        """The name of the part that takes the most time."""
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
    """Seconds of a region, as (total without the start of threads, computing, moving data, start of
    threads).
    """
    threads = max(min(setting.threads, math.floor(region.extent)), 1)
    share = math.ceil(region.extent / threads) / max(region.extent, 1)
    rates = machine.at(threads)
    core = sum(_body_seconds(b, rates, target, threads) for b in region.bodies) * share
    links = _links(region, rates, target, setting, threads, share)
    overlap = target.model.overlap
    moving = max(sum(m.seconds for m in link) for link in links)
    join = region.entries * rates.fork_join if threads > 1 else 0.0
    return core + sum(_exposed(link, core, overlap) for link in links), core, moving, join


def _body_seconds(b: LoopBody, rates: Rates, target: Target, threads: int) -> float:
    """Seconds that one thread takes for all iterations of a loop body."""
    model, vector = target.model, target.vector_bits // 8
    cycle = 2 * (vector // 4) * threads / rates.flops * model.fma_ports
    # Converts bytes per second of all threads to vectors per cycle of one thread.
    own = cycle / (vector * threads)
    core = replace(model, load_ports=rates.l1_load * own, store_ports=rates.l1_store * own)
    looped = replace(b.each, issued=b.each.issued + 1)
    return (b.trips * looped.cycles(core) + b.entries * model.entry_cycles) * cycle


@dataclass(frozen=True, slots=True)
class _Move:
    """The traffic of a link between two levels.

    during: fraction of the region's time in which the link moves data.
    seconds: time that the link needs.
    """

    during: float
    seconds: float


def _exposed(link: Sequence[_Move], core: float, overlap: float) -> float:
    """Seconds during which the core waits for a link.

    core: seconds of computing.
    overlap: fraction of the moving time that computing hides, if computing takes long enough.
    """
    waiting = moved = 0.0
    for m in sorted(link, key=lambda m: m.during):
        moved += m.seconds
        waiting = max(waiting, moved - m.during * core)
    return waiting + (1 - overlap) * min(core, moved - waiting)


def _links(
    region: ParallelRegion,
    rates: Rates,
    target: Target,
    setting: Setting,
    threads: int,
    share: float,
) -> list[list[_Move]]:
    """Traffic between L1 and L2, L2 and L3, and L3 and memory.

    share: fraction of the iterations that the busiest thread runs.
    """
    brought = sum(max(s.footprint) for s in region.streams) / threads
    survives = [math.exp(-brought / size) for size in target.model.cache_bytes]
    per_second = (
        (rates.l2, rates.l2_write),
        (rates.l3, rates.l3_write),
        (rates.dram, rates.dram_write),
    )
    links: list[list[_Move]] = [[], [], []]
    for s in region.streams:
        known = setting.places[s.argument] if 0 <= s.argument < len(setting.places) else "l1"
        for n, crossing in enumerate((s.l1, s.l2, s.l3)):
            away = 1 - survives[n]
            if known != "l1":  # the buffer is a constant
                away = float(PLACES.index(known) > n)
            elif s.argument >= 0 and n < 2:
                away = 1 - survives[n] / setting.threads
            own = share
            if s.shared:  # all threads read the buffer over one link to memory
                own = 1 / threads if n == 2 else 1.0
            for first, again, rate in zip(s.footprint, crossing, per_second[n], strict=True):
                links[n].append(_Move(s.during, first * away * own * threads / rate))
                links[n].append(_Move(1.0, max(again - first, 0.0) * share * threads / rate))
    return links


def _fits(size: float, target: Target) -> Place:
    """The nearest level that holds `size` bytes."""
    if size <= target.model.l1_bytes:
        return "l1"
    if size <= target.model.l2_bytes:
        return "l2"
    return "l3" if size <= target.model.l3_bytes else "dram"


def constants_place(size: float, target: Target, l3_bytes: float | None = None) -> Place:
    """The level that holds the program's constants when a kernel reads them again.

    size: bytes of all constants and of the intermediate values, which evict constants.
    l3_bytes: measured size of L3; None: the size in the target.  Other programs use a part of L3.
    """
    place = _fits(size, target)
    l3_bytes = target.model.l3_bytes if l3_bytes is None else l3_bytes
    return "dram" if place == "l3" and size > l3_bytes / 2 else place
