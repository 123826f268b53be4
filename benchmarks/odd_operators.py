#!/usr/bin/env python3
"""Operators that libraries don't tune for: `python benchmarks/odd_operators.py --threads 2`.

Each of the ten in `odd/` is written as a tensor expression, and nothing but that expression is
given to `ts.tune_expression` for `--seconds`.  PyTorch (eager and compiled, in every way that an
expert would think of) and ONNX Runtime run the same computation where they can, in the memory
layout that they like best.  All take turns; `ratio` is the other's time over ours in the same round
(median over rounds), and the best other way counts.  Every result is checked against NumPy.

Names (or parts of them) choose operators.  With --results FILE what is done is kept there, and an
interrupted run goes on.  Prints a table, or one JSON list with --json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilesmith as ts
from odd import OPERATORS, Operator
from odd.peers import peers
from tilesmith.support.measure import interleave, ratio
from tilesmith.te.tensor import Placeholder

OURS, UNTUNED = "tilesmith", "tilesmith, untuned"
BOUND = 1e-4
"""Difference to NumPy, as a share of the largest magnitude, beyond which a result is wrong."""
FAR = 6
"""Times slower than the best other way from which on a way need not be timed any longer."""


def tuned(
    operator: Operator, arrays: Sequence[np.ndarray], threads: int, seconds: float
) -> dict[str, Callable[[], list[np.ndarray]]]:
    """Ours: what the rules choose by themselves, and what tuning finds."""
    with tempfile.TemporaryDirectory() as folder:  # no record of an earlier run helps
        options = ts.Options.from_environment(
            threads=threads, records=Path(folder) / "records.sqlite"
        )
        found = {UNTUNED: ts.build("auto", operator.define(), threads=threads, options=options)}
        if seconds > 0:
            found[OURS] = ts.tune_expression(
                operator.define(), seconds=seconds, threads=threads, options=options
            )
    outputs = [t for t in operator.define() if not isinstance(t.op, Placeholder)]

    def bound(function: Any) -> Callable[[], list[np.ndarray]]:
        results = [np.zeros(tuple(t.shape), t.dtype.numpy) for t in outputs]
        call = function.bind(*arrays, *results)

        def run() -> list[np.ndarray]:
            call()
            return results

        return run

    return {name: bound(f) for name, f in found.items()}


def measure(
    operator: Operator, threads: int, seconds: float, rounds: int, turn: float
) -> dict[str, Any]:
    """The row of one operator: times, differences and ratios to ours of all engines."""
    start = time.perf_counter()
    arrays = operator.arrays(np.random.default_rng(0))
    expected = operator.reference(*arrays)
    mine = tuned(operator, arrays, threads, seconds)
    found, failed = peers(operator, arrays, threads)
    runs: dict[str, Callable[[], Sequence[np.ndarray]]] = {**mine, **found}
    ours = OURS if OURS in mine else UNTUNED
    errors: dict[str, float] = {}
    for name, run in list(runs.items()):
        errors[name] = operator.difference(run(), expected, arrays)
        if not errors[name] <= BOUND:
            failed[name] = f"wrong by {errors[name]:.1e} of the largest magnitude"
            del runs[name]
    if ours not in runs:
        raise SystemExit(f"{operator.name}: {ours} is {failed[ours]}")
    once = {n: _seconds(r) for n, r in runs.items() if n not in mine}
    limit = FAR * min(once.values(), default=0.0)
    runs = {n: r for n, r in runs.items() if once.get(n, 0.0) <= limit}
    taken = interleave(runs, rounds=rounds, turn_seconds=turn)
    engines = {
        name: {**s.as_dict(), "ratio": ratio(s, taken[ours]), "difference": errors[name]}
        for name, s in taken.items()
    }
    return {
        "name": operator.name,
        "about": operator.about,
        "sizes": dataclasses.asdict(operator),
        "threads": threads,
        "gflop": operator.flops / 1e9,
        "megabytes": operator.moved(arrays, mine[ours]()) / 1e6,
        "engines": engines,
        "ours": ours,
        "failed": failed,
        "far_slower": {n: 1e3 * t for n, t in once.items() if t > limit},
        "seconds": time.perf_counter() - start,
    }


def _seconds(run: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def best_other(row: dict[str, Any]) -> tuple[str, float]:
    """The other engine that is fastest beside ours, and its time over ours."""
    others = {n: e["ratio"] for n, e in row["engines"].items() if n not in (OURS, UNTUNED)}
    name = min(others, key=lambda n: others[n])
    return name, others[name]


def line(row: dict[str, Any]) -> str:
    name, times = best_other(row)
    engines = row["engines"]
    untuned = engines[UNTUNED]["min_ms"]
    return (
        f"{row['name']:40s} {engines[row['ours']]['min_ms']:9.3f} ms (untuned {untuned:8.3f}), "
        f"{name:32s} {engines[name]['min_ms']:9.3f} ms: {times:5.2f}"
    )


def chosen(words: Sequence[str]) -> list[Operator]:
    """The operators whose names contain one of `words`."""
    return [k() for k in OPERATORS if not words or any(w in k.name for w in words)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="parts of operators' names")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30.0, help="of tuning for each; 0: none")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turn", type=float, default=0.03, help="seconds of each engine's turn")
    parser.add_argument("--results", type=Path, help="file to keep rows in")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    operators = chosen(given.words)
    if not operators:
        names = ", ".join(k.name for k in OPERATORS)
        raise SystemExit(
            f"no operator is called like {' or '.join(given.words)}; there are {names}"
        )
    rows: list[dict[str, Any]] = []
    if given.results is not None and given.results.is_file():
        rows = json.loads(given.results.read_text())
    done = {(r["name"], r["threads"]) for r in rows}
    for operator in operators:
        if (operator.name, given.threads) in done:
            continue
        row = measure(operator, given.threads, given.seconds, given.rounds, given.turn)
        rows.append(row)
        print(line(row), file=sys.stderr, flush=True)
        if given.results is not None:
            fresh = given.results.with_suffix(".part")
            fresh.write_text(json.dumps(rows, indent=1) + "\n")
            fresh.replace(given.results)
    names = {o.name for o in operators}
    mine = [r for r in rows if r["threads"] == given.threads and r["name"] in names]
    if given.json:
        print(json.dumps(mine))
        return
    for row in mine:
        print(line(row))
    mean = math.exp(statistics.fmean(math.log(best_other(r)[1]) for r in mine))
    print(f"geometric mean over {len(mine)} with {given.threads} threads: {mean:.2f}")


if __name__ == "__main__":
    main()
