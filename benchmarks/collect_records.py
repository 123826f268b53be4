#!/usr/bin/env python3
"""Measure candidates of all workloads: `python benchmarks/collect_records.py --seconds 600`.

The trials go to a database of records at once, workloads in turns, so that it can be stopped at any
time and goes on where it stopped.  Candidates are drawn at random.
`--write` adds what is in the database to `data/records.jsonl.gz`, in place of what is there of the
same candidates and of the families of `--replace`; `train_cost_model.py` learns from it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measurers import Measurers
from tilesmith.driver import Session
from tilesmith.search_space.records import Records, Trial
from tilesmith.search_space.space import candidate_key
from tilesmith.support.errors import TilesmithError
from tilesmith.support.options import Options
from tilesmith.te.knobs import values_from_json
from tilesmith.tuning.measure import Task
from tilesmith.tuning.search import Search, search
from trial_data import DATA
from workloads import WORKLOADS, Workload

BATCH = 12
RUN_SECONDS = 0.015
ENOUGH = 120

Row = Sequence[Any]
"""Decisions, seconds of the candidate and of the analytic schedule, status."""


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
        return self.count >= ENOUGH


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
                    s.count = ENOUGH  # nothing left
                bad = 0
                for t in measurer.measure(s.task, candidates, RUN_SECONDS):
                    records.add(t)
                    s.note(t)
                    bad += t.status not in ("ok", "slow")
                best = min(s.search.costs.values(), default=1.0)
                at = f"{time.monotonic() - start:6.0f} s  {s.workload.name:40}"
                print(f"{at} {s.count:5} trials, best {best:.3f}, {bad} failed", flush=True)


def write(path: Path, session: Session, replaced: Sequence[str]) -> None:
    """One line for each workload: its name, target and trials as (decisions, seconds of the
    candidate and of the analytic schedule, status).  `replaced`: families whose old trials go.
    """
    DATA.parent.mkdir(exist_ok=True)
    known: dict[str, list[Row]] = {}
    if DATA.is_file():
        with gzip.open(DATA, "rt") as old:
            known = {(row := json.loads(line))["workload"]: row["trials"] for line in old}
    count, lines = 0, []
    with Records(path) as records:
        for w in WORKLOADS:
            task = w.task(session)
            fresh = [
                (json.loads(t.decisions), _short(t.seconds), _short(t.baseline), t.status)
                for t in records.trials(task.key)
                if t.status in ("ok", "slow")
            ]
            rows = [*([] if w.family in replaced else known.get(w.name, [])), *fresh]
            legal = {
                candidate_key(c): row
                for row in rows
                if task.space.legal(c := values_from_json(row[0])) == c
            }
            count += len(legal)
            if legal:
                line = {"workload": w.name, "target": session.target.text}
                trials = {"trials": list(legal.values())}
                lines.append(json.dumps({**line, **trials}, separators=(",", ":")) + "\n")
    with gzip.open(DATA, "wt", compresslevel=9) as out:
        out.writelines(lines)
    print(f"{count} trials, {DATA.stat().st_size / 1e6:.2f} MB in {DATA}")


def _short(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=Path("benchmark-results/trials.sqlite"))
    parser.add_argument("--seconds", type=float, default=600.0, help="to measure for; 0: don't")
    parser.add_argument("--families", help="only these, like dense,conv")
    parser.add_argument("--write", action="store_true", help=f"write {DATA.name}")
    parser.add_argument("--replace", default="", help="families whose old trials are dropped")
    given = parser.parse_args()
    try:
        if given.seconds:
            collect(given.records, given.seconds, given.families)
        if given.write:
            session = Session.of(Options(threads=1, jobs=1))
            write(given.records, session, given.replace.split(","))
    except TilesmithError as e:
        raise SystemExit(str(e)) from e


if __name__ == "__main__":
    main()
