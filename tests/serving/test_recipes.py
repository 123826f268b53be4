"""The recipes of docs/servers.md: what their files say holds, and their code runs."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts

ROOT = Path(__file__).resolve().parents[2]
TRITON = ROOT / "examples" / "triton" / "classifier"
WEIGHT = np.random.default_rng(0).standard_normal((4, 3), np.float32)


@pytest.fixture
def onnx_model() -> bytes:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@dataclass
class Tensor:
    """Stand-in for the class of Triton's module."""

    name: str
    rows: np.ndarray

    def as_numpy(self) -> np.ndarray:
        return self.rows


@dataclass
class Response:
    """Stand-in for `InferenceResponse`."""

    output_tensors: list[Tensor]
    error: Any = None


@dataclass
class Request:
    tensors: list[Tensor] = field(default_factory=list)


def triton(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """model.py, with a stand-in for the module that only Triton has."""
    stand_in: Any = ModuleType("triton_python_backend_utils")
    stand_in.Tensor, stand_in.InferenceResponse, stand_in.TritonError = Tensor, Response, str
    stand_in.get_input_tensor_by_name = lambda request, name: next(
        t for t in request.tensors if t.name == name
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", stand_in)
    spec = importlib.util.spec_from_file_location("triton_model", TRITON / "1" / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tritons_requests_are_one_call(
    onnx_model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1").mkdir()
    ts.compile(onnx_model, dynamic={"batch": (1, 16)}).save(tmp_path / "1" / "model.tsm")
    config = {"parameters": {"file": {"string_value": "model.tsm"}}}
    arguments = {
        "model_config": json.dumps(config), "model_version": "1", "model_repository": str(tmp_path),
    }  # fmt: skip
    model = triton(monkeypatch).TritonPythonModel()
    model.initialize(arguments)
    random = np.random.default_rng(1)
    sent = [random.standard_normal((rows, 4), np.float32) for rows in (1, 3, 2)]
    answers = model.execute([Request([Tensor("x", x)]) for x in sent])
    for x, answer in zip(sent, answers, strict=True):
        [y] = answer.output_tensors
        assert y.name == "y"
        np.testing.assert_allclose(y.rows, x @ WEIGHT, rtol=1e-5, atol=1e-6)
    [answer] = model.execute([Request([Tensor("x", np.zeros((1, 5), np.float32))])])
    assert "expected" in answer.error and answer.output_tensors == []


def test_tritons_configuration_names_the_models_tensors(onnx_model: bytes) -> None:
    text = (TRITON / "config.pbtxt").read_text()
    exe = ts.compile(onnx_model)
    for kind, specs in (("input", exe.inputs), ("output", exe.outputs)):
        found = re.findall(rf'^{kind} \[{{name: "(\w+)", data_type: TYPE_FP32, dims: \[(\d+)\]}}\]',
                           text, re.M)  # fmt: skip
        assert found == [(s.name, str(s.shape[1])) for s in specs]


def test_kserves_runtime_has_settings_of_mlserver(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = pytest.importorskip("mlserver.settings")
    page = (ROOT / "docs" / "servers.md").read_text()
    variables = dict(re.findall(r'\{name: (MLSERVER_\w+), value: "?([^"}]+)"?\}', page))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    read = settings.Settings()
    assert (read.http_port, read.parallel_workers) == (8080, 0)
    assert {n.removeprefix("MLSERVER_").lower() for n in variables} <= set(
        settings.Settings.model_fields
    )


def test_a_model_of_openvino_is_compiled_from_its_file(onnx_model: bytes, tmp_path: Path) -> None:
    ov = pytest.importorskip("openvino")
    (tmp_path / "m.onnx").write_bytes(onnx_model)
    model = ov.convert_model(tmp_path / "m.onnx")
    ov.save_model(model, tmp_path / "model.xml", compress_to_fp16=False)
    exe = ts.compile(tmp_path / "model.xml")
    x = np.random.default_rng(1).standard_normal((5, 4), np.float32)
    exact = {"INFERENCE_PRECISION_HINT": "f32"}  # on some processors the default is bf16
    wanted = ov.Core().compile_model(model, "CPU", exact)({"x": x})["y"]
    np.testing.assert_allclose(exe.run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-6)
