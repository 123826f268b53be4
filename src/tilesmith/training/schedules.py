"""Learning-rate schedules: formulas of the number of steps that were made."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from tilesmith.ops.functions import cos, floor, minimum, where
from tilesmith.support.arguments import check_fields
from tilesmith.support.errors import UsageError


@dataclass(frozen=True, slots=True)
class Schedule(ABC):
    """Base of the learning-rate schedules."""

    def __post_init__(self) -> None:
        check_fields(self, UsageError)

    @abstractmethod
    def at(self, step: Any) -> Any:
        """The rate after `step` steps; both are scalars of f64 in a graph."""


@dataclass(frozen=True, slots=True)
class Constant(Schedule):
    """Always `rate`."""

    rate: float

    def __post_init__(self) -> None:
        Schedule.__post_init__(self)
        check_rate("rate", self.rate)

    def at(self, step: Any) -> Any:
        return step * 0.0 + self.rate


@dataclass(frozen=True, slots=True)
class StepDecay(Schedule):
    """`rate`, multiplied by `factor` after every `steps` steps."""

    rate: float
    steps: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        Schedule.__post_init__(self)
        check_rate("rate", self.rate)
        check_rate("factor", self.factor)
        _check_steps(self.steps)

    def at(self, step: Any) -> Any:
        return self.factor ** floor(step / float(self.steps)) * self.rate


@dataclass(frozen=True, slots=True)
class Cosine(Schedule):
    """Half a period of a cosine from `rate` down to `lowest` in `steps` steps, then `lowest`
    (Loshchilov and Hutter, "SGDR", 2017, without restarts).
    """

    rate: float
    steps: int
    lowest: float = 0.0

    def __post_init__(self) -> None:
        Schedule.__post_init__(self)
        check_rate("rate", self.rate)
        check_rate("lowest", self.lowest)
        _check_steps(self.steps)

    def at(self, step: Any) -> Any:
        angle = minimum(step, float(self.steps)) * (math.pi / self.steps)
        return (cos(angle) + 1.0) * ((self.rate - self.lowest) / 2) + self.lowest


@dataclass(frozen=True, slots=True)
class WarmUp(Schedule):
    """Linear growth in `steps` steps to the first rate of `then`, then the schedule `then`.

    then: a schedule or a constant rate.
    start: the first rate, as a fraction of the first rate of `then`.
    """

    steps: int
    then: Schedule | float
    start: float = 0.0

    def __post_init__(self) -> None:
        Schedule.__post_init__(self)
        check_rate("start", self.start)
        scheduled(self.then)
        _check_steps(self.steps)

    def at(self, step: Any) -> Any:
        then = scheduled(self.then)
        share = step * ((1 - self.start) / self.steps) + self.start
        grown = share * then.at(step * 0.0)
        return where(step < float(self.steps), grown, then.at(step - float(self.steps)))


def scheduled(rate: Schedule | float) -> Schedule:
    """A rate as a schedule.  Raises UsageError for an impossible rate."""
    return rate if isinstance(rate, Schedule) else Constant(rate)


def check_rate(name: str, value: float) -> None:
    """Raises UsageError unless `value` is a finite number of at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{name}: expected a number of at least 0, found {value}")


def _check_steps(steps: int) -> None:
    if not 1 <= steps < 1 << 53:
        raise UsageError(f"steps: expected at least 1 step, found {steps}")
