#!/usr/bin/env python3
"""Measure candidates of all workloads: `python benchmarks/collect_records.py --seconds 600`.

The trials go to a database of records at once, workloads in turns, so that it can be stopped at any
time and goes on where it stopped.  Candidates are drawn at random, of held-out workloads many more.
`--write` puts what is in the database into `data/records.jsonl.gz`, where lines of other workloads
stay; `train_cost_model.py` learns from it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from dataclasses import dataclass
from pathlib import Path

from measurers import Measurers
from tilesmith.driver import Session
from tilesmith.support.errors import TilesmithError
from tilesmith.support.options import Options
from tilesmith.tuning.measure import Task
from tilesmith.tuning.records import Records, Trial
from tilesmith.tuning.search import Search, search
from trial_data import DATA
from workloads import WORKLOADS, Workload

BATCH = 12
RUN_SECONDS = 0.015
ENOUGH, ENOUGH_HELD_OUT = 60, 120


@dataclass
class _Source:
    """A workload being measured, and what proposes its candidates."""

    workload: Workload
    task: Task
    search: Search
    count: int = 0

    @staticmethod
    def of(workload: Workload, session: Session, records: Records) -> _Source:
        task = workload.task(session)
        found = _Source(workload, task, search("random", task.space, seed=1))
        for t in records.trials(task.key):
            if task.space.legal(t.candidate) == t.candidate:
                found.note(t)
        return found

    def note(self, trial: Trial) -> None:
        self.count += 1
        self.search.observe(trial.candidate, trial.ratio)

    @property
    def is_done(self) -> bool:
        return self.count >= (ENOUGH_HELD_OUT if self.workload.is_held_out else ENOUGH)


def collect(path: Path, seconds: float, families: str | None) -> None:
    """Measure in turns for so many seconds, or until there is enough of everything."""
    session = Session.of(Options(threads=1, jobs=1))
    start = time.monotonic()
    with Records(path) as records, Measurers() as measurers:
        wanted = [w for w in WORKLOADS if families is None or w.family in families.split(",")]
        sources = [_Source.of(w, session, records) for w in wanted]
        while open_ := [s for s in sources if not s.is_done]:
            for s in sorted(open_, key=lambda s: (s.count, s.workload.name)):
                if time.monotonic() - start > seconds:
                    return
                measurer = measurers.of(s.workload.threads)
                candidates = s.search.propose(BATCH)
                if not candidates:
                    s.count = ENOUGH_HELD_OUT  # nothing left
                bad = 0
                for t in measurer.measure(s.task, candidates, RUN_SECONDS):
                    records.add(t)
                    s.note(t)
                    bad += t.status not in ("ok", "slow")
                best = min(s.search.costs.values(), default=1.0)
                at = f"{time.monotonic() - start:6.0f} s  {s.workload.name:40}"
                print(f"{at} {s.count:5} trials, best {best:.3f}, {bad} failed", flush=True)


def write(path: Path, session: Session) -> None:
    """One line for each workload: its name, target and trials as (decisions, seconds of the
    candidate and of the analytic schedule, status).  Lines of workloads without records stay.
    """
    DATA.parent.mkdir(exist_ok=True)
    lines: dict[str, str] = {}
    if DATA.is_file():
        with gzip.open(DATA, "rt") as old:
            lines = {json.loads(line)["workload"]: line for line in old}
    count = 0
    with Records(path) as records:
        for w in WORKLOADS:
            task = w.task(session)
            rows = [
                [
                    json.loads(t.decisions),
                    _short(t.seconds),
                    _short(t.baseline),
                    t.status,
                ]
                for t in records.trials(task.key)
                if t.status in ("ok", "slow") and task.space.legal(t.candidate) == t.candidate
            ]
            count += len(rows)
            if rows:
                line = {"workload": w.name, "target": session.target.text, "trials": rows}
                lines[w.name] = json.dumps(line, separators=(",", ":")) + "\n"
    with gzip.open(DATA, "wt", compresslevel=9) as out:
        out.writelines(lines[w.name] for w in WORKLOADS if w.name in lines)
    print(f"{count} trials, {DATA.stat().st_size / 1e6:.2f} MB in {DATA}")


def _short(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=Path("benchmark-results/trials.sqlite"))
    parser.add_argument("--seconds", type=float, default=600.0, help="to measure for; 0: don't")
    parser.add_argument("--families", help="only these, like dense,conv")
    parser.add_argument("--write", action="store_true", help=f"write {DATA.name}")
    given = parser.parse_args()
    try:
        if given.seconds:
            collect(given.records, given.seconds, given.families)
        if given.write:
            write(given.records, Session.of(Options(threads=1, jobs=1)))
    except TilesmithError as e:
        raise SystemExit(str(e)) from e


if __name__ == "__main__":
    main()
