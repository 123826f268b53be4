"""The named processor levels (sets of instructions that code may use).

Sources: the levels of the x86-64 psABI; the Arm architecture reference manuals; the RISC-V
specifications.  Names of features are LLVM's.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir.target import CpuModel


@dataclass(frozen=True, slots=True)
class Level:
    """A processor level.

    triple: LLVM's name of architecture and system.
    cpu: LLVM's name of the processor whose timing LLVM's scheduler assumes.
    features: the instructions that code may use.
    vector_bits: width of a vector register.
    vector_registers: number of vector registers.
    more: features that the name of a target may add to this level, as in `x86-64-v4+avx512bf16`.
    vector_ports: number of vector instructions that can start in one cycle.
    """

    triple: str
    cpu: str
    features: frozenset[str]
    vector_bits: int
    vector_registers: int
    more: frozenset[str] = frozenset()
    vector_ports: int = CpuModel().vector_ports


V1 = frozenset({"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "x87"})
_V2 = V1 | {"crc32", "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_X86_MORE = frozenset({
    "avx512vnni", "avx512bf16", "avx512fp16", "avxvnni", "avxvnniint8",
    "amx-tile", "amx-int8", "amx-bf16", "amx-fp16",
})  # fmt: skip

_ARM_MORE = frozenset({"dotprod", "fullfp16", "bf16", "i8mm"})
_RV64 = frozenset({"64bit", "m", "a", "f", "d", "c"})


def _x86(name: str, features: frozenset[str], bits: int, registers: int) -> Level:
    ports = 2 if bits == 512 else CpuModel().vector_ports
    triple = "x86_64-unknown-linux-gnu"
    return Level(triple, name, features, bits, registers, _X86_MORE, ports)


LEVELS: dict[str, Level] = {
    "x86-64": _x86("x86-64", V1, 128, 16),
    "x86-64-v2": _x86("x86-64-v2", _V2, 128, 16),
    "x86-64-v3": _x86("x86-64-v3", _V3, 256, 16),
    "x86-64-v4": _x86("x86-64-v4", _V4, 512, 32),
    "aarch64": Level(
        "aarch64-unknown-linux-gnu", "generic", frozenset({"fp-armv8", "neon"}), 128, 32, _ARM_MORE,
        2,
    ),
    "armv7": Level(
        "armv7-unknown-linux-gnueabihf", "cortex-a7",
        frozenset({"v7", "neon", "vfp4", "hwdiv", "hwdiv-arm", "thumb2"}), 128, 16, vector_ports=1,
    ),
    "riscv64": Level(
        "riscv64-unknown-linux-gnu", "generic-rv64", _RV64, 64, 32, vector_ports=1,
    ),
    "riscv64-v": Level(
        "riscv64-unknown-linux-gnu", "generic-rv64", _RV64 | {"v", "zvl128b"}, 128, 32,
        vector_ports=1,
    ),
    "wasm32": Level(
        "wasm32-unknown-unknown", "generic", frozenset({"simd128", "bulk-memory", "sign-ext"}),
        128, 16, vector_ports=2,
    ),
}  # fmt: skip
"""The levels by name.  RISC-V without vectors is described by its floating-point registers, as if
each were a vector of one f64.
"""

EXTENSIONS = {"sse": "x86-64", "sse4": "x86-64-v2", "avx2": "x86-64-v3", "avx512": "x86-64-v4"}
"""Names of instruction sets that denote levels."""

SYSTEMS = {
    "windows": {"x86_64": "x86_64-pc-windows-gnu"},
    "macos": {"aarch64": "aarch64-apple-macosx11.0.0", "x86_64": "x86_64-apple-macosx11.0.0"},
}
"""LLVM's triples by operating system and architecture, for targets such as `x86-64-v3-windows`.
Linux is the default.
"""

ABIS = {"riscv64": "lp64d"}
"""Architecture -> its calling convention on Linux, where this is not LLVM's default."""

BASE_CPUS = {"x86_64": "x86-64", "riscv64": "generic-rv64"}
"""The CPU that LLVM is given as a baseline, by architecture; "generic" for other architectures."""


@dataclass(frozen=True, slots=True)
class Controller:
    """A microcontroller, for which C text is written.

    triple: LLVM's name of the architecture.
    registers: general registers available to a loop.
    features: LLVM's names of instructions that the C text may use, if the C compiler supports them.
    """

    triple: str
    registers: int
    features: frozenset[str] = frozenset()


CONTROLLERS = {
    "cortex-m0": Controller("thumbv6m-none-eabi", 8),
    "cortex-m4": Controller("thumbv7em-none-eabi", 13, frozenset({"dsp"})),
    "cortex-m7": Controller("thumbv7em-none-eabi", 13, frozenset({"dsp"})),
    "riscv32": Controller("riscv32-unknown-elf", 24),
}
"""The controllers by name.  Sources of the register counts: Arm's procedure call standard, and the
RISC-V calling convention.
"""
