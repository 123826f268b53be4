"""A service is ready when it is warm, and loses no request when its model is replaced."""

from __future__ import annotations

import asyncio
import importlib.util
import runpy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.serving.stats import Histogram

ROOT = Path(__file__).resolve().parents[2]


def file_of(folder: Path, name: str, factor: float) -> Path:
    """A `.tsm` file of y = factor * x for x: f32[batch,4]."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 4]) for n in "xy")
    held = numpy_helper.from_array(np.float32(factor), "f")
    node = helper.make_node("Mul", ["x", "f"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [held])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    path = folder / f"{name}.tsm"
    ts.compile(model, dynamic={"batch": (1, 32)}, threads=1).save(path)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("files")
    return file_of(folder, "two", 2.0), file_of(folder, "three", 3.0)


ONES = np.ones((1, 4), np.float32)


def test_a_service_is_ready_when_it_has_answered_and_until_it_is_closed(files):
    with ts.Service(files[0], max_batch=8) as service:
        assert service.is_ready and service.stats().requests["answered"] == 1
        assert service(ONES).tolist() == [[2, 2, 2, 2]]
        assert asyncio.run(service.call(x=ONES)).tolist() == [[2, 2, 2, 2]]
    assert not service.is_ready
    with pytest.raises(ts.UnavailableError, match="closed"):
        service(ONES)
    with pytest.raises(ts.UnavailableError, match="closed"):
        service.reload(files[1])


def test_no_request_is_lost_while_the_model_is_replaced(files):
    with ts.Service(files[0]) as service, ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(service, ONES) for _ in range(500)]
        for path in (files[1], files[0], files[1]):
            service.reload(path)
            asked += [threads.submit(service, ONES) for _ in range(500)]
        answers = {f.result(30)[0, 0] for f in asked}
        assert answers == {2.0, 3.0} and service(ONES)[0, 0] == 3.0
        assert service.stats().requests["answered"] == len(asked) + 4 + 1


def test_a_file_that_cannot_be_loaded_leaves_the_model(files, tmp_path):
    damaged = tmp_path / "damaged.tsm"
    damaged.write_bytes(b"no")
    with ts.Service(files[0]) as service:
        with pytest.raises(ts.ModelError):
            service.reload(damaged)
        assert service(ONES)[0, 0] == 2.0


def test_metrics_are_cumulative_histograms(files):
    with ts.Service(files[0]) as service:
        service(np.ones((3, 4), np.float32))
        text = service.metrics('a "model"')
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    label = 'model="a \\"model\\""'
    assert lines[f"tilesmith_ready{{{label}}}"] == "1"
    assert lines[f'tilesmith_requests_total{{{label},outcome="answered"}}'] == "2"
    assert lines[f'tilesmith_batch_rows_bucket{{{label},le="2"}}'] == "1"
    assert lines[f'tilesmith_batch_rows_bucket{{{label},le="+Inf"}}'] == "2"
    assert lines[f"tilesmith_batch_rows_sum{{{label}}}"] == "4"
    assert lines[f"tilesmith_request_seconds_count{{{label}}}"] == "2"
    parser = pytest.importorskip("prometheus_client.parser")
    families = {f.name: f.type for f in parser.text_string_to_metric_families(text)}
    assert families["tilesmith_request_seconds"] == "histogram"


def test_percentiles_of_a_histogram_are_bounds_of_ranges():
    held = Histogram((1.0, 2.0, 4.0))
    for number in (0.5, 1.5, 1.6, 3.0, 9.0):
        held.add(number)
    assert [held.percentile(p) for p in (0, 20, 60, 80, 100)] == [1, 1, 2, 4, 9]


def needs(*modules: str) -> pytest.MarkDecorator:
    absent = [m for m in modules if importlib.util.find_spec(m) is None]
    return pytest.mark.skipif(bool(absent), reason=f"{', '.join(absent)} not installed")


@needs("fastapi", "httpx")
def test_the_example_with_fastapi(files, monkeypatch):
    from fastapi.testclient import TestClient

    monkeypatch.setenv("MODEL", str(files[0]))
    app = runpy.run_path(str(ROOT / "examples" / "fastapi_server.py"))["app"]
    with TestClient(app) as client:
        assert client.get("/ready").status_code == client.get("/live").status_code == 200
        assert client.post("/predict", json={"x": [[1, 2, 3, 4]]}).json() == {"y": [[2, 4, 6, 8]]}
        for bad in ({"x": [[1, 2]]}, {"x": "text"}, {"z": [[1, 2, 3, 4]]}, {"x": [[1], [2, 3]]}):
            assert client.post("/predict", json=bad).status_code == 400
        assert client.post("/reload").status_code == 200
        assert 'outcome="answered"} 3' in client.get("/metrics").text


@needs("mlserver")
def test_the_runtime_of_mlserver(files):
    from mlserver import ModelSettings, types
    from mlserver.errors import MLServerError

    from tilesmith.engines.mlserver_runtime import Runtime

    def request(shape: list[int], data: list[Any]) -> Any:
        given = types.RequestInput(name="x", shape=shape, datatype="FP32", data=data)
        return types.InferenceRequest(inputs=[given])

    async def serve() -> None:
        extra = {"uri": str(files[0]), "extra": {"max_batch": 4}}
        settings = {"name": "m", "implementation": "tilesmith.engines.mlserver_runtime.Runtime"}
        model = Runtime(ModelSettings.model_validate({**settings, "parameters": extra}))
        assert await model.load()
        assert [(i.name, i.datatype, i.shape) for i in model.inputs] == [("x", "FP32", [-1, 4])]
        asked = (model.predict(request([1, 4], [i, 0, 0, 1])) for i in range(20))
        for i, answer in enumerate(await asyncio.gather(*asked)):
            (y,) = answer.outputs
            assert (y.name, y.datatype, y.shape) == ("y", "FP32", [1, 4])
            assert list(y.data) == [2 * i, 0, 0, 2]
        with pytest.raises(MLServerError, match="expected shape") as found:
            await model.predict(request([1, 2], [1, 2]))
        assert found.value.status_code == 400
        assert await model.unload()
        with pytest.raises(MLServerError) as found:
            await model.predict(request([1, 4], [0, 0, 0, 0]))
        assert found.value.status_code == 503

    asyncio.run(serve())
