"""The trials that `collect_records.py` wrote, with the features of their candidates."""

from __future__ import annotations

import gzip
import json
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


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The candidates of a workload that were measured, their features [n, F], and their times as
    shares of the analytic schedule's [n].
    """

    workload: Workload
    space: Space
    candidates: list[Decisions]
    features: np.ndarray[Any, Any]
    ratios: np.ndarray[Any, Any]


def measured(path: Path = DATA) -> list[Measured]:
    """All of the data, workload by workload.  Decisions that the schedules no longer know are left
    out, and their number is printed.
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
            kept = [(c, r) for c, r in rows if space.legal(c) == c]
            lost += len(rows) - len(kept)
            candidates = [c for c, _ in kept]
            features = features_of(space, session.target, workload.threads)(candidates)
            ratios = np.array([r for _, r in kept])
            found.append(Measured(workload, space, candidates, features, ratios))
    count = sum(len(m.candidates) for m in found)
    print(f"{count} trials of {len(found)} workloads; {lost} others have unknown decisions")
    return found


def stacked(groups: list[Measured]) -> tuple[np.ndarray[Any, Any], ...]:
    """Features, ratios and group numbers of several workloads, as a cost model is fitted."""
    numbers = [np.full(len(g.ratios), i) for i, g in enumerate(groups)]
    return (
        np.concatenate([g.features for g in groups]),
        np.concatenate([g.ratios for g in groups]),
        np.concatenate(numbers),
    )
