"""Wheels for all systems, from one machine: `python scripts/wheels.py dist [PLATFORM ...]`.

The only compiled part of the package is the native runtime, an extension for Python's stable ABI.
zig's compiler (the package ziglang) links it for every platform, with the headers of the Python
that runs this script.  The rest of a wheel is that of this machine's.  What a linked extension
needs and offers is looked at before its wheel is written.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import hashlib
import importlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "tilesmith" / "runtime" / "csrc"
MODULE = "tilesmith/runtime/_native"
ABI = "cp311-abi3"
FLAGS = ("-std=c11", "-O2", "-g0", "-fno-sanitize=undefined", "-Wall", "-Wextra")


@dataclass(frozen=True, slots=True)
class Platform:
    """A system and processor that wheels are made for.

    zig: zig's name of it, with the oldest version of its C library or system.
    tag: the platform tag of its wheels.
    begins: how its shared libraries begin.
    suffix: of the extension.
    flags: of the linker.
    """

    zig: str
    tag: str
    begins: bytes
    suffix: str = ".abi3.so"
    flags: tuple[str, ...] = ("-fPIC", "-pthread")


ELF, MACH_O, PE = b"\x7fELF\x02\x01\x01", b"\xcf\xfa\xed\xfe", b"MZ"
PLATFORMS = {
    "manylinux-x86_64": Platform("x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64", ELF),
    "manylinux-aarch64": Platform("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64", ELF),
    "musllinux-x86_64": Platform("x86_64-linux-musl", "musllinux_1_2_x86_64", ELF),
    "musllinux-aarch64": Platform("aarch64-linux-musl", "musllinux_1_2_aarch64", ELF),
    "macos-arm64": Platform(
        "aarch64-macos.11.0", "macosx_11_0_arm64", MACH_O,
        flags=("-undefined", "dynamic_lookup"),
    ),
    "windows-x86_64": Platform(
        "x86_64-windows-gnu", "win_amd64", PE, ".pyd", ("-lpthread",)
    ),
}  # fmt: skip

WINDOWS_CONFIG = """\
/* What Python's headers have to know of Windows on x86-64, for extensions of the stable ABI. */
#define MS_WINDOWS 1
#define HAVE_DECLSPEC_DLL 1
#define Py_ENABLE_SHARED 1 /* its functions are in a DLL */
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_VOID_P 8
#define SIZEOF_WCHAR_T 2
#define HAVE_PY_SSIZE_T 1
typedef long long Py_ssize_t;
#define PY_SSIZE_T_MAX 9223372036854775807LL
"""


def built(platform: Platform, folder: Path) -> bytes:
    """The native runtime for a platform.  Ends the process if it does not compile or link."""
    include = Path(sysconfig.get_path("include"))
    objects = []
    if platform.suffix == ".pyd":  # the headers find their pyconfig.h beside themselves
        copied = folder / "include"
        shutil.copytree(include, copied, dirs_exist_ok=True)
        (copied / "pyconfig.h").write_text(WINDOWS_CONFIG)
        include = copied
    for source in sorted(SOURCES.glob("*.c")):
        objects.append(folder / f"{source.stem}.o")
        flags = (*FLAGS, *(f for f in platform.flags if f == "-fPIC"))
        around = ("-I", str(SOURCES), "-I", str(include), "-idirafter", str(include.parent))
        _zig(platform, *flags, *around, "-c", str(source), "-o", str(objects[-1]))
    if platform.suffix == ".pyd":
        objects.append(_python_library(objects, folder))
    library = folder / f"_native{platform.suffix}"
    link = ("-shared", "-s", *platform.flags, "-o", str(library))
    _zig(platform, *map(str, objects), *link)
    return library.read_bytes()


def _zig(platform: Platform, *arguments: str) -> None:
    _run("cc", "-target", platform.zig, *arguments)


def _run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode or "warning:" in done.stderr:
        raise SystemExit(f"zig {' '.join(arguments)}\n{done.stderr[-4000:]}")


def _python_library(objects: list[Path], folder: Path) -> Path:
    """The import library of python3.dll, which has the stable ABI, for what the objects need."""
    names = sorted(
        {name.decode() for o in objects for name in re.findall(rb"__imp_(_?Py\w+)", o.read_bytes())}
    )
    text = "LIBRARY python3.dll\nEXPORTS\n" + "".join(f"  {n}\n" for n in names)
    definitions, library = folder / "python3.def", folder / "python3.lib"
    definitions.write_text(text)
    _run("dlltool", "-m", "i386:x86-64", "-d", str(definitions), "-l", str(library))
    return library


def check(platform: Platform, library: bytes) -> None:
    """Ends the process unless a linked extension is of its platform, offers its one function, and
    needs of Python only names that this Python has.
    """
    if not library.startswith(platform.begins):
        raise SystemExit(f"{platform.tag}: expected a library that begins {platform.begins!r}")
    if platform.begins == ELF:
        machine = {"x86_64": 62, "aarch64": 183}[platform.zig.split("-")[0]]
        if int.from_bytes(library[18:20], "little") != machine:
            raise SystemExit(f"{platform.tag}: the library is for another processor")
    found = re.findall(rb"(?<![A-Za-z0-9_])_*Py[A-Z]\w+(?=\0)", library)
    names = {name.decode().removesuffix("__thunk") for name in found}  # of the linker's own calls
    if platform.begins == MACH_O:  # it puts one more before names in some of its tables
        names = {n if hasattr(ctypes.pythonapi, n) else n.removeprefix("_") for n in names}
    if "PyInit__native" not in names:
        raise SystemExit(f"{platform.tag}: the extension has no PyInit__native")
    unknown = [n for n in names - {"PyInit__native"} if not hasattr(ctypes.pythonapi, n)]
    if unknown:
        raise SystemExit(f"{platform.tag}: Python has no {', '.join(sorted(unknown))}")
    if platform.suffix == ".pyd" and b"python3.dll\0" not in library:
        raise SystemExit(f"{platform.tag}: the extension does not load python3.dll")
    sys.path.insert(0, str(ROOT / "build_backend"))
    backend = importlib.import_module("tilesmith_build")
    if platform.tag.startswith("manylinux"):
        needed = backend.needed_glibc(library)
        if needed is None or needed > backend.OLDEST_GLIBC:
            raise SystemExit(f"{platform.tag}: the extension needs glibc {needed}")


def repacked(base: Path, platform: Platform, library: bytes, folder: Path) -> Path:
    """`base`, a wheel for another platform, with this extension and platform tag."""
    name, version = base.name.split("-")[:2]
    wheel = folder / f"{name}-{version}-{ABI}-{platform.tag}.whl"
    record, listed = [], f"{name}-{version}.dist-info/RECORD"
    with zipfile.ZipFile(base) as old, zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new:

        def add(entry: str, data: bytes) -> None:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{entry},sha256={digest},{len(data)}\n")
            new.writestr(zipfile.ZipInfo(entry, (1980, 1, 1, 0, 0, 0)), data)

        for entry in old.namelist():
            data = old.read(entry)
            if entry == listed or re.fullmatch(rf"{MODULE}\.[^/]*(so|pyd)", entry):
                continue
            if entry.endswith(".dist-info/WHEEL"):
                data = re.sub(rb"Tag: .*", f"Tag: {ABI}-{platform.tag}".encode(), data)
            add(entry, data)
        add(f"{MODULE}{platform.suffix}", library)
        new.writestr(
            zipfile.ZipInfo(listed, (1980, 1, 1, 0, 0, 0)), "".join([*record, f"{listed},,\n"])
        )
    return wheel


def base_wheel(folder: Path) -> Path:
    """This machine's wheel."""
    code = (
        "import sys; sys.path.insert(0, 'build_backend'); import tilesmith_build as b; "
        f"b.build_wheel({str(folder)!r})"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the wheels go")
    parser.add_argument("platform", nargs="*", help=f"default: all of {', '.join(PLATFORMS)}")
    given = parser.parse_args()
    unknown = [p for p in given.platform if p not in PLATFORMS]
    if unknown:
        parser.error(f"expected one of {', '.join(PLATFORMS)}, found {', '.join(unknown)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        base = base_wheel(Path(scratch))
        for name in given.platform or PLATFORMS:
            platform = PLATFORMS[name]
            with tempfile.TemporaryDirectory() as made:
                library = built(platform, Path(made))
            check(platform, library)
            print(repacked(base, platform, library, given.folder), flush=True)


if __name__ == "__main__":
    main()
