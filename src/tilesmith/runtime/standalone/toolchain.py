"""The C compiler, linker and archiver for a target: this machine's tools, or those of `ziglang`."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilesmith.codegen.c.compiler import ZIG, find_compiler
from tilesmith.codegen.targets import host
from tilesmith.ir.target import Target
from tilesmith.support.errors import UsageError

SOURCES = Path(__file__).parents[1] / "csrc"
"""The folder of the runtime's C files."""

FLAGS = (
    "-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread",
    "-fno-sanitize=undefined",  # zig traps on undefined behaviour by default
)  # fmt: skip
"""Compiler flags for gcc, clang and zig."""

_ZIG_NAMES = {"armv7": ("arm", "eabihf")}
"""Architecture -> zig's name for it and its calling convention, where these are not LLVM's."""


@dataclass(frozen=True, slots=True)
class System:
    """The form that libraries have on an operating system.

    zig: zig's name for the system, which follows the architecture in a zig target.
    shared, static: the file name of a library.
    flags: flags to link a shared library; FILE stands for the library's name, IMPORTS for the path
        of its import library.
    libraries: libraries that a program needs besides the model's, by their names in CMake.
    is_elf: whether objects are ELF files; in other objects functions keep their names.
    """

    zig: str
    shared: str
    static: str
    flags: tuple[str, ...]
    libraries: str = "Threads::Threads"
    is_elf: bool = False


SYSTEMS = {
    "linux": System(
        "linux-gnu", "lib{}.so", "lib{}.a",
        # the library stays loaded, since the threads of its pool run its code
        ("-Wl,-z,nodelete", "-Wl,-soname,FILE", "-Wl,-z,noexecstack", "-lm", "-pthread"),
        "Threads::Threads;m", True,
    ),
    "windows": System(
        "windows-gnu", "{}.dll", "{}_static.lib", ("-s", "-lpthread", "-Wl,--out-implib,IMPORTS")
    ),
    "macos": System("macos", "lib{}.dylib", "lib{}.a", ("-s", "-Wl,-install_name,@rpath/FILE")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Commands that make files for one target.

    compiler: compiles and links C.
    archiver: makes static libraries.
    flags: flags of every call of the compiler.
    system: operating system on which the files run.
    """

    compiler: tuple[str, ...]
    archiver: tuple[str, ...]
    flags: tuple[str, ...] = FLAGS
    system: System = SYSTEMS["linux"]

    def compile(self, source: Path, to: Path, *flags: str) -> None:
        """Compile a C or assembly file to an object.  All methods raise UsageError on failure."""
        includes = (f"-I{SOURCES}", f"-I{SOURCES / 'library'}")
        self._run(
            (*self.compiler, *self.flags, *includes, *flags, "-c", str(source), "-o", str(to))
        )

    def assembly(self, source: Path, to: Path) -> None:
        """Compile a C file to assembly."""
        self._run((*self.compiler, *self.flags, "-S", str(source), "-o", str(to)))

    def shared(self, objects: Sequence[Path], to: Path) -> None:
        """Link a shared library."""
        words = {"FILE": to.name, "IMPORTS": str(to.with_suffix(".lib"))}
        flags = [re.sub("FILE|IMPORTS", lambda m: words[m[0]], f) for f in self.system.flags]
        self.link(objects, to, "-shared", *flags)

    def static(self, objects: Sequence[Path], to: Path) -> None:
        """Make a static library."""
        to.unlink(missing_ok=True)
        self._run((*self.archiver, "rcs", str(to), *map(str, objects)))

    def merged(self, objects: Sequence[Path], to: Path) -> None:
        """Merge objects into one."""
        self.link(objects, to, "-r", "-nostdlib")

    def link(self, objects: Sequence[Path], to: Path, *flags: str) -> None:
        """Link objects to a file."""
        self._run((*self.compiler, "-o", str(to), *map(str, objects), *flags))

    def _run(self, command: Sequence[str]) -> None:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise UsageError(
                f"{' '.join(command[:4])} ... failed with status {run.returncode}:\n"
                f"{run.stderr.strip()[-2000:]}"
            )


def toolchain(target: Target, glibc: str | None = None) -> Toolchain:
    """The tools for a target: this machine's if it has the target's system and architecture, else
    those of `ziglang`.

    glibc: the oldest version of glibc that libraries must support, such as "2.17" (default: the
        compiler's).  Versions other than this machine's need `ziglang`.

    Raises UsageError if there are no tools for the target.
    """
    archiver, system = shutil.which("ar"), SYSTEMS[target.system]
    if glibc is not None:
        _check_glibc(glibc, target)
    elif target.architecture == host().architecture and target.system == "linux":
        compiler = find_compiler()
        if compiler[0] != sys.executable and archiver is not None:
            return Toolchain(compiler, (archiver,))
    if importlib.util.find_spec("ziglang") is None and glibc is not None:
        raise UsageError(
            f"a library for glibc {glibc} needs the package ziglang (pip install ziglang), which "
            "has the older versions of glibc"
        )
    if importlib.util.find_spec("ziglang") is None:
        raise UsageError(
            f"a library for {target.triple} needs a compiler and an archiver for it: expected the "
            "package ziglang (pip install ziglang), or cc and ar on PATH for this machine's own "
            "kind of processor; found neither"
        )
    zig = zig_name(target.architecture, system.zig) + (f".{glibc}" if glibc else "")
    return Toolchain((*ZIG, "cc", "-target", zig), (*ZIG, "ar"), system=system)


def zig_name(architecture: str, system: str) -> str:
    """Zig's name for a processor and a system, such as `linux-gnu` or `linux-musl`."""
    named, convention = _ZIG_NAMES.get(architecture, (architecture, ""))
    return f"{named}-{system}{convention}"


def _check_glibc(version: str, target: Target) -> None:
    if not re.fullmatch(r"2\.[1-9]\d?", version) or target.system != "linux":
        raise UsageError(
            f"glibc: expected a version such as 2.17, and a target on Linux; found {version!r} and "
            f"{target.triple}"
        )
