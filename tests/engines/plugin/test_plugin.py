"""Plugins: operators in engines like Tengine and ncnn, and misuse of their interface."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilesmith as ts
from tilesmith import te

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples" / "plugins"
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
FLOAT = TensorProto.FLOAT


def run(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.returncode} {command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*v) for v in inputs],
        [helper.make_tensor_value_info(*v) for v in outputs],
    )
    opsets = [helper.make_opsetid("", 17)]
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return made.SerializeToString()


ROWS = model(
    [helper.make_node("Gather", ["table", "i"], ["y"])],
    [("table", FLOAT, [5, "w"]), ("i", TensorProto.INT32, ["k"])],
    [("y", FLOAT, None)],
)
MISH = model(
    [
        helper.make_node("Softplus", ["x"], ["s"]),
        helper.make_node("Tanh", ["s"], ["t"]),
        helper.make_node("Mul", ["x", "t"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["m"], axes=[2, 3], keepdims=0),
    ],
    [("x", FLOAT, [1, "c", "h", "w"])],
    [("y", FLOAT, None), ("m", FLOAT, None)],
)
SHIFT = te.placeholder((3, 5, 7), name="x")
SHIFTED = te.compute((3, 5, 7), lambda c, i, j: SHIFT[c, i, j] * 2.0 + c.astype("f32"), "shifted")


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugin")
    ops = {"Rows": ROWS, "Mish": ts.compile(MISH), "Shift": ("auto", [SHIFT, SHIFTED])}
    made = ts.export_plugin(ops, folder, "ops", threads=2)
    assert made.library.parent == folder / "lib" and made.weights is None
    return folder


def build(plugin: Path, compiler: str, standard: str, to: Path, *more: str | Path) -> Path:
    """A program of files of this folder and of the examples."""
    run(
        compiler, f"-std={standard}", *STRICT, *SANITIZED, f"-I{plugin}/include", *more,
        plugin / "lib" / "libops.so", f"-Wl,-rpath,{plugin}/lib", "-o", to,
    )  # fmt: skip
    return to


def test_an_operator_is_a_custom_kernel_of_tengine(plugin: Path, tmp_path: Path) -> None:
    tengine = EXAMPLES / "tengine"
    program = build(
        plugin, "gcc", "c99", tmp_path / "engine", f"-I{tengine}", f"-I{tengine}/headers",
        tengine / "tilesmith_tengine.c", HERE / "tengine_engine.c",
    )  # fmt: skip
    table = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
    i = np.array([4, 0, -1, 2], np.int32)
    table.tofile(tmp_path / "table")
    i.tofile(tmp_path / "i")
    run(program, tmp_path / "table", tmp_path / "i", "9", "4", tmp_path / "y")
    found = np.fromfile(tmp_path / "y", np.float32).reshape(4, 9)
    np.testing.assert_array_equal(found, ts.compile(ROWS)(table, i))


@pytest.mark.parametrize("name", ["Mish", "Shift"])
def test_an_operator_is_a_layer_of_ncnn(plugin: Path, tmp_path: Path, name: str) -> None:
    ncnn = EXAMPLES / "ncnn"
    program = build(
        plugin, "g++", "c++17", tmp_path / "engine", f"-I{ncnn}", f"-I{ncnn}/headers",
        ncnn / "tilesmith_ncnn.cpp", HERE / "ncnn_engine.cpp",
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((3, 5, 7)).astype(np.float32)
    x.tofile(tmp_path / "x")
    results = [tmp_path / n for n in (("y", "m") if name == "Mish" else ("y",))]
    shapes = run(program, name, tmp_path / "x", "3", "5", "7", *results).split("\n")
    if name == "Shift":
        wanted = [x * 2 + np.arange(3, dtype=np.float32)[:, None, None]]
        assert shapes == ["3 3 5 7", ""]
    else:
        wanted = ts.compile(MISH)(x[None])
        assert shapes == ["3 3 5 7", "2 1 1 3", ""]
    for path, value in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(np.fromfile(path, np.float32), value.reshape(-1))


def test_misuse_of_a_plugin_is_a_code_and_a_text(plugin: Path, tmp_path: Path) -> None:
    found = run(build(plugin, "gcc", "c99", tmp_path / "misuse", HERE / "misuse.c")).split("\n")
    assert found[0].endswith("expected indices from -5 to 4, found 9 at position 1")
    assert found[1:] == [
        "input table: expected extent 5 of axis 0, found 6",
        "input table: expected rank 2, found 1",
        "",
    ]


def test_one_model_is_a_plugin_by_its_format(tmp_path: Path) -> None:
    made = ts.export(ROWS, tmp_path, "rows", format="plugin")
    assert made.header.read_text().count("rows_register") == 1
    exported = run("nm", "-D", "--defined-only", made.library).split()
    assert exported[-1] == "rows_register" and len(exported) == 3
    assert ts.compile(ROWS).export(tmp_path / "a", "rows", "plugin").library.exists()


def test_what_can_not_be_an_operator_is_said(tmp_path: Path) -> None:
    with pytest.raises(ts.UsageError, match=r"expected operators by name, such as .*, found {}"):
        ts.export_plugin({}, tmp_path)
    with pytest.raises(ts.UsageError, match=r"name of an operator, .* found 'a b'"):
        ts.export_plugin({"a b": ROWS}, tmp_path)
    with pytest.raises(ts.UsageError, match=r"name of a library: .* found '1st'"):
        ts.export_plugin({"Rows": ROWS}, tmp_path, "1st")
    axes = [1, 2, 1, 2, 1, 2, 1, 2, 1]
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    wide = model(nodes, [("x", FLOAT, axes)], [("y", FLOAT, axes)])
    with pytest.raises(ts.UsageError, match=r"operator Wide: x has 9 axes; expected at most 8"):
        ts.export_plugin({"Wide": wide}, tmp_path)
    relu = model(nodes, [("x", FLOAT, [4])], [("y", FLOAT, [4])])
    kept = ts.compile(relu, in_place={"y": "x"})
    with pytest.raises(ts.UsageError, match=r"operator Relu: its outputs can't live in inputs"):
        ts.export_plugin({"Relu": kept}, tmp_path)
