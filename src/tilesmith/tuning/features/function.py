"""Features of candidates: a function of the matrix of knobs for each structure of a schedule.

The *structure* of a candidate is the choice of its structural knobs: orders, annotations, sketches.
The split factors of `cfg.split` and the numbers of `cfg.choice` are numeric knobs.  The schedule is
made once with a symbol for each, and its features become one function of all of them.

A schedule function that tests the number of a knob (`if rows > 4`) can't run with symbols.  It
fails, or its features differ from the features of the same schedule with numbers.  This is checked
for every structure.  A schedule function that fails the check runs with numbers that record their
comparisons (`search_space.paths`).  It runs once for all candidates whose comparisons have the same
results.  Schedules that differ only in numbers share one function of these numbers (`skeleton`).  A
schedule function that can't be traced in this way either runs for each candidate.  The formulas of
the features are the same in all cases.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tilesmith.ir.expr import Var
from tilesmith.ir.target import Target
from tilesmith.ir.types import Dim
from tilesmith.search_space.paths import Path, Paths
from tilesmith.search_space.space import Candidate, Space
from tilesmith.support.errors import InternalError, ScheduleError, UsageError
from tilesmith.te.knobs import Config, Knob, Options, V, Value
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import AxisLike, Stage
from tilesmith.te.state import State

from .kernel import COMPARED, FEATURES, OWN, SECONDS, kernel_features
from .program import ArrayProgram
from .skeleton import Column, Skeletons
from .statement import FeatureSetting

WORTH = 3
"""Fewest candidates of one structure for which its function is made."""
CHECKED = 2
"""Number of structures of a schedule function whose features are checked with several candidates.
"""
TOLERANCE = 1e-4

ALL, BETWEEN, NONE = "all numbers", "numbers on a path", "none"
SYMBOLS = (ALL, BETWEEN, NONE)
"""Sets of symbolic knobs, in the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class Trace(Config):
    """A config that records which knobs are structural and which numeric.

    symbolic: whether numeric knobs are symbols.
    asked: the structural knobs that the schedule asked for, each with its default and value.
    columns: the numeric knobs, each with its variable.
    """

    symbolic: bool = True
    asked: dict[str, tuple[Value, Value]] = field(default_factory=dict)
    columns: dict[Column, Var] = field(default_factory=dict)

    def choice(self, name: str, options: Options[V], default: V) -> V:
        full = self.prefix + name
        if type(default) is int:
            symbol = self._column(full, None, default)
            if self.symbolic:
                return symbol  # type: ignore[return-value]  # as a number to those who don't look
        value = Config.choice(self, name, options, default)
        if not any(c.knob == full for c in self.columns):
            self.asked[full] = (default, value)
        return value

    def factors(
        self, name: str, stage: Stage, axis: AxisLike, default: tuple[int, ...]
    ) -> tuple[Dim, ...]:
        full = self.prefix + name
        symbols = tuple(self._column(full, n, d) for n, d in enumerate(default))
        return symbols if self.symbolic else Config.factors(self, name, stage, axis, default)

    def _column(self, knob: str, part: int | None, default: int) -> Var:
        label = knob if part is None else f"{knob}.{part}"
        return self.columns.setdefault(Column(knob, part, default), Var(label))


