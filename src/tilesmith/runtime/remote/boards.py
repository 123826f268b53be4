"""The target of a board, from what its agent without Python says about it."""

from __future__ import annotations

from tilesmith.codegen import targets
from tilesmith.ir.target import Target
from tilesmith.support.errors import DeviceError

_X86 = (
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("x86-64-v3", {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
    ("x86-64-v2", {"ssse3", "sse4_1", "sse4_2", "popcnt", "cx16"}),
    ("x86-64", set[str]()),
)
"""Levels and Linux's names of the features that each adds to those below it."""
_ARM = {"asimddp": "dotprod", "asimdhp": "fullfp16", "bf16": "bf16", "i8mm": "i8mm"}
"""Linux's names of features, and LLVM's."""


def board_target(machine: str, flags: str, cores: int) -> Target:
    """The target of a machine.

    machine: Linux's name of the architecture (`uname -m`).
    flags: the processor's features in Linux's names, separated by blanks; for RISC-V the name of
        the instruction set, such as `rv64imafdcv`.

    Raises DeviceError for another architecture.
    """
    known = set(flags.split())
    if machine == "x86_64":
        best = next(
            i for i in range(len(_X86)) if all(features <= known for _, features in _X86[i:])
        )
        named = _X86[best][0]
    elif machine == "aarch64":
        named = "+".join(("aarch64", *(f for linux, f in _ARM.items() if linux in known)))
    elif machine == "riscv64":
        named = "riscv64-v" if "v" in flags.split("_")[0].removeprefix("rv64") else "riscv64"
    elif machine == "armv7l":
        named = "armv7"
    else:
        raise DeviceError(f"a machine {machine!r} is none that models are compiled for")
    return targets.target(named).with_model(cores=cores)
