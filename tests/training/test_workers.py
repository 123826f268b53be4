"""Several processes train one model, each on its share of a batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from small_training import classifier, samples

import tilesmith as ts
from tilesmith.support.errors import UsageError
from tilesmith.training import Adam, Batches, gloo

WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import torch.distributed as dist
import tilesmith as ts
from tilesmith.training import Adam, gloo
from small_training import classifier, samples
folder, rank = sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
x, y = samples()
batches = [(x[i + 16 * rank :][:16], y[i + 16 * rank :][:16]) for i in range(0, 256, 32)]
if sys.argv[4] == "nan" and rank:
    batches[2] = (batches[2][0] * np.nan, batches[2][1])
trainer = ts.Trainer(classifier(), optimizer=Adam(0.01), clip_norm=1.0, average=gloo(), threads=1)
try:
    trainer.fit(batches, epochs=2)
except ts.ModelError as e:
    print(e)
trainer.save(f"{folder}/{rank}.safetensors")
"""


def _together(folder: Path, case: str) -> list[str]:
    """The outputs of two workers."""
    here = str(Path(__file__).parent)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, here, str(folder), str(rank), case],
            stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [child.communicate(timeout=300)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    return outputs


def test_two_processes_train_as_one_on_their_batches_together(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    _together(tmp_path, "sound")
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    for name, a in first.items():
        np.testing.assert_array_equal(second[name], a)
    alone = ts.Trainer(classifier(), optimizer=Adam(0.01), clip_norm=1.0, threads=1)
    alone.fit(Batches([*samples()], size=32, seed=None), epochs=2)
    assert first["train.step"] == alone.steps == 16
    for name, w in alone.weights.items():
        np.testing.assert_allclose(first[name], w, rtol=1e-3, atol=1e-4)


def test_a_loss_that_is_not_finite_ends_all_processes_in_the_same_step(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    outputs = _together(tmp_path, "nan")
    assert all("batch 2): the loss is nan" in text for text in outputs)


def test_gloo_needs_a_process_group() -> None:
    with pytest.raises(UsageError, match="gloo: expected a process group"):
        gloo()