@dataclass(frozen=True, slots=True, eq=False)
class StructuralFeatures:
    """The features of all candidates with the same values of the structural knobs.

    columns: the numeric knobs.
    program: computes features from their values.
    analytic: the first `COMPARED` features of the analytic candidate.
    """

    columns: tuple[Column, ...]
    program: ArrayProgram
    analytic: np.ndarray

    def encode(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """The candidates' numeric knobs, int64 [n, columns]."""
        rows = [[c.value(candidate) for c in self.columns] for candidate in candidates]
        return np.array(rows, np.int64).reshape(len(candidates), len(self.columns))

    def features(self, knobs: np.ndarray) -> np.ndarray:
        """Features, float32 [n, F], column by column in memory, of numeric knobs [n, columns].

        Raises UsageError for a matrix of another width.
        """
        if knobs.ndim != 2 or knobs.shape[1] != len(self.columns):
            names = ", ".join(c.knob for c in self.columns) or "none"
            raise UsageError(
                f"expected a matrix with {len(self.columns)} columns ({names}), found one of shape "
                f"{knobs.shape}"
            )
        return compared(self.program, knobs, self.analytic)


@dataclass(slots=True, eq=False)
class _Leaf:
    """A structure; its function is made when enough candidates have it."""

    candidates: int = 0
    structure: StructuralFeatures | None = None


@dataclass(slots=True, eq=False)
class _Question:
    """The next structural knob, and the subtree of each of its values."""

    knob: str
    default: Value
    answers: dict[Value, _Question | _Leaf] = field(default_factory=dict)


class FeatureFunction:
    """The features of candidates; `FEATURES` names them.

    schedule: a function of a config that returns a schedule, or a tuple that begins with one.
    start: the analytic candidate.
    """

    def __init__(
        self,
        schedule: Callable[[Config], object],
        target: Target,
        threads: int = 1,
        start: Candidate | None = None,
        paths: Paths | None = None,
    ) -> None:
        self._schedule = schedule
        self._start: Candidate = start or {}
        self._machine = FeatureSetting(target, threads)
        self._symbols = 0
        self._checked = 0
        self._root: _Question | _Leaf | None = None
        self._paths = paths or Paths(schedule)
        self._ends: dict[Path, _Leaf] = {}
        self._skeletons = Skeletons(
            self._paths, lambda made: _schedule_of(made).state, self._of_state, WORTH
        )

    @property
    def symbolic(self) -> str:
        """The set of knobs that are symbols in the structures, and so columns of their matrices.
        It is one of `SYMBOLS`.
        """
        return SYMBOLS[self._symbols]

    def __call__(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """Features, float32 [n, F].  Raises ScheduleError for a candidate without a schedule."""
        if self.symbolic == BETWEEN:
            try:
                return self._along_paths(candidates)
            except ScheduleError:
                raise
            except Exception:  # on traced numbers, a function of ints may raise any error
                self._less_symbolic()
        before = self._symbols
        leaves: dict[_Leaf, list[int]] = {}
        for n, candidate in enumerate(candidates):
            leaves.setdefault(self._leaf(candidate), []).append(n)
        if self._symbols != before:
            return self(candidates)
        result = np.zeros((len(candidates), len(FEATURES)), np.float32)
        for leaf, rows in leaves.items():
            leaf.candidates += len(rows)
            mine = [candidates[n] for n in rows]
            if leaf.structure is None and leaf.candidates >= WORTH:
                leaf.structure = self.structure(mine[0])
                if self._symbols != before:
                    return self(candidates)  # the structure now depends on other knobs
            if leaf.structure is not None:
                result[rows] = leaf.structure.features(leaf.structure.encode(mine))
            else:
                result[rows] = [self.concrete(c) for c in mine]
        return result

    def _along_paths(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """The features for a schedule function that branches on the values of numeric knobs."""
        result = np.zeros((len(candidates), len(FEATURES)), np.float32)
        for rows, program, numbers in self._skeletons.parts(candidates):
            if program is None:
                result[rows] = [self.concrete(candidates[n]) for n in rows]
                continue
            result[rows] = compared(program, numbers, self._analytic)
            if self._checked < CHECKED:
                self._checked += 1
                for n in (rows[0], rows[len(rows) // 2], rows[-1]):
                    if not _is_close(result[n], self.concrete(candidates[n])):
                        raise _Unfit
        return result

    def matrix(self, knobs: np.ndarray, like: Candidate | None = None) -> np.ndarray:
        """Features, float32 [n, F], of the numeric knobs [n, K] of candidates with the structure of
        `like` (default: the analytic candidate).

        `structure(like).columns` are the knobs of the columns.
        """
        return self.structure(like or {}).features(knobs)

    def prior(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """Seconds that a closed formula predicts for candidates, float32 [n]."""
        return prior(self(candidates))

    def structure(self, candidate: Candidate) -> StructuralFeatures:
        """The structure of a candidate."""
        leaf = self._leaf(candidate)
        while leaf.structure is None:
            try:
                leaf.structure = self._trace(candidate)
            except _Unfit:
                self._less_symbolic()
                leaf = self._leaf(candidate)
        return leaf.structure

    def _less_symbolic(self) -> None:
        """Start again with the next set of symbolic knobs in `SYMBOLS`."""
        self._symbols += 1
        self._checked = 0
        self._root = None

    def concrete(self, candidate: Candidate) -> np.ndarray:
        """Features, float32 [F], of one candidate, without any symbols."""
        own = np.array(self._features(self._schedule(Config(candidate))), np.float32)
        return np.concatenate([own, own[:COMPARED] - self._analytic])

    @cached_property
    def _analytic(self) -> np.ndarray:
        """The features of the analytic candidate, with which others are compared."""
        return np.array(self._features(self._schedule(Config(self._start)))[:COMPARED], np.float32)

    def _features(self, made: object) -> list[Any]:
        """The features of a schedule function's result."""
        return self._of_state(_schedule_of(made).state)

    def _of_state(self, state: State) -> list[Any]:
        return kernel_features(state, self._machine)

    def _leaf(self, candidate: Candidate) -> _Leaf:
        if self.symbolic == NONE:
            return _Leaf()
        if self.symbolic == BETWEEN:
            try:
                return self._ends.setdefault(self._paths.follow(candidate, {}), _Leaf())
            except ScheduleError:
                raise
            except Exception:  # on traced numbers, a function of ints may raise any error
                self._less_symbolic()
                return self._leaf(candidate)
        node = self._root
        while isinstance(node, _Question):
            node = node.answers.get(candidate.get(node.knob, node.default))
        return self._grown(candidate) if node is None else node

    def _grown(self, candidate: Candidate) -> _Leaf:
        """Add a leaf to the tree for the structure of `candidate`, which was not seen before."""
        trace = Trace(candidate, symbolic=False)
        made = self._schedule(trace)
        leaf = _Leaf()
        if not trace.columns:  # all candidates of the structure have the same features
            leaf.structure = StructuralFeatures(
                (), ArrayProgram(self._features(made), ()), self._analytic
            )
        questions = list(trace.asked.items())
        if not questions:
            self._root = leaf
            return leaf
        if self._root is None:
            self._root = _Question(questions[0][0], questions[0][1][0])
        node: _Question | _Leaf = self._root
        for n, (knob, (_, value)) in enumerate(questions):
            if not isinstance(node, _Question) or node.knob != knob:
                self._less_symbolic()  # a number decides which knobs exist
                return self._leaf(candidate)
            follow: _Question | _Leaf = leaf
            if n + 1 < len(questions):
                follow = _Question(questions[n + 1][0], questions[n + 1][1][0])
            node = node.answers.setdefault(value, follow)
        return leaf

    def _trace(self, candidate: Candidate) -> StructuralFeatures:
        """The structure of a candidate.  Raises _Unfit if symbols can't stand for its numbers."""
        columns: dict[Column, Var] = {}
        try:
            if self.symbolic == ALL:
                trace = Trace(candidate, columns=columns)
                made = self._schedule(trace)
            elif self.symbolic == BETWEEN:
                knobs: dict[str, Knob] = {}
                path = self._paths.follow(candidate, knobs)
                columns |= {Column.of(knobs[k], part): v for (k, part), v in path.columns.items()}
                made = path.made
            else:
                made = self._schedule(Config(candidate))
            program = ArrayProgram(self._features(made), tuple(columns.values()))
        except Exception as e:  # on symbols, a function of numbers may raise any error
            raise _Unfit from e
        structure = StructuralFeatures(tuple(columns), program, self._analytic)
        for other in self._alike(candidate, structure):
            expected = self.concrete(other)
            (checked,) = structure.features(structure.encode([other]))
            if not _is_close(checked, expected):
                raise _Unfit
        return structure

    def _alike(self, candidate: Candidate, structure: StructuralFeatures) -> list[Candidate]:
        """Candidates with which a structure is checked.  For the first `CHECKED` structures they
        include random candidates.  `candidate` itself is included if all numeric knobs are symbols;
        otherwise paths say which candidates are equivalent.
        """
        candidates = [candidate] if self.symbolic == ALL else []
        if self._checked < CHECKED and structure.columns:
            self._checked += 1
            knobs: dict[str, Knob] = {}
            self._schedule(Config(candidate, knobs))
            rng = random.Random(0)
            for _ in range(3):
                other = dict(candidate)
                for name in dict.fromkeys(c.knob for c in structure.columns):
                    if name in knobs and (self.symbolic == ALL or rng.random() < 0.5):
                        other[name] = rng.choice(knobs[name].options)
                try:
                    self._schedule(Config(other))
                except ScheduleError:
                    continue
                if self.symbolic == ALL or self._leaf(other) is self._leaf(candidate):
                    candidates.append(other)
        return candidates


class _Unfit(Exception):
    """The features of a schedule function with symbols differ from those with numbers."""


def features_of(
    space: Space | Callable[[Config], object], target: Target, threads: int = 1
) -> FeatureFunction:
    """The features of a space's candidates, or of a template's schedules, on a target whose
    programs run with `threads` threads.
    """
    if isinstance(space, Space):
        return FeatureFunction(space.schedule, target, threads, space.baseline, space.paths)
    return FeatureFunction(space, target, threads)


def prior(features: np.ndarray) -> np.ndarray:
    """Seconds that the closed formula predicts, float32 [n], from features [n, F]."""
    return np.expm1(features[:, SECONDS]) * np.float32(1e-9)


def compared(program: ArrayProgram, numbers: np.ndarray, analytic: np.ndarray) -> np.ndarray:
    """Features, float32 [n, F], column by column in memory, by a program of the numbers [n, K]."""
    result = program(numbers, room=COMPARED)
    columns = result.T
    np.subtract(columns[:COMPARED], analytic[:, None], out=columns[len(OWN) :])
    return result


def _is_close(values: np.ndarray, expected: np.ndarray) -> bool:
    return np.allclose(values, expected, rtol=TOLERANCE, atol=TOLERANCE)


def _schedule_of(made: object) -> Schedule:
    schedule = made[0] if isinstance(made, tuple) else made
    if not isinstance(schedule, Schedule):
        raise InternalError(f"expected a function that returns a schedule, it returned {made!r}")
    return schedule
