"""A search that learns its moves: a small policy network chooses which knob to change and how
far.

The state is a candidate, a move sets one knob to another option, and the reward is the decrease of
the logarithm of the cost.  The network scores each move from a few numbers that mean the same for
every knob and space, so that experience transfers between moves.  A softmax over the scores is the
policy.  After every measurement the weights take a step along the gradient of the expected reward
(REINFORCE with a baseline: Williams 1992), with a bonus for entropy.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from tilesmith.search_space.space import Candidate, Space, candidate_key

from .base import Search

HIDDEN = 16
RATE, MOMENTUM = 0.3, 0.5
ENTROPY = 0.01
"""Weight of the policy's entropy relative to the reward."""
FAILURE = -1.0
"""Reward of a candidate that fails; the least possible reward."""
SMOOTH = 0.8
"""Weight of the past in running means."""
RESTART = 6
"""Moves without a better candidate after which the walk returns to the best one."""
FAR = 8
"""Largest distance of a move, in options.  The first and the last option can be reached from
everywhere.
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Move:
    """A move of one knob by `step` options, and the candidate that results."""

    knob: str
    candidate: Candidate
    step: int


@dataclass(eq=False)
class _Choice:
    """A move taken, with the data to learn from it: all moves' features [n, D] and offsets [n], the
    move's number, the cost before it.
    """

    features: np.ndarray
    offsets: np.ndarray
    taken: int
    move: _Move
    before: float


@dataclass(eq=False)
class _Memory:
    """The average effect so far of moves of a knob up or down, and the number of these moves."""

    gain: float = 0.0
    count: int = 0

    def note(self, reward: float) -> None:
        self.count += 1
        keep = min(SMOOTH, 1 - 1 / self.count)
        self.gain = keep * self.gain + (1 - keep) * reward


@dataclass(eq=False)
class Network:
    """Scores of moves: one hidden layer of tanh, trained by gradient steps with momentum.

    inputs: number of features of a move.
    seed: seed of the initial weights.
    weights: weights of both layers.
    """

    inputs: int
    seed: int
    weights: list[np.ndarray] = field(init=False)
    _speed: list[np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.weights = [
            rng.normal(0, 1 / math.sqrt(self.inputs), (self.inputs, HIDDEN)),
            np.zeros(HIDDEN),
            rng.normal(0, 0.1 / math.sqrt(HIDDEN), HIDDEN),
        ]
        self._speed = [np.zeros_like(w) for w in self.weights]

    def policy(self, x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Probabilities of moves with features [n, inputs].  `offsets` [n] shift the scores."""
        w, b, v = self.weights
        return _softmax(np.tanh(x @ w + b) @ v + offsets)

    def learn(self, x: np.ndarray, offsets: np.ndarray, taken: int, advantage: float) -> None:
        """Make the move taken more likely in proportion to its advantage."""
        w, b, v = self.weights
        hidden = np.tanh(x @ w + b)
        p = _softmax(hidden @ v + offsets)
        logs = np.log(np.maximum(p, 1e-12))
        # For log p[taken], the derivative by s is onehot - p; for the entropy it is -p (log p + H).
        ds = -advantage * p + ENTROPY * -p * (logs - (p * logs).sum())
        ds[taken] += advantage
        dh = np.outer(ds, v) * (1 - hidden**2)
        slopes = (x.T @ dh, dh.sum(axis=0), hidden.T @ ds)
        for weight, speed, slope in zip(self.weights, self._speed, slopes, strict=True):
            speed *= MOMENTUM
            speed += slope
            weight += RATE * speed


class Policy(Search):
    """Search by a policy, see above."""

    FEATURES = 8

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self.network = Network(self.FEATURES, seed)
        self._at, self._cost, self._idle = space.start, math.inf, 0
        self._open: dict[str, _Choice] = {}
        self._memory: dict[tuple[str, bool], _Memory] = {}
        self._usual = _Memory()

    def _next(self) -> Candidate | None:
        for start in (self._at, self.best):
            moves = self._moves(start)
            if not moves:
                continue
            features = np.array([self._features(start, m) for m in moves])
            count = Counter(m.knob for m in moves)
            # Every knob starts with the same probability, whatever its number of options.
            offsets = -np.log([count[m.knob] for m in moves])
            p = self.network.policy(features, offsets)
            taken = min(int(np.searchsorted(np.cumsum(p), self.rng.random())), len(moves) - 1)
            key = candidate_key(moves[taken].candidate)
            before = self.costs.get(candidate_key(start), self.best_cost)
            self._open[key] = _Choice(features, offsets, taken, moves[taken], before)
            return moves[taken].candidate
        # All neighbours of the best candidate were tried.
        return self.space.mutated(self.best, self.rng, turns=3)

    def _learn(self, candidate: Candidate, cost: float) -> None:
        choice = self._open.pop(candidate_key(candidate), None)
        if choice is not None and choice.before < math.inf:
            reward = FAILURE
            if cost < math.inf:
                reward = float(np.clip(math.log(choice.before / cost), FAILURE, 1.0))
            advantage = reward - self._usual.gain
            self.network.learn(choice.features, choice.offsets, choice.taken, advantage)
            self._usual.note(reward)
            self._about(choice.move).note(reward)
        self._walk(candidate, cost)

    def _walk(self, candidate: Candidate, cost: float) -> None:
        """Continue from a candidate that is as good as the current one, or a little worse; return
        to the best one after a while.
        """
        self._idle = 0 if candidate is self.best else self._idle + 1
        if self._idle >= RESTART:
            self._at, self._cost, self._idle = self.best, self.best_cost, 0
        elif cost <= self._cost * (1 + 0.02 * self.rng.random()):
            self._at, self._cost = candidate, cost

    def _about(self, move: _Move) -> _Memory:
        return self._memory.setdefault((move.knob, move.step > 0), _Memory())

    def _moves(self, candidate: Candidate) -> list[_Move]:
        """The moves to candidates that were not proposed yet."""
        moves: list[_Move] = []
        for knob in self.space.free(candidate):
            here = knob.options.index(candidate.get(knob.name, knob.default))
            last = len(knob.options) - 1
            targets = {*range(max(here - FAR, 0), min(here + FAR, last) + 1), 0, last} - {here}
            for t in sorted(targets):
                changed = self.space.legal({**candidate, knob.name: knob.options[t]})
                if changed is not None and candidate_key(changed) not in self._proposed:
                    moves.append(_Move(knob.name, changed, t - here))
        return moves

    def _features(self, candidate: Candidate, move: _Move) -> list[float]:
        knob = self.space.knobs(candidate)[move.knob]
        last = max(len(knob.options) - 1, 1)
        here = knob.options.index(candidate.get(knob.name, knob.default))
        known, other = self._about(move), self._memory.get((move.knob, move.step < 0), _Memory())
        return [
            1.0,
            math.copysign(min(abs(move.step), FAR) / FAR, move.step),
            math.log2(1 + abs(move.step)) / 4,
            here / last,
            (here + move.step) / last,
            float(np.clip(10 * known.gain, -1, 1)),
            float(np.clip(10 * other.gain, -1, 1)),
            1 / (1 + known.count),
        ]


def _softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max())
    return e / e.sum()
