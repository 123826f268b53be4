"""The description of a machine for schedules and code generation.

Pure data: detection of the host and the named levels live in `codegen.targets`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

LINE_BYTES = 64
"""Bytes of a cache line, on every CPU that is known here."""


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU target.

    name: what the user asked for (`native`, `x86-64-v3`).
    triple, cpu, features: LLVM's names.
    vector_bits: SIMD width in bits.
    vector_registers: number of architectural vector registers.
    fma_ports: fused multiply-adds of full width started per cycle.
    fma_latency: cycles until the result of a fused multiply-add can be used.
    l1_bytes, l2_bytes: data caches of each core.
    l3_bytes: the shared cache.
    """

    name: str
    triple: str
    cpu: str
    features: frozenset[str]
    vector_bits: int
    vector_registers: int
    fma_ports: int = 2
    fma_latency: int = 4
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 16 << 20

    def vector_lanes(self, element_bytes: int) -> int:
        """Elements of that size in one vector register."""
        return self.vector_bits // 8 // element_bytes

    def overflows(self, result_bytes: int) -> bool:
        """True if no cache holds the beginning of a result at the end of writing it: it fills three
        quarters of the last-level cache (the C library's `memcpy` draws the same line).
        """
        return 4 * result_bytes >= 3 * self.l3_bytes

    @property
    def feature_string(self) -> str:
        """LLVM's form, sorted: `+avx,+fma`."""
        return ",".join(f"+{f}" for f in sorted(self.features))

    @property
    def text(self) -> str:
        """Every field, equal in every process: part of cache keys."""
        shown = {f.name: getattr(self, f.name) for f in fields(self)} | {
            "features": self.feature_string
        }
        return " ".join(f"{k}={v}" for k, v in shown.items())
