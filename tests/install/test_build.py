"""How the native runtime is built: the choice of the compiler, what is missing, the wheel's tag.

No test needs a compiler: those here are scripts that note how they were called.  `.ci/run` builds
for real, with the machine's compiler and with zig.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tilesmith.runtime import native

ROOT = Path(__file__).resolve().parents[2]
ZIG = """\
import os, sys
with open(os.environ["ZIG_CALLS"], "a") as calls:
    print(*sys.argv[1:], file=calls)
with open(sys.argv[sys.argv.index("-o") + 1], "wb") as out:
    out.write(b"ELF\\0libc.so.6\\0GLIBC_2.2.5\\0GLIBC_2.3\\0")
"""


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The backend as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "build_backend"))
    return importlib.import_module("tilesmith_build")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a build reads, in a folder of its own."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src/tilesmith/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("build_backend", "src/tilesmith/runtime/csrc"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    return tmp_path


def compiler(tree: Path, name: str, status: int = 0, says: str = "") -> None:
    """Puts a C compiler on the tree's PATH that does nothing, or fails."""
    script = tree / "bin" / name
    script.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    script.chmod(0o755)


def hook(tree: Path, call: str, before: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Calls a hook of the backend as pip does; its result is the last line of stdout."""
    program = f"import sys; sys.path.insert(0, 'build_backend'); {before}\n"
    program += f"import tilesmith_build\nprint(repr(tilesmith_build.{call}))"
    kept = {k: v for k, v in os.environ.items() if k not in ("CC", "CFLAGS", "LDFLAGS")}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=tree,
        env={**kept, "PATH": str(tree / "bin"), **env},
        capture_output=True,
        text=True,
    )


def requirements(tree: Path, **env: str) -> str:
    done = hook(tree, "get_requires_for_build_wheel()", **env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_ziglang_is_required_only_where_no_c_compiler_works(tree):
    assert requirements(tree) == "['ziglang']"
    compiler(tree, "clang", status=1, says="fatal error: pthread.h: No such file or directory")
    assert requirements(tree) == "['ziglang']"
    compiler(tree, "cc")
    assert requirements(tree) == "[]"
    assert requirements(tree, CC="ziglang") == "['ziglang']"
    editable = hook(tree, "get_requires_for_build_editable()", CC="ziglang")
    assert editable.stdout.splitlines()[-1] == "['ziglang']"


def test_a_compiler_that_was_asked_for_has_to_work(tree):
    compiler(tree, "cc")
    compiler(tree, "bad", status=1, says="no such machine\nmore")
    for command, why in (("none -m64", "none is not on PATH"), ("bad", "no such machine")):
        done = hook(tree, "get_requires_for_build_wheel()", CC=command)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"tilesmith: CC={command} can't compile C: {why}\n"


def test_missing_headers_are_one_line_that_names_the_wheel(tree):
    compiler(tree, "cc")
    nowhere = "import sysconfig; sysconfig.get_path = lambda name: '/nowhere'"
    for name in ("wheel", "editable"):
        done = hook(tree, f"get_requires_for_build_{name}()", before=nowhere)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1
        assert "Python.h is not in /nowhere" in done.stderr
        assert "pip install tilesmith-*.whl" in done.stderr


def test_zig_replaces_only_what_it_can(build, monkeypatch):
    monkeypatch.setenv("CC", "ziglang")
    assert build.find_compiler() is None
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(SystemExit, match="only on Linux with glibc on x86_64 or aarch64"):
        build.find_compiler()


def test_zig_that_is_not_installed_is_one_line(build, monkeypatch):
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="the package ziglang is not installed"):
        build.BuildExtension(build.build_meta.Distribution()).build_extensions()


def test_without_a_compiler_zig_builds_a_manylinux_wheel(tree):
    (tree / "zig" / "ziglang").mkdir(parents=True)
    (tree / "zig" / "ziglang" / "__init__.py").touch()
    (tree / "zig" / "ziglang" / "__main__.py").write_text(ZIG)
    calls = tree / "calls"
    done = hook(tree, "build_wheel('.')", PYTHONPATH=str(tree / "zig"), ZIG_CALLS=str(calls))
    machine = platform.machine()
    assert f"-cp311-abi3-manylinux_2_17_{machine}.whl" in done.stdout.splitlines()[-1], done.stderr
    *compiled, linked = calls.read_text().splitlines()
    assert len(compiled) == len(list((tree / "src/tilesmith/runtime/csrc").glob("*.c")))
    for call in (*compiled, linked):
        assert call.startswith(f"cc -target {machine}-linux-gnu.2.17 -fno-sanitize=undefined ")
    assert all(" -O2 " in call for call in compiled) and " -shared " in linked


def test_a_build_uses_the_compiler_and_flags_of_the_environment(tree):
    compiler(tree, "mycc")
    (tree / "bin" / "mycc").write_text(
        f"#!{sys.executable}\n" + ZIG.replace("GLIBC_2.3\\0", "GLIBC_2.34\\0")
    )
    calls = tree / "calls"
    flags = {"CC": "mycc -m64", "CFLAGS": "-g -DA='b c'", "LDFLAGS": "-s"}
    done = hook(tree, "build_wheel('.')", ZIG_CALLS=str(calls), **flags)
    assert f"-abi3-manylinux_2_34_{platform.machine()}.whl" in done.stdout, done.stderr
    _probe, *compiled, linked = calls.read_text().splitlines()
    assert all(call.startswith("-m64 -fPIC -g -DA=b c ") for call in compiled)
    assert linked.startswith("-m64 -shared -s ")


def test_an_editable_install_leaves_the_extension_in_the_tree(tree):
    compiler(tree, "cc")
    (tree / "bin" / "cc").write_text(f"#!{sys.executable}\n{ZIG}")
    done = hook(tree, "build_editable('.')", ZIG_CALLS=str(tree / "calls"))
    assert done.returncode == 0, done.stderr
    assert "editable" in done.stdout.splitlines()[-1]
    assert (tree / "src/tilesmith/runtime/_native.abi3.so").read_bytes().startswith(b"ELF")


@pytest.mark.parametrize(
    "strings, needed",
    [
        (["libc.so.6", "GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.4"], (2, 34)),
        (["libpthread.so.0", "ld-linux-x86-64.so.2", "GLIBC_2.3"], (2, 3)),
        (["libc.so.6", "GLIBC_2.17", "GLIBC_PRIVATE"], None),
        (["libc.so.6", "GLIBC_2.17", "GLIBC_ABI_DT_RELR"], None),
        (["libc.so.6", "libgomp.so.1", "GLIBC_2.17"], None),
        (["libc.musl-x86_64.so.1"], None),
        (["libc.so"], None),
        (["malloc"], None),
    ],
)
def test_what_a_library_needs(build, tmp_path, strings, needed):
    library = tmp_path / "_native.abi3.so"
    library.write_bytes(b"\x7fELF\2\0" + b"\0".join(s.encode() for s in strings) + b"\0\1\2")
    assert build.needed_glibc(library.read_bytes()) == needed
    tag = "linux_x86_64"
    if needed:
        major, minor = max(needed, (2, 17))
        tag = f"manylinux_{major}_{minor}_{platform.machine()}"
    assert build.platform_tag([library], "linux_x86_64") == tag


def test_the_installed_extension_needs_no_newer_glibc_than_this(build):
    needed = build.needed_glibc(Path(native._native.__file__).read_bytes())
    here = tuple(int(part) for part in platform.libc_ver()[1].split("."))
    assert needed is not None and (2, 2) <= needed <= here


def test_a_wheel_says_that_it_has_types(tmp_path):
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tilesmith" / "py.typed").exists()
    assert (tmp_path / "tilesmith" / "runtime" / "_native.pyi").exists()
