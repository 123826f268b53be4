"""Optimisers: formulas for the new weight and the new moments of one tensor.

Definitions are those of `torch.optim`, where PyTorch has the optimiser.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from tilesmith.ops.functions import minimum, sqrt, where
from tilesmith.support.arguments import check_fields
from tilesmith.support.errors import UsageError

from .schedules import Schedule, check_rate, scheduled

Moments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Optimizer(ABC):
    """Base of the optimisers.

    rate: the learning rate, a number or a schedule.
    """

    rate: Schedule | float = 1e-3

    def __post_init__(self) -> None:
        check_fields(self, UsageError)
        scheduled(self.rate)
        for name, value in self._numbers().items():
            check_rate(name, value)
            if name in _BELOW_ONE and value >= 1:
                raise UsageError(f"{name}: expected a number below 1, found {value}")

    def _numbers(self) -> dict[str, float]:
        own = ((n, getattr(self, n)) for n in type(self).__dataclass_fields__)
        return {n: v for n, v in own if type(v) in (int, float)}

    @property
    @abstractmethod
    def moments(self) -> tuple[str, ...]:
        """The names of the tensors that are kept for each weight, all 0 at first."""

    @abstractmethod
    def update(
        self, w: Any, g: Any, moments: Moments, rate: Any, count: Any
    ) -> tuple[Any, Moments]:
        """The new weight and the new moments.

        w, g: the weight and its gradient, of one type.
        rate: the learning rate, an f64 scalar.
        count: the number of this step from 1, an f64 scalar.
        """


_BELOW_ONE = ("beta1", "beta2", "alpha")


def _as(scalar: Any, like: Any) -> Any:
    """A scalar of f64 in the type of a tensor."""
    return scalar.cast(like.dtype)


@dataclass(frozen=True, slots=True)
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if `momentum` is not 0.

    rate: as for every optimiser.
    weight_decay: multiple of the weight that is added to its gradient.
    nesterov: Nesterov's momentum.
    """

    rate: Schedule | float = 1e-2
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        Optimizer.__post_init__(self)
        if self.nesterov and not self.momentum:
            raise UsageError("nesterov: expected a momentum above 0, found 0")

    @property
    def moments(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def update(
        self, w: Any, g: Any, moments: Moments, rate: Any, count: Any
    ) -> tuple[Any, Moments]:
        g = _decayed(w, g, self.weight_decay)
        if moments:
            velocity = moments[0] * self.momentum + g
            moments = (velocity,)
            g = velocity * self.momentum + g if self.nesterov else velocity
        return w - g * _as(rate, w), moments


@dataclass(frozen=True, slots=True)
class Adam(Optimizer):
    """Kingma and Ba, "Adam" (2015).

    beta1, beta2: decay of the mean and of the mean square of gradients.
    epsilon: is added to the root of the mean square.
    weight_decay: multiple of the weight that is added to its gradient.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    @property
    def moments(self) -> tuple[str, ...]:
        return ("mean", "square")

    def update(
        self, w: Any, g: Any, moments: Moments, rate: Any, count: Any
    ) -> tuple[Any, Moments]:
        g = _decayed(w, g, self.weight_decay)
        direction, moments = self._direction(g, moments, count)
        return w - direction * _as(rate, w), moments

    def _direction(self, g: Any, moments: Moments, count: Any) -> tuple[Any, Moments]:
        """The mean of gradients over the root of their mean square, both without the bias of
        moments that start at 0, and the new moments.
        """
        mean, square = moments
        mean = mean * self.beta1 + g * (1 - self.beta1)
        square = square * self.beta2 + g * g * (1 - self.beta2)
        root = sqrt(square) * _as(1.0 / sqrt(1.0 - self.beta2**count), g)
        direction = mean / (root + self.epsilon) * _as(1.0 / (1.0 - self.beta1**count), g)
        return direction, (mean, square)


@dataclass(frozen=True, slots=True)
class AdamW(Adam):
    """Adam with a decay of the weights apart from their gradients (Loshchilov and Hutter,
    "Decoupled Weight Decay Regularization", 2019).

    weight_decay: times the rate, the fraction of the weight that is taken from it.
    """

    weight_decay: float = 1e-2

    def update(
        self, w: Any, g: Any, moments: Moments, rate: Any, count: Any
    ) -> tuple[Any, Moments]:
        direction, moments = self._direction(g, moments, count)
        kept = w * _as(1.0 - rate * self.weight_decay, w)
        return kept - direction * _as(rate, w), moments


@dataclass(frozen=True, slots=True)
class LAMB(Adam):
    """You et al., "Large Batch Optimization for Deep Learning" (2020), algorithm 2.  Adam's step
    and the decayed weight are scaled to the norm of the weight.

    epsilon: is added to the root of the mean square.
    weight_decay: multiple of the weight that is added to Adam's step.
    """

    epsilon: float = 1e-6
    weight_decay: float = 1e-2

    def update(
        self, w: Any, g: Any, moments: Moments, rate: Any, count: Any
    ) -> tuple[Any, Moments]:
        direction, moments = self._direction(g, moments, count)
        step = direction + w * self.weight_decay
        size, length = sqrt((w * w).sum()), sqrt((step * step).sum())
        known = (size > 0.0) & (length > 0.0)
        trust = where(known, size / where(known, length, 1.0), 1.0)
        return w - step * (trust * _as(rate, w)), moments


@dataclass(frozen=True, slots=True)
class Adagrad(Optimizer):
    """Duchi, Hazan and Singer, "Adaptive Subgradient Methods" (2011).

    rate: as for every optimiser.
    epsilon: is added to the root of the sum of squares.
    weight_decay: multiple of the weight that is added to its gradient.
    rate_decay: the rate is divided by 1 + steps * rate_decay.
    """

    rate: Schedule | float = 1e-2
    rate_decay: float = 0.0
    epsilon: float = 1e-10
    weight_decay: float = 0.0

    @property
    def moments(self) -> tuple[str, ...]:
        return ("square",)

    def update(
        self, w: Any, g: Any, moments: Moments, rate: Any, count: Any
    ) -> tuple[Any, Moments]:
        g = _decayed(w, g, self.weight_decay)
        square = moments[0] + g * g
        rate = _as(rate / ((count - 1.0) * self.rate_decay + 1.0), w)
        return w - g / (sqrt(square) + self.epsilon) * rate, (square,)


@dataclass(frozen=True, slots=True)
class RMSprop(Optimizer):
    """Tieleman and Hinton's RMSprop (2012), with momentum if `momentum` is not 0.

    rate: as for every optimiser.
    epsilon: is added to the root.
    weight_decay: multiple of the weight that is added to its gradient.
    alpha: decay of the mean square of gradients.
    centered: whether the step is divided by the deviation of gradients, not by their size.
    """

    rate: Schedule | float = 1e-2
    alpha: float = 0.99
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    @property
    def moments(self) -> tuple[str, ...]:
        extra = (("mean", self.centered), ("momentum", self.momentum))
        return ("square", *(name for name, is_kept in extra if is_kept))

    def update(
        self, w: Any, g: Any, moments: Moments, rate: Any, count: Any
    ) -> tuple[Any, Moments]:
        g = _decayed(w, g, self.weight_decay)
        old = dict(zip(self.moments, moments, strict=True))
        new = {"square": old["square"] * self.alpha + g * g * (1 - self.alpha)}
        variance = new["square"]
        if self.centered:
            new["mean"] = old["mean"] * self.alpha + g * (1 - self.alpha)
            variance = variance - new["mean"] * new["mean"]
        step = g / (sqrt(variance) + self.epsilon)
        if self.momentum:
            step = new["momentum"] = old["momentum"] * self.momentum + step
        return w - step * _as(rate, w), tuple(new[name] for name in self.moments)


OPTIMIZERS: Mapping[str, type[Optimizer]] = {
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "lamb": LAMB,
}
"""The optimisers by name."""


def _decayed(w: Any, g: Any, decay: float) -> Any:
    """The gradient of the loss with decay / 2 times the squared norm of the weight added."""
    return g + w * decay if decay else g


def clipped(gradients: list[Any], limit: float) -> list[Any]:
    """The gradients, scaled so that the norm of all of them together is at most `limit`.

    As `torch.nn.utils.clip_grad_norm_` does, it divides by the norm + 1e-6.
    """
    norm = sqrt(reduce(add, ((g * g).sum() for g in gradients)))
    factor = minimum(limit / (norm + 1e-6), 1.0)
    return [g * factor for g in gradients]


def check_limit(limit: float | None) -> None:
    """Raises UsageError unless a limit of the norm is a finite number above 0, or None."""
    if limit is not None and not (math.isfinite(limit) and limit > 0):
        raise UsageError(f"clip_norm: expected a number above 0, found {limit}")
