"""The runtime of MLServer speaks the Open Inference Protocol (version 2) with Triton's clients."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from servers import MLServer, mlserver

import tilesmith as ts

ABSENT = [m for m in ("mlserver", "tritonclient", "httpx") if importlib.util.find_spec(m) is None]
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=f"{', '.join(ABSENT)} not installed")

X = np.arange(12, dtype=np.float32).reshape(3, 4)
N = np.array([3, -1, 2**40], np.int64)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MLServer]:
    """y = 2 * x and k = n + 1 for x: f32[batch,4] and n: i64[batch]."""
    of = helper.make_tensor_value_info
    inputs = [of("x", TensorProto.FLOAT, ["batch", 4]), of("n", TensorProto.INT64, ["batch"])]
    outputs = [of("y", TensorProto.FLOAT, ["batch", 4]), of("k", TensorProto.INT64, ["batch"])]
    held = [
        numpy_helper.from_array(np.float32(2), "f"),
        numpy_helper.from_array(np.int64(1), "one"),
    ]
    nodes = [
        helper.make_node("Mul", ["x", "f"], ["y"]),
        helper.make_node("Add", ["n", "one"], ["k"]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    opsets = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    folder: Path = tmp_path_factory.mktemp("served")
    ts.compile(made, dynamic={"batch": (1, 32)}, threads=1).save(folder / "model.tsm")
    with mlserver(folder, folder / "model.tsm", {"max_batch": 8, "threads": 1}) as server:
        yield server


@pytest.fixture(params=["http", "grpc"])
def kind(request) -> str:
    return request.param


def library(kind: str) -> Any:
    return importlib.import_module(f"tritonclient.{kind}")


@pytest.fixture
def client(served: MLServer, kind: str) -> Iterator[Any]:
    port = served.http if kind == "http" else served.grpc
    made = library(kind).InferenceServerClient(f"127.0.0.1:{port}")
    yield made
    made.close()


def given(kind: str, x: np.ndarray = X) -> list[Any]:
    made = []
    for name, array, datatype in (("x", x, "FP32"), ("n", N, "INT64")):
        tensor = library(kind).InferInput(name, list(array.shape), datatype)
        # MLServer reads arrays in JSON over HTTP, not the extension for binary data
        more = {"binary_data": False} if kind == "http" else {}
        tensor.set_data_from_numpy(array, **more)
        made.append(tensor)
    return made


def wanted(kind: str, *names: str) -> list[Any]:
    more = {"binary_data": False} if kind == "http" else {}
    return [library(kind).InferRequestedOutput(name, **more) for name in names]


def test_health_and_metadata(client, kind):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("m")
    more = {} if kind == "http" else {"as_json": True}
    assert client.get_server_metadata(**more)["name"] == "mlserver"
    told = client.get_model_metadata("m", **more)
    assert told["name"] == "m"

    def tensors(which: str) -> list[tuple[str, str, list[int]]]:
        return [(t["name"], t["datatype"], [int(n) for n in t["shape"]]) for t in told[which]]

    assert tensors("inputs") == [("x", "FP32", [-1, 4]), ("n", "INT64", [-1])]
    assert tensors("outputs") == [("y", "FP32", [-1, 4]), ("k", "INT64", [-1])]


def test_answers(client, kind):
    answer = client.infer("m", given(kind), outputs=wanted(kind, "y", "k"), request_id="7")
    np.testing.assert_array_equal(answer.as_numpy("y"), 2 * X)
    np.testing.assert_array_equal(answer.as_numpy("k"), N + 1)
    told = answer.get_response()
    assert (told["id"] if kind == "http" else told.id) == "7"


def test_bad_requests_say_what_is_wrong(client, kind):
    error = importlib.import_module("tritonclient.utils").InferenceServerException
    with pytest.raises(error, match="expected shape"):
        client.infer("m", given(kind, X[:, :3]), outputs=wanted(kind, "y"))
    with pytest.raises(error, match=r"(?i)not found"):
        client.infer("other", given(kind), outputs=wanted(kind, "y"))
    assert client.is_model_ready("m")
