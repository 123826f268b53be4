"""Shapes and values that a model leaves open: from options, from symbols, from input files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilesmith as ts

Run = Callable[..., Any]


@pytest.fixture
def reshaped(tmp_path: Path) -> Path:
    """`y = relu(reshape(x, shape))` of `x` f32[N,6] with `shape` an input i64[2]."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = tmp_path / "reshaped.onnx"
    onnx.save(made, path)
    return path


X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def test_values_in_python(reshaped: Path, tmp_path: Path) -> None:
    options = ts.Options(cache_dir=tmp_path / "cache")
    for shape in ([8, 3], np.array([3, 8]), (8, 3)):
        exe = ts.compile(reshaped, shapes={"N": 4}, values={"shape": shape}, options=options)
        assert [s.name for s in exe.inputs] == ["x"]
        np.testing.assert_array_equal(exe(X), np.maximum(X, 0).reshape(shape))
    with pytest.raises(ts.ModelError, match=r"values\['shape'\]: expected i64, found \[1.5, 2\]"):
        ts.compile(reshaped, shapes={"N": 4}, values={"shape": [1.5, 2]})
    with pytest.raises(ts.ModelError, match=r"values: no input is named 'shap'.*'shape'"):
        ts.compile(reshaped, shapes={"N": 4}, values={"shap": [1, 2]})


def test_values_and_symbols_on_the_command_line(
    tilesmith: Run, reshaped: Path, tmp_path: Path
) -> None:
    done = tilesmith("run", reshaped, "--shape", "N=4", "--value", "shape=[8, 3]", "--json")
    assert done.json["outputs"][0]["type"] == "f32[8,3]"
    np.save(tmp_path / "shape.npy", np.array([2, 12]))
    value = f"shape=@{tmp_path / 'shape.npy'}"
    for verb in ("run", "check", "explain"):
        assert tilesmith(verb, reshaped, "--shape", "N=4", "--value", value).code == 0
    printed = tilesmith("opt", reshaped, "--shape", "N=4", "--value", value, "--print").out
    assert "f32[2,12]" in printed
    for bad in ("shape=wide", "shape=@absent.npy", "shape"):
        assert tilesmith("run", reshaped, "--shape", "N=4", "--value", bad).code == 1


def test_shapes_come_from_input_files(tilesmith: Run, reshaped: Path, tmp_path: Path) -> None:
    value = ("--value", "shape=[-1,8]")
    done = tilesmith("run", reshaped, *value)
    assert done.code == 0 and "8]" in done.out, done.err
    for name, arrays in (("plain", {"x": X}), ("prefixed", {"in_x": X})):
        np.savez(tmp_path / f"{name}.npz", **arrays)
        for verb in ("run", "check", "explain"):
            done = tilesmith(verb, reshaped, *value, "--input", tmp_path / f"{name}.npz")
            assert done.code == 0, done.err
    np.save(tmp_path / "x.npy", X)
    done = tilesmith("run", reshaped, *value, "--input", tmp_path / "x.npy", "--json")
    assert done.json["outputs"][0]["type"] == "f32[3,8]"


def test_a_compiled_file_has_its_target(tilesmith: Run, model: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "m.tsm"
    assert tilesmith("compile", model, "-o", compiled).code == 0
    done = tilesmith("run", compiled, "--target", "x86-64-v3")
    assert done.code == 1 and "--target has no effect on a compiled .tsm file" in done.err
    assert tilesmith("run", compiled, "--value", "x=1").code == 1
    assert tilesmith("run", compiled).code == 0


def test_initialisers_are_inputs_where_they_are_named(tilesmith: Run, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [onnx.ValueInfoProto(name="y")],
        [helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path, given = tmp_path / "m.onnx", tmp_path / "in.npz"
    onnx.save(made, path)
    for arrays, wanted in (({}, 6), ({"w": np.full(1, 5, np.float32)}, 15)):
        np.savez(given, x=np.full(4, 3, np.float32), **arrays)
        done = tilesmith("run", path, "--optional", "w", "-i", given, "-o", tmp_path / "out.npz")
        assert done.code == 0, done.err
        np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], np.full(4, wanted))
    assert tilesmith("run", path, "--optional", "w").code == 0
    done = tilesmith("run", path, "--optional", "v")
    assert done.code == 1 and "no initializer 'v'" in done.err
    assert tilesmith("compile", path, "--optional", "w", "-o", tmp_path / "m.tsm").code == 0
    assert tilesmith("run", tmp_path / "m.tsm", "-i", given).code == 0
    assert "--optional has no effect" in tilesmith("run", tmp_path / "m.tsm", "--optional", "w").err


def test_a_dimension_that_a_node_restricts_is_told(tilesmith: Run, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"], name="plus")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "t"])],
        [onnx.ValueInfoProto(name="y")],
        [helper.make_tensor("w", TensorProto.FLOAT, [1, 2], [2.0, 3.0])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(made, tmp_path / "m.onnx")
    done = tilesmith("run", tmp_path / "m.onnx", "--json")
    assert done.code == 0 and done.json["outputs"][0]["type"] == "f32[1,2]"
    assert "dimension 't' is 2: node 'plus' (Add, opset 18)" in " ".join(done.err.split())


def test_random_indices_lie_in_the_axes_that_they_index(tilesmith: Run, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Split", ["edges"], ["from", "to"], axis=0, num_outputs=2),
        helper.make_node("Squeeze", ["from", "zero"], ["i"]),
        helper.make_node("Gather", ["x", "i"], ["rows"]),
        helper.make_node("Transpose", ["to"], ["j"], perm=[1, 0]),
        helper.make_node("ScatterND", ["table", "j", "rows"], ["y"], reduction="add"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),  # 1 is expected
            helper.make_tensor_value_info("table", TensorProto.FLOAT, ["m", 3]),
            helper.make_tensor_value_info("edges", TensorProto.INT64, [2, "e"]),
        ],
        [onnx.ValueInfoProto(name="y")],
        [helper.make_tensor("zero", TensorProto.INT64, [1], [0])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(made, tmp_path / "m.onnx")
    for verb in ("run", "check", "explain"):
        done = tilesmith(verb, tmp_path / "m.onnx")
        assert done.code == 0, (verb, done.err)
    sizes = ("--shape", "n=40", "--shape", "m=60")
    assert tilesmith("compile", tmp_path / "m.onnx", *sizes, "-o", tmp_path / "m.tsm").code == 0
    assert tilesmith("run", tmp_path / "m.tsm").code == 0
    assert ts.load(tmp_path / "m.tsm").program.index_limits == {"edges": 40}
