#!/usr/bin/env python3
"""Training by `torch.compile(backend="tilesmith")`, beside eager mode and PyTorch's own compiler:
`python -m benchmarks.training [NAMES]`.

A step is the forward and the backward pass in float32, without the optimiser, which is PyTorch's in
every case.  All take turns in one process.  Our gradients are compared with those in float64 first.
Prints minima and medians, the ratio of the better peer's minimum to ours and the geometric mean;
exit status 1 where a bar is missed.  PyTorch's compiler needs a C++ compiler; without one there is
eager mode alone, and the table says so.
"""

from __future__ import annotations

import argparse
import copy
import math
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

MEAN, LEAST = 1.15, 0.95
"""Bars: the better peer's time over ours, as a geometric mean and for each network."""

FACTOR = 4
"""Times `usual_error` that a gradient may be off."""

ROUNDING = 1e-6
"""Relative disturbance of weights, which rounding of sums in another order is like."""


def stepping(model: Any, backend: str, batch: Any, threads: int) -> Callable[[], list[Any]]:
    """A step, which gives the loss and the gradients."""
    import torch

    mine = copy.deepcopy(model).train()
    options = {"options": {"threads": threads}} if backend == "tilesmith" else {}
    call = mine
    if backend != "eager":
        call = torch.compile(_with_own_code(mine), backend=backend, **options)
    x, wanted = batch

    def step() -> list[Any]:
        mine.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(call(x), wanted)
        loss.backward()
        return [loss.detach(), *(p.grad for p in mine.parameters())]

    return step


def _with_own_code(model: Any) -> Callable[[Any], Any]:
    """A function that calls `model` and has code of its own.

    Where a backend finds nothing to compile in a function, such as a recurrent layer alone, Dynamo
    no longer traces the function's code, whichever backend comes next.
    """

    def call(x: Any) -> Any:
        return model(x)

    return FunctionType(call.__code__.replace(), globals(), "call", None, call.__closure__)


def errors(found: list[Any], exact: list[Any]) -> list[float]:
    """The relative error of each gradient, as a vector.  Batch norms make gradients of biases
    before them zero, so the largest gradients set the least size that counts.
    """
    least = 1e-3 * max(float(e.norm()) for e in exact)
    return [
        float((f - e).norm()) / max(float(e.norm()), least)
        for f, e in zip(found, exact, strict=True)
    ]


def usual_error(model: Any, batch: Any, exact: list[Any], threads: int) -> float:
    """The largest error of eager mode with weights that are rounded otherwise: batch norms, and
    rectifiers that elements pass or not, amplify rounding.
    """
    import torch

    disturbed = copy.deepcopy(model)
    with torch.no_grad():
        for p in disturbed.parameters():
            p.mul_(1 + ROUNDING * torch.randn_like(p))
    steps = (stepping(m, "eager", batch, threads) for m in (model, disturbed))
    return max(max(errors(step(), exact)) for step in steps)


def compare(name: str, found: list[float], usual: float) -> None:
    """Raises SystemExit where an error is far from that of eager mode."""
    worst = max(found)
    if not worst < 0.01 + FACTOR * usual:
        raise SystemExit(
            f"{name}: a gradient is {worst:.2g} off, in eager mode {usual:.2g} at most"
        )


def exact_step(model: Any, batch: Any, threads: int) -> list[Any]:
    """The loss and the gradients in float64."""
    x, wanted = batch
    wide = x.double() if x.is_floating_point() else x
    return stepping(copy.deepcopy(model).double(), "eager", (wide, wanted), threads)()


def measured(name: str, backends: list[str], threads: int, rounds: int) -> float:
    """Prints a network's row; the ratio of the better peer's time to ours."""
    import torch

    from training_models import MODELS, in_turns

    torch.manual_seed(0)
    torch._dynamo.reset()
    make, draw = MODELS[name]
    model, batch = make(), draw()
    steps = {b: stepping(model, b, batch, threads) for b in backends}
    exact = exact_step(model, batch, threads)
    usual = usual_error(model, batch, exact, threads)
    for b, step in steps.items():
        if b != "eager":
            found = errors(step(), exact)
            step()
            if b == "tilesmith":
                compare(name, found, usual)
    _, shown, ratio = in_turns(steps, rounds)
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
