"""What a CPU was measured to do: the rates that the performance model turns work into time with.

Pure data; `runtime.machine` measures it.  All rates are those of the whole machine running with a
number of threads, in units per second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Rates:
    """What `threads` threads together do.

    `flops`: float32 operations per second in fused multiply-adds of full width.  `l1_load`,
    `l1_store`: bytes per second between registers and L1 in vectors of full width.  `l2`, `l3`,
    `dram`: bytes per second read from there.  `l2_write`, ...: bytes per second stored to data that
    lives there (the line is fetched first and written back later: one rate for all of that).
    `fork_join`: seconds that starting and ending a parallel loop adds.
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
    """A measured CPU.  `cpu`: its name; `vector_bytes`: width of the vectors measured with;
    `rates`: by ascending number of threads, the first for one.
    """

    cpu: str
    vector_bytes: int
    rates: tuple[Rates, ...]

    def at(self, threads: int) -> Rates:
        """The rates with `threads` threads, on the line between the two nearest measurements (and
        those of the largest one beyond it).
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
        """Raises ValueError, KeyError or TypeError for anything that `to_json` does not write."""
        rates = tuple(Rates(**{f.name: r[f.name] for f in fields(Rates)}) for r in m["rates"])
        numbers = [v for r in rates for v in asdict(r).values()]
        if not rates or rates[0].threads != 1 or m["vector_bytes"] < 1:
            raise ValueError("the rates of one thread are missing")
        if not all(math.isfinite(v) and v >= 0 for v in numbers):
            raise ValueError("a rate is not a positive number")
        return Machine(str(m["cpu"]), int(m["vector_bytes"]), rates)
