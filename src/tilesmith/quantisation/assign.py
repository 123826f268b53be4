"""The cheapest schemes within a limit of loss.

The noise powers that layers add to the answers add up, as far as they are independent.  So the
choice is a knapsack: least time, with a limit on the sum of the noise.  Its Lagrangian relaxation
leaves, for each layer, the lower convex hull of its options in the plane of noise and time.  Taking
the hulls' edges in order of the noise that they save per second gives a path from the fastest
assignment to the most exact one.  The loss of whole assignments is then measured: bisection finds
the first one on the path that keeps the limit.  Then single steps before it are undone where the
limit still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

L = TypeVar("L", bound=Hashable)

TAKEN_BACK = 6
"""Upper bound on the steps that are tried to be undone."""


@dataclass(frozen=True, slots=True)
class Option:
    """The effect of a scheme on one layer.

    scheme: its name.
    seconds: predicted time.
    noise: power of the noise that it adds to the answers, relative to the signal.
    """

    scheme: str
    seconds: float
    noise: float


@dataclass(frozen=True, slots=True)
class Step(Generic[L]):
    """A change that makes one layer more exact.

    layer: the layer.
    before, after: its options.
    """

    layer: L
    before: Option
    after: Option

    @property
    def seconds(self) -> float:
        """The time that it costs."""
        return self.after.seconds - self.before.seconds

    @property
    def saved(self) -> float:
        """The noise that it saves."""
        return self.before.noise - self.after.noise


def hull(options: Sequence[Option]) -> list[Option]:
    """Options on the lower convex hull of noise and time, from the fastest to the most exact."""
    corners: list[Option] = []
    for o in sorted(options, key=lambda o: (o.seconds, o.noise)):
        if corners and o.noise >= corners[-1].noise:
            continue  # this choice is slower and not more exact
        while len(corners) > 1 and _rate(corners[-1], o) >= _rate(corners[-2], corners[-1]):
            corners.pop()
        corners.append(o)
    return corners


def _rate(a: Option, b: Option) -> float:
    """The noise saved per second by a change from `a` to the slower `b`."""
    seconds = b.seconds - a.seconds
    return (a.noise - b.noise) / seconds if seconds > 0 else float("inf")


def path(options: Mapping[L, Sequence[Option]]) -> tuple[dict[L, str], list[Step[L]]]:
    """The fastest assignment, and the steps that lead from it to the most exact one, those that
    save most noise per second first.
    """
    hulls = {layer: hull(several) for layer, several in options.items()}
    steps = [Step(k, a, b) for k, h in hulls.items() for a, b in pairwise(h)]
    steps.sort(key=lambda s: _rate(s.before, s.after), reverse=True)
    return {layer: h[0].scheme for layer, h in hulls.items()}, steps


def cheapest(
    options: Mapping[L, Sequence[Option]], keeps: Callable[[Mapping[L, str]], bool]
) -> dict[L, str]:
    """The assignment of least predicted time among those tried for which `keeps` is true.

    keeps: whether an assignment keeps the limit, measured on all layers together.  The most exact
        one is assumed to keep it.
    """
    fastest, steps = path(options)

    def after(taken: Sequence[Step[L]]) -> dict[L, str]:
        return fastest | {s.layer: s.after.scheme for s in taken}

    low, high = 0, len(steps)  # the error is within the limit after `high` steps
    if keeps(fastest):
        return fastest
    while high - low > 1:
        middle = (low + high) // 2
        if keeps(after(steps[:middle])):
            high = middle
        else:
            low = middle
    taken = steps[:high]
    last = {s.layer: s for s in taken}  # of several steps of one layer, only the last can be undone
    dearest = sorted(last.values(), key=lambda s: s.seconds, reverse=True)
    for step in [s for s in dearest if s is not taken[-1]][:TAKEN_BACK]:
        fewer = [s for s in taken if s is not step]
        if keeps(after(fewer)):
            taken = fewer
    return after(taken)
