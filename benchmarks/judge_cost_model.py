#!/usr/bin/env python3
"""The cost model in the package on held-out workloads, measured now: `judge_cost_model.py`.

Of every workload that the model was not trained on 1,000 candidates are drawn, or all where there
are fewer, scored and measured (`--sample` of them only), the first 60 of them twice.  What seemed
best, and the eight best by score, are measured again for longer, in turns: of many noisy times the
least is too low.  Printed are the rank correlations of model and prior with the times, that of the
second measurement with the first (what noise allows), and what the best of the eight loses to the
best of all.

What is measured goes to databases under `--records` at once: a run that was stopped goes on, and
another model is judged by the same times.  The machine should be idle.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from measurers import Measurers
from tilesmith.driver import Session
from tilesmith.search_space.records import Records
from tilesmith.search_space.space import Candidate, candidate_key
from tilesmith.support.options import Options
from tilesmith.tuning.cost_model import PRETRAINED, Trees, require_lightgbm
from tilesmith.tuning.features import FEATURES, features_of, prior
from tilesmith.tuning.measure import LocalMeasurer, Task
from trial_data import Array, rank_correlation
from workloads import WORKLOADS, Workload

POOL, TOP = 1000, 8
FEW = 100
"""Candidates under which a space is too small to choose eight from."""
TWICE, BEST = 60, 16
RUN_SECONDS = 0.015
FINAL_SECONDS, FINAL_ROUNDS = 0.04, 3


@dataclass(frozen=True, slots=True)
class Judged:
    """Correlations with the times by score, and of the second measurement with the first; what the
    best of the first eight loses, by score; how many candidates there were.
    """

    correlation: dict[str, float]
    twice: float
    loss: dict[str, float]
    count: int

    @property
    def is_large(self) -> bool:
        return self.count >= FEW


@dataclass
class Times:
    """Shares of the analytic schedule's time in the same trial, kept in a database."""

    measurer: LocalMeasurer
    task: Task
    records: Records

    def of(self, candidates: Sequence[Candidate], seconds: float = RUN_SECONDS) -> Array:
        """[n]; infinite for a failure."""
        keys = [candidate_key(c) for c in candidates]
        known = {t.decisions: t for t in self.records.trials(self.task.key)}
        missing = [c for c, k in zip(candidates, keys, strict=True) if k not in known]
        for t in self.measurer.measure(self.task, missing, seconds):
            self.records.add(t)
            known[t.decisions] = t
        found = (known[k] for k in keys)
        good = ("ok", "slow")
        return np.array([t.seconds / t.baseline if t.status in good else np.inf for t in found])


def judge(
    workload: Workload, measurers: Measurers, session: Session, folder: Path, sample: int
) -> Judged:
    """Measure what no run before has, and compare."""
    task = workload.task(session)
    rng = random.Random(workload.name)
    drawn = (task.space.random(rng) for _ in range(4 * POOL))
    pool = list({candidate_key(c): c for c in drawn}.values())[:POOL]
    features = features_of(task.space, session.target, workload.threads)(pool)
    scores = {
        "model": Trees.read(PRETRAINED, FEATURES).predict(features),
        "prior": prior(features),
    }
    tops = {k: np.argsort(s, kind="stable")[:TOP] for k, s in scores.items()}
    chosen = sorted({*range(min(sample, len(pool))), *(i for top in tops.values() for i in top)})
    measurer = measurers.of(workload.threads)

    def times(name: str, numbers: Sequence[int], seconds: float = RUN_SECONDS) -> Array:
        with Records(folder / f"{name}.sqlite") as records:
            return Times(measurer, task, records).of([pool[i] for i in numbers], seconds)

    first = np.full(len(pool), np.nan)
    first[chosen] = times("first", chosen)
    again = times("again", chosen[:TWICE])
    drawn_ = np.array([i for i in chosen[:sample] if np.isfinite(first[i])])
    both = np.isfinite(first[chosen[:TWICE]] + again)
    best = sorted(chosen, key=lambda i: first[i])[:BEST]
    last = sorted({*best, *(i for top in tops.values() for i in top)})
    rounds = [times(f"final{n}", last, FINAL_SECONDS) for n in range(FINAL_ROUNDS)]
    settled = dict(zip(last, np.median(rounds, axis=0), strict=True))
    least = min(settled.values())
    return Judged(
        {k: rank_correlation(s[drawn_], first[drawn_]) for k, s in scores.items()},
        rank_correlation(first[chosen[:TWICE]][both], again[both]),
        {k: min(settled[i] for i in top) / least - 1 for k, top in tops.items()},
        len(pool),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=POOL, help="candidates measured")
    parser.add_argument("--families", help="only these, like dense,conv")
    parser.add_argument("--records", type=Path, default=Path("benchmark-results/judged"))
    given = parser.parse_args()
    require_lightgbm()
    given.records.mkdir(parents=True, exist_ok=True)
    session = Session.of(Options(threads=1, jobs=1))
    wanted = given.families.split(",") if given.families else None
    start, rows = time.monotonic(), []
    print(
        "| workload | candidates | model | prior | measured twice | best of 8 loses | prior's 8 |"
    )
    print("|---|---|---|---|---|---|---|")
    with Measurers() as measurers:
        for w in WORKLOADS:
            if not w.is_held_out or (wanted and w.family not in wanted):
                continue
            found = judge(w, measurers, session, given.records, given.sample)
            rows.append(found)
            c, loss = found.correlation, found.loss
            losses = [f"{loss[k]:.1%}" if found.is_large else "" for k in ("model", "prior")]
            print(
                f"| {w.name} | {found.count} | {c['model']:.2f} | {c['prior']:.2f} | "
                f"{found.twice:.2f} | {losses[0]} | {losses[1]} |",
                flush=True,
            )
    large = [r for r in rows if r.is_large]
    for k in ("model", "prior"):
        values = [r.correlation[k] for r in rows]
        near = sum(r.loss[k] <= 0.1 for r in large)
        print(
            f"{k}: rank correlation mean {np.mean(values):.3f}, median {np.median(values):.3f}; "
            f"best of {TOP} within 10%: {near} of {len(large)}"
        )
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
