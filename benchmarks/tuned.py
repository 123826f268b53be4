#!/usr/bin/env python3
"""What tuning for a minute gives: `python benchmarks/tuned.py MODEL.onnx ... [--seconds 60]`.

Each model is tuned from nothing (a cache and records of its own), in a process of its own; then the
tuned executable, the untuned one and every engine that is installed take turns, in float32 with the
same number of threads.  Prints one JSON line for each model: `ratio` is the time of the fastest
engine over that of the tuned executable, `untuned` that of the untuned one over it.  After several
models a last line has the geometric mean and the least of both.

With `--longer SECONDS` no engines take part: the model is tuned on for all of so long, and
`converged` is the share of the speed of the executable found then that the first one has.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilesmith as ts
from latency import TURN, torch_compile
from tilesmith.cli.compare import OURS, compare
from tilesmith.cli.engines import Prepare, installed
from tilesmith.cli.models import random_inputs
from tilesmith.driver.request import Request
from tilesmith.runtime.executable import Executable
from tilesmith.tuning.model import Tuned, tune_model
from tilesmith.tuning.options import TuneOptions

UNTUNED, LONGER = "untuned", "longer"


def ours(exe: Executable) -> Prepare:
    """Another executable of ours as an engine."""

    def prepare(_model: Path, inputs: Mapping[str, np.ndarray], _threads: int) -> Any:
        return lambda: list(exe.run(inputs).values())

    return prepare


def model_inputs(path: Path, exe: Executable) -> dict[str, np.ndarray]:
    """The zoo's own inputs of a model, random ones where there are none."""
    answers = path.with_suffix(".npz")
    if not answers.is_file():
        return random_inputs(exe.inputs, seed=0)
    with np.load(answers) as found:
        return {s.name: found[f"in_{s.name}"] for s in exe.inputs}


def measure(path: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The row of one model."""
    with tempfile.TemporaryDirectory() as folder:
        options = ts.Options(cache_dir=Path(folder), threads=given.threads)

        def tuned(seconds: float, early_stopping: bool = True) -> tuple[Tuned, float]:
            start = time.perf_counter()
            tuning = TuneOptions(
                seconds=seconds,
                search=given.search,
                seed=given.seed,
                early_stopping=early_stopping,
            )
            found = tune_model(Request(path, options), tuning)
            return found, time.perf_counter() - start

        first, wall = tuned(given.seconds)
        exe = first.executable
        untuned = ts.compile(path, options=options.with_(use_records=False))
        engines: dict[str, Prepare] = {UNTUNED: ours(untuned)}
        if given.longer is None:
            engines |= installed(path)
            if given.torch:
                engines |= torch_compile(path.stem)
        else:
            more, more_wall = tuned(given.longer, early_stopping=False)
            engines[LONGER] = ours(more.executable)
        inputs = model_inputs(path, exe)
        exe.run(inputs)
        start = time.perf_counter()
        exe.run(inputs)
        turn = max(TURN, 4 * (time.perf_counter() - start)) * (len(engines) + 1)
        rounds = min(max(round(given.compare_seconds / turn), 3), 40)
        found = compare(exe, path, inputs, engines, rounds, TURN).as_dict()
    ratios = {name: e["ratio"] for name, e in found["engines"].items() if name != OURS}
    row = {
        "model": path.stem,
        "wall_seconds": round(wall, 1),
        "trials": sum(t.trials for t in first.tasks),
        "spent": {name: round(s, 1) for name, s in first.spent.items()},
        UNTUNED: ratios.pop(UNTUNED),
    }
    if given.longer is not None:
        row["converged"] = ratios.pop(LONGER)
        row[LONGER] = {
            "wall_seconds": round(more_wall, 1),
            "trials": sum(t.trials for t in more.tasks),
        }
    elif ratios:
        row["peer"] = min(ratios, key=ratios.__getitem__)
        row["ratio"] = ratios[row["peer"]]
    return {**row, **found}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric means and least values of what the rows have."""
    result: dict[str, Any] = {"models": len(rows)}
    for name in ("ratio", UNTUNED, "converged"):
        if values := [r[name] for r in rows if name in r]:
            result[name] = {
                "geometric_mean": math.exp(sum(map(math.log, values)) / len(values)),
                "least": min(values),
            }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="to tune for")
    parser.add_argument("--longer", type=float, help="to tune on for, and compare with")
    parser.add_argument("--compare-seconds", type=float, default=12.0, help="of taking turns")
    parser.add_argument("--search", default="coordinate", help="see docs/tuning.md")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--torch", action="store_true", help="torch.compile takes part (slow)")
    given = parser.parse_args()
    if len(given.models) == 1:
        print(json.dumps(measure(given.models[0], given)), flush=True)
        return
    names = {str(m) for m in given.models}
    common = [a for a in sys.argv[1:] if a not in names]
    rows = []
    for model in given.models:
        done = subprocess.run(
            [sys.executable, __file__, str(model), *common], stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            print(json.dumps({"model": model.stem, "failed": done.returncode}), flush=True)
            continue
        print(line := done.stdout.splitlines()[-1], flush=True)
        rows.append(json.loads(line))
    print(json.dumps(summary(rows)))
    if len(rows) < len(given.models):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
