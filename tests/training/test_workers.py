"""Several processes train one model, each on its share of a batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from small_training import classifier, samples

import tilesmith as ts
from tilesmith.support.errors import UsageError
from tilesmith.training import SGD, Adam, Batches, gloo, plans

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
options = dict(optimizer=Adam(0.01), clip_norm=1.0, average=gloo(), threads=1)
trainer = ts.Trainer(classifier(), **options)
trainer.fit(batches, epochs=2)
trainer.save(f"{folder}/sound.{rank}")
trainer = ts.Trainer(classifier(), **options)
broken = [*batches]
if rank:
    broken[2] = (batches[2][0] * np.nan, batches[2][1])
try:
    trainer.fit(broken, epochs=2)
except ts.ModelError as e:
    print(e)
trainer.save(f"{folder}/broken.{rank}")
trainer.fit(batches, epochs=2)
trainer.save(f"{folder}/mended.{rank}")
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder that two workers wrote, and their outputs."""
    pytest.importorskip("torch")
    here, folder = str(Path(__file__).parent), tmp_path_factory.mktemp("workers")
    x, y = samples(16)
    warm = ts.Trainer(
        classifier(), optimizer=Adam(0.01), clip_norm=1.0, average=lambda array: None, threads=1
    )
    warm.fit([(x, y)])  # compiles the programs of the workers into the cache, once for both
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, here, str(folder), str(rank)],
            stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [child.communicate(timeout=300)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    return folder, outputs


def _equal(folder: Path, name: str) -> dict[str, np.ndarray]:
    """The arrays that both workers saved."""
    first, second = (load_file(folder / f"{name}.{rank}") for rank in range(2))
    assert {*first} == {*second}
    for n, a in first.items():
        np.testing.assert_array_equal(second[n], a)
    return first


def test_two_processes_train_as_one_on_their_batches_together(
    workers: tuple[Path, list[str]],
) -> None:
    found = _equal(workers[0], "sound")
    alone = ts.Trainer(classifier(), optimizer=Adam(0.01), clip_norm=1.0, threads=1)
    alone.fit(Batches([*samples()], size=32, seed=None), epochs=2)
    assert found["train.step"] == alone.steps == 16
    for name, w in alone.weights.items():
        np.testing.assert_allclose(found[name], w, rtol=1e-3, atol=1e-4)


def test_a_loss_that_is_not_finite_ends_all_processes_in_the_same_state(
    workers: tuple[Path, list[str]],
) -> None:
    folder, outputs = workers
    assert all("step 3 (epoch 1, batch 2): the loss is nan" in text for text in outputs)
    assert "another process made it" in outputs[0]
    assert "input 'x' has a NaN" in outputs[1]
    assert _equal(folder, "broken")["train.step"] == 2
    assert _equal(folder, "mended")["train.step"] == 16


def test_one_program_makes_every_step_of_several_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = []

    def counted(graph: Any, **options: Any) -> Any:
        compiled.append(graph)
        return ts.compile(graph, **options)

    monkeypatch.setattr(plans, "compile", counted)
    x, y = samples(32)
    trainer = ts.Trainer(
        classifier(), optimizer=SGD(0.1), average=lambda array: None, accumulate=2, threads=1
    )
    trainer.fit([(x, y)] * 4)
    assert trainer.steps == 2 and len(compiled) == 1


def test_gloo_needs_a_process_group() -> None:
    with pytest.raises(UsageError, match="gloo: expected a process group"):
        gloo()
