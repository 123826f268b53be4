"""Libraries for other processors: their objects, and their answers under qemu if it is there."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.driver.entry import program_of
from tilesmith.driver.request import Request
from tilesmith.runtime.standalone.elf import private
from tilesmith.support.options import Options

EMULATORS = {
    "aarch64": ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
    "armv7": ("qemu-arm", "-L", "/usr/arm-linux-gnueabihf"),
    "riscv64": ("qemu-riscv64", "-L", "/usr/riscv64-linux-gnu"),
    "riscv64-v": (
        "qemu-riscv64", "-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0", "-L",
        "/usr/riscv64-linux-gnu",
    ),
}  # fmt: skip


def model() -> bytes:
    """conv, relu, average pool, matmul, softmax: x f32[1,8,12,12] to y f32[1,10]."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((16, 8, 3, 3)).astype(np.float32) / 8
    v = rng.standard_normal((16, 10)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "v"], ["e"]),
        helper.make_node("Softmax", ["e"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(v, "v")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.mark.parametrize(
    ("target", "machine", "flags"),
    [
        ("aarch64", 183, 0),
        ("armv7", 40, 0x05000000),  # version 5 of the ABI
        ("riscv64", 243, 0x5),  # compressed instructions; f64 in registers
        ("riscv64-v", 243, 0x5),
    ],
)
def test_objects_are_for_their_processor(target: str, machine: int, flags: int) -> None:
    program = program_of(Request(model(), Options.from_environment(target=target)))
    for code in program.objects.values():
        code = private(code, lambda s: f"renamed_{s}")
        wide = code[4] == 2
        at = 48 if wide else 36
        assert int.from_bytes(code[18:20], "little") == machine
        assert int.from_bytes(code[at : at + 4], "little") == flags
        assert wide == (target != "armv7")
        assert b"renamed_" in code


@pytest.mark.parametrize("target", EMULATORS)
def test_emulated_processors_give_the_native_answers(target: str, tmp_path: Path) -> None:
    emulator = EMULATORS[target]
    if shutil.which(emulator[0]) is None or not Path(emulator[-1]).is_dir():
        pytest.skip(f"needs {emulator[0]} and a C library in {emulator[-1]}")
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs the package ziglang")
    made = ts.export(model(), tmp_path, "net", targets=(target,))
    arch = target.removesuffix("-v").replace("armv7", "arm")
    system = f"{arch}-linux-gnu{'eabihf' if arch == 'arm' else ''}"
    program = tmp_path / "main"
    command = (
        sys.executable, "-m", "ziglang", "cc", "-target", system, f"-I{tmp_path}/include",
        tmp_path / "main.c", made.library, f"-Wl,-rpath,{made.library.parent}", "-o", program,
    )  # fmt: skip
    subprocess.run(list(map(str, command)), check=True)
    x = np.random.default_rng(1).standard_normal((1, 8, 12, 12)).astype(np.float32)
    x.tofile(tmp_path / "x")
    files = [str(tmp_path / n) for n in ("net.weights", "x", "y")]
    subprocess.run([*emulator, str(program), *files], check=True)
    y = ts.compile(model())(x)
    np.testing.assert_allclose(np.fromfile(tmp_path / "y", np.float32), y.reshape(-1), atol=1e-6)


@pytest.mark.parametrize(
    ("target", "cpu"),
    [
        ("aarch64+dotprod", "cortex-a53"),
        ("aarch64+i8mm", "cortex-a76"),
        ("riscv64-v", "rv64,v=false"),
    ],
)
def test_a_processor_without_the_features_is_refused(target: str, cpu: str, tmp_path: Path) -> None:
    arch = target.partition("+")[0].removesuffix("-v")
    emulator, root = f"qemu-{arch}", f"/usr/{arch}-linux-gnu"
    if shutil.which(emulator) is None or not Path(root).is_dir():
        pytest.skip(f"needs {emulator} and a C library in {root}")
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs the package ziglang")
    made = ts.export(model(), tmp_path, "net", targets=(target,))
    program = tmp_path / "main"
    command = (
        sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-gnu",
        f"-I{tmp_path}/include", tmp_path / "main.c", made.library,
        f"-Wl,-rpath,{made.library.parent}", "-o", program,
    )  # fmt: skip
    subprocess.run(list(map(str, command)), check=True)
    np.ones((1, 8, 12, 12), np.float32).tofile(tmp_path / "x")
    files = [str(tmp_path / n) for n in ("net.weights", "x", "y")]
    run = [emulator, "-cpu", cpu, "-L", root, str(program), *files]
    done = subprocess.run(run, capture_output=True, text=True)
    assert 0 < done.returncode < 128  # an error of the library, not a signal
    assert "processor" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs ziglang")
@pytest.mark.parametrize(
    ("system", "asks"),
    [
        ("aarch64-windows-gnu", b"IsProcessorFeaturePresent"),
        ("aarch64-macos", b"sysctlbyname"),
        ("aarch64-linux-gnu", b"getauxval"),
        ("riscv64-linux-gnu", b"getauxval"),
        ("x86_64-windows-gnu", None),
    ],
)
def test_each_system_is_asked_for_the_features(
    system: str, asks: bytes | None, tmp_path: Path
) -> None:
    """The question is compiled, not run: for most of these systems there is no emulator."""
    (tmp_path / "ask.c").write_text(
        '#include "processor.h"\n'
        "int asked(const struct tilesmith_program *program) {\n"
        "    struct processor processor;\n"
        "    ask(&processor);\n"
        "    return runs_here(&processor, program);\n"
        "}\n"
    )
    sources = Path(ts.__file__).parent / "runtime" / "csrc"
    command = (
        sys.executable, "-m", "ziglang", "cc", "-target", system, f"-I{sources}",
        f"-I{sources}/library", "-O1", "-Wall", "-Wextra", "-Werror",
        "-c", tmp_path / "ask.c", "-o", tmp_path / "ask.o",
    )  # fmt: skip
    subprocess.run(list(map(str, command)), check=True)
    if asks is not None:
        assert asks in (tmp_path / "ask.o").read_bytes()


def test_targets_of_other_processors_are_known_by_name() -> None:
    with pytest.raises(ts.UsageError, match=r"unknown feature 'avx2' after \+; known are bf16"):
        ts.compile(model(), target="aarch64+avx2")
    with pytest.raises(ts.UsageError, match=r"unknown feature 'v' .* known are none"):
        ts.compile(model(), target="riscv64+v")
    with pytest.raises(ts.UsageError, match="not this machine, which lacks aarch64"):
        ts.compile(model(), target="aarch64+dotprod")


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs ziglang")
@pytest.mark.parametrize(
    ("target", "head", "file", "prefix", "needs"),
    [
        ("aarch64-macos", "cffaedfe0c000001", "libnet.dylib", b"_", {"dyld", "libsystem.b.dylib"}),
        (
            "x86-64-v2-windows",
            "4d5a",
            "net.dll",
            b"",
            {"net.dll", "kernel32.dll", "kernelbase.dll"},
        ),
    ],
)
def test_libraries_of_other_systems_are_linked(
    tmp_path: Path, target: str, head: str, file: str, prefix: bytes, needs: set[str]
) -> None:
    """They are examined, not run: their functions, and the system's libraries that they need."""
    made = ts.export(model(), tmp_path, "net", targets=(target,), threads=2)
    library = made.library.read_bytes()
    assert made.library == tmp_path / "lib" / file and library.startswith(bytes.fromhex(head))
    verbs = ("create", "destroy", "arena_bytes", "sizes", "run", "error", "description", "abi")
    for verb in verbs:
        assert b"\0" + prefix + b"net_" + verb.encode() + b"\0" in library
    found = re.findall(rb"(?<=/usr/lib/)[\w.]+|[\w.-]+\.dll", library)
    names = {n.decode().lower() for n in found}
    assert {n for n in names if not n.startswith("api-ms-win-crt-")} <= needs
    assert (tmp_path / "lib" / "net.lib").is_file() == ("windows" in target)


def test_systems_have_processors_and_run_their_own_code() -> None:
    with pytest.raises(ts.UsageError, match="macos runs on aarch64 and x86_64, not on riscv64"):
        ts.compile(model(), target="riscv64-macos")
    with pytest.raises(ts.UsageError, match="not this machine, which lacks windows"):
        ts.compile(model(), target="x86-64-windows")
