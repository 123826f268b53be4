#!/usr/bin/env python3
"""Whole models against ONNX Runtime: `python benchmarks/models.py MODEL.onnx ... --threads 2`.

Both run in float32 with the same number of threads, taking turns; the ratio is the median over
rounds of our time over theirs in the same round.  Prints one JSON list.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import tilesmith as ts
from tilesmith.cli.engines import onnxruntime
from tilesmith.cli.models import random_inputs
from tilesmith.support.measure import interleave, ratio


def measure_model(path: Path, threads: int, rounds: int) -> dict[str, Any]:
    """Times of one model and the largest difference between the two engines' outputs."""
    exe = ts.compile(path, threads=threads)
    answers = path.with_suffix(".npz")
    if answers.is_file():  # the zoo's own inputs
        with np.load(answers) as found:
            inputs = {s.name: found[f"in_{s.name}"] for s in exe.inputs}
    else:
        inputs = random_inputs(exe.inputs, seed=0)
    theirs = onnxruntime(path, inputs, threads)
    worst = 0.0
    for a, b in zip(exe.run(inputs).values(), theirs(), strict=True):
        worst = max(worst, float(np.abs(a - b).max()) / (float(np.abs(b).max()) or 1.0))
    samples = interleave(
        {"tilesmith": lambda: exe.run(inputs), "onnxruntime": theirs}, rounds=rounds
    )
    return {
        "model": path.stem,
        "threads": threads,
        "tilesmith": samples["tilesmith"].as_dict(),
        "onnxruntime": samples["onnxruntime"].as_dict(),
        "ratio": ratio(samples["tilesmith"], samples["onnxruntime"]),
        "difference": worst,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    print(json.dumps([measure_model(m, given.threads, given.rounds) for m in given.models]))


if __name__ == "__main__":
    main()
