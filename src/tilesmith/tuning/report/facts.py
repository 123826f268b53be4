"""The contents of a report of tuning, as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilesmith.perf.machine import Rates
from tilesmith.search_space.records import SOUND


@dataclass(frozen=True, slots=True)
class Attempt:
    """A trial.

    after: seconds since tuning began.
    ratio: the candidate's time relative to the analytic schedule's; infinite for a failure.
    status: status of the trial.
    cause: reason of a failure.
    decisions: the candidate.
    predicted: ratio that the analytic model predicts; None if there is no prediction.
    score: the cost model's score before the measurement, in the model's units; None if there was no
        score.
    """

    after: float
    ratio: float
    status: str
    cause: str = ""
    decisions: str = ""
    predicted: float | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """A workload that was tuned.

    label: the workload in words.
    seconds: time of its kernels in the untuned model.
    best: ratio of the best candidate.
    attempts: its trials, in order.
    winner: decisions of the best candidate, if it beats the analytic schedule by enough.
    """

    label: str
    seconds: float
    best: float
    attempts: tuple[Attempt, ...]
    winner: Mapping[str, object] | None = None

    @property
    def saved(self) -> float:
        """Seconds of the model that the best candidate saves if no other workload changes."""
        return self.seconds * (1 - self.best)

    @property
    def failures(self) -> int:
        return sum(a.status not in SOUND for a in self.attempts)

    @property
    def curve(self) -> list[float]:
        """The best ratio after each attempt, beginning with 1.0 for the analytic schedule."""
        return list(np.minimum.accumulate([1.0, *(a.ratio for a in self.attempts)]))

    @property
    def correlation(self) -> float | None:
        """Spearman's rank correlation between predicted and measured ratios; None if undefined."""
        return _correlation([(a.predicted, a.ratio) for a in self.attempts])

    @property
    def score_correlation(self) -> float | None:
        """Spearman's rank correlation between the cost model's scores and measured ratios."""
        return _correlation([(a.score, a.ratio) for a in self.attempts])

    @property
    def placed(self) -> list[tuple[float, float]]:
        """(rank in the cost model's order, measured ratio) of each candidate that the model scored.
        Ranks go from 0, the fastest, to 1.
        """
        known = [(a.score, a.ratio) for a in self.attempts if a.score is not None]
        if len(known) < 2:
            return []
        places = _ranks(np.array([s for s, _ in known])) / (len(known) - 1)
        return [(float(p), r) for p, (_, r) in zip(places, known, strict=True) if math.isfinite(r)]


def _correlation(pairs: Sequence[tuple[float | None, float]]) -> float | None:
    known = [(p, r) for p, r in pairs if p is not None and math.isfinite(r)]
    if len(known) < 3:
        return None
    x, y = (_ranks(np.array(v, float)) for v in zip(*known, strict=True))
    if not x.std() or not y.std():
        return None
    return float(np.corrcoef(x, y)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values have their mean rank."""
    distinct, inverse = np.unique(values, return_inverse=True)
    order = np.argsort(values, kind="stable")
    place = np.empty(len(values))
    place[order] = np.arange(len(values))
    total = np.bincount(inverse, weights=place, minlength=len(distinct))
    return (total / np.bincount(inverse, minlength=len(distinct)))[inverse]


@dataclass(frozen=True, slots=True)
class Timing:
    """One or more kernels that compute the same source nodes.

    seconds: their time in the model.
    flops: floating-point operations.
    bytes: lower bound on the bytes that they move.
    bound: the resource that limits them.
    """

    seconds: float
    flops: float
    bytes: float
    bound: str = ""

    @property
    def gflops(self) -> float:
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """The same source nodes before and after tuning.

    sources: the source nodes.
    operators: their operators.
    before, after: the kernels' times.
    schedules: for each kernel after tuning: its operators and types, its steps, and its loops as
        text.
    """

    sources: tuple[str, ...]
    operators: tuple[str, ...]
    before: Timing
    after: Timing
    schedules: tuple[tuple[str, tuple[str, ...], str], ...] = ()

    @property
    def speedup(self) -> float:
        return self.before.seconds / self.after.seconds if self.after.seconds else 1.0

    @property
    def saved(self) -> float:
        """Seconds that tuning saves."""
        return self.before.seconds - self.after.seconds

    @property
    def title(self) -> str:
        """The operators, for people."""
        return " ".join(self.operators) or "kernel"

    @property
    def name(self) -> str:
        """The source nodes, for people."""
        return shortened(self.sources) or "no source node"


def shortened(names: Sequence[str]) -> str:
    """The first of some names, and the number of the others."""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return " ".join(names[:4]) + more


@dataclass(frozen=True, slots=True)
class ChoiceFacts:
    """A choice of the whole model about some source nodes.

    what: description of the choice.
    sources: the source nodes.
    default: the pass's own value.
    chosen: the value that was kept.
    tried: for each value, the time of the kernels of these nodes relative to the time before;
        infinite if the whole model got slower.
    """

    what: str
    sources: tuple[str, ...]
    default: object
    chosen: object
    tried: Mapping[object, float]


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of a report.

    title: the model.
    machine: the CPU.
    versions: versions of the software.
    threads: number of threads.
    speedup: speedup of the whole model, measured alternately.
    tasks: the tuned workloads.
    kernels: kernels before and after tuning.
    rates: the machine's measured rates with that number of threads.
    choices: choices of the whole model.
    stages: seconds of each stage of tuning.
    """

    title: str
    machine: str
    versions: str
    threads: int
    speedup: float
    tasks: Sequence[TaskFacts]
    kernels: Sequence[KernelFacts]
    rates: Rates
    choices: Sequence[ChoiceFacts] = ()
    stages: Mapping[str, float] = field(default_factory=dict)

    @property
    def errors(self) -> dict[tuple[str, str, str], int]:
        """Number of occurrences of each failure (kernel, kind, cause), the most frequent first."""
        counts: dict[tuple[str, str, str], int] = {}
        for t in self.tasks:
            for a in t.attempts:
                if a.status not in ("ok", "slow"):
                    key = (t.label, a.status, a.cause)
                    counts[key] = counts.get(key, 0) + 1
        return dict(sorted(counts.items(), key=lambda c: -c[1]))

    @property
    def progress(self) -> list[tuple[float, float]]:
        """For each attempt, in order: (seconds so far, fraction of the tasks' untuned time that
        remains).
        """
        whole = sum(t.seconds for t in self.tasks) or 1.0
        best = [1.0] * len(self.tasks)
        events = sorted(
            ((a.after, i, a.ratio) for i, t in enumerate(self.tasks) for a in t.attempts),
            key=lambda e: e[0],
        )
        points = [(0.0, 1.0)]
        for after, i, ratio in events:
            best[i] = min(best[i], ratio)
            share = sum(t.seconds * b for t, b in zip(self.tasks, best, strict=True)) / whole
            points.append((after, share))
        return points
