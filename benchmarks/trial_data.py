"""The trials that `collect_records.py` wrote, with the features of their candidates."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.driver import Session
from tilesmith.strategy.knobs import Decisions, values_from_json
from tilesmith.support.options import Options
from tilesmith.tuning.features import features_of
from tilesmith.tuning.space import Space
from workloads import WORKLOADS, Workload

DATA = Path(__file__).resolve().parent / "data" / "records.jsonl.gz"
UNEVEN = 0.1
"""Deviation of the analytic schedule's time from its usual one, above which the machine was not
itself."""
FEW = 6
"""Candidates that are too few to be ordered."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The candidates of a workload that were measured, their features [n, F], and their times as
    shares of the analytic schedule's [n], which usually takes `usual` seconds.
    """

    workload: Workload
    space: Space
    candidates: Sequence[Decisions]
    features: Array
    ratios: Array
    usual: float


def measured(path: Path = DATA) -> list[Measured]:
    """All of the data, workload by workload.  Decisions that the schedules no longer know are left
    out, as are trials during which the machine was busy; their numbers are printed.
    """
    session = Session.of(Options(threads=1, jobs=1))
    by_name = {w.name: w for w in WORKLOADS}
    found, lost, uneven = [], 0, 0
    with gzip.open(path, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            workload = by_name[row["workload"]]
            space = workload.task(session).space
            rows = [(values_from_json(c), s, b) for c, s, b, _ in row["trials"]]
            kept = [r for r in rows if space.legal(r[0]) == r[0]]
            lost += len(rows) - len(kept)
            even, ratios, usual = even_ratios([s for _, s, _ in kept], [b for *_, b in kept])
            uneven += len(kept) - len(even)
            candidates = [kept[i][0] for i in even]
            if len(candidates) < FEW:
                continue
            features = features_of(space, session.target, workload.threads)(candidates)
            found.append(Measured(workload, space, candidates, features, ratios, usual))
    count = sum(len(m.candidates) for m in found)
    print(
        f"{count} trials of {len(found)} workloads; {lost} others have unknown decisions, "
        f"{uneven} were measured on a busy machine"
    )
    return found


def even_ratios(seconds: Sequence[float], baselines: Sequence[float]) -> tuple[Array, Array, float]:
    """Numbers of the trials measured while the machine was itself; their times as shares of what
    the analytic schedule usually takes, as its time in one trial is noisier; and that time.
    """
    base = np.asarray(baselines)
    usual = float(np.quantile(base, 0.25)) if len(base) else 1.0
    even = np.flatnonzero(np.abs(base / usual - 1) <= UNEVEN)
    return even, np.asarray(seconds)[even] / usual, usual


def rank_correlation(a: Array, b: Array) -> float:
    """Spearman's; 0 where one of them orders nothing."""
    x, y = _ranks(a), _ranks(b)
    return float(np.corrcoef(x, y)[0, 1]) if np.ptp(x) and np.ptp(y) else 0.0


def _ranks(values: Array) -> Array:
    """Ranks, equal values sharing the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[place]


def lost_by(scores: Array, ratios: Array, count: int = 8) -> float:
    """How much slower the best of the first `count` candidates by score is than the best of all."""
    first = np.argsort(scores, kind="stable")[:count]
    return float(ratios[first].min() / ratios.min() - 1)
