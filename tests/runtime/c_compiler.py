"""The C compiler that tests of the C runtime need."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilesmith.runtime

CSRC = Path(tilesmith.runtime.__file__).with_name("csrc")
"""The sources of the C runtime."""

FLAGS = ("-std=c11", "-O2", "-pthread", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{CSRC}")


def compile_c(program: Path, *files: Path) -> None:
    """Make a program of C sources and object files."""
    subprocess.run([*_compiler(), *FLAGS, *map(str, files), "-lm", "-o", program], check=True)


def _compiler() -> list[str]:
    """The machine's C compiler, or ziglang's."""
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=undefined"]
    pytest.skip("there is no C compiler")
