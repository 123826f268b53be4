#!/usr/bin/env python3
"""Training by `ts.Trainer` against eager PyTorch: `python -m benchmarks.training_losses [NAMES]`.

100 steps from the same weights on the same batches, in f32; resnet20 in f64.  Compared are the
loss of each step, the accuracy on samples that were not trained on, and all bits of a run with one
thread and one with two.  Exit status 1 where a bar is missed.

- cnn: digits of scikit-learn;
- resnet20: images that are drawn from patterns with noise.  Its batch norms and rectifiers amplify
  rounding: after 100 steps PyTorch's losses in f32 and f64 differ by 4e-2 at the rate 0.002;
- lstm: the class whose pattern a sequence repeats;
- transformer: the next byte of the text of Python's documentation (`pydoc_data.topics`), 4 layers.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import tilesmith as ts
from tilesmith.training import SGD, AdamW

STEPS = 100
LOSS, ACCURACY = 1e-3, 0.005
"""Bars: the difference of losses, relative and absolute, and that of accuracies."""

Batch = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True)
class Run:
    """One training.

    module: of PyTorch, in training mode.
    batches: one for each step.
    held: samples for the accuracy.
    is_adamw: whether the optimiser is AdamW, else it is SGD with momentum.
    rate: the learning rate.
    """

    module: Any
    batches: list[Batch]
    held: Batch
    is_adamw: bool
    rate: float


def drawn(
    rng: np.random.Generator, shape: tuple[int, ...], classes: int, size: int, steps: int
) -> tuple[list[Batch], Batch]:
    """Batches of noise, to which the pattern of a sample's class is added, and held samples."""
    patterns = rng.standard_normal((classes, *shape))

    def some(count: int) -> Batch:
        labels = rng.integers(0, classes, count)
        noise = rng.standard_normal((count, *shape))
        return (noise * 2 + patterns[labels]).astype(np.float32), labels

    return [some(size) for _ in range(steps)], some(256)


def cnn(steps: int = STEPS) -> Run:
    from sklearn.datasets import load_digits

    from training_models import digits

    held, size = 297, 48
    found = load_digits()
    x = (found.images[:, None] / 16).astype(np.float32)
    y = found.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(x))
    parts = np.resize(order[held:], (steps, size))
    batches = [(x[p], y[p]) for p in parts]
    return Run(digits().train(), batches, (x[order[:held]], y[order[:held]]), False, 0.05)


def resnet20(steps: int = STEPS, width: int = 16, extent: int = 32, size: int = 32) -> Run:
    from torch import nn

    from training_models import Residual, conv

    layers, before = [*conv(3, width, 3), nn.ReLU()], width
    for after, stride in ((width, 1), (2 * width, 2), (4 * width, 2)):
        layers += [Residual(before, after, stride), *(Residual(after, after, 1) for _ in range(2))]
        before = after
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))
    batches, held = drawn(np.random.default_rng(0), (3, extent, extent), 10, size, steps)
    return Run(module.train(), batches, held, False, 0.02)


def in_f64(run: Run) -> Run:
    """The same training in f64."""
    batches, held = [(x.astype(np.float64), y) for x, y in run.batches], run.held
    wide = copy.deepcopy(run.module).double()
    return replace(run, module=wide, batches=batches, held=(held[0].astype(np.float64), held[1]))


def lstm(steps: int = STEPS, width: int = 64) -> Run:
    from torch import nn

    from training_models import Last

    module = Last(nn.LSTM(16, width, 2, batch_first=True), width, 10)
    batches, held = drawn(np.random.default_rng(0), (20, 16), 10, 32, steps)
    return Run(module.train(), batches, held, True, 3e-3)


def transformer(steps: int = STEPS, width: int = 128, length: int = 64, size: int = 16) -> Run:
    from pydoc_data.topics import topics

    from training_models import Gpt

    text = np.frombuffer("".join(topics.values()).encode("ascii", "ignore"), np.uint8)
    rng = np.random.default_rng(0)

    def some(count: int) -> Batch:
        rows = rng.integers(0, len(text) - length - 1, count)[:, None] + np.arange(length + 1)
        ids = text[rows].astype(np.int64)
        return ids[:, :-1], ids[:, 1:].reshape(-1)

    module = Gpt(128, width, 4, 4, length)
    return Run(module.train(), [some(size) for _ in range(steps)], some(size), True, 1e-3)


RUNS: dict[str, Callable[[], Run]] = {
    "cnn": cnn, "resnet20": lambda: in_f64(resnet20()), "lstm": lstm, "transformer": transformer,
}  # fmt: skip


def ours(run: Run, threads: int) -> tuple[list[float], dict[str, np.ndarray], float]:
    """The loss of each step, the weights afterwards, and the accuracy on held samples."""
    import torch

    optimizer = AdamW(run.rate) if run.is_adamw else SGD(run.rate, momentum=0.9)
    trainer = ts.Trainer(
        copy.deepcopy(run.module), optimizer=optimizer, metrics=["accuracy"], threads=threads,
        example_inputs=(torch.tensor(run.batches[0][0]),),
    )  # fmt: skip
    losses = []
    for number, batch in enumerate(run.batches):
        (epoch,) = trainer.fit([batch], epochs=number + 1)
        losses.append(epoch.measures["loss"])
    size = len(run.batches[0][0])
    parts = run.held[0][: len(run.held[0]) // size * size].reshape(-1, size, *run.held[0].shape[1:])
    labels = run.held[1][: len(run.held[1]) // len(run.batches[0][1]) * len(run.batches[0][1])]
    held = list(zip(parts, labels.reshape(len(parts), -1), strict=True))
    return losses, trainer.weights, trainer.evaluate(held)["accuracy"]


def eager(run: Run) -> tuple[list[float], float]:
    """The same in eager PyTorch: the loss of each step, and the accuracy."""
    import torch

    module = copy.deepcopy(run.module)
    optim = torch.optim.AdamW if run.is_adamw else torch.optim.SGD
    extra = {} if run.is_adamw else {"momentum": 0.9}
    optimizer = optim(module.parameters(), run.rate, **extra)
    losses = []
    for x, y in run.batches:
        loss = torch.nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    count = len(run.held[0]) // len(run.batches[0][0]) * len(run.batches[0][0])
    with torch.no_grad():
        scores = module.eval()(torch.tensor(run.held[0][:count])).numpy()
    return losses, float((scores.argmax(1) == run.held[1][: len(scores)]).mean())


def worst_difference(found: list[float], wanted: list[float]) -> float:
    """The largest difference of two losses: relative for losses above 1, else absolute."""
    return max(abs(a - b) / max(abs(b), 1) for a, b in zip(found, wanted, strict=True))


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"default: {' '.join(RUNS)}")
    given = parser.parse_args()
    is_bad = False
    print("| network | first loss | last loss | worst difference | accuracy, PyTorch's | bits |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in given.names or RUNS:
        torch.manual_seed(0)
        run = RUNS[name]()
        (losses, weights, accuracy), (_, others, _) = ours(run, 1), ours(run, 2)
        wanted, accuracy_of_torch = eager(run)
        worst = worst_difference(losses, wanted)
        is_equal = all(np.array_equal(w, others[n]) for n, w in weights.items())
        is_bad |= worst > LOSS or abs(accuracy - accuracy_of_torch) > ACCURACY or not is_equal
        print(
            f"| {name} | {losses[0]:.4f} | {losses[-1]:.4f} | {worst:.1e} | {accuracy:.4f}, "
            f"{accuracy_of_torch:.4f} | {'equal' if is_equal else 'differ'} |",
            flush=True,
        )
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
