#!/usr/bin/env python3
"""`torch.compile` with PyTorch's own compiler and with Tilesmith: `python -m benchmarks.inductor`.

For each model of the zoo, in float32 without gradients: the time of the first call, in a process
and with caches of its own, from `torch.compile` on (Dynamo's work counts, importing PyTorch does
not); then the time of later calls, in turns in one process.  Inductor freezes weights.  Prints
medians and minima, the ratios and the geometric mean; exit status 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

FASTER, QUICKER = 1.2, 2.0
"""Bars: Inductor's time over ours, for later calls (geometric mean) and for the first (each)."""
LIMIT = 600.0
"""Seconds that a process may take."""
BACKENDS = ("inductor", "tilesmith")


def prepared(name: str, backend: str, threads: int) -> Callable[[], Any]:
    """A function that calls the model compiled by `backend`; nothing is compiled yet."""
    import torch

    import zoo

    torch.set_num_threads(threads)
    model, inputs, _ = zoo.build(name)
    options: dict[str, Any] = {"freezing": True} if backend == "inductor" else {"threads": threads}
    compiled = torch.compile(model, backend=backend, options=options)
    return lambda: compiled(*inputs.values())


def first_call(name: str, backend: str, threads: int) -> float:
    """Seconds."""
    import torch

    call = prepared(name, backend, threads)
    with torch.no_grad():
        start = time.perf_counter()
        call()
        return time.perf_counter() - start


def in_turns(name: str, threads: int, rounds: int) -> list[list[float]]:
    """Seconds of a call with each backend, in each round."""
    import torch

    calls = [prepared(name, b, threads) for b in BACKENDS]
    times: list[list[float]] = [[] for _ in calls]
    with torch.no_grad():
        answers = [call() for call in calls]
        torch.testing.assert_close(answers[1], answers[0], rtol=1e-3, atol=1e-3)
        for call in calls:
            call()
        for _ in range(rounds):
            for call, found in zip(calls, times, strict=True):
                start = time.perf_counter()
                call()
                found.append(time.perf_counter() - start)
    return times


def in_process(folder: str, *arguments: str) -> Any:
    """What this file prints for these arguments, with caches in `folder`."""
    caches = {
        "TILESMITH_CACHE_DIR": f"{folder}/tilesmith",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
    }
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env={**os.environ, **caches},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measured(name: str, threads: int, rounds: int) -> tuple[float, float]:
    """Prints a model's row; the ratios of later calls and of the first."""
    with tempfile.TemporaryDirectory() as folder:
        given = ("--threads", str(threads), "--rounds", str(rounds))
        theirs, ours = (in_process(folder, name, "--first", b, *given) for b in BACKENDS)
        times = in_process(folder, name, "--turns", *given)
    medians = [statistics.median(t) for t in times]
    shown = " | ".join(f"{m * 1e3:.2f} ({min(t) * 1e3:.2f})" for m, t in zip(medians, times))
    later, first = medians[0] / medians[1], theirs / ours
    print(
        f"| {name} | {shown} | {later:.2f} | {theirs:.1f} | {ours:.1f} | {first:.1f} |", flush=True
    )
    return later, first


def main() -> int:
    import zoo

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"default: {' '.join(zoo.NAMES)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--first", choices=BACKENDS, help=argparse.SUPPRESS)
    parser.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names: Sequence[str] = given.names or zoo.NAMES
    if given.first:
        print(json.dumps(first_call(names[0], given.first, given.threads)))
        return 0
    if given.turns:
        print(json.dumps(in_turns(names[0], given.threads, given.rounds)))
        return 0
    print("| model | Inductor, ms | Tilesmith, ms | ratio | first call, s | ours | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows = [measured(name, given.threads, given.rounds) for name in names]
    later = math.exp(statistics.fmean(math.log(r) for r, _ in rows))
    least = min(r for _, r in rows)
    print(f"\nlater calls {later:.2f} (bar {FASTER}), first calls at least {least:.1f} ({QUICKER})")
    return int(later < FASTER or least < QUICKER)


if __name__ == "__main__":
    sys.exit(main())
