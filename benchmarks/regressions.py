#!/usr/bin/env python3
"""Every kernel of the zoo, as the performance model expects it and as it is measured:
`python benchmarks/regressions.py ZOO_DIR [--threads 1] [--json F]`.

The compiler chooses by this model, so a kernel that it misjudges is a kernel that may have been
chosen wrongly.  Prints the median of |predicted / measured - 1| over all kernels, for each model
and over all, and the kernels that are furthest off, those first where most time is at stake.  The
machine is measured anew.  A kernel of less than a microsecond is not counted: its time is mostly
that of the clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np

import tilesmith as ts
from tilesmith.cli.models import random_inputs
from tilesmith.runtime.rates import machine

BAR = 0.12
SHORTEST = 1e-6


def kernels(path: Path, threads: int, repeats: int) -> list[dict[str, Any]]:
    """A row for each kernel that a model calls, in order."""
    exe = ts.compile(path, threads=threads)
    answers = path.with_suffix(".npz")
    if answers.is_file():  # the zoo's own inputs
        with np.load(answers) as found:
            inputs = [found[f"in_{s.name}"] for s in exe.inputs]
    else:
        inputs = list(random_inputs(exe.inputs, seed=0).values())
    rows = []
    for i, k in enumerate(exe.profile(*inputs, repeats=repeats)):
        if k.info is None or k.prediction is None or k.seconds < SHORTEST:
            continue
        rows.append(
            {
                "model": path.stem,
                "threads": threads,
                "kernel": i,
                "operators": list(k.info.operators),
                "signature": k.info.signature,
                "schedule": k.info.schedule,
                "measured_ms": k.seconds * 1e3,
                "predicted_ms": k.prediction.seconds * 1e3,
                "bound": k.prediction.bound,
                "error": k.prediction.seconds / k.seconds - 1,
            }
        )
    return rows


def median_error(rows: list[dict[str, Any]]) -> float:
    """The median over kernels of how far the prediction is off, as a share of the measurement."""
    return statistics.median(abs(r["error"]) for r in rows) if rows else 0.0


def stake(row: dict[str, Any]) -> float:
    """Milliseconds between prediction and measurement."""
    return abs(row["predicted_ms"] - row["measured_ms"])


def report(rows: list[dict[str, Any]], worst: int) -> str:
    lines = []
    for model in dict.fromkeys(r["model"] for r in rows):
        mine = [r for r in rows if r["model"] == model]
        measured, predicted = (sum(r[f"{k}_ms"] for r in mine) for k in ("measured", "predicted"))
        lines.append(
            f"{model:16} {len(mine):4} kernels, median error {median_error(mine):5.1%}; "
            f"in all {measured:.2f} ms, predicted {predicted:.2f} ms"
        )
    error = median_error(rows)
    verdict = "met" if error <= BAR else "missed"
    lines.append(
        f"{'all':16} {len(rows):4} kernels, median error {error:5.1%} (bar {BAR:.0%}: {verdict})"
    )
    lines.append("furthest off:")
    lines += [
        f"  {r['measured_ms']:9.4f} ms, predicted {r['predicted_ms']:9.4f} "
        f"(x{1 + r['error']:.2f}, {r['bound']})  {r['model']} #{r['kernel']} "
        f"{'+'.join(r['operators'])}  {r['signature']}"
        for r in sorted(rows, key=stake, reverse=True)[:worst]
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("zoo", type=Path, help="folder of models exported by zoo.py, or one model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20, help="runs of each model")
    parser.add_argument("--worst", type=int, default=15, help="kernels to list")
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    parser.add_argument("--quiet", action="store_true", help="print nothing but a summary in JSON")
    given = parser.parse_args()
    machine(again=True)
    models = sorted(given.zoo.glob("*.onnx")) if given.zoo.is_dir() else [given.zoo]
    rows = [r for m in models for r in kernels(m, given.threads, given.repeats)]
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    if given.quiet:
        print(json.dumps({"kernels": len(rows), "median_error": median_error(rows)}))
    else:
        print(report(rows, given.worst))


if __name__ == "__main__":
    main()
