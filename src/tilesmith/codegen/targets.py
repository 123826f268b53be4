"""The machines for which code can be made: the host, named machines, machines in description files,
C, and devices.

A description file (TOML or JSON) is a table with fields of `CpuModel`, or of `Device` if the base
is a device, and:

    name = "server-64"      # shown to users; the default is the file's name
    base = "x86-64-v4"      # gives the instructions, and the fields that the table omits

Code generation starts from the baseline CPU and adds exactly the features listed in a `Target`.  So
a machine that hides a feature (a virtual machine, an operating system without AVX-512 state) never
gets code that uses this feature.  `Target.cpu` affects only LLVM's tuning.
"""

from __future__ import annotations

import difflib
import glob
import json
import os
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tilesmith.ir.device import Device
from tilesmith.ir.target import CpuModel, Target
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import read_regular

from .cuda import devices as cuda
from .levels import BASE_CPUS, CONTROLLERS, EXTENSIONS, LEVELS, SYSTEMS, V1
from .opencl import devices
from .tiles import tile_permission

_SERVER = CpuModel(
    smt=2, vector_ports=2, l1_bytes=48 << 10, l1_ways=12, l2_bytes=2 << 20, l2_ways=16
)

_MACHINES: dict[str, tuple[str, CpuModel]] = {
    "avx2-laptop": (
        "x86-64-v3",
        CpuModel(cores=6, smt=2, ghz=3.2, l3_bytes=16 << 20, l3_cores=6, dram_gbytes=40.0),
    ),
    "server-16": (
        "x86-64-v4",
        replace(_SERVER, cores=16, l3_bytes=32 << 20, l3_cores=16, dram_gbytes=150.0),
    ),
    "server-64": (
        "x86-64-v4",
        replace(_SERVER, cores=64, ghz=2.5, l3_bytes=128 << 20, l3_cores=64, dram_gbytes=280.0),
    ),
}
"""Named machines for compiling elsewhere: the level of instructions, a plausible model."""

_SUFFIXES = (".toml", ".json")

_ONE_WIDE_FMA = frozenset({"znver4", "icelake-client", "tigerlake", "rocketlake", "cannonlake"})
"""CPUs that start one 512-bit fused multiply-add per cycle.  Other CPUs with AVX-512 start two."""

_TILES_CPU = "sapphirerapids"
"""The oldest CPU with AMX.  If a CPU reports AMX but an older CPU's name, as virtual machines do,
this CPU is assumed.
"""

_WITH_TILES = frozenset({_TILES_CPU, "emeraldrapids", "graniterapids", "graniterapids-d"})
_SLOW_BF16_DOTS = _WITH_TILES | {"cooperlake"}
"""CPUs on which a dot product of pairs of bf16 takes as long as four multiply-adds of f32.  On
AMD's CPUs it takes as long as one multiply-add.
"""

_AMD = "znver", "bdver", "btver"
"""Prefixes of the names of AMD's CPUs with AVX."""

_LOOP_FMAS = 3.0
"""The cost of the loop's own instructions on Intel's CPUs, in multiply-adds per iteration.  On
these CPUs, both kinds of instructions use the same ports.
"""

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
"""Host features that kernels never use.  Targets omit them, so that executables run on more
machines.
"""


def has_slow_gathers(target: Target) -> bool:
    """True for CPUs on which a gather takes longer than separate loads: AMD's, whose gathers are
    microcoded.
    """
    return target.cpu.startswith("znver")


def target(spec: str | Target) -> Target:
    """The target called `spec`: "native", an x86-64 level or an instruction set, a named machine,
    the path of a description file, "accel-sim" for this machine with a simulated accelerator beside
    it, "c" for C text that this machine's C compiler compiles, or a device ("opencl", "opencl:1",
    "opencl-gpu", "cuda", "cuda-sm_90a").  A level or a machine may be followed by features:
    `x86-64-v4+avx512bf16`.

    Raises UsageError for other names and for files with invalid values, DeviceError for a missing
    device.
    """
    if isinstance(spec, Target):
        return spec
    if spec == "native":
        return host()
    if spec in _OTHERS:
        return _OTHERS[spec]()
    if spec in CONTROLLERS:
        return _controller(spec)
    if spec.endswith(_SUFFIXES):
        return _described(Path(spec))
    if spec.startswith(devices.NAME):
        return devices.target(spec)
    if spec.startswith(cuda.NAME):
        return cuda.target(spec)
    spec, *added = spec.split("+")
    if added:
        return _with_features(target(spec), added)
    base, _, system = spec.rpartition("-")
    if system in SYSTEMS:
        return _on_system(base, system)
    spec = EXTENSIONS.get(spec, spec)
    name, model = _MACHINES.get(spec, (spec, CpuModel()))
    if name not in LEVELS:
        known = ", ".join(
            ["native", *LEVELS, *EXTENSIONS, *_MACHINES, *CONTROLLERS, *_OTHERS, "opencl", "cuda"]
        )
        raise UsageError(
            f"unknown target {spec!r}: expected one of {known}, or a file (.toml, .json)"
        )
    level = LEVELS[name]
    if spec == name:
        model = replace(model, vector_ports=level.vector_ports)
    return Target(
        spec, level.triple, level.cpu, level.features, level.vector_bits, level.vector_registers,
        model,
    )  # fmt: skip


