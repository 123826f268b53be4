#!/usr/bin/env python3
"""One model against every engine that is installed: `python benchmarks/latency.py MODEL.onnx
--threads 2`.

All run in float32 with the same number of threads, taking turns.  torch.compile (with its weights
frozen) takes part for models of the zoo where `zoo.py` can make the module and there is a C++
compiler.  Prints one JSON object, as `tilesmith compare --json` has it for one run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import tilesmith as ts
from tilesmith.cli.compare import compare
from tilesmith.cli.engines import Prepare, installed, torch_engines
from tilesmith.cli.models import random_inputs

TURN = 0.1  # seconds


def torch_compile(name: str) -> dict[str, Prepare]:
    """torch.compile on a module of the zoo; empty where it can't be made."""
    try:
        import zoo

        if name not in zoo.NAMES:
            return {}
        engines = torch_engines(zoo.build(name)[0])
    except Exception as e:  # a package is missing, or the weights are not there
        print(f"no torch module for {name}: {e}", file=sys.stderr)
        return {}
    return {k: v for k, v in engines.items() if k == "torch.compile"}


def measure(path: Path, threads: int, seconds: float, with_torch: bool) -> dict[str, Any]:
    """The row of one model: times, ratios to ours and differences of each engine."""
    exe = ts.compile(path, threads=threads)
    answers = path.with_suffix(".npz")
    if answers.is_file():  # the zoo's own inputs
        with np.load(answers) as found:
            inputs = {s.name: found[f"in_{s.name}"] for s in exe.inputs}
    else:
        inputs = random_inputs(exe.inputs, seed=0)
    engines = installed(path)
    if with_torch:
        engines |= torch_compile(path.stem)
    exe.run(inputs)
    start = time.perf_counter()
    exe.run(inputs)
    once = time.perf_counter() - start
    # a turn is a warm-up and at least three runs
    turn = max(TURN, 4 * once) * (len(engines) + 1)
    rounds = min(max(round(seconds / turn), 3), 30)
    found = compare(exe, path, inputs, engines, rounds, TURN)
    return {"model": path.stem, **found.as_dict()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12.0, help="about how long to measure")
    parser.add_argument("--no-torch", action="store_true", help="leave torch.compile out")
    given = parser.parse_args()
    print(json.dumps(measure(given.model, given.threads, given.seconds, not given.no_torch)))


if __name__ == "__main__":
    main()
