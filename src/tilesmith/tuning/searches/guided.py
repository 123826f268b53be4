"""A search by a cost model: many candidates are scored for each one that is measured.

The pool of candidates evolves: neighbours of the best measured one, and offspring of those with the
best scores.  The candidates with the best scores are measured.  Sometimes a random candidate is
measured, so that the model's data are not limited to its own choices.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tilesmith.search_space.space import Candidate, Space, candidate_key, candidate_of

from ..cost_model import Array, Learner
from .base import Search


class Featurize(Protocol):
    """The features of candidates of one space as float32 [n, F]."""

    def __call__(self, candidates: Sequence[Candidate], /) -> Array: ...


@dataclass(frozen=True, slots=True, eq=False)
class Guide:
    """The guide of the search of one workload.

    learner: the learner that all searches of a run share.
    group: the workload's number in the learner.
    features: features of the workload's candidates.
    """

    learner: Learner
    group: int
    features: Featurize


class KnobFeatures:
    """Features of a space of unknown schedules: the position of each knob among its options, from 0
    to 1, and -1 for an absent knob.
    """

    SAMPLES = 32
    """Candidates that are examined to find the knobs."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._names = sorted({k for c in _some(space, self.SAMPLES) for k in space.knobs(c)})

    @property
    def count(self) -> int:
        return len(self._names)

    def __call__(self, candidates: Sequence[Candidate], /) -> Array:
        rows = np.full((len(candidates), self.count), -1.0, np.float32)
        for row, c in zip(rows, candidates, strict=True):
            knobs = self._space.knobs(c)
            for i, name in enumerate(self._names):
                if (knob := knobs.get(name)) is not None:
                    position = knob.options.index(c.get(name, knob.default))
                    row[i] = position / max(len(knob.options) - 1, 1)
        return rows


class Guided(Search):
    """Search by a cost model, see above.  `guide` must be given."""

    FIRST, LATER = 96, 32
    """Number of new candidates that are made before the first proposal and before each later one.
    """
    POOL = 1024
    """Upper bound on the candidates in the pool; those with the best scores stay."""
    CHANCE = 0.1
    """Probability that a proposal is drawn from the pool at random."""
    PARENTS = 8
    """Number of parents among the best measured candidates, and among the best of the pool."""
    ANYTHING = 0.2
    """Fraction of new candidates without parents."""

    def __init__(self, space: Space, seed: int, guide: Guide) -> None:
        super().__init__(space, seed)
        self._guide = guide
        self._pool: dict[str, Candidate] = {}
        self._rows: dict[str, Array] = {}
        self._around: Candidate | None = None
        self._news: list[tuple[Candidate, float]] = []

    def propose(self, count: int) -> list[Candidate]:
        chosen = self._known_good(count)
        self._grow()
        order = self._ordered()
        while order and len(chosen) < count:
            number = self.rng.randrange(len(order)) if self.rng.random() < self.CHANCE else 0
            key, self.scores[key] = order.pop(number)
            self._proposed.add(key)
            chosen.append(self._pool.pop(key))
        return chosen

    def _known_good(self, count: int) -> list[Candidate]:
        """The candidates that were suggested."""
        suggested: list[Candidate] = []
        while self._suggested and len(suggested) < count:
            c = self._suggested.pop(0)
            key = candidate_key(c)
            if key not in self._proposed:
                self._proposed.add(key)
                suggested.append(c)
        return suggested

    def _next(self) -> Candidate | None:
        return next(iter(self.propose(1)), None)

    def _learn(self, candidate: Candidate, cost: float) -> None:
        self._pool.pop(candidate_key(candidate), None)
        self._news.append((candidate, cost))

    # --- the pool

    def _grow(self) -> None:
        """Pass measurements to the learner.  Add offspring to the pool, and the neighbours of a new
        best candidate.
        """
        wanted = self.LATER if self._rows else self.FIRST
        unseen = {k: c for c, _ in self._news if (k := candidate_key(c)) not in self._rows}
        self._featurise(unseen)
        for candidate, cost in self._news:
            row = self._rows[candidate_key(candidate)]
            self._guide.learner.add(self._guide.group, row, cost)
        self._news.clear()
        fresh: dict[str, Candidate] = {}
        if self._around is not self.best:
            self._around = self.best
            for c in self.space.neighbours(self.best):
                self._take(fresh, c)
        parents = self._parents()
        for _ in range(2 * wanted):
            if len(fresh) >= wanted:
                break
            self._take(fresh, self._child(parents))
        self._featurise(fresh)
        self._pool.update(fresh)

    def _featurise(self, candidates: Mapping[str, Candidate]) -> None:
        if candidates:
            rows = self._guide.features(list(candidates.values()))
            self._rows.update(zip(candidates, rows, strict=True))

    def _take(self, fresh: dict[str, Candidate], candidate: Candidate) -> None:
        key = candidate_key(candidate)
        if key not in self._proposed and key not in self._pool:
            fresh[key] = candidate

    def _parents(self) -> list[Candidate]:
        """The best measured candidates, then the best of the pool."""
        alive = sorted((c, k) for k, c in self.costs.items() if c < math.inf)
        measured = [candidate_of(k) for _, k in alive[: self.PARENTS]]
        return measured + [self._pool[k] for k, _ in self._ordered()[: self.PARENTS]]

    def _child(self, parents: Sequence[Candidate]) -> Candidate:
        if len(parents) < 2 or self.rng.random() < self.ANYTHING:
            return self.space.random(self.rng)
        a, b = self.rng.sample(parents, 2)
        child = self.space.crossed(a, b, self.rng) if self.rng.random() < 0.5 else a
        return self.space.mutated(child, self.rng, turns=self.rng.randint(1, 2))

    def _ordered(self) -> list[tuple[str, float]]:
        """The pool by score; candidates too far down to be measured are dropped."""
        keys = list(self._pool)
        if not keys:
            return []
        self.rng.shuffle(keys)  # random order among equal scores
        scores = self._guide.learner.scores(np.stack([self._rows[k] for k in keys]))
        order = [(keys[i], float(scores[i])) for i in np.argsort(scores, kind="stable")]
        for key, _ in order[self.POOL :]:
            del self._pool[key]
        return order[: self.POOL]


def _some(space: Space, count: int) -> Iterator[Candidate]:
    rng = random.Random(0)
    yield space.start
    yield from (space.random(rng) for _ in range(count))
