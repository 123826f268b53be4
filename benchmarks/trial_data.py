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
from tilesmith.search_space.space import Space
from tilesmith.support.options import Options
from tilesmith.te.knobs import Decisions, values_from_json
from tilesmith.tuning.features import features_of
from workloads import WORKLOADS, Workload

DATA = Path(__file__).resolve().parent / "data" / "records.jsonl.gz"
FEW = 6
"""Candidates that are too few to be ordered."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The candidates of a workload that were measured, their features [n, F], and their times as
    shares of the analytic schedule's in the same trial [n]: the two take turns, so that a busy
    moment slows both.
    """

    workload: Workload
    space: Space
    candidates: Sequence[Decisions]
    features: Array
    ratios: Array


def measured(path: Path = DATA) -> list[Measured]:
    """All of the data, workload by workload.  Decisions that the schedules no longer know are left
    out; their number is printed.
    """
    session = Session.of(Options(threads=1, jobs=1))
    by_name = {w.name: w for w in WORKLOADS}
    found, lost = [], 0
    with gzip.open(path, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            workload = by_name[row["workload"]]
            space = workload.task(session).space
            rows = [(values_from_json(c), s / b) for c, s, b, _ in row["trials"]]
            kept = [r for r in rows if space.legal(r[0]) == r[0]]
            lost += len(rows) - len(kept)
            if len(kept) < FEW:
                continue
            candidates = [c for c, _ in kept]
            features = features_of(space, session.target, workload.threads)(candidates)
            ratios = np.array([share for _, share in kept])
            found.append(Measured(workload, space, candidates, features, ratios))
    count = sum(len(m.candidates) for m in found)
    print(f"{count} trials of {len(found)} workloads; {lost} others have unknown decisions")
    return found


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
