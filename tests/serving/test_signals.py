"""Servers that are told to end answer the requests that they have."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from servers import free_port, mlserver, wait_for

import tilesmith as ts

ROOT = Path(__file__).resolve().parents[2]
WIDTH, LAYERS, ASKED = 1024, 12, 24


def needs(*modules: str) -> pytest.MarkDecorator:
    absent = [m for m in modules if importlib.util.find_spec(m) is None]
    return pytest.mark.skipif(bool(absent), reason=f"{', '.join(absent)} not installed")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `.tsm` file whose calls take milliseconds: products of x: f32[batch,WIDTH]."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", WIDTH]) for n in "xy"]
    w = numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32), "w")
    names = ["x", *(f"h{i}" for i in range(LAYERS - 1)), "y"]
    nodes = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in pairwise(names)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [w])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    path = tmp_path_factory.mktemp("served") / "model.tsm"
    ts.compile(model, dynamic={"batch": (1, 4)}, threads=1).save(path)
    return path


def drained(served: subprocess.Popen[bytes], url: str, body: Any, seconds: float) -> list[int]:
    """The answers' status of requests that a server has when it is told to end.

    seconds: time from the first request to the signal.
    """
    import httpx

    def ask(client: Any) -> int:
        return client.post(url, content=json.dumps(body), timeout=60).status_code

    kind = {"Content-Type": "application/json"}
    clients = [httpx.Client(headers=kind) for _ in range(ASKED)]
    with ThreadPoolExecutor(ASKED) as threads:
        asked = [threads.submit(ask, c) for c in clients]
        time.sleep(seconds)
        waiting = sum(not a.done() for a in asked)
        served.send_signal(signal.SIGTERM)
        status = [a.result() for a in asked]
    assert waiting > 0, "all requests were answered before the signal"
    return status


X = np.zeros((1, WIDTH), np.float32)


@needs("fastapi", "uvicorn", "httpx")
def test_uvicorn_answers_what_it_has(file):
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(ROOT / "examples"),
               "--port", str(port), "fastapi_server:app"]  # fmt: skip
    served = subprocess.Popen(command, env={**os.environ, "MODEL": str(file)})
    try:
        wait_for(f"http://127.0.0.1:{port}/ready", served)
        url = f"http://127.0.0.1:{port}/predict"
        assert drained(served, url, {"x": X.tolist()}, 0.02) == [200] * ASKED
        assert served.wait(30) in (0, -signal.SIGTERM)
    finally:
        served.kill()


@needs("mlserver", "httpx")
def test_mlserver_answers_what_it_has(file, tmp_path):
    given = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": X.ravel().tolist()}
    with mlserver(tmp_path, file, {"max_batch": 1, "threads": 1}) as served:
        url = f"http://127.0.0.1:{served.http}/v2/models/m/infer"
        assert drained(served.process, url, {"inputs": [given]}, 0.02) == [200] * ASKED
        served.process.wait(30)
