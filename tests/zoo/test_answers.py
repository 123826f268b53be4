"""Whole networks, compiled: PyTorch's answers, however they are run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from zoo_models import Model, assert_right

import tilesmith as ts

SMALL = ("squeezenet1_1", "resnet18", "minilm")


@pytest.fixture(scope="module")
def exe(model: Model) -> ts.Executable:
    return ts.compile(model.path, threads=2)


def test_answers(model: Model, exe: ts.Executable) -> None:
    assert_right(model, exe.run(model.inputs))


def test_one_thread_gives_the_same(model: Model, exe: ts.Executable) -> None:
    alone = ts.Executable(exe.program, threads=1).run(model.inputs)
    for name, y in exe.run(model.inputs).items():
        np.testing.assert_array_equal(alone[name], y)


def test_saved_and_loaded_it_gives_the_same(
    model: Model, exe: ts.Executable, tmp_path: Path
) -> None:
    path = tmp_path / "model.tsm"
    exe.save(path)
    loaded = ts.load(path, threads=2)
    assert [str(s) for s in loaded.inputs] == [str(s) for s in exe.inputs]
    again = loaded.run(model.inputs)
    for name, y in exe.run(model.inputs).items():
        np.testing.assert_array_equal(again[name], y)


def test_the_arena_is_near_its_lower_bound(exe: ts.Executable) -> None:
    assert exe.program.arena_bytes <= 1.1 * exe.program.metadata["arena_lower_bound"]


@pytest.mark.only("minilm")
def test_sentence_embeddings(model: Model, exe: ts.Executable) -> None:
    """The mean of the hidden states that the mask keeps, as the model's users compute it."""

    def embeddings(hidden: np.ndarray) -> np.ndarray:
        mask = model.inputs["attention_mask"][:, :, None]
        pooled = (hidden.astype(np.float64) * mask).sum(1) / mask.sum(1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    (want,), (got,) = model.outputs.values(), exe.run(model.inputs).values()
    assert (embeddings(want) * embeddings(got)).sum(1).min() >= 0.99999


@pytest.mark.only(*SMALL)
@pytest.mark.parametrize("level", ["x86-64", "x86-64-v2", "x86-64-v3"])
def test_lower_levels(model: Model, level: str) -> None:
    assert_right(model, ts.compile(model.path, target=level, threads=2).run(model.inputs))


@pytest.mark.only(*SMALL)
def test_calls_from_several_threads_at_once(model: Model, exe: ts.Executable) -> None:
    """Each caller has inputs of its own, and gets what it gets alone."""

    def varied(seed: int) -> dict[str, np.ndarray]:
        return {k: np.roll(x, seed, axis=-1) for k, x in model.inputs.items()}

    seeds = [0, 1, 2, 3] * 3
    alone = [exe.run(varied(seed)) for seed in seeds[:4]]
    with ThreadPoolExecutor(4) as callers:
        together = list(callers.map(lambda seed: exe.run(varied(seed)), seeds))
    for seed, outputs in zip(seeds, together, strict=True):
        for name, y in outputs.items():
            np.testing.assert_array_equal(y, alone[seed][name])


@pytest.mark.only(*SMALL)
def test_torch_tensors_in_torch_tensors_out(model: Model, exe: ts.Executable) -> None:
    torch = pytest.importorskip("torch")
    found = exe.run({k: torch.from_numpy(x) for k, x in model.inputs.items()})
    assert all(isinstance(y, torch.Tensor) for y in found.values())
    assert_right(model, {k: y.numpy() for k, y in found.items()})
