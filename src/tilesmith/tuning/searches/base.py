"""The interface of searches: propose candidates, observe their costs.

All searches are deterministic for a seed and the observed costs.  None of them proposes a candidate
twice.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable

from tilesmith.search_space.space import Candidate, Space, candidate_key

ATTEMPTS = 60
"""Consecutive random draws without a new candidate after which a space counts as exhausted."""


class Search(ABC):
    """A search for the candidate with the least cost.

    costs: costs observed so far, by candidate key; infinite for candidates that failed.
    scores: a cost model's scores of candidates when they were proposed; lower ones are faster.
    """

    def __init__(self, space: Space, seed: int = 0) -> None:
        self.space = space
        self.rng = random.Random(seed)
        self.costs: dict[str, float] = {}
        self.scores: dict[str, float] = {}
        self.best: Candidate = space.start
        self.best_cost = math.inf
        self._proposed = {candidate_key(space.baseline)}
        self._suggested = [c for c in space.starts if c != space.baseline]

    def suggest(self, candidates: Iterable[Candidate]) -> None:
        """Propose these candidates first.  They were good for a workload of the same family."""
        self._suggested += candidates

    def propose(self, count: int) -> list[Candidate]:
        """Up to `count` candidates that are new; none at the end of the search."""
        fresh: list[Candidate] = []
        misses = 0
        while len(fresh) < count and misses < ATTEMPTS:
            candidate = self._suggested.pop(0) if self._suggested else self._next()
            if candidate is None:
                break
            key = candidate_key(candidate)
            if key in self._proposed:
                misses += 1
                continue
            misses = 0
            self._proposed.add(key)
            fresh.append(candidate)
        return fresh

    def observe(self, candidate: Candidate, cost: float) -> None:
        """Record a cost, which may come from another run."""
        key = candidate_key(candidate)
        self._proposed.add(key)
        self.costs[key] = cost
        if cost < self.best_cost:
            self.best, self.best_cost = candidate, cost
        self._learn(candidate, cost)

    @abstractmethod
    def _next(self) -> Candidate | None:
        """A candidate, new or not; None at the end."""

    def _learn(self, candidate: Candidate, cost: float) -> None:
        return None
