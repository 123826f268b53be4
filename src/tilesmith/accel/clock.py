"""Counts the cycles of a program: busy time and stalls of each unit, and when each instruction ran.

The model is that of `runtime/csrc/accel_clock.c`.  Units run in parallel.  An instruction takes its
tokens, then `instruction_cycles`, then its work, then it gives its tokens.  A step of the matrix
unit takes `gemm_cycles`, one of the ALU `alu_cycles`.  The rows of a copy are bursts, each of which
occupies its channel for bytes / `dma_bytes` cycles, or a cycle for each tile if tiles are smaller.
Units that want the same channel take turns.  Bytes that are read come `dma_latency` later; tiles
and padding go into the buffer in order, one in a cycle.  The machine fetches an instruction in
16 / `dma_bytes` cycles, through a port of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

import numpy as np

from tilesmith.runtime import native
from tilesmith.support.trace import Event, trace

from .failures import explained
from .machine import Machine, Unit
from .prepared import Prepared, prepared
from .program import Program


class Stall(Enum):
    """Why a unit doesn't work, in the order of `accel_clock.c`.

    COMMAND: it has no instruction yet.
    PREV, NEXT: it waits for a token of the unit before or after.
    ROOM_PREV, ROOM_NEXT: it waits for room for a token to this unit.
    CHANNEL: another unit uses the channel to DRAM.
    """

    COMMAND = "command"
    PREV = "token from prev"
    NEXT = "token from next"
    ROOM_PREV = "room to prev"
    ROOM_NEXT = "room to next"
    CHANNEL = "channel"


@dataclass(frozen=True, slots=True)
class UnitCounts:
    """What a unit did.

    instructions: how many it ran.
    busy: cycles in which it worked.
    stalls: cycles in which it waited, by cause.
    idle: cycles after its last instruction.
    """

    instructions: int
    busy: int
    stalls: dict[Stall, int]
    idle: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run took.

    cycles: from the first fetch to the end of the last instruction.
    gemm_cycles: cycles of work of the matrix unit.
    alu_cycles: cycles of work of the ALU.
    read_bytes, written_bytes: bytes that were copied from and to DRAM.
    read_cycles, write_cycles: cycles in which the channels moved them.
    units: counts of each unit.
    """

    cycles: int
    gemm_cycles: int
    alu_cycles: int
    read_bytes: int
    written_bytes: int
    read_cycles: int
    write_cycles: int
    units: dict[Unit, UnitCounts]

    @property
    def utilisation(self) -> float:
        """Fraction of the cycles in which the matrix unit works."""
        return self.gemm_cycles / self.cycles if self.cycles else 0.0

    @property
    def bound(self) -> int:
        """Lower bound on the cycles: the busiest of the matrix unit and the two channels."""
        return max(self.gemm_cycles, self.read_cycles, self.write_cycles)

    def table(self) -> str:
        """A line for each unit: instructions, and percent of the cycles that it worked or waited,
        by cause.
        """
        rows = [["unit", "instructions", "busy", *(s.value for s in Stall), "idle"]]
        for unit, u in self.units.items():
            shares = (u.busy, *(u.stalls[s] for s in Stall), u.idle)
            percents = (f"{100 * n / max(self.cycles, 1):.1f}%" for n in shares)
            rows.append([unit.value, str(u.instructions), *percents])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (
            "  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])))
            for row in rows
        )
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Span:
    """When an instruction ran.

    number: its position in the program.
    start: cycle in which it had its tokens.
    end: cycle in which its work was done.
    """

    number: int
    start: int
    end: int


def count_cycles(program: Program, machine: Machine) -> Counts:
    """The counts of a run of `program`.  Its numbers don't matter to them.

    Raises InstructionError if it deadlocks, and what `verify` raises.
    """
    return cycles_of(prepared(program, machine))


def cycles_of(ready: Prepared) -> Counts:
    """The counts of a run of a prepared program.

    Raises InstructionError if it deadlocks.
    """
    return _counted(ready, np.empty(0, np.int64))


def timeline(program: Program, machine: Machine) -> tuple[Counts, tuple[Span, ...]]:
    """The counts of a run, and when each instruction ran, in the order of the program.

    Raises what `count_cycles` raises.
    """
    times = np.zeros((len(program.instructions), 2), np.int64)
    counts = _counted(prepared(program, machine), times)
    return counts, tuple(Span(n, int(a), int(b)) for n, (a, b) in enumerate(times))


def _counted(ready: Prepared, times: np.ndarray) -> Counts:
    found = native.accel_clock(ready.machine, ready.encoding, ready.words, times)
    if isinstance(found, tuple):
        raise explained(ready.program, found)
    size = 2 + len(Stall)
    head, rest = found[: -size * len(Unit)], found[-size * len(Unit) :]
    units: dict[Unit, UnitCounts] = {}
    for unit in Unit:
        instructions, busy, *stalls = rest[unit.place * size : (unit.place + 1) * size]
        by_cause = dict(zip(Stall, stalls, strict=True))
        idle = head[0] - busy - sum(stalls)
        units[unit] = UnitCounts(instructions, busy, by_cause, idle)
    totals = (f.name for f in fields(Counts) if f.name != "units")
    return Counts(**dict(zip(totals, head, strict=True)), units=units)


def trace_of(program: Program, machine: Machine) -> dict[str, Any]:
    """A run as a trace that https://ui.perfetto.dev opens, to be written as JSON: a track for each
    unit, and a cycle for each microsecond.
    """
    _, spans = timeline(program, machine)
    events = (
        Event(
            x.unit.place, x.kind, x.name, span.start, span.end - span.start,
            {"instruction": span.number, "text": str(x)},
        )
        for span, x in zip(spans, program.instructions, strict=True)
    )  # fmt: skip
    return trace("accelerator", [unit.value for unit in Unit], events)
