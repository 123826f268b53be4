"""Ray Serve answers with replicas of a `.tsm` file, also when one of them is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts

serve = pytest.importorskip("ray.serve", reason="Ray Serve (extra `serve`) is not installed")


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
def ray() -> Iterator[Any]:
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                 object_store_memory=80 << 20)  # fmt: skip
        yield ray
        serve.shutdown()
        ray.shutdown()


ONES = np.ones((1, 4), np.float32)


def test_replicas_answer_are_replaced_and_take_another_file(ray, tmp_path):
    import httpx

    from tilesmith.engines.ray_serve import Replica, application

    two, three = file_of(tmp_path, "two", 2.0), file_of(tmp_path, "three", 3.0)

    class Named(Replica):
        def process(self) -> int:
            return os.getpid()

    app = application(two, replicas=2, max_batch=8, kind=Named)
    handle = serve.run(app)
    asked = [handle.predict.remote(x=ONES * i) for i in range(50)]
    for i, answer in enumerate(asked):
        assert answer.result(timeout_s=60).tolist() == [[2.0 * i] * 4]
    url = "http://127.0.0.1:8000/"
    assert httpx.post(url, json={"x": [[1, 2, 3, 4]]}).json() == {"y": [[2, 4, 6, 8]]}
    for bad in ({"x": [[1, 2]]}, {"z": [[1, 2, 3, 4]]}, [1], {"x": [[1], [2, 3]]}):
        assert httpx.post(url, json=bad).status_code == 400
    # one replica is killed: Ray's retries answer, and a new replica takes its place
    os.kill(handle.process.remote().result(timeout_s=60), signal.SIGKILL)
    deadline = time.monotonic() + 60
    answers = []
    while len(answers) < 30 and time.monotonic() < deadline:
        try:
            answers.append(handle.predict.remote(x=ONES).result(timeout_s=30)[0, 0])
        except ray.exceptions.RayActorError:
            continue
    assert answers == [2.0] * 30
    # another file, without a request that fails
    with ThreadPoolExecutor(1) as other:
        running = other.submit(serve.run, application(three, replicas=2, max_batch=8, kind=Named))
        seen = set()
        while not running.done():
            seen.add(float(handle.predict.remote(x=ONES).result(timeout_s=60)[0, 0]))
    assert seen <= {2.0, 3.0}
    assert handle.predict.remote(x=ONES).result(timeout_s=60)[0, 0] == 3.0
    with pytest.raises(ts.UsageError, match=r"expected a \.tsm file"):
        application(tmp_path / "absent.tsm")
