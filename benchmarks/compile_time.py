#!/usr/bin/env python3
"""How long compiling takes, cold and cached, and importing, and the memory that it takes:
`python benchmarks/compile_time.py MODEL...`.

Every time is taken in a process of its own.  "Cold" starts with an empty cache folder and "cached"
repeats it; "kernels cached" runs all passes and packs all weights but finds every kernel.  All
count `ts.compile` from reading the file to a ready executable.  Peak memory is that of a process
that compiles and runs the model once and of all its children together, beside ONNX Runtime's: the
proportional set size (shared pages count once), looked at every 10 ms.  Prints one JSON list.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_IMPORT = """
import time
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""

_COMPILE = """
import sys, time
import tilesmith as ts
start = time.perf_counter()
ts.compile(sys.argv[1])
print(time.perf_counter() - start)
"""

_PEAK = """
import sys
import numpy as np
import tilesmith as ts
exe = ts.compile(sys.argv[1])
exe.run({s.name: np.ones(s.shape, s.dtype.numpy) for s in exe.inputs})
"""

_PEER_PEAK = """
import sys
import numpy as np
import onnxruntime as ort
s = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
s.run(None, {i.name: np.ones(i.shape, types[i.type]) for i in s.get_inputs()})
"""


def number(program: str, *arguments: str, **environment: str) -> float:
    """The number that a program prints; modules come from byte code, as installed ones do."""
    byte_code = {"PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **byte_code, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return float(done.stdout)


def peak_bytes(program: str, *arguments: str, **environment: str) -> int:
    """The most memory that a program and its children have at one time."""
    command = [sys.executable, "-c", program, *arguments]
    env = {**os.environ, **environment}
    peak = 0
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None:
            peak = max(peak, sum(map(_resident_bytes, _tree(running.pid))))
            time.sleep(0.01)
    if running.returncode:
        sys.exit(running.returncode)
    return peak


def _tree(process: int) -> Iterator[int]:
    """A process and all below it."""
    yield process
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended
            for child in listed.read_text().split():
                yield from _tree(int(child))


def _resident_bytes(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def compile_times(model: Path) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as cache:
        cold = number(_COMPILE, str(model), TILESMITH_CACHE_DIR=cache)
        cached = [number(_COMPILE, str(model), TILESMITH_CACHE_DIR=cache) for _ in range(3)]
        every = {"TILESMITH_TIME_PASSES": "1", "TILESMITH_CACHE_DIR": cache}  # all passes run
        kernels = [number(_COMPILE, str(model), **every) for _ in range(3)]
        peak = peak_bytes(_PEAK, str(model), TILESMITH_USE_CACHE="0") / 1e6
        peer = peak_bytes(_PEER_PEAK, str(model)) / 1e6
    return [
        {"what": f"compile {model.stem}, cold", "seconds": cold},
        {"what": f"compile {model.stem}, cached", "seconds": statistics.median(cached)},
        {"what": f"compile {model.stem}, kernels cached", "seconds": statistics.median(kernels)},
        {"what": f"peak memory of {model.stem}", "megabytes": peak, "onnxruntime": peer},
    ]


def import_time(module: str) -> dict[str, Any]:
    program = _IMPORT.format(module=module)
    number(program)  # writes the .pyc files
    times = [number(program) for _ in range(7)]
    return {"what": f"import {module}", "seconds": statistics.median(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    given = parser.parse_args()
    # The package loads the compiler where there is something to compile.
    rows = [import_time("tilesmith"), import_time("tilesmith.driver.compiler")]
    for model in given.models:
        rows += compile_times(model)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
