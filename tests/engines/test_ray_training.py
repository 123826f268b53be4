"""Actors of Ray train one model together, also when one of them is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.runtime.weights import read_safetensors
from tilesmith.support.errors import ModelError, UnavailableError, UsageError
from tilesmith.training import Adam

pytest.importorskip("ray", reason="Ray (extra `serve`) is not installed")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((128, 8)).astype(np.float32)
Y = (X @ RNG.standard_normal((8, 4))).argmax(1)


def network() -> bytes:
    """Two layers, of 16 and 4 units."""
    weights = {"w": RNG.standard_normal((8, 16)) / 3, "v": RNG.standard_normal((16, 4)) / 4}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", size])
        for n, size in (("x", 8), ("y", 4))
    )
    held = [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "network", [x], [y], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


NETWORK = network()


def trainer_with(average: Any) -> ts.Trainer:
    return ts.Trainer(NETWORK, optimizer=Adam(0.01), clip_norm=1.0, average=average, threads=1)


def shards(size: int = 16) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """The batches of two workers."""
    parts = [(X[i:][:size], Y[i:][:size]) for i in range(0, len(X), size)]
    return [parts[0::2], parts[1::2]]


class Deadly:
    """Batches of a worker that dies before one of them, unless a file says that it did."""

    def __init__(self, batches: list[Any], told: Path, before: int) -> None:
        self._batches, self._told, self._before = batches, told, before

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self._batches):
            if number == self._before and not self._told.exists():
                self._told.write_text("dead")
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    import ray
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                 object_store_memory=80 << 20)  # fmt: skip
        yield ray
        ray.shutdown()


def test_ray_has_to_run(tmp_path: Path) -> None:
    from tilesmith.engines.ray_training import train

    with pytest.raises(UsageError, match=r"expected that Ray runs: call ray.init\(\)"):
        train(trainer_with, shards(), checkpoint=tmp_path / "c")


def test_two_workers_train_as_one_on_their_batches_together(ray: Any, tmp_path: Path) -> None:
    from tilesmith.engines.ray_training import train

    found = train(trainer_with, shards(), 2, checkpoint=tmp_path / "c")
    alone = ts.Trainer(NETWORK, optimizer=Adam(0.01), clip_norm=1.0, threads=1)
    alone.fit([(X[i:][:32], Y[i:][:32]) for i in range(0, len(X), 32)], 2)
    assert found.steps == alone.steps == 8
    for name, w in alone.weights.items():
        np.testing.assert_allclose(found.weights[name], w, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_worker_costs_the_steps_since_the_last_checkpoint(
    ray: Any, tmp_path: Path, rank: int
) -> None:
    from tilesmith.engines.ray_training import train

    whole = train(trainer_with, shards(), 2, checkpoint=tmp_path / "whole")
    batches: list[Any] = shards()
    batches[rank] = Deadly(batches[rank], tmp_path / "told", before=3)
    path = tmp_path / "c"
    with pytest.raises(UnavailableError, match="workers were lost 1 times, expected 0 at most"):
        train(trainer_with, batches, 2, checkpoint=path, every=2, retries=0)
    assert int(read_safetensors(path)["train.step"]) == 2
    (tmp_path / "told").unlink()
    found = train(trainer_with, batches, 2, checkpoint=path, every=2)
    assert (tmp_path / "told").exists() and found.steps == 8
    for name, w in whole.weights.items():
        np.testing.assert_array_equal(found.weights[name], w)


def test_an_error_of_a_worker_ends_the_training(ray: Any, tmp_path: Path) -> None:
    from tilesmith.engines.ray_training import train

    batches = shards()
    batches[1][1] = (batches[1][1][0][:, :3], batches[1][1][1])
    with pytest.raises(ModelError, match="x: expected"):
        train(trainer_with, batches, checkpoint=tmp_path / "c")
