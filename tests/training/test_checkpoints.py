"""A checkpoint is whole, even if the process is killed while it writes one."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import tilesmith as ts
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.matmul import MatMul
from tilesmith.support.errors import ModelError, UsageError

SIZE = 1024


def product() -> Graph:
    """A product with a weight of 4 MB."""
    b = Builder("product")
    weight = b.constant(np.zeros((SIZE, SIZE), np.float32), "weight")
    return b.finish(b.add(MatMul(), b.input("x", TensorType(f32, (4, SIZE))), weight), ["y"])


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from itertools import count
import tilesmith as ts
from test_checkpoints import product
trainer = ts.Trainer(product(), loss="mse", optimizer="sgd")
for number in count(1):
    trainer.weights["weight"][...] = number
    trainer.save(sys.argv[1])
"""


@pytest.mark.parametrize("delay", [0.05, 0.21, 0.4])
def test_a_kill_leaves_a_whole_checkpoint(tmp_path: Path, delay: float) -> None:
    path = tmp_path / "training.safetensors"
    folder = str(Path(__file__).parent)
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(path), folder])
    while not path.exists():
        assert child.poll() is None
        time.sleep(0.01)
    time.sleep(delay)
    child.kill()
    child.wait()
    trainer = ts.Trainer(product(), loss="mse", optimizer="sgd")
    trainer.restore(path)
    weight = trainer.weights["weight"]
    assert weight[0, 0] >= 1 and (weight == weight[0, 0]).all()


def test_other_libraries_read_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    trainer = ts.Trainer(product(), loss="mse", optimizer="adam")
    trainer.save(path)
    found = load_file(path)
    np.testing.assert_array_equal(found["weight"], trainer.weights["weight"])
    assert found["train.square.weight"].shape == (SIZE, SIZE) and found["train.step"] == 0


def test_a_checkpoint_that_can_not_be_written_or_read_is_an_error(tmp_path: Path) -> None:
    trainer = ts.Trainer(product(), loss="mse", optimizer="sgd")
    with pytest.raises(UsageError, match="can't be written"):
        trainer.save(tmp_path / "none" / "c.safetensors")
    damaged = tmp_path / "damaged.safetensors"
    trainer.save(damaged)
    damaged.write_bytes(damaged.read_bytes()[:-4])
    with pytest.raises(ModelError, match="not a sound"):
        trainer.restore(damaged)