def _on_system(level: str, system: str) -> Target:
    """A level's target on another operating system.  Raises UsageError if the system is unknown."""
    base, triples = target(level), SYSTEMS[system]
    if base.architecture not in triples:
        raise UsageError(
            f"target {level}-{system}: {system} runs on {' and '.join(triples)}, not on "
            f"{base.architecture}"
        )
    return replace(base, name=f"{level}-{system}", triple=triples[base.architecture])


def _with_features(base: Target, added: list[str]) -> Target:
    """`base` with more features.  Raises UsageError for unknown ones."""
    known = frozenset[str]().union(
        *(k.more for k in LEVELS.values() if k.triple.split("-")[0] == base.architecture)
    )
    for feature in added:
        if feature not in known:
            raise UsageError(
                f"target {base.name}: unknown feature {feature!r} after +; known are "
                f"{', '.join(sorted(known)) or 'none'}"
            )
    name = "+".join((base.name, *added))
    return replace(base, name=name, features=base.features.union(added))


def _described(path: Path) -> Target:
    """The target of a description file."""
    import tomllib  # imported here, since few compilations read a description

    try:
        text = read_regular(path).decode("utf-8")
        m = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as e:
        raise UsageError(f"can't read the target description {path}: {e.strerror}") from None
    except (ValueError, RecursionError) as e:  # both parsers and the encoding raise these
        raise UsageError(f"{path} is no {path.suffix[1:].upper()} file: {e}") from None
    if not isinstance(m, dict):
        raise UsageError(f"{path}: expected a table of fields, found {type(m).__name__}")
    name, base = m.pop("name", path.stem), m.pop("base", "x86-64-v3")
    for key, value in (("name", name), ("base", base)):
        if not isinstance(value, str) or not value or value.endswith(_SUFFIXES):
            raise UsageError(f"{path}: {key} must be the name of a target, found {value!r}")
    start = target(base)
    try:
        if start.device is not None:
            return replace(start, name=name, device=Device.from_json(m, start.device))
        model = CpuModel.from_json(m, start.model)
    except ValueError as e:
        known = (start.device or start.model).to_json()
        near = [n for k in m.keys() - known for n in difflib.get_close_matches(k, known, 1)]
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise UsageError(f"{path}: {e}{hint}") from None
    return replace(start, name=name, model=model)


def _c_target() -> Target:
    """The target "c": C text for any CPU, compiled for this machine's architecture.

    Tiles are sized for 16 registers with 128-bit vectors, which suit most CPUs.
    """
    return Target("c", host().triple, "generic", frozenset(), 128, 16, CpuModel(), backend="c")


def _accelerated() -> Target:
    """The target "accel-sim": this machine, and a simulated accelerator beside it."""
    return replace(host(), name="accel-sim", backend="accel")


_OTHERS = {"c": _c_target, "accel-sim": _accelerated}
"""Targets of other kinds by name."""


def _controller(name: str) -> Target:
    """A microcontroller: one core without vectors, whose memory is as fast as a cache."""
    chip, kilobyte = CONTROLLERS[name], 1 << 10
    model = CpuModel(
        cores=1, ghz=0.1, fma_ports=1, vector_ports=1, load_ports=1, issue_width=1,
        l1_bytes=64 * kilobyte, l2_bytes=256 * kilobyte, l3_bytes=256 * kilobyte, l3_cores=1,
    )  # fmt: skip
    return Target(
        name, chip.triple, "generic", chip.features, 32, chip.registers, model, backend="source"
    )


