"""The target of a board, from what its agent without Python says about it."""

from __future__ import annotations

from tilesmith.codegen import targets
from tilesmith.codegen.levels import LEVELS
from tilesmith.ir.target import Target
from tilesmith.support.errors import DeviceError

_LINUX = {
    "sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "crc32": "sse4_2", "sahf": "lahf_lm",
    "bmi": "bmi1", "lzcnt": "abm", "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16", "avxvnni": "avx_vnni", "amx-tile": "amx_tile",
    "amx-int8": "amx_int8", "amx-bf16": "amx_bf16", "amx-fp16": "amx_fp16",
    "dotprod": "asimddp", "fullfp16": "asimdhp", "zvl128b": "v",
}  # fmt: skip
"""LLVM's names of features -> Linux's, where they differ.  Sources: Linux's `cpufeatures.h` of x86
and `cpuinfo.c` of arm64; RISC-V's "V" extension has registers of at least 128 bits.
"""


def board_target(machine: str, flags: str, cores: int) -> Target:
    """The target of a machine: the highest level whose features it has, and the features that the
    level may be followed by.

    machine: Linux's name of the architecture (`uname -m`).
    flags: the processor's features in Linux's names, separated by blanks; for RISC-V the name of
        the instruction set, such as `rv64imafdcv_zicsr`.

    Raises DeviceError for another architecture.
    """
    architecture = machine.removesuffix("l")  # armv7l: little-endian
    levels = {
        name: level
        for name, level in LEVELS.items()
        if level.triple.startswith(f"{architecture}-") and "-linux-" in level.triple
    }
    if not levels:
        raise DeviceError(f"a machine {machine!r} is none that models are compiled for")
    words = set(flags.split())
    if architecture == "riscv64":
        letters, *others = flags.split("_")
        words = {*letters.removeprefix("rv64").replace("g", "imafd"), *others}
    least = next(iter(levels.values())).features  # of all machines of this architecture
    name, level = next(
        (name, level)
        for name, level in reversed(levels.items())
        if all(_LINUX.get(f, f) in words for f in level.features - least)
    )
    is_highest = level is list(levels.values())[-1]  # features after it may need all of its own
    more = sorted(f for f in level.more if is_highest and _LINUX.get(f, f) in words)
    return targets.target("+".join((name, *more))).with_model(cores=cores)
