"""The speed and resources of a CPU: the numbers that analytic decisions use.

This is a description, not a measurement: the same model, target and threads give the same schedules
in every process.  Measured rates (`perf.machine`) only predict times; no choice of a schedule
depends on them.  The defaults describe a modest desktop core.  Cycles are those of one core.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

LINE_BYTES = 64
"""Bytes of a cache line, on every CPU for which code is made.  It is no field of a model, since the
alignment of buffers must not depend on the compiling machine.
"""


@dataclass(frozen=True, slots=True)
class CpuModel:
    """The model of a CPU.

    Structure:
    cores: physical cores; 0 if unknown.
    smt: hardware threads of a core.
    ghz: clock under vector load.
    fma_ports: fused multiply-adds of full width started per cycle.
    fma_latency: latency of a fused multiply-add in cycles.
    vector_ports: vector instructions of any kind started per cycle.
    load_ports, store_ports: vectors loaded and stored per cycle.
    issue_width: instructions that a core issues per cycle, in practice.
    overlap: how far computing and moving data overlap: the fraction of the shorter of these two
        times that passes during the longer one.
    l1_bytes, l1_ways: data cache of a core.
    l2_bytes, l2_ways: second-level cache of a core.
    l3_bytes, l3_cores: one last-level cache, and the cores that share it.
    page_bytes: size of the smallest page.  Address translation keeps offsets inside a page.

    Bandwidth and latency:
    l2_bytes_per_cycle, l3_bytes_per_cycle: bytes that one core reads from that cache.
    dram_bytes_per_cycle: bytes that one core reads from memory while all other cores read, too.
    dram_gbytes: GB/s that all cores together read from memory.
    bytes_in_flight: the prefetch distance, which is memory's latency times the bandwidth of a core.
    fork_join_cycles: cycles to start and end a parallel loop.

    Instructions, in cycles:
    run_cycles, jump_cycles: cost of reading a vector, one number each for L1, L2, L3 and memory.
        `run_cycles` holds for long contiguous runs, `jump_cycles` for register tiles that walk
        across rows.
    l1_miss_cycles: extra cost of a broadcast from L2.
    load_cycles: cost of a vector load beside arithmetic, which hides most of it.
    loop_cycles: a loop's own instructions, per iteration.
    loop_fmas: number of multiply-adds per iteration whose ports the loop's own instructions take,
        on a CPU where both kinds of instructions use the same ports.
    entry_cycles: cost of entering a loop, and of the mispredicted branch at its end.
    gather_cycles: cost of loading one lane, if its element is not adjacent to the previous lane's.
    copy_cycles: cost of copying an element to another order.
    lane_sum_cycles: cost of adding up the lanes of a vector.
    divide_cycles: cost of a vector division.
    integer_divide_cycles: cost of an integer division by a constant.
    library_cycles: cost of a call of the C library's mathematics, per lane.
    bf16_dot_fmas: cost of a dot product of pairs of bf16 in all lanes, in multiply-adds.
    forward_cycles: latency from a store to a load of the same address.
    """

    cores: int = 0
    smt: int = 1
    ghz: float = 3.0
    fma_ports: int = 2
    fma_latency: int = 4
    vector_ports: int = 3
    load_ports: int = 2
    store_ports: int = 1
    issue_width: int = 4
    overlap: float = 0.85
    l1_bytes: int = 32 << 10
    l1_ways: int = 8
    l2_bytes: int = 512 << 10
    l2_ways: int = 8
    l3_bytes: int = 8 << 20
    l3_cores: int = 8
    page_bytes: int = 4096

    l2_bytes_per_cycle: float = 32.0
    l3_bytes_per_cycle: float = 8.0
    dram_bytes_per_cycle: float = 4.0
    dram_gbytes: float = 30.0
    bytes_in_flight: int = 4096
    fork_join_cycles: int = 4096

    run_cycles: tuple[float, ...] = (2.0, 2.0, 2.0, 9.0)
    jump_cycles: tuple[float, ...] = (0.0, 0.0, 4.5, 18.0)
    l1_miss_cycles: float = 0.7
    load_cycles: float = 0.1
    loop_cycles: float = 0.75
    loop_fmas: float = 0.0
    entry_cycles: float = 6.0
    gather_cycles: float = 1.2
    copy_cycles: float = 2.5
    lane_sum_cycles: float = 8.0
    divide_cycles: float = 8.0
    integer_divide_cycles: float = 4.0
    library_cycles: float = 40.0
    forward_cycles: float = 5.0
    bf16_dot_fmas: float = 1.0

    @property
    def cache_bytes(self) -> tuple[int, int, int]:
        """Bytes of L1, L2 and L3."""
        return self.l1_bytes, self.l2_bytes, self.l3_bytes

    @property
    def parallel_cycles(self) -> int:
        """Fewest cycles for which a second thread pays: it saves half and costs a fork and join."""
        return 2 * self.fork_join_cycles

    @property
    def parallel_bytes(self) -> int:
        """Bytes that one core reads from the last-level cache in `parallel_cycles` cycles."""
        return int(self.parallel_cycles * self.l3_bytes_per_cycle)

    @property
    def text(self) -> str:
        """The text of all fields for cache keys, the same in every process."""
        return " ".join(f"{k}={v}" for k, v in asdict(self).items())

    def to_json(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @property
    def l1_way_bytes(self) -> int:
        """Bytes of a way of the first-level cache; at least 1, even if the cache has fewer
        bytes than ways.
        """
        return max(self.l1_bytes // self.l1_ways, 1)

    @property
    def l2_way_bytes(self) -> int:
        """Like `l1_way_bytes`, for the second-level cache."""
        return max(self.l2_bytes // self.l2_ways, 1)

    @staticmethod
    def from_json(m: Mapping[str, Any], base: CpuModel | None = None) -> CpuModel:
        """The model with the fields of `m`.  Fields that `m` does not name are taken from `base`.

        Raises ValueError, naming the field, for unknown fields and for values that are not positive
        numbers of the right kind.
        """
        values = {} if base is None else asdict(base)
        known = {f.name for f in fields(CpuModel)}
        for name, value in m.items():
            if name not in known:
                raise ValueError(f"there is no field {name!r}; fields are {', '.join(known)}")
            values[name] = _checked(name, value, getattr(DESKTOP, name))
        return CpuModel(**values)


DESKTOP = CpuModel()
"""The model for a target that names only its instruction set: a modest desktop core."""


def _checked(name: str, value: Any, like: Any) -> Any:
    if isinstance(like, tuple):
        if not isinstance(value, (list, tuple)) or len(value) != len(like):
            raise ValueError(f"{name}: expected {len(like)} numbers, found {value!r}")
        if not all(_is_number(v) and 0 <= v <= 1e6 for v in value):
            raise ValueError(f"{name}: expected numbers from 0 to 1e6, found {value!r}")
        return tuple(map(float, value))
    if isinstance(like, float):
        if not _is_number(value) or not 0 <= value <= 1e6 or value == 0 != like:
            least = "a number from 0 to" if like == 0 else "a number above 0, at most"
            raise ValueError(f"{name}: expected {least} 1e6, found {value!r}")
        return float(value)
    least = min(like, 1)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 1 << 40:
        raise ValueError(f"{name}: expected a whole number from {least} to 2^40, found {value!r}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
