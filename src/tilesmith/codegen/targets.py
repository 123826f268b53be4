"""The machines for which code can be made: detection of the host and the named x86-64 levels.

Code generation starts from the baseline CPU and adds exactly the features listed in a `Target`.  So
a machine that hides a feature (a virtual machine, an operating system without AVX-512 state) never
gets code that uses it.  `Target.cpu` only steers LLVM's tuning.
"""

from __future__ import annotations

import glob
import os
import re
from functools import lru_cache

from tilesmith.ir.target import Target
from tilesmith.support.errors import UsageError

_V1 = frozenset({"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "x87"})
_V2 = _V1 | {"crc32", "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

_LEVELS: dict[str, tuple[frozenset[str], int, int]] = {
    "x86-64": (_V1, 128, 16),
    "x86-64-v2": (_V2, 128, 16),
    "x86-64-v3": (_V3, 256, 16),
    "x86-64-v4": (_V4, 512, 32),
}
"""Name -> features, vector width in bits, vector registers (levels of the x86-64 psABI).
"""

_ONE_WIDE_FMA = frozenset({"znver4", "icelake-client", "tigerlake", "rocketlake", "cannonlake"})
"""CPUs that start one 512-bit fused multiply-add per cycle; others with AVX-512 start two."""

_NOT_FOR_CODE = frozenset(
    {
        "clzero",
        "wbnoinvd",
        "rdpru",
        "mwaitx",
        "pku",
        "shstk",
        "invpcid",
        "ibt",
        "hreset",
        "user-msr",
    }
)
"""Host features that compiled kernels can't use.  They are left out so that executables run on more
machines.
"""


def has_slow_gathers(target: Target) -> bool:
    """True for CPUs whose gathers take longer than as many loads: AMD's, which are microcoded."""
    return target.cpu.startswith("znver")


def target(spec: str | Target) -> Target:
    """The target called `spec`: "native" or an x86-64 level.  Raises UsageError for other names."""
    if isinstance(spec, Target):
        return spec
    if spec == "native":
        return host()
    level = _LEVELS.get(spec)
    if level is None:
        known = ", ".join(["native", *_LEVELS])
        raise UsageError(f"unknown target {spec!r}: expected one of {known}")
    features, bits, registers = level
    # baseline levels say nothing of caches: assume a modest desktop core
    return Target(
        spec,
        _linux_triple("x86_64"),
        spec,
        features,
        bits,
        registers,
        2,
        4,
        32 << 10,
        512 << 10,
        8 << 20,
    )


@lru_cache(maxsize=1)
def host() -> Target:
    """This machine."""
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    cpu = llvm.get_host_cpu_name()
    found = (
        frozenset(name for name, on in llvm.get_host_cpu_features().items() if on) - _NOT_FOR_CODE
    )
    caches = _caches()
    if triple.startswith("x86_64"):
        bits = 512 if "avx512f" in found else 256 if "avx" in found else 128
        registers = 32 if "avx512f" in found else 16
        features = found | _V1 if "sse2" in found else _V1
        ports = 1 if bits == 512 and cpu in _ONE_WIDE_FMA else 2
    else:  # AArch64: 128-bit NEON; other architectures get the same conservative guess
        bits, registers, features, ports = 128, 32, found, 2
    return Target(
        "native",
        triple,
        cpu,
        features,
        bits,
        registers,
        ports,
        4,
        caches.get((1, "Data"), 32 << 10),
        caches.get((2, "Unified"), 1 << 20),
        caches.get((3, "Unified"), 16 << 20),
    )


def missing_features(machine: Target, needed: Target) -> tuple[str, ...]:
    """Features of `needed` that `machine` lacks, sorted; code for `needed` runs on `machine` if
    there are none.

    Another architecture counts as a missing feature named after it.
    """
    wanted, have = needed.triple.split("-")[0], machine.triple.split("-")[0]
    if wanted != have:
        return (wanted,)
    return tuple(sorted(needed.features - machine.features))


def covers(machine: Target, needed: Target) -> bool:
    """True if code made for `needed` runs on `machine`; `missing_features` says why not."""
    return not missing_features(machine, needed)


def base_cpu(t: Target) -> str:
    """The CPU whose features are LLVM's starting point; the target's own list is added to it."""
    return "x86-64" if t.triple.startswith("x86_64") else "generic"


def _linux_triple(arch: str) -> str:
    return f"{arch}-unknown-linux-gnu"


def _caches() -> dict[tuple[int, str], int]:
    """(level, type) -> bytes, from the operating system where it tells; empty elsewhere."""
    sizes: dict[tuple[int, str], int] = {}
    for folder in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*")):
        try:
            level, kind, size = (_read(os.path.join(folder, n)) for n in ("level", "type", "size"))
        except OSError:
            continue
        number = re.fullmatch(r"(\d+)([KMG]?)", size)
        if number and level.isdigit():
            scale = {"": 0, "K": 10, "M": 20, "G": 30}[number[2]]
            sizes[int(level), kind] = int(number[1]) << scale
    return sizes


def _read(path: str) -> str:
    with open(path, encoding="ascii") as f:
        return f.read().strip()
