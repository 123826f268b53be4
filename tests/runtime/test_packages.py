"""What others do with an exported library: CMake, pkg-config, an older glibc, another compiler; and
what is left of an export that failed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.runtime.standalone import export as exporting
from tilesmith.support.errors import UsageError

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to compile C")
needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
needs_pkg_config = pytest.mark.skipif(shutil.which("pkg-config") is None, reason="needs pkg-config")
needs_zig = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="needs the package ziglang"
)
X = np.random.default_rng(0).standard_normal((2, 16)).astype(np.float32)


def product(seed: int = 0) -> ts.Executable:
    w = np.random.default_rng(seed).standard_normal((16, 8)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8])],
        [numpy_helper.from_array(w, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return ts.compile(made.SerializeToString())


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check_answer(program: Path, weights: Path | None, exe: ts.Executable, scratch: Path) -> None:
    """The example program gets the executable's bits."""
    X.tofile(scratch / "x.bin")
    run(program, weights or "-", scratch / "x.bin", scratch / "y.bin")
    found = np.fromfile(scratch / "y.bin", np.float32).reshape(2, 8)
    np.testing.assert_array_equal(found, exe(X))


PROJECT = """
cmake_minimum_required(VERSION 3.15)
project(app C)
find_package({name} CONFIG REQUIRED)
add_executable(app "{folder}/main.c")
target_link_libraries(app PRIVATE {name}::{name})
"""


@needs_cmake
@needs_gcc
@pytest.mark.parametrize("format", ["shared", "static", "object"])
@pytest.mark.parametrize("name", ["cnn", "PLACE_UPPER"])
def test_find_package(tmp_path: Path, format: str, name: str) -> None:
    """Also for a name made of words that templates have."""
    exe, folder = product(), tmp_path / "a folder"
    made = exe.export(folder, name, format)  # type: ignore[arg-type]  # parameters
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(name=name, folder=folder))
    build = tmp_path / "build"
    run("cmake", "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={folder}")
    run("cmake", "--build", build)
    check_answer(build / "app", made.weights, exe, tmp_path)


@needs_pkg_config
@needs_gcc
@pytest.mark.parametrize("format", ["shared", "static", "object"])
def test_pkg_config(tmp_path: Path, format: str) -> None:
    exe, folder = product(), tmp_path / "folder"
    made = exe.export(folder, "cnn", format)  # type: ignore[arg-type]  # parameters
    flags = run(
        "pkg-config", "--cflags", "--libs", "cnn", PKG_CONFIG_PATH=f"{folder}/lib/pkgconfig"
    )
    run(
        "gcc", folder / "main.c", "-o", tmp_path / "app", *flags.split(), f"-Wl,-rpath,{folder}/lib"
    )
    check_answer(tmp_path / "app", made.weights, exe, tmp_path)


@needs_zig
@needs_gcc
def test_a_library_for_an_older_glibc_has_no_newer_symbols(tmp_path: Path) -> None:
    exe = product()
    made = exe.export(tmp_path / "old", "cnn", glibc="2.17")
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", made.library.read_bytes())
    assert versions and max((int(a), int(b)) for a, b in versions) <= (2, 17)
    run("gcc", tmp_path / "old" / "main.c", f"-I{tmp_path}/old/include", made.library, "-lm",
        f"-Wl,-rpath,{made.library.parent}", "-o", tmp_path / "app")  # fmt: skip
    check_answer(tmp_path / "app", made.weights, exe, tmp_path)


@pytest.mark.parametrize("glibc", ["2.17.1", "3.0", "musl", ""])
def test_what_is_no_version_of_glibc_is_said(tmp_path: Path, glibc: str) -> None:
    with pytest.raises(UsageError, match=r"glibc: expected a version such as 2\.17"):
        product().export(tmp_path / "m", "cnn", glibc=glibc)
    assert not (tmp_path / "m").exists()


@needs_gcc
def test_the_compiler_is_that_of_cc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its words are kept apart, and what it says is shown."""
    calls = tmp_path / "calls"
    wrapper = tmp_path / "my cc"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> "{calls}"\nexec gcc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", f"'{wrapper}' -DBY_CC=1")
    exe = product()
    made = exe.export(tmp_path / "m", "cnn")
    assert made.library.exists()
    assert all(line.startswith("-DBY_CC=1 ") for line in calls.read_text().splitlines())
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(UsageError, match="there is no program 'no-such-compiler'"):
        exe.export(tmp_path / "n", "cnn")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["calls", "m", "my cc"]


def failing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\necho 'no memory left' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))


@pytest.mark.parametrize("folder", ["new", "new/deep/er"])
def test_a_failure_leaves_no_folder(tmp_path: Path, monkeypatch, folder: str) -> None:
    exe = product()
    failing_compiler(tmp_path, monkeypatch)
    with pytest.raises(UsageError, match="no memory left"):
        exe.export(tmp_path / folder, "cnn")
    with pytest.raises(UsageError, match="no memory left"):
        ts.export_op("matmul", tmp_path / folder, shapes=[(4, 4), (4, 4)])
    with pytest.raises(UsageError, match="no memory left"):
        ts.export_plugin({"op": exe}, tmp_path / folder, "ops")
    assert [p.name for p in tmp_path.iterdir()] == ["cc"]


@needs_gcc
def test_a_failure_changes_nothing_of_a_folder(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "m"
    product(0).export(folder, "cnn")
    (folder / "mine.txt").write_text("mine")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    monkeypatch.setattr(exporting, "_write_weights", _disk_full)
    with pytest.raises(UsageError, match="No space left on device"):
        product(1).export(folder, "cnn")
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def _disk_full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@needs_gcc
def test_a_file_that_is_mapped_keeps_its_contents(tmp_path: Path) -> None:
    """A running process answers as before when a library is exported again."""
    first, second = product(0), product(1)
    made = first.export(tmp_path / "m", "cnn")
    (tmp_path / "m" / "mine.txt").write_text("mine")
    assert made.weights is not None
    mapped = np.memmap(made.weights, np.uint8, "r")
    before = bytes(mapped)
    again = second.export(tmp_path / "m", "cnn")
    assert again.weights == made.weights and again.weights is not None
    assert bytes(mapped) == before != again.weights.read_bytes()
    assert (tmp_path / "m" / "mine.txt").read_text() == "mine"
    assert not [p.name for p in (tmp_path / "m").iterdir() if p.name.startswith(".")]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")
    with pytest.raises(UsageError, match="expected a folder"):
        product().export(tmp_path / "m", "cnn")
    with pytest.raises(UsageError, match="can't be written"):
        product().export(tmp_path / "m" / "deeper", "cnn")


@pytest.mark.skipif(sys.platform == "win32", reason="of POSIX")
def test_a_new_folder_has_the_permissions_of_others(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    product().export(tmp_path / "m", "cnn", "python")
    modes = [(tmp_path / n).stat().st_mode for n in ("other", "m")]
    assert modes[0] == modes[1]