@lru_cache(maxsize=1)
def host() -> Target:
    """This machine as a target.  The target has AMX only if the operating system lets this process
    use AMX.
    """
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    reported = (
        frozenset(name for name, on in llvm.get_host_cpu_features().items() if on) - _NOT_FOR_CODE
    )
    if any(f.startswith("amx") for f in reported) and tile_permission() != "granted":
        reported = frozenset(f for f in reported if not f.startswith("amx"))
    cpu = _tuning(llvm.get_host_cpu_name(), reported)
    if triple.startswith("x86_64"):
        bits = 512 if "avx512f" in reported else 256 if "avx" in reported else 128
        registers = 32 if "avx512f" in reported else 16
        features = reported | V1 if "sse2" in reported else V1
        ports = 1 if bits == 512 and cpu in _ONE_WIDE_FMA else 2
    else:  # AArch64: 128-bit NEON; other architectures get the same conservative guess
        bits, registers, features, ports = 128, 32, reported, 2
    model = CpuModel(fma_ports=ports, vector_ports=2 if bits == 512 else 3)
    if cpu in _SLOW_BF16_DOTS:
        model = replace(model, bf16_dot_fmas=4.0)
    if triple.startswith("x86_64") and not cpu.startswith(_AMD):
        model = replace(model, loop_fmas=_LOOP_FMAS)
    model = replace(model, **_cores(), **_caches())
    return Target("native", triple, cpu, features, bits, registers, model)


def _tuning(cpu: str, features: frozenset[str]) -> str:
    """The CPU for LLVM's tuning: `cpu`, or the oldest CPU with AMX if `features` contain AMX but
    `cpu` lacks it.
    """
    has_tiles = "amx-tile" in features
    return _TILES_CPU if has_tiles and cpu not in _WITH_TILES else cpu


def missing_features(machine: Target, needed: Target) -> tuple[str, ...]:
    """Features of `needed` that `machine` lacks, sorted.  If none is missing, code for `needed`
    runs on `machine`.

    A different architecture or operating system counts as a missing feature, under its name.  Code
    for a device needs no features of the host.
    """
    if needed.device is not None:
        return ()
    if needed.architecture != machine.architecture:
        return (needed.architecture,)
    if needed.system != machine.system:
        return (needed.system,)
    return tuple(sorted(needed.features - machine.features))


def covers(machine: Target, needed: Target) -> bool:
    """True if code for `needed` runs on `machine`; if not, `missing_features` says why."""
    return not missing_features(machine, needed)


def base_cpu(t: Target) -> str:
    """The baseline CPU for LLVM.  The features of the target are added to those of this CPU."""
    return t.cpu if t.device is not None else BASE_CPUS.get(t.triple.split("-")[0], "generic")


def _cores() -> dict[str, int]:
    """The number of this machine's cores, and of hardware threads per core, by field of `CpuModel`;
    empty if unknown.
    """
    cores = {
        _numbers(os.path.join(folder, "thread_siblings_list"))
        for folder in glob.glob("/sys/devices/system/cpu/cpu[0-9]*/topology")
    } - {0}
    siblings = _numbers("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list").bit_count()
    return {"cores": len(cores), "smt": siblings} if cores and siblings else {}


def _caches() -> dict[str, int]:
    """The fields of a `CpuModel` about caches, as the operating system reports them for CPU 0."""
    sizes: dict[str, int] = {}
    smt = _cores().get("smt", 1)
    for folder in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*")):
        try:
            level, kind, size, ways = (
                _read(os.path.join(folder, n))
                for n in ("level", "type", "size", "ways_of_associativity")
            )
        except OSError:
            continue
        number = re.fullmatch(r"(\d+)([KMG]?)", size)
        if not number or level not in ("1", "2", "3") or kind == "Instruction":
            continue
        sizes[f"l{level}_bytes"] = int(number[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[number[2]]
        if level == "3":
            shared = _numbers(os.path.join(folder, "shared_cpu_list")).bit_count()
            sizes["l3_cores"] = max(shared // smt, 1)
        elif ways.isdigit() and int(ways):
            sizes[f"l{level}_ways"] = int(ways)
    return sizes


def _numbers(path: str) -> int:
    """The CPUs in a list like `0-3,8` as a set of bits; 0 if the file doesn't exist."""
    try:
        parts = [p.partition("-") for p in _read(path).split(",")]
        runs = [(int(first), int(last or first)) for first, _, last in parts]
    except (OSError, ValueError):
        return 0
    return sum((1 << (last + 1)) - (1 << first) for first, last in runs)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as f:
        return f.read().strip()
