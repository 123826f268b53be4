"""Models on an OpenCL device against the CPU: `python -m benchmarks.opencl zoo/`.

Each model runs in a process of its own, since a fault of a driver ends it.  Shown are the number of
kernels, seconds to compile and of the second run on the device, and the largest difference between
the answers as a share of the largest answer.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="a folder of .onnx files, or one of them")
    parser.add_argument("--child", action="store_true", help="measure one model and print JSON")
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measured(args.models)))
        return
    files = sorted(args.models.glob("*.onnx")) if args.models.is_dir() else [args.models]
    bound = Options().bound("f32")
    wrong = 0
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
