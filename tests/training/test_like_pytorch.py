"""100 training steps give the losses that PyTorch gives."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.training import SGD, AdamW, Batches

torch = pytest.importorskip("torch")
nn = torch.nn
STEPS, TOLERANCE = 100, 1e-3


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """PyTorch's threads would wait for one another beside other tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _compare(module: Any, batches: Any, optimizer: Any, of_torch: Any) -> None:
    """Trains a module and its copy, in eager PyTorch, on the same batches."""
    own = copy.deepcopy(module)
    first = next(iter(batches))
    trainer = ts.Trainer(
        own, optimizer=optimizer, example_inputs=tuple(map(torch.tensor, first[:-1]))
    )
    reference = of_torch(module.parameters())
    for step, (x, y) in enumerate(batches):
        loss = nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(y))
        reference.zero_grad()
        loss.backward()
        reference.step()
        (epoch,) = trainer.fit([(x, y)], epochs=step + 1)
        assert epoch.measures["loss"] == pytest.approx(loss.item(), rel=TOLERANCE, abs=TOLERANCE)
    assert trainer.steps == STEPS
    assert {*trainer.weights} == {n for n, _ in module.named_parameters()}
    x = first[0]
    found = ts.compile(trainer.model())(x)
    wanted = module.eval()(torch.tensor(x)).detach()
    np.testing.assert_allclose(found, wanted, rtol=0.01, atol=0.01)
    label = torch.tensor(first[1])
    expected = nn.functional.cross_entropy(wanted, label).item()
    assert trainer.evaluate([first])["loss"] == pytest.approx(expected, rel=0.01, abs=0.01)


def _batches(x: np.ndarray, y: np.ndarray, size: int) -> list[Any]:
    several = Batches([x, y], size=size)
    found = [b for number in range(8) for b in several.epoch(number)]
    assert len(found) >= STEPS
    return found[:STEPS]


def test_a_convolutional_network_with_batch_norm_on_digits() -> None:
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    x = (digits.images[:, None] / 16).astype(np.float32)
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128, 10),
    )  # fmt: skip
    batches = _batches(x, digits.target.astype(np.int64), 64)
    _compare(module, batches, SGD(0.05, momentum=0.9), lambda p: torch.optim.SGD(p, 0.05, 0.9))


class _Transformer(nn.Module):
    """The majority of a row of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, 16)
        self.places = nn.Parameter(torch.randn(12, 16) / 4)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.layer(self.embedding(tokens) + self.places).mean(1))


def test_a_transformer() -> None:
    torch.manual_seed(0)
    tokens = np.random.default_rng(0).integers(0, 4, (512, 12))
    labels = np.array([np.bincount(row, minlength=4).argmax() for row in tokens])
    batches = _batches(tokens, labels, 32)
    _compare(_Transformer().train(), batches, AdamW(1e-3), lambda p: torch.optim.AdamW(p, 1e-3))
