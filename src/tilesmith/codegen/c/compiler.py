"""The C compiler of this machine: the search for its command, and compilation with it."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tilesmith.ir.target import Target
from tilesmith.support.errors import InternalError, UsageError
from tilesmith.support.folders import scratch_folder
from tilesmith.support.options import compiler_from_environment

FLAGS = (
    "-std=c99", "-fPIC", "-w", "-fno-math-errno", "-fno-stack-protector", "-ffp-contract=off",
    "-fno-sanitize=undefined",  # zig traps on undefined behaviour by default
)  # fmt: skip
"""Flags that gcc, clang and zig understand."""

ZIG = (sys.executable, "-m", "ziglang")
"""The command of the wheel `ziglang`."""

INCLUDE = Path(__file__).parents[2] / "runtime" / "csrc"
"""The folder of `tilesmith.h`, the interface between compiled code and its callers."""


def find_compiler() -> tuple[str, ...]:
    """The command of a C compiler: `CC`, else the system's compiler, else the one in the wheel
    `ziglang`.

    Raises UsageError if no compiler is found.
    """
    chosen = compiler_from_environment()
    if chosen:
        path = shutil.which(chosen[0])
        if path is None:
            raise UsageError(
                f"CC={shlex.join(chosen)!r}: there is no program {chosen[0]!r}; set CC to a C "
                "compiler, or to nothing for the one on PATH"
            )
        return (path, *chosen[1:])
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path is not None:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        return (*ZIG, "cc")
    raise UsageError(
        "a C compiler is needed: expected cc, gcc or clang on PATH, or the package ziglang "
        "(pip install ziglang); found none"
    )


def run_compiler(text: str, flags: tuple[str, ...], suffix: str) -> bytes:
    """Compile a translation unit; return the bytes of the output file.

    Raises UsageError if there is no compiler, InternalError if the compiler refuses the text.
    """
    command = find_compiler()
    with scratch_folder() as folder:
        source, result = folder / "unit.c", folder / f"unit{suffix}"
        source.write_text(text, encoding="utf-8")
        run = subprocess.run(
            [*command, *FLAGS, f"-I{INCLUDE}", *flags, str(source), "-o", str(result), "-lm"],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise InternalError(f"the C compiler refuses the generated text:\n{run.stderr}")
        return result.read_bytes()


def compile_object(text: str, target: Target | None = None, opt: int = 2) -> bytes:
    """Relocatable object code for this machine, compiled from a translation unit.

    opt: 0: no optimisation, else -O3, the level at which every compiler vectorises loops.
    """
    return run_compiler(text, ("-c", "-O0" if opt == 0 else "-O3"), ".o")


def assembly(text: str, target: Target) -> str:
    """Assembly text of the code that `compile_object` makes."""
    return run_compiler(text, ("-S", "-O3"), ".s").decode()


def shared_library(text: str) -> bytes:
    """A shared library for this machine, compiled from a translation unit."""
    return run_compiler(text, ("-shared", "-Og"), ".so")
