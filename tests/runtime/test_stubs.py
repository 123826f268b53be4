"""Python modules for compiled models: what they compute, and what a type checker says."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilesmith as ts

SOURCE = Path(ts.__file__).parents[1]


def model() -> bytes:
    """Two outputs, and names that are none in Python."""
    nodes = [
        helper.make_node("Relu", ["in.1"], ["class"]),
        helper.make_node("Gather", ["class", "self"], ["count"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("in.1", TensorProto.FLOAT, ["n", 4]),
            helper.make_tensor_value_info("self", TensorProto.INT64, [2]),
        ],
        [
            helper.make_tensor_value_info("class", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("count", TensorProto.FLOAT, None),
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


X, ROWS = np.arange(-6, 6, dtype=np.float32).reshape(3, 4), np.array([2, 0])


def test_a_module_loads_its_model_and_names_its_outputs(tmp_path: Path) -> None:
    made = ts.export(model(), tmp_path, "small", format="python")
    assert [f.name for f in made.files] == ["small.tsm", "small.py", "small.pyi"]
    module = imported(tmp_path / "small.py")
    found = module.Model(threads=1)(in_1=X, self_2=ROWS)
    np.testing.assert_array_equal(found.class_, np.maximum(X, 0))
    np.testing.assert_array_equal(found.count_2, np.maximum(X, 0)[ROWS])
    (first, _) = found
    assert first is found.class_
    text = module.Model.__call__.__doc__
    assert 'in_1: f32[n,4] ("in.1" of the model)' in text and "n: from 1 to " in text
    with pytest.raises(ts.ModelError, match=r"in\.1"):
        module.Model()(X[:, :3], ROWS)


def test_one_output_is_a_field_too(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [4])],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [4])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    exe = ts.compile(made.SerializeToString())
    exe.save(tmp_path / "negated.tsm", stubs=True)
    value = np.ones(4, exe.inputs[0].dtype.numpy)
    np.testing.assert_array_equal(imported(tmp_path / "negated.py").Model()(value).y, -value)
    assert "y: npt.NDArray[Any]" in (tmp_path / "negated.pyi").read_text()


def test_pyright_knows_inputs_and_outputs(tmp_path: Path) -> None:
    ts.compile(model()).save(tmp_path / "small.tsm", stubs=True)
    (tmp_path / "use.py").write_text(
        "import numpy as np\n"
        "import small\n"
        "x, i = np.ones((3, 4), np.float32), np.zeros(2, np.int64)\n"
        "model = small.Model(threads=2)\n"
        "reveal_type(model(x, self_2=i).class_)\n"
        "model(i, i)\n"
        "model(x)\n"
        "model(x, i).absent\n"
    )
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(SOURCE)]}))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "-p", tmp_path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = {
        (Path(d["file"]).name, d["range"]["start"]["line"]): d["message"]
        for d in json.loads(done.stdout)["generalDiagnostics"]
    }
    lines = sorted(line for _, line in found)
    assert {file for file, _ in found} == {"use.py"} and lines == [4, 5, 6, 7], done.stdout
    assert "floating[_32Bit]" in found["use.py", 4]
    assert "in_1" in found["use.py", 5] and "self_2" in found["use.py", 6]


def test_a_file_that_is_no_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ts.UsageError, match=r"expected a file whose name is .*, found 'a-b'"):
        ts.compile(model()).save(tmp_path / "a-b.tsm", stubs=True)
