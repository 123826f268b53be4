"""What a machine is, as far as schedules and code generation need to know.

Pure data: detection of the host and the named levels live in `codegen.targets`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

LINE_BYTES = 64
"""Of a cache line, on every CPU that is known here."""


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU target.

    `name` is what the user asked for (`native`, `x86-64-v3`), `triple`/`cpu`/`features` are LLVM's.
    `vector_bits`, `vector_registers`: SIMD width in bits and number of architectural vector
    registers.
    `fma_ports`, `fma_latency`: fused multiply-adds of full width started per cycle, and cycles
    until usable.
    `l1_bytes`, `l2_bytes`, `l3_bytes`: data caches; L1 and L2 per core, L3 shared.
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
        """True for a result of which no cache will hold the beginning once it is written: it fills
        three quarters of the last-level cache (the C library's `memcpy` draws the same line).
        """
        return 4 * result_bytes >= 3 * self.l3_bytes

    @property
    def feature_string(self) -> str:
        """LLVM's form, sorted: `+avx,+fma`."""
        return ",".join(f"+{f}" for f in sorted(self.features))

    @property
    def text(self) -> str:
        """Every field, the same in every process: part of cache keys."""
        shown = {f.name: getattr(self, f.name) for f in fields(self)} | {
            "features": self.feature_string
        }
        return " ".join(f"{k}={v}" for k, v in shown.items())
