"""Cycles of a core that the machine model describes: the formulas behind analytic decisions.

Schedules are ranked and times are predicted with one formula: a body takes as long as the resource
of the core that it needs longest, or as the dependence chain between its iterations.
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
    load, store: full-width vector accesses; narrow ones count as a half or more.
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
        """Add `times` the instructions of `other`, one after another."""
        self.fma += times * other.fma
        self.alu += times * other.alu
        self.slow += times * other.slow
        self.load += times * other.load
        self.store += times * other.store
        self.issued += times * other.issued
        self.chain += times * other.chain


def tile_cycles(step: Instructions, shown: float, model: CpuModel, unrolled: int = 1) -> float:
    """Cycles of one step of a register tile's loop.

    shown: loads that take time beside arithmetic.  A load from L2, at half a vector per cycle,
        counts twice.  Arithmetic hides most of its time while L2 hits, and less when other programs
        use L2.
    unrolled: steps of an iteration of the loop.
    """
    return step.cycles(model) + model.load_cycles * shown + model.loop_cycles / unrolled


def overlapped(computing: float, moving: float, model: CpuModel) -> float:
    """Cycles of computing and of moving data at the same time."""
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
