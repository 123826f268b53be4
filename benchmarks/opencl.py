"""Models on an OpenCL device against the CPU: `python -m benchmarks.opencl zoo/`.

`--operators` runs all cases of the operators' tests, `--schedules N` so many random legal schedules
of blocks and threads, which the interpreter runs too.  Both run in child processes.  Where the
driver aborts, or an answer is wrong, the kernel runs alone, with a driver that does not optimise:
PoCL's optimiser drops the stores of some blocks whose barriers stand between branches of one
condition.  Such kernels are counted.

Each model runs in a process of its own, since a fault of a driver ends it.  Shown are the number of
kernels, seconds to compile and of the second run on the device, and the largest difference between
the answers as a share of the largest answer.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tilesmith as ts
from tilesmith.support.options import Options

SEED = 0


def measured(path: Path) -> dict[str, Any]:
    """What one model shows, compared with the CPU."""
    start = time.perf_counter()
    exe = ts.compile(str(path), target="opencl")
    compiled = time.perf_counter() - start
    rng = np.random.default_rng(SEED)
    given = [
        rng.standard_normal(s.static_shape).astype(s.dtype.numpy)
        if s.dtype.is_float
        else rng.integers(0, 2, s.static_shape).astype(s.dtype.numpy)
        for s in exe.inputs
    ]
    exe(*given)
    start = time.perf_counter()
    found = exe.run(dict(zip((s.name for s in exe.inputs), given, strict=True)))
    ran = time.perf_counter() - start
    wanted = ts.compile(str(path)).run({s.name: a for s, a in zip(exe.inputs, given, strict=True)})
    worst = max(
        float(np.abs(found[n] - w).max() / max(np.abs(w).max(), 1e-30)) for n, w in wanted.items()
    )
    return {"kernels": len(exe.program.calls), "compile": compiled, "run": ran, "error": worst}


CHILD = Path(__file__).resolve().parents[1] / "tests" / "backend" / "opencl" / "child.py"
TOGETHER = 60
"""Kernels of one child process."""
OPERATORS = 2000
"""More than there are."""


@dataclass
class Campaign:
    """What many kernels showed.

    found: what is wrong with each by name; None where nothing is.
    used: how many schedules use each primitive.
    aborted: kernels at which the driver aborts unless it does not optimise.
    spoilt: kernels whose answers are right unless the driver optimises.
    """

    found: dict[str, str | None] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)
    aborted: int = 0
    spoilt: int = 0

    def run(self, what: str, first: int, end: int, plain: bool = False) -> None:
        given = [what, str(first), str(end), "1", *(["plain"] if plain else [])]
        command = [sys.executable, str(CHILD), *given]
        with tempfile.TemporaryDirectory() as folder:  # where PoCL writes what it aborts at
            run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if not run.returncode:
            told = json.loads(run.stdout)
            if not plain:
                self.used.update(told["used"])
            for name, text in told["found"].items():
                self.found[name] = text
                number = re.search("[0-9]+", name)  # `schedule 307`, or `12: ` and an operator
                if text and number and not plain:
                    self.run(what, int(number[0]), int(number[0]) + 1, plain=True)
                    self.spoilt += self.found[name] is None
        elif end - first > 1:
            for n in range(first, end):
                self.run(what, n, n + 1)
        elif not plain:
            self.aborted += 1
            self.run(what, first, end, plain=True)
        else:
            self.found[f"{what} {first}"] = run.stderr[-2000:]

    def all(self, what: str, count: int) -> int:
        """Run so many, and show what is wrong.  Returns how many are."""
        for first in range(0, count, TOGETHER):
            before = len(self.found)
            self.run(what, first, min(first + TOGETHER, count))
            print(f"{what}: {len(self.found)}", end="\r", flush=True)
            if len(self.found) == before:  # there are no more
                break
        wrong = {name: text for name, text in self.found.items() if text}
        for name, text in wrong.items():
            print(f"{name}\n{text}")
        print(
            f"{what}: {len(self.found)}, wrong {len(wrong)}; at {self.aborted} the driver aborts "
            f"and in {self.spoilt} it spoils the answer, but for one that does not optimise"
        )
        if self.used:
            print(", ".join(f"{name} {n}" for name, n in self.used.most_common()))
        return len(wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="?", help="a folder of .onnx files, or a file")
    parser.add_argument("--operators", action="store_true", help="all cases of operators")
    parser.add_argument("--schedules", type=int, default=0, help="number of random schedules")
    parser.add_argument("--child", action="store_true", help="measure one model and print JSON")
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measured(args.models)))
        return
    wrong = 0
    if args.operators:
        wrong += Campaign().all("operators", OPERATORS)
    if args.schedules:
        wrong += Campaign().all("schedules", args.schedules)
    if args.models is None:
        sys.exit(bool(wrong))
    files = sorted(args.models.glob("*.onnx")) if args.models.is_dir() else [args.models]
    bound = Options().bound("f32")
    for path in files:
        command = [sys.executable, "-m", "benchmarks.opencl", "--child", str(path)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            wrong += 1
            print(f"{path.stem:20} failed: {run.stderr.strip().splitlines()[-1:]}", flush=True)
            continue
        m = json.loads(run.stdout)
        wrong += m["error"] > bound
        print(
            f"{path.stem:20} {m['kernels']:4} kernels, compiled in {m['compile']:6.1f} s, "
            f"run in {m['run']:7.2f} s, error {m['error']:.1e} (at most {bound:.0e})",
            flush=True,
        )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
