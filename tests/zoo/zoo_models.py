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
