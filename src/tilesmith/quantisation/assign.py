"""The cheapest schemes within a limit of loss.

Each layer adds noise to the answers.  The noise powers add up, as far as they are independent.  So
the choice is a knapsack problem: least time, with a limit on the sum of the noise.  Its Lagrangian
relaxation leaves, for each layer, the lower convex hull of the layer's options in the plane of
noise and time.  The edges of all hulls, ordered by the noise that they save per second, form a path
from the fastest assignment to the most exact one.  The loss is then measured for whole assignments.
Bisection finds the first assignment on the path that keeps the limit.  At last, single steps of the
path are undone if the limit still holds without them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

L = TypeVar("L", bound=Hashable)

TAKEN_BACK = 6
"""Upper bound on the steps that `cheapest` tries to undo."""


@dataclass(frozen=True, slots=True)
class Option:
    """The effect of a scheme on one layer.

    scheme: the scheme's name.
    seconds: predicted time.
    noise: power of the noise that the layer then adds to the answers, relative to the signal.
    """

    scheme: str
    seconds: float
    noise: float


@dataclass(frozen=True, slots=True)
class Step(Generic[L]):
    """A change that makes one layer more exact.

    layer: the layer.
    before, after: the layer's options.
    """

    layer: L
    before: Option
    after: Option

    @property
    def seconds(self) -> float:
        """The time that the step costs."""
        return self.after.seconds - self.before.seconds

    @property
    def saved(self) -> float:
        """The noise that the step saves."""
        return self.before.noise - self.after.noise


def hull(options: Sequence[Option]) -> list[Option]:
    """Options on the lower convex hull of noise and time, from the fastest to the most exact."""
    corners: list[Option] = []
    for o in sorted(options, key=lambda o: (o.seconds, o.noise)):
        if corners and o.noise >= corners[-1].noise:
            continue  # this option is slower and not more exact
        while len(corners) > 1 and _rate(corners[-1], o) >= _rate(corners[-2], corners[-1]):
            corners.pop()
        corners.append(o)
    return corners


def _rate(a: Option, b: Option) -> float:
    """The noise saved per second by a change from `a` to the slower `b`."""
    seconds = b.seconds - a.seconds
    return (a.noise - b.noise) / seconds if seconds > 0 else float("inf")


def path(options: Mapping[L, Sequence[Option]]) -> tuple[dict[L, str], list[Step[L]]]:
    """The fastest assignment, and the steps that lead from it to the most exact one.  The steps
    that save the most noise per second come first.
    """
    hulls = {layer: hull(several) for layer, several in options.items()}
    steps = [Step(k, a, b) for k, h in hulls.items() for a, b in pairwise(h)]
    steps.sort(key=lambda s: _rate(s.before, s.after), reverse=True)
    return {layer: h[0].scheme for layer, h in hulls.items()}, steps


def cheapest(
    options: Mapping[L, Sequence[Option]], keeps: Callable[[Mapping[L, str]], bool]
) -> dict[L, str]:
    """The fastest assignment, by predicted time, of those that are tried and for which `keeps` is
    true.

    keeps: measures whether an assignment of all layers keeps the limit of loss.  The most exact
        assignment is assumed to keep it.
    """
    fastest, steps = path(options)

    def after(taken: Sequence[Step[L]]) -> dict[L, str]:
        return fastest | {s.layer: s.after.scheme for s in taken}

    low, high = 0, len(steps)  # the loss is within the limit after `high` steps
    if keeps(fastest):
        return fastest
    while high - low > 1:
        middle = (low + high) // 2
        if keeps(after(steps[:middle])):
            high = middle
        else:
            low = middle
    taken = steps[:high]
    last = {s.layer: s for s in taken}  # only the last step of a layer can be undone
    dearest = sorted(last.values(), key=lambda s: s.seconds, reverse=True)
    for step in [s for s in dearest if s is not taken[-1]][:TAKEN_BACK]:
        fewer = [s for s in taken if s is not step]
        if keeps(after(fewer)):
            taken = fewer
    return after(taken)
