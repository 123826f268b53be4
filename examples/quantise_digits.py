"""A small convolutional network for scikit-learn's digits, trained with PyTorch and quantised.

    python examples/quantise_digits.py

It prints the accuracy on digits that were neither trained nor calibrated on, in floats and in
several schemes, and the report of the last one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import tilesmith as ts

SCHEMES = ("int8", "int8-dynamic", "int8-weights", "auto")


def digits() -> tuple[np.ndarray, np.ndarray]:
    """All digits in random order: images f32[1797,1,8,8] from 0 to 1, and labels."""
    found: Any = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images = (found.images[order] / 16).astype(np.float32)
    return images[:, None], found.target[order]


def trained(images: np.ndarray, labels: np.ndarray, epochs: int = 8) -> bytes:
    """An ONNX model from `image` f32[1,1,8,8] to `scores` f32[1,10]."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
            optimizer.step()
    names: dict[str, Any] = {"input_names": ["image"], "output_names": ["scores"]}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "digits.onnx"
        torch.onnx.export(network.eval(), (x[:1],), str(file), dynamo=False, **names)
        return file.read_bytes()


def main(schemes: Sequence[str] = SCHEMES) -> dict[str, float]:
    """The accuracy in floats (`f32`) and in each scheme."""
    images, labels = digits()
    model = trained(images[:1297], labels[:1297])
    samples = [image[None] for image in images[:64]]

    def accuracy(exe: ts.Executable) -> float:
        """The share of the other 500 digits that is recognised."""
        found = [np.argmax(exe(image[None])) for image in images[1297:]]
        return float(np.mean(np.asarray(found) == labels[1297:]))

    result: dict[str, float] = {}
    report = None
    for scheme in schemes:
        _, report = ts.quantize(model, samples, scheme=scheme, metric=accuracy, max_drop=0.005)
        assert report.value is not None and report.float_value is not None
        result |= {"f32": report.float_value, scheme: report.value}
        print(f"{scheme:13} {report.value:7.1%} (floats: {report.float_value:.1%})")
    print(report)
    return result


if __name__ == "__main__":
    main()
