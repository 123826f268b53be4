"""Builds the native runtime with the C compiler at hand, else with zig's; a PEP 517 backend.

The backend is setuptools' own with three additions.  `ziglang`, the zig compiler as a pip package,
becomes a build requirement exactly where no C compiler works.  What the build lacks is said in one
line before anything is built.  A wheel's platform tag is read off the compiled extension.

The environment: `CC` names the compiler, and `CC=ziglang` asks for zig's; `CFLAGS` and `LDFLAGS`
are passed on.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ZIGLANG = "ziglang"
"""The pip package with zig; also the value of CC that asks for it."""

OLDEST_GLIBC = (2, 17)
"""What zig links against (as manylinux2014 does), and the oldest glibc that a wheel's tag names."""

ZIG_MACHINES = ("x86_64", "aarch64")
"""Machines whose glibc 2.17 zig can link against, by their names in zig and in wheel tags."""

GLIBC_LIBRARIES = re.compile(rb"(lib(c|m|dl|rt|pthread)|ld-linux-[\w-]+)\.so\.\d+")
"""Libraries that every system with glibc has."""

INSTEAD = (
    "A wheel needs neither headers nor a compiler: `python -m build` makes it on a machine that "
    "has them, `pip install tilesmith-*.whl` installs it here."
)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Build requirements besides those of pyproject.toml: `ziglang` where no C compiler works.

    Ends the process with one line if Python's headers are missing or nothing can compile C here.
    """
    return _native_requires() + build_meta.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """As `get_requires_for_build_wheel`."""
    return _native_requires() + build_meta.get_requires_for_build_editable(config_settings)


def require_headers() -> None:
    """Ends the process with one line if there is no Python.h."""
    folders = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    if not any(Path(folder, "Python.h").is_file() for folder in folders):
        raise SystemExit(
            f"tilesmith: Python.h is not in {' or '.join(sorted(folders))}: the headers of Python "
            f"{platform.python_version()} are missing (python3-dev or python3-devel).  " + INSTEAD
        )


def find_compiler() -> list[str] | None:
    """The command of a C compiler that works, None for zig's.

    Order: `CC`; what compiled Python; cc, gcc, clang; zig.  Ends the process with one line if `CC`
    doesn't work, or if nothing else does and zig can't replace it.
    """
    wanted = shlex.split(os.environ.get("CC", ""))
    if wanted and wanted != [ZIGLANG]:
        if complaint := _complaint(wanted):
            raise SystemExit(f"tilesmith: CC={shlex.join(wanted)} can't compile C: {complaint}")
        return wanted
    if not wanted:
        of_python = shlex.split(sysconfig.get_config_var("CC") or "")
        for command in (of_python, ["cc"], ["gcc"], ["clang"]):
            if command and _complaint(command) is None:
                return command
    if platform.machine() in ZIG_MACHINES and platform.libc_ver()[0] == "glibc":
        return None
    raise SystemExit(
        "tilesmith: no C compiler on PATH works, and zig's replaces it only on Linux with glibc on "
        f"{' or '.join(ZIG_MACHINES)}: install cc, or set CC.  " + INSTEAD
    )


def zig_command() -> list[str]:
    """zig as a C compiler for this machine's family and glibc from 2.17.

    Without a target it would compile for this very CPU and this glibc.  By default it makes
    undefined behaviour trap, and looks for no header outside its own and those that -I names: on
    Debian a Python.h includes one from the folder above its own.
    """
    target = f"{platform.machine()}-linux-gnu.{OLDEST_GLIBC[0]}.{OLDEST_GLIBC[1]}"
    command = [sys.executable, "-m", ZIGLANG, "cc", "-target", target, "-fno-sanitize=undefined"]
    return [*command, "-g0", "-idirafter", str(Path(sysconfig.get_path("include")).parent)]


def platform_tag(libraries: list[Path], otherwise: str) -> str:
    """The manylinux tag of `libraries`, `otherwise` if they need more than glibc."""
    needed = [needed_glibc(library.read_bytes()) for library in libraries]
    if not needed or None in needed:
        return otherwise
    major, minor = max(OLDEST_GLIBC, *(version for version in needed if version))
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def needed_glibc(library: bytes) -> tuple[int, int] | None:
    """The oldest glibc that a shared library runs with, None if glibc is not all that it needs.

    What an ELF file needs stands in its table of strings: the names of libraries and of the
    versions of their symbols (GLIBC_2.34).  This reads every string of the file, so that it can
    name too new a glibc but never too old a one.
    """
    strings = re.findall(rb"[\w.+-]+(?=\0)", library)
    if any(b".so" in s and not GLIBC_LIBRARIES.fullmatch(s) for s in strings):
        return None
    versions = [s.removeprefix(b"GLIBC_") for s in strings if s.startswith(b"GLIBC_")]
    if not all(re.fullmatch(rb"\d+\.\d+(\.\d+)?", version) for version in versions):
        return None  # GLIBC_PRIVATE, or a feature of the dynamic linker
    numbers = [tuple(int(part) for part in version.split(b".")[:2]) for version in versions]
    return max(((major, minor) for major, minor in numbers), default=None)


class BuildExtension(build_ext):
    """build_ext with the compiler of `find_compiler`, always from scratch.

    The flags are our own on every machine: those that Python was built with belong to its compiler.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        self.force = True  # what lies in build/ may be another compiler's

    def build_extensions(self) -> None:
        require_headers()
        command = find_compiler()
        if command is None:
            if importlib.util.find_spec(ZIGLANG) is None:
                raise SystemExit(
                    "tilesmith: no C compiler on PATH works, and the package ziglang is not "
                    "installed: install either.  " + INSTEAD
                )
            command = zig_command()
        flags, link_flags = (shlex.split(os.environ.get(n, "")) for n in ("CFLAGS", "LDFLAGS"))
        self.compiler.set_executables(
            compiler_so=[*command, "-fPIC", *flags], linker_so=[*command, "-shared", *link_flags]
        )
        with tempfile.TemporaryDirectory() as cache:  # zig's default needs a home
            os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", cache)
            super().build_extensions()


class BuildWheel(bdist_wheel):
    """bdist_wheel with the platform tag that the extension earns."""

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, machine = super().get_tag()
        if machine.startswith("linux_") and self.bdist_dir:
            machine = platform_tag(sorted(Path(self.bdist_dir).rglob("*.so")), machine)
        return python, abi, machine


def _native_requires() -> list[str]:
    require_headers()
    return [ZIGLANG] if find_compiler() is None else []


def _complaint(command: list[str]) -> str | None:
    """Why `command` can't make a shared library, in one line; None if it can."""
    if shutil.which(command[0]) is None:
        return f"{command[0]} is not on PATH"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, "-shared", "-fPIC", "-x", "c", "-", "-o", os.path.join(folder, "probe.so")],
            input="#include <pthread.h>\n#include <stdlib.h>\n",
            capture_output=True,
            text=True,
        )
    return None if done.returncode == 0 else (done.stderr.strip() or "it failed").splitlines()[0]
