#!/usr/bin/env python3
"""The cost model in the package on held-out workloads, measured now: `judge_cost_model.py`.

Of every workload that the model was not trained on 1,000 candidates are drawn and scored.  Measured
are the eight best by score, twice, and a random sample of the others, twice.  Printed are the rank
correlations of model and prior with the sample's times, that of its two measurements (no model can
do better), and what the best of the eight loses to the best of all that were measured.  With
`--sample 992` that is all of them; the machine should be idle.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

import numpy as np

from measurers import Measurers
from tilesmith.driver import Session
from tilesmith.support.options import Options
from tilesmith.tuning.cost_model import PRETRAINED, Trees, require_lightgbm
from tilesmith.tuning.features import FEATURES, features_of, prior
from tilesmith.tuning.measure import LocalMeasurer, Task
from tilesmith.tuning.space import Candidate, candidate_key
from trial_data import Array, rank_correlation
from workloads import WORKLOADS, Workload

POOL, TOP = 1000, 8
RUN_SECONDS = 0.015
FEW = 100
"""Candidates under which a space is too small to choose eight from."""


def judge(
    workload: Workload, measurers: Measurers, session: Session, seed: int, sample: int
) -> list[float] | None:
    """Correlations of the model, the prior and the second measurement with the first; what the best
    of the first eight loses by the model, by the prior.  None for a space that is too small.
    """
    task = workload.task(session)
    rng = random.Random(seed)
    drawn = (task.space.random(rng) for _ in range(2 * POOL))
    pool = list({candidate_key(c): c for c in drawn}.values())[:POOL]
    if len(pool) < FEW:
        return None
    features = features_of(task.space, session.target, workload.threads)(pool)
    scores = {
        "model": Trees.read(PRETRAINED, FEATURES).predict(features),
        "prior": prior(features),
    }
    tops = {k: np.argsort(s, kind="stable")[:TOP] for k, s in scores.items()}
    others = rng.sample(range(len(pool)), min(sample, len(pool)))
    wanted = sorted({*others, *tops["model"], *tops["prior"]})
    measurer = measurers.of(workload.threads)
    first = _times(measurer, task, [pool[i] for i in wanted])
    again = _times(measurer, task, [pool[i] for i in reversed(wanted)])[::-1]
    at = {i: n for n, i in enumerate(wanted)}
    some = np.array([n for i in others if np.isfinite(first[n := at[i]] + again[n])])
    both = np.minimum(first, again)
    chosen = {k: min(both[at[i]] for i in top) / both.min() - 1 for k, top in tops.items()}
    numbers = np.array([wanted[n] for n in some])
    return [
        *(rank_correlation(scores[k][numbers], both[some]) for k in ("model", "prior")),
        rank_correlation(first[some], again[some]),
        chosen["model"],
        chosen["prior"],
    ]


def _times(measurer: LocalMeasurer, task: Task, candidates: Sequence[Candidate]) -> Array:
    """Seconds of each; infinite for a failure."""
    found = measurer.measure(task, candidates, RUN_SECONDS)
    return np.array([t.seconds if t.status in ("ok", "slow") else np.inf for t in found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=60, help="candidates measured beside the top")
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--families", help="only these, like dense,conv")
    given = parser.parse_args()
    require_lightgbm()
    session = Session.of(Options(threads=1, jobs=1))
    wanted = given.families.split(",") if given.families else None
    start, rows = time.monotonic(), []
    print("| workload | model | prior | measured twice | best of 8 loses | prior's 8 |")
    print("|---|---|---|---|---|---|")
    with Measurers() as measurers:
        for w in WORKLOADS:
            if not w.is_held_out or (wanted and w.family not in wanted):
                continue
            row = judge(w, measurers, session, given.seed, given.sample)
            if row is None:
                continue
            rows.append(row)
            a, b, c, d, e = row
            print(f"| {w.name} | {a:.2f} | {b:.2f} | {c:.2f} | {d:.0%} | {e:.0%} |", flush=True)
    x = np.array(rows)
    for name, f in (("mean", np.mean), ("median", np.median)):
        print(f"{name}: model {f(x[:, 0]):.3f}, prior {f(x[:, 1]):.3f}, twice {f(x[:, 2]):.3f}")
    near = (x[:, 3:] <= 0.1).sum(axis=0)
    print(f"best of 8 within 10%: model {near[0]}/{len(x)}, prior {near[1]}/{len(x)}")
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
