#!/usr/bin/env python3
"""Training by `torch.compile(backend="tilesmith")`, beside eager mode and PyTorch's own compiler:
`python -m benchmarks.training [NAMES]`.

A step is the forward and the backward pass in float32, without the optimiser, which is PyTorch's in
every case.  All take turns in one process.  Gradients are compared with eager mode's first.  Prints
minima and medians, the ratio of the better peer's minimum to ours and the geometric mean; exit
status 1 where a bar is missed.  PyTorch's compiler needs a C++ compiler; without one there is eager
mode alone, and the table says so.
"""

from __future__ import annotations

import argparse
import copy
import math
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

MEAN, LEAST = 1.15, 0.95
"""Bars: the better peer's time over ours, as a geometric mean and for each network."""


def stepping(model: Any, backend: str, batch: Any, threads: int) -> Callable[[], list[Any]]:
    """A step, which gives the loss and the gradients."""
    import torch

    mine = copy.deepcopy(model).train()
    options = {"options": {"threads": threads}} if backend == "tilesmith" else {}
    call = mine if backend == "eager" else torch.compile(mine, backend=backend, **options)
    x, wanted = batch

    def step() -> list[Any]:
        mine.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(call(x), wanted)
        loss.backward()
        return [loss.detach(), *(p.grad for p in mine.parameters())]

    return step


def compare(name: str, backend: str, found: list[Any], wanted: list[Any]) -> None:
    """Raises SystemExit where a gradient is another one.  Batch norms amplify rounding, and make
    gradients of biases before them zero, so errors are relative to the largest elements.
    """
    least = 1e-3 * max(float(w.abs().max()) for w in wanted)
    for f, w in zip(found, wanted, strict=True):
        error = float((f - w).abs().max()) / max(float(w.abs().max()), least)
        if not error < 0.02:
            raise SystemExit(f"{name}: {backend}: a gradient differs by {error:.2g} of its largest")


def measured(name: str, backends: list[str], threads: int, rounds: int) -> float:
    """Prints a network's row; the ratio of the better peer's time to ours."""
    import torch

    from training_models import MODELS

    torch.manual_seed(0)
    torch._dynamo.reset()
    make, draw = MODELS[name]
    model, batch = make(), draw()
    steps = {b: stepping(model, b, batch, threads) for b in backends}
    wanted = steps["eager"]()
    for b, step in steps.items():
        if b != "eager":
            compare(name, b, step(), wanted)
            step()
    times: dict[str, list[float]] = {b: [] for b in backends}
    for _ in range(rounds):
        for b, step in steps.items():
            start = time.perf_counter()
            step()
            times[b].append((time.perf_counter() - start) * 1e3)
    shown = " | ".join(f"{min(t):.2f} ({statistics.median(t):.2f})" for t in times.values())
    ratio = min(min(t) for b, t in times.items() if b != "tilesmith") / min(times["tilesmith"])
    print(f"| {name} | {shown} | {ratio:.2f} |", flush=True)
    return ratio


def main() -> int:
    import torch

    from training_models import MODELS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    has_compiler = any(map(shutil.which, ("c++", "g++", "clang++", "cl")))
    backends = ["eager", *(["inductor"] if has_compiler else []), "tilesmith"]
    if not has_compiler:
        print("No C++ compiler, so PyTorch's own compiler can't run: eager mode alone.\n")
    print(f"| network | {' | '.join(f'{b}, ms' for b in backends)} | ratio |")
    print("| --- |" + " --- |" * (len(backends) + 1))
    ratios = [measured(n, backends, given.threads, given.rounds) for n in given.names or MODELS]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"\nmean {mean:.2f} (bar {MEAN}), least {min(ratios):.2f} (bar {LEAST})")
    return int(mean < MEAN or min(ratios) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
