#!/usr/bin/env python3
"""How long compiling takes, cold and cached, and importing: `python benchmarks/compile_time.py`.

Every time is taken in a process of its own.  "Cold" starts with an empty cache folder and "cached"
repeats it; both count `ts.compile` from reading the file to a ready executable.  Prints one JSON
list.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
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


def seconds(program: str, *arguments: str, **environment: str) -> float:
    """The number that a program prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return float(done.stdout)


def compile_times(model: Path) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as cache:
        cold = seconds(_COMPILE, str(model), TILESMITH_CACHE_DIR=cache)
        cached = [seconds(_COMPILE, str(model), TILESMITH_CACHE_DIR=cache) for _ in range(3)]
    return [
        {"what": f"compile {model.stem}, cold", "seconds": cold},
        {"what": f"compile {model.stem}, cached", "seconds": statistics.median(cached)},
    ]


def import_time(module: str) -> dict[str, Any]:
    program = _IMPORT.format(module=module)
    seconds(program)  # writes the .pyc files
    times = [seconds(program) for _ in range(7)]
    return {"what": f"import {module}", "seconds": statistics.median(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    given = parser.parse_args()
    # The package loads the compiler when it is first used; the driver is all of it.
    rows = [import_time("tilesmith"), import_time("tilesmith.driver")]
    for model in given.models:
        rows += compile_times(model)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
