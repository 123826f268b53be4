"""The rates of a CPU, by which the performance model converts work into time.

`runtime.machine` measures rates; `nominal` derives them from a target's description.  Compiled code
depends on nominal rates alone, so that it is reproducible.  A rate is the sum over all threads, per
second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tilesmith.ir.target import Target


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of `threads` threads together.

    threads: number of threads.
    flops: float32 operations per second, in fused multiply-adds of full vector width.
    l1_load, l1_store: bytes per second between registers and L1, in vectors of full width.
    l2, l3, dram: bytes per second read from that level.
    l2_write, l3_write, dram_write: bytes per second stored to data in that level.  The time
        includes fetching each line first and writing it back later.
    fork_join: seconds that a parallel loop adds for starting and ending.
    """

    threads: int
    flops: float
    l1_load: float
    l1_store: float
    l2: float
    l2_write: float
    l3: float
    l3_write: float
    dram: float
    dram_write: float
    fork_join: float


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU and its rates.

    cpu: its name.
    vector_bytes: width in bytes of the vectors in the measurement.
    l3_bytes: capacity of L3; if other machines share the cache, the part that they leave.
    rates: rates by ascending number of threads, the first for one thread.
    """

    cpu: str
    vector_bytes: int
    l3_bytes: int
    rates: tuple[Rates, ...]

    def at(self, threads: int) -> Rates:
        """The rates with `threads` threads, by linear interpolation between the two nearest numbers
        of threads in `rates`.  Above the largest number in `rates`, the rates for the largest
        number are returned.
        """
        below = max((r for r in self.rates if r.threads <= threads), key=lambda r: r.threads)
        above = min(
            (r for r in self.rates if r.threads >= threads),
            key=lambda r: r.threads,
            default=below,
        )
        if above.threads == below.threads:
            return below
        share = (threads - below.threads) / (above.threads - below.threads)
        a, b = asdict(below), asdict(above)
        mixed = {k: a[k] + (b[k] - a[k]) * share for k in a if k != "threads"}
        return Rates(threads=threads, **mixed)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(m: Mapping[str, Any]) -> Machine:
        """Read `to_json` output.  Raises ValueError, KeyError or TypeError for other values."""
        rates = tuple(Rates(**{f.name: r[f.name] for f in fields(Rates)}) for r in m["rates"])
        numbers = [v for r in rates for v in asdict(r).values()]
        if not rates or rates[0].threads != 1 or m["vector_bytes"] < 1:
            raise ValueError("the rates of one thread are missing")
        if not all(math.isfinite(v) and v >= 0 for v in numbers):
            raise ValueError("a rate is not a positive number")
        return Machine(str(m["cpu"]), int(m["vector_bytes"]), int(m["l3_bytes"]), rates)


def nominal(target: Target) -> Machine:
    """The rates expected from a target's description, with one thread and with all of its cores.

    Write rates are half of the read rates.
    """
    m, vector = target.model, target.vector_bits // 8
    second = m.ghz * 1e9

    def at(threads: int) -> Rates:
        core = second * threads
        near, far = m.l2_bytes_per_cycle * core, m.l3_bytes_per_cycle * core
        dram = min(m.dram_bytes_per_cycle * core, m.dram_gbytes * 1e9)
        return Rates(
            threads,
            2 * (vector // 4) * m.fma_ports * core,
            m.load_ports * vector * core,
            m.store_ports * vector * core,
            *(near, near / 2, far, far / 2, dram, dram / 2),
            m.fork_join_cycles / second,
        )

    return Machine(
        target.name, vector, m.l3_bytes, tuple(at(n) for n in sorted({1, 2, m.cores or 2}))
    )
