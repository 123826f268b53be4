"""Epochs of a training, and callbacks that are called after each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError

METRICS = ("accuracy",)
"""The names of measures besides the loss."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over the batches.

    number: from 1.
    steps: training steps so far, over all epochs.
    measures: the loss and the metrics, averages over the samples during training.
    validation: the same for the validation batches after the epoch; empty without such batches.
    seconds: time of the epoch, of its part since the training was resumed.
    """

    number: int
    steps: int
    measures: Mapping[str, float]
    validation: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        texts = [f"{k} {v:.4g}" for k, v in self.measures.items()]
        texts += [f"validation {k} {v:.4g}" for k, v in self.validation.items()]
        return f"epoch {self.number}: {', '.join(texts)} ({self.steps} steps, {self.seconds:.1f} s)"


Callback: TypeAlias = "Callable[[Any, Epoch], object]"
"""Is called with the trainer after each epoch; if it returns True, the training ends."""


@dataclass(slots=True)
class EarlyStopping:
    """A callback that ends the training when a measure has not become smaller (`accuracy`: larger)
    for `patience` epochs.  It looks at validation batches if there are any.

    best: the smallest value so far, of a negated accuracy.
    waited: epochs since then.
    """

    measure: str = "loss"
    patience: int = 3
    best: float = math.inf
    waited: int = 0

    @checked(UsageError)
    def __call__(self, trainer: object, epoch: Epoch) -> bool:
        measures = epoch.validation or epoch.measures
        if self.measure not in measures:
            raise UsageError(
                f"early stopping: expected one of {', '.join(measures)}, found {self.measure!r}"
            )
        value = measures[self.measure] * (-1 if self.measure in METRICS else 1)
        self.waited = 0 if value < self.best else self.waited + 1
        self.best = min(value, self.best)
        return self.waited >= self.patience
