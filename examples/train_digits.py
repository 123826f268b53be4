"""A small network learns handwritten digits, in PyTorch's eager mode and by
`torch.compile(backend="tilesmith")`: `python examples/train_digits.py`.

Both start with the same weights and see the same batches.  The forward and the backward graph are
native code; the optimiser is PyTorch's.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import tilesmith as ts

Batches = list[tuple[torch.Tensor, torch.Tensor]]

EPOCHS, BATCH = 3, 48


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images f32[1797, 1, 8, 8] from 0 to 1, and their classes, in a random order."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = (data.images[order] / 16).astype(np.float32)[:, None]
    return torch.from_numpy(images), torch.from_numpy(data.target[order])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


def trained(model: nn.Module, batches: Batches) -> list[float]:
    """The losses of one pass over the batches, step by step."""
    optimiser = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    model.train()
    losses = []
    for x, wanted in batches:
        loss = nn.functional.cross_entropy(model(x), wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, wanted: torch.Tensor) -> float:
    """The share of images whose class is found, in percent."""
    found = model.eval()(images).argmax(1)
    return float((found == wanted).float().mean()) * 100


def main() -> None:
    torch.manual_seed(0)
    images, classes = digits()
    batches = [
        (images[i : i + BATCH], classes[i : i + BATCH]) for i in range(0, 1440, BATCH)
    ] * EPOCHS
    eager = network()
    compiled = torch.compile(copy.deepcopy(eager), backend=ts.torch.backend)
    losses = {name: trained(m, batches) for name, m in (("eager", eager), ("tilesmith", compiled))}
    first = zip(losses["eager"][:20], losses["tilesmith"][:20], strict=True)
    apart = max(abs(a - b) for a, b in first)
    print(f"largest difference of losses in the first 20 steps: {apart:.1e}")
    for name, model in (("eager", eager), ("tilesmith", compiled)):
        print(f"accuracy, {name}: {accuracy(model, images[1440:], classes[1440:]):.1f} %")


if __name__ == "__main__":
    main()
