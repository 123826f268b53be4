"""100 training steps give the losses that PyTorch gives."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
import training_losses
from tilesmith.training import SGD, Batches

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


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("lstm", {"width": 12}), ("transformer", {"width": 16, "length": 12, "size": 8})],
)
def test_losses_of_100_steps_and_bits_with_two_threads(name: str, sizes: dict[str, int]) -> None:
    torch.manual_seed(0)
    run = getattr(training_losses, name)(**sizes)
    losses, weights, accuracy = training_losses.ours(run, 1)
    wanted, accuracy_of_torch = training_losses.eager(run)
    assert accuracy == pytest.approx(accuracy_of_torch, abs=training_losses.ACCURACY)
    assert training_losses.worst_difference(losses, wanted) < TOLERANCE
    assert len(losses) == STEPS and losses[-1] < 0.9 * losses[0]
    assert {*weights} == {n for n, _ in run.module.named_parameters()}
    for n, w in training_losses.ours(run, 2)[1].items():
        np.testing.assert_array_equal(w, weights[n])
