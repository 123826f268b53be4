#!/usr/bin/env python3
"""Searches beside each other: `python benchmarks/searches.py --trials 32`, or `--seconds 8`.

Each search measures so many candidates of the same held-out workloads, the searches in turns.
Printed is the best time after some numbers of trials, as a share of the analytic schedule's, and
the geometric mean over workloads.  With `--seconds`, searches have as much time each, what their
proposals take included, and the best of each is measured again for longer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from measurers import Measurers
from tilesmith.driver import Session
from tilesmith.support.options import Options
from tilesmith.tuning.search import SEARCHES, Searches
from workloads import WORKLOADS, Workload

BATCH = 4
RUN_SECONDS = 0.015
AFTER = (4, 8, 16, 32, 64, 128)


def curves(
    workload: Workload, names: Sequence[str], trials: int, measurers: Measurers, session: Session
) -> dict[str, list[float]]:
    """Of each search the best ratio after every trial."""
    task, measurer = workload.task(session), measurers.of(workload.threads)
    made = {n: Searches(n, session.target, workload.threads, seed=1).of(task.space) for n in names}
    found: dict[str, list[float]] = {n: [1.0] for n in names}
    while any(len(c) <= trials for c in found.values()):
        for name, search in made.items():
            candidates = search.propose(BATCH)
            for t in measurer.measure(task, candidates, RUN_SECONDS):
                search.observe(t.candidate, t.ratio)
                found[name].append(min(found[name][-1], t.ratio))
            if not candidates:
                found[name] += found[name][-1:] * BATCH
    return found


def race(
    workload: Workload, names: Sequence[str], seconds: float, measurers: Measurers, session: Session
) -> dict[str, list[float]]:
    """Of each search the best ratio after a half and all of so many seconds, its best candidate's
    when it is measured again, and its trials.
    """
    task, measurer = workload.task(session), measurers.of(workload.threads)
    made = {n: Searches(n, session.target, workload.threads, seed=1).of(task.space) for n in names}
    spent, best = dict.fromkeys(names, 0.0), dict.fromkeys(names, 1.0)
    found: dict[str, list[float]] = {n: [] for n in names}
    list(measurer.measure(task, [task.space.start], RUN_SECONDS))  # what all share
    while (name := min(names, key=lambda n: spent[n])) and spent[name] < seconds:
        began = time.perf_counter()
        candidates = made[name].propose(BATCH)
        for t in measurer.measure(task, candidates, RUN_SECONDS):
            made[name].observe(t.candidate, t.ratio)
            best[name] = min(best[name], t.ratio)
        spent[name] += time.perf_counter() - began if candidates else seconds
        if spent[name] >= seconds / 2 and not found[name]:
            found[name].append(best[name])
    for name in names:
        again = measurer.measure(task, [made[name].best], 10 * RUN_SECONDS)
        found[name] += [best[name], min(1.0, next(iter(again)).ratio), len(made[name].costs)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--families", default="tiled_matmul,tiled_conv,row_sums,dense,conv")
    parser.add_argument("--searches", default=",".join(SEARCHES))
    given = parser.parse_args()
    names = given.searches.split(",")
    session = Session.of(Options(threads=1, jobs=1))
    after = [n for n in AFTER if n <= given.trials]
    heads = [f"after {n}" for n in after]
    if given.seconds:
        heads = [f"after {given.seconds / 2:g} s", f"{given.seconds:g} s", "again", "trials"]
    print(f"| workload | search | {' | '.join(heads)} |")
    print("|---|---|" + "---|" * len(heads))
    rows: dict[str, list[list[float]]] = {n: [] for n in names}
    with Measurers() as measurers:
        for w in WORKLOADS:
            if w.is_held_out and w.family in given.families.split(","):
                if given.seconds:
                    found = race(w, names, given.seconds, measurers, session)
                else:
                    all_ = curves(w, names, given.trials, measurers, session)
                    found = {name: [curve[n] for n in after] for name, curve in all_.items()}
                for name, row in found.items():
                    rows[name].append(row)
                    print(f"| {w.name} | {name} | {_shown(rows[name][-1])} |", flush=True)
    for name, all_rows in rows.items():
        print(f"| geometric mean | {name} | {_shown(np.exp(np.log(all_rows).mean(axis=0)))} |")


def _shown(values: Sequence[float] | np.ndarray) -> str:
    return " | ".join(f"{v:.3f}" for v in values)


if __name__ == "__main__":
    main()
