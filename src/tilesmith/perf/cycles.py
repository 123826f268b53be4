"""Cycle formulas for a core of the machine model, on which analytic decisions rest.

One formula ranks schedules and predicts times: a loop body takes as long as the core's busiest
resource, or as the dependence chain between iterations if that is longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir.cpu_model import CpuModel
from tilesmith.ir.target import Target


@dataclass(slots=True)
class Instructions:
    """Instructions of one iteration.

    fma: vector multiplications and multiply-adds.
    alu: other vector instructions.
    slow: cycles of dividers and library calls.
    load, store: full-width vector accesses; a narrower access counts as a half or more.
    issued: instructions of all kinds.
    chain: cycles of the longest dependence chain between iterations.
    """

    fma: float = 0.0
    alu: float = 0.0
    slow: float = 0.0
    load: float = 0.0
    store: float = 0.0
    issued: float = 0.0
    chain: float = 0.0

    def cycles(self, core: CpuModel) -> float:
        """Cycles of an iteration on a core."""
        return max(
            self.fma / core.fma_ports,
            (self.fma + self.alu) / core.vector_ports,
            self.slow,
            self.load / core.load_ports,
            self.store / core.store_ports,
            self.issued / core.issue_width,
            self.chain,
        )

    def add(self, other: Instructions, times: float = 1.0) -> None:
        """Add `times` times the instructions of `other`, which run after these."""
        self.fma += times * other.fma
        self.alu += times * other.alu
        self.slow += times * other.slow
        self.load += times * other.load
        self.store += times * other.store
        self.issued += times * other.issued
        self.chain += times * other.chain


def tile_cycles(step: Instructions, shown: float, model: CpuModel, unrolled: int = 1) -> float:
    """Cycles of one step of a register tile's loop.

    shown: number of loads that are not completely hidden by arithmetic.  A load from L2 counts as
        two, since L2 delivers half a vector per cycle.  Arithmetic hides most of an L2 load's time,
        but less when other programs use L2.
    unrolled: steps per iteration of the loop.
    """
    return step.cycles(model) + model.load_cycles * shown + model.loop_cycles / unrolled


def overlapped(computing: float, moving: float, model: CpuModel) -> float:
    """Cycles if `computing` and `moving` data overlap."""
    return max(computing, moving) + (1 - model.overlap) * min(computing, moving)


def read_rate(size: float, target: Target) -> float:
    """Bytes per cycle at which one core reads a tensor of `size` bytes that was written some time
    ago, while the other threads read, too.
    """
    model = target.model
    if size <= model.l2_bytes / 2:
        return model.l2_bytes_per_cycle
    if size <= model.l3_bytes / 2:
        return model.l3_bytes_per_cycle
    return dram_rate(target)


def dram_rate(target: Target) -> float:
    """Bytes per cycle that one core reads from memory while the other threads read, too."""
    model = target.model
    return min(model.dram_bytes_per_cycle, model.dram_gbytes / model.ghz / target.threads)
