"""Searches that use only costs: random, grid, coordinate descent, evolution, annealing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilesmith.search_space.space import Candidate, Space, candidate_key

from .base import Search


class Random(Search):
    """Uniformly random candidates."""

    def _next(self) -> Candidate:
        return self.space.random(self.rng)


class Grid(Search):
    """All candidates, in order."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._all = space.grid()

    def _next(self) -> Candidate | None:
        return next((c for c in self._all if candidate_key(c) not in self._proposed), None)


@dataclass
class _Descent:
    """A descent from `start`.

    left: proposals that it may make while another descent is ahead.
    """

    start: Candidate
    around: Iterator[Candidate]
    left: int
    cost: float = math.inf


class Coordinate(Search):
    """One descent from each start of the space; each changes one knob at a time.  At a local
    optimum the search jumps to a candidate near the best one.

    The descent with the least cost is ahead and gets every second turn.  It gets all turns once
    each other descent has used `PATIENCE` turns or has no new candidate.
    """

    PATIENCE = 24
    """Number of turns that a descent gets while another one is ahead."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._descents = [_Descent(s, space.neighbours(s), self.PATIENCE) for s in space.starts]
        self._turn = 0

    def _next(self) -> Candidate:
        self._turn += 1
        first = min(self._descents, key=lambda d: d.cost)
        others = [d for d in self._descents if d is not first and d.left > 0]
        if others and self._turn % 2 == 0:
            behind = max(others, key=lambda d: d.left)
            behind.left -= 1
            if (candidate := self._new(behind)) is not None:
                return candidate
            behind.left = 0
        if (candidate := self._new(first)) is not None:
            return candidate
        return self.space.mutated(self.best, self.rng, turns=self.rng.randint(2, 3))

    def _new(self, descent: _Descent) -> Candidate | None:
        return next((c for c in descent.around if candidate_key(c) not in self._proposed), None)

    def _learn(self, candidate: Candidate, cost: float) -> None:
        inside = [d for d in self._descents if {**candidate, **d.start} == candidate]
        if not inside:
            return
        descent = max(inside, key=lambda d: len(d.start))
        if cost < descent.cost:
            descent.cost = cost
            if len(self.costs) > 1:
                descent.around = self.space.neighbours(candidate)


class Evolution(Search):
    """Offspring of the best candidates so far: decisions from two of these, sometimes with one
    mutation.
    """

    POPULATION = 16

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._parents: dict[str, Candidate] = {}

    def _next(self) -> Candidate:
        alive = sorted((c, k) for k, c in self.costs.items() if c < math.inf)[: self.POPULATION]
        if len(alive) < 2:
            return self.space.mutated(self.space.start, self.rng, turns=2)
        a, b = (self._parents[k] for _, k in (self._draw(alive), self._draw(alive)))
        child = self.space.crossed(a, b, self.rng)
        if self.rng.random() < 0.7:
            child = self.space.mutated(child, self.rng)
        return child

    def _draw(self, alive: list[tuple[float, str]]) -> tuple[float, str]:
        """The better of two candidates that are drawn at random."""
        return min(self.rng.choice(alive), self.rng.choice(alive))

    def _learn(self, candidate: Candidate, cost: float) -> None:
        self._parents[candidate_key(candidate)] = candidate


class Annealing(Search):
    """A walk that takes every step to a lower cost.  It takes fewer steps to a higher cost as the
    temperature falls.
    """

    HEAT, COOLING = 0.2, 0.96

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._at, self._cost, self._heat = space.start, math.inf, self.HEAT

    def _next(self) -> Candidate:
        return self.space.mutated(self._at, self.rng, turns=self.rng.randint(1, 2))

    def _learn(self, candidate: Candidate, cost: float) -> None:
        if cost == math.inf:
            return
        worse = (cost - self._cost) / self._cost if self._cost < math.inf else -1.0
        if worse < 0 or self.rng.random() < math.exp(-worse / self._heat):
            self._at, self._cost = candidate, cost
        self._heat *= self.COOLING
