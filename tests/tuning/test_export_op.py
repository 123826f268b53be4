"""The operator generator: files compile with all warnings, and tests and answers hold."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.cli import execute as tilesmith
from tilesmith.codegen.c.compiler import find_compiler
from tilesmith.codegen.targets import host
from tilesmith.driver.operators import OPERATORS
from tilesmith.ops.base import OPS
from tilesmith.ops.eager import evaluate
from tilesmith.runtime.standalone.operator import ExportedOperator, operator_tools
from tilesmith.support.errors import ModelError, TilesmithError, UsageError

STRICT = ("-O2", "-Wall", "-Wextra", "-Werror", "-fno-sanitize=undefined")
WINDOW = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
CASES = {
    "conv2d": ([(1, 3, 19, 19), (16, 3, 3, 3), (16,)], {"pads": (1, 1, 1, 1)}),
    "depthwise_conv2d": (
        [(1, 12, 15, 15), (12, 1, 3, 3)],
        {"pads": (1, 1, 1, 1), "strides": (2, 2)},
    ),
    "max_pool2d": ([(1, 5, 17, 17)], WINDOW),
    "avg_pool2d": ([(1, 5, 17, 17)], WINDOW),
    "fully_connected": ([(5, 70), (33, 70), (33,)], {}),
    "matmul": ([(70, 65), (65, 70)], {}),
    "softmax": ([(7, 100)], {}),
    "layer_norm": ([(7, 100), (100,), (100,)], {}),
    "rms_norm": ([(7, 100), (100,)], {}),
    "batch_norm": ([(2, 6, 9, 9), *[(6,)] * 4], {}),
    "instance_norm": ([(2, 6, 9, 9), (6,), (6,)], {}),
    "group_norm": ([(2, 6, 9, 9), (6,), (6,)], {"groups": 3}),
}
"""Shapes of the operands, with tails, and attributes."""

ZIG = [sys.executable, "-m", "ziglang", "cc"]
needs_zig = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="no ziglang")


def made(folder: Path, name: str, target: str = "native", dtype: str = "f32") -> ExportedOperator:
    shapes, attributes = CASES[name]
    return ts.export_op(
        name, folder, shapes=shapes, attributes=attributes, dtype=dtype, target=target
    )


def program(op: ExportedOperator, which: Path, compiler: list[str]) -> Path:
    """The test or the benchmark of an operator as a program."""
    to = which.with_suffix(".out")
    subprocess.run([*compiler, *STRICT, op.source, which, "-o", to, "-lm"], check=True)
    return to


def says_ok(test: Path, *emulator: str) -> bool:
    run = subprocess.run([*emulator, test, "7"], capture_output=True, text=True, check=False)
    return run.returncode == 0 and run.stdout.startswith("ok") and "FAILED" not in run.stdout


def called(op: ExportedOperator, inputs: list[np.ndarray], output: np.ndarray) -> np.ndarray:
    """The answer of the function in NAME.c."""
    name = op.source.stem
    library = op.source.with_suffix(".so")
    flags = operator_tools(host())[1]
    subprocess.run(
        [*find_compiler(), *flags, "-shared", "-fPIC", op.source, "-o", library, "-lm"], check=True
    )
    text = op.header.read_text()
    size = int(text.split("_WORKSPACE_BYTES ", 1)[1].split(" ", 1)[0])
    space = np.zeros(size + 64, np.uint8)
    start = space.ctypes.data + -space.ctypes.data % 64
    function = getattr(ctypes.CDLL(str(library)), name)
    function.argtypes = [ctypes.c_void_p] * (len(inputs) + 2)
    assert function(*(x.ctypes.data for x in inputs), output.ctypes.data, start) == 0
    return output


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str, tmp_path: Path) -> None:
    op = made(tmp_path, name)
    assert all(f.stat().st_size for f in op.files)
    assert says_ok(program(op, op.test, [*find_compiler()]))
    subprocess.run(["make", "-s", "-C", tmp_path, f"{name}_bench"], check=True)
    shapes, attributes = CASES[name]
    rng = np.random.default_rng(2)
    inputs = [rng.random(s).astype(np.float32) + 0.25 for s in shapes]
    known = OPERATORS[name]
    operands = inputs[:-1] if known.has_bias and len(inputs) == len(known.operands) else inputs
    node = known.op(**known.fixed(shapes), **attributes)
    (wanted,) = evaluate(node, *operands)
    if operands is not inputs:
        wanted = wanted + inputs[-1].reshape(-1, *[1] * (wanted.ndim - 2))
    found = called(op, inputs, np.full(wanted.shape, np.nan, np.float32))
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())


@needs_zig
@pytest.mark.parametrize("name", ["conv2d", "softmax"])
def test_zig(name: str, tmp_path: Path) -> None:
    op = made(tmp_path, name)
    for which in (op.test, op.bench):
        program(op, which, ZIG)
    assert says_ok(op.test.with_suffix(".out"))


@needs_zig
@pytest.mark.parametrize("target", ["aarch64", "riscv64-v"])
def test_other_processors(target: str, tmp_path: Path) -> None:
    op = made(tmp_path, "conv2d", target)
    assert op.object.read_bytes()[:4] == b"\x7fELF"
    assert {"aarch64": "fmla", "riscv64-v": "vfmacc"}[target] in op.assembly.read_text()
    architecture = target.partition("-")[0]
    if target == "aarch64" and shutil.which("qemu-aarch64"):
        test = program(op, op.test, [*ZIG, "-target", f"{architecture}-linux-musl", "-static"])
        assert says_ok(test, "qemu-aarch64")


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_element_types(dtype: str, tmp_path: Path) -> None:
    op = made(tmp_path, "layer_norm", dtype=dtype)
    assert says_ok(program(op, op.test, [*find_compiler()]))


def test_integers(tmp_path: Path) -> None:
    op = ts.export_op(
        "matmul", tmp_path, shapes=[(9, 33), (33, 20)], dtype=("u8", "i8"), attributes={"to": "i32"}
    )
    assert says_ok(program(op, op.test, [*find_compiler()]))
    assert "int32_t *output" in op.header.read_text()


def test_kernels_are_vectors(tmp_path: Path) -> None:
    op = made(tmp_path, "matmul", "x86-64-v3")
    assert "ts_f32x8" in op.source.read_text()
    assert "vfmadd" in op.assembly.read_text() and "%ymm" in op.assembly.read_text()


def test_a_wrong_kernel_fails_its_test(tmp_path: Path) -> None:
    op = made(tmp_path, "matmul")
    op.source.write_text(op.source.read_text().replace("] * *(const", "] + *(const"))
    assert not says_ok(program(op, op.test, [*find_compiler()]))


def test_expressions_and_schedules(tmp_path: Path) -> None:
    a, b = te.placeholder((40, 24), "f32", "a"), te.placeholder((24, 37), "f32", "b")
    k = te.reduce_axis(24, "k")
    c = te.compute((40, 37), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")
    automatic = ts.export_op([a, b, c], tmp_path / "automatic", "product")
    assert says_ok(program(automatic, automatic.test, [*find_compiler()]))
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis
    outer, inner = s[c].split(j, 8)
    s[c].reorder(i, outer, s[c].op.reduce_axis[0], inner)
    s[c].vectorize(inner)
    s[c].parallel(i)
    own = ts.export_op(s, tmp_path / "own", "product", args=[a, b, c])
    assert says_ok(program(own, own.test, [*find_compiler()]))
    assert "for (int64_t jo = 0" in own.source.read_text()
    with pytest.raises(UsageError, match="found a schedule"):
        ts.export_op(s, tmp_path, args=[a, b, c], tune=1)


def test_tuning(tmp_path: Path) -> None:
    shapes, attributes = CASES["conv2d"]
    op = ts.export_op("conv2d", tmp_path, shapes=shapes, attributes=attributes, tune=2)
    assert says_ok(program(op, op.test, [*find_compiler()]))


def test_command(tmp_path: Path) -> None:
    words = "op conv2d --shape 1,8,12,12 --shape 8,8,3,3 --set pads=1,1,1,1 --set strides=2,2"
    assert tilesmith([*words.split(), "--target", "x86-64-v3", "-o", str(tmp_path)]) == 0
    assert "conv2d_OUTPUT_COUNT".upper() in (tmp_path / "conv2d.h").read_text()


WRONG: list[tuple[str, dict, type[TilesmithError], str]] = [
    ("nothing", {}, UsageError, "unknown operator 'nothing': expected one of conv2d"),
    ("matmul", {"shapes": [(3, 4)]}, UsageError, "expected 2 shapes, of a, b; found 1"),
    ("matmul", {"shapes": [(3, 4), (5, 6)]}, ModelError, "matmul"),
    ("conv2d", {"shapes": [(3, 4), (5, 6)]}, UsageError, "expected 4 dimensions for input"),
    ("softmax", {"shapes": [(3, -4)]}, UsageError, "expected positive extents for input"),
    ("softmax", {"shapes": [(3, 4)], "dtype": "f33"}, UsageError, "f33"),
    ("softmax", {"shapes": [(3, 4)], "dtype": "int4"}, UsageError, "int4"),
    ("max_pool2d", {"shapes": [(1, 2, 9, 9)]}, UsageError, "expected attribute kernel"),
    (
        "softmax",
        {"shapes": [(3, 4)], "attributes": {"axes": 1}},
        UsageError,
        "no attribute 'axes'; expected axis",
    ),
    ("softmax", {"shapes": [(3, 4)], "target": "wasm32"}, UsageError, "expected a processor"),
    ("softmax", {"shapes": [(3, 4)], "target": "cortex-m4"}, UsageError, "expected a processor"),
    ("softmax", {"shapes": [(3, 4)], "target": "z80"}, UsageError, "unknown target"),
    ("softmax", {"shapes": [(3, 4)], "name": "exp"}, UsageError, "expected a C identifier"),
    ("softmax", {"shapes": [(3, 4)], "name": "a b"}, UsageError, "expected a C identifier"),
    ("softmax", {"shapes": [(3, 4)], "target": "armv7", "tune": 1}, UsageError, "runs here"),
]


@pytest.mark.parametrize(("name", "given", "kind", "text"), WRONG)
def test_errors(
    name: str, given: dict, kind: type[TilesmithError], text: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=text):
        ts.export_op(name, tmp_path / "none", **given)
    assert not (tmp_path / "none").exists()


def test_other_operators_have_names_of_their_own(tmp_path: Path) -> None:
    assert "tanh" in OPS
    op = ts.export_op("tanh", tmp_path, shapes=[(33,)])
    assert op.source.name == "tanh_op.c"
    assert says_ok(program(op, op.test, [*find_compiler()]))
