"""The networks of the zoo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

CLASSIFIERS = (
    "resnet18",
    "resnet50",
    "mobilenet_v2",
    "squeezenet1_1",
    "efficientnet_b0",
    "densenet121",
    "vit_b_16",
)
NAMES = (*CLASSIFIERS, "bert_base", "minilm")


@dataclass(frozen=True)
class Model:
    """A network's file with example inputs and PyTorch's outputs for them, both by name."""

    name: str
    path: Path
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]

    @property
    def is_classifier(self) -> bool:
        return self.name in CLASSIFIERS


def assert_right(model: Model, found: dict[str, np.ndarray]) -> None:
    """Largest error at most 1e-3 of the largest output, and the same best class."""
    assert found.keys() == model.outputs.keys()
    for name, want in model.outputs.items():
        got = found[name]
        assert got.shape == want.shape and got.dtype == want.dtype
        largest = np.abs(want).max()
        assert largest > 0, "a reference of zeros shows nothing"
        assert np.abs(got - want).max() <= 1e-3 * largest
        if model.is_classifier:
            np.testing.assert_array_equal(got.argmax(-1), want.argmax(-1))
