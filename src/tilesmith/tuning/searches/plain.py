"""Searches that know nothing but costs: random, grid, coordinate descent, evolution, annealing."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..space import Candidate, Space, candidate_key
from .base import Search


class Random(Search):
    """Anything, evenly."""

    def _next(self) -> Candidate:
        return self.space.random(self.rng)


class Grid(Search):
    """Everything, in order."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._all = space.grid()

    def _next(self) -> Candidate | None:
        return next((c for c in self._all if candidate_key(c) not in self._proposed), None)


class Coordinate(Search):
    """From the analytic candidate, one knob at a time; from a local optimum a jump nearby."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._around: Iterator[Candidate] = space.neighbours(space.start)

    def _next(self) -> Candidate:
        found = next((c for c in self._around if candidate_key(c) not in self._proposed), None)
        if found is not None:
            return found
        return self.space.mutated(self.best, self.rng, turns=self.rng.randint(2, 3))

    def _learn(self, candidate: Candidate, cost: float) -> None:
        if candidate is self.best and len(self.costs) > 1:
            self._around = self.space.neighbours(candidate)


class Evolution(Search):
    """The best so far have offspring: decisions from two of them, now and then one changed."""

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
        """One of two drawn at random, the better."""
        return min(self.rng.choice(alive), self.rng.choice(alive))

    def _learn(self, candidate: Candidate, cost: float) -> None:
        self._parents[candidate_key(candidate)] = candidate


class Annealing(Search):
    """A walk that takes every step down and, the colder the fewer, steps up."""

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
