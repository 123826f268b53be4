#!/usr/bin/env python3
"""All benchmarks: `python benchmarks/run.py --zoo DIR [--threads 1,2] [--readme]`.

Times of one machine mean little on another; the ratios do.  Whole models against ONNX Runtime,
OpenVINO and torch.compile, the performance model against measurement, what a call from Python
costs, odd operators tuned for 30 s each, a 640x640x640 matrix product against NumPy's BLAS, how
many candidates a tuner scores per second, compile and import time.  Each part runs in a process of
its own with a time limit, and what is done is kept in the results file at once: run again after an
interruption, it goes on where it stopped (`--again` starts afresh).

Without --zoo the only model is the ResNet-50 that `make_resnet.py` makes; with it, every .onnx file
in that folder (see `zoo.py`).  Writes results.json and results.md; --readme puts the tables of
models and of odd operators, as far as there are any, into README.md.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tables import BARS, markdown, models_tables, odd_tables

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
MARKS = "<!-- benchmarks -->\n", "<!-- /benchmarks -->"
ODD_MARKS = "<!-- odd operators -->\n", "<!-- /odd operators -->"
PACKAGES = ("tilesmith", "llvmlite", "numpy", "onnxruntime", "openvino", "torch")
CELL_SECONDS = 100  # for one model with one number of threads; torch.compile takes most of it


def part(program: str, *arguments: str, threads: int = 2, limit: float = 600) -> Any:
    """What one of the programs here prints as its last line; a dictionary with the key `failed`
    when it fails or takes longer than `limit` seconds.
    """
    what = f"{program} {' '.join(Path(a).name for a in arguments)}"
    print(f"{what} ...", file=sys.stderr, flush=True)
    start = time.perf_counter()
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / program), *arguments],
            env={**os.environ, **{v: str(threads) for v in variables}},
            stdout=subprocess.PIPE,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return {"what": what, "failed": f"took more than {limit:.0f} s"}
    print(f"{what}: {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    if done.returncode:
        return {"what": what, "failed": f"exit code {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def latency(model: Path, threads: int, seconds: float) -> dict[str, Any]:
    """One model with one number of threads; without torch.compile if that takes too long."""
    arguments = (str(model), "--threads", str(threads), "--seconds", str(seconds))
    row = part("latency.py", *arguments, threads=threads, limit=CELL_SECONDS)
    if "failed" in row and "what" in row:
        row = part("latency.py", *arguments, "--no-torch", threads=threads, limit=CELL_SECONDS)
    return {**row, "model": model.stem, "threads": threads}


class Results:
    """The results so far, in a file that is whole after every part."""

    def __init__(self, path: Path, again: bool, only: str) -> None:
        self.path = path
        self.only = only
        self.found: dict[str, Any] = {"machine": machine(), "parts": {}}
        if not again and path.is_file():
            before = json.loads(path.read_text())
            if before.get("machine") == self.found["machine"]:
                self.found = before
            else:
                print(f"{path} is of another machine or version: afresh", file=sys.stderr)

    def need(self, name: str, make: Callable[[], Any]) -> None:
        """Have the part `name`: made now unless it is there and did not fail, or not wanted."""
        parts = self.found["parts"]
        if not name.startswith(self.only):
            return
        if name in parts and not (isinstance(parts[name], dict) and "what" in parts[name]):
            return
        parts[name] = make()
        fresh = self.path.with_suffix(".part")
        fresh.write_text(json.dumps(self.found, indent=1) + "\n")
        fresh.replace(self.path)


def machine() -> dict[str, Any]:
    """What the results depend on besides the load."""
    from tilesmith.runtime.machine import cpu_name

    def version(package: str) -> str | None:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {p: v for p in PACKAGES if (v := version(p)) is not None},
    }


def zoo(folder: Path | None, scratch: Path) -> Sequence[Path]:
    """The models to measure, small ones first."""
    if folder is not None:
        return sorted(folder.glob("*.onnx"), key=lambda p: p.stat().st_size)
    model = scratch / "resnet50.onnx"
    command = [sys.executable, str(HERE / "make_resnet.py"), str(model)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [model]


def kernels(folder: Path, threads: int, scratch: Path) -> Any:
    """The rows of `regressions.py`."""
    rows = scratch / "kernels.json"
    command = ("regressions.py", str(folder), "--threads", str(threads), "--json", str(rows))
    failed = part(*command, "--quiet", threads=threads)
    return json.loads(rows.read_text()) if rows.is_file() else failed


def odd_names() -> list[str]:
    """The operators of `odd_operators.py`."""
    from odd import OPERATORS

    return [k.name for k in OPERATORS]


def odd(name: str, threads: int, seconds: float) -> Any:
    """The rows of one operator of `odd_operators.py`."""
    arguments = ("--threads", str(threads), "--seconds", str(seconds), "--json")
    return part(
        "odd_operators.py", name, *arguments, threads=threads, limit=seconds + 2 * CELL_SECONDS
    )


def update_readme(text: str, marks: tuple[str, str]) -> None:
    """Put `text` between the marks in README.md."""
    before, mark, rest = README.read_text().partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not mark or not end:
        raise SystemExit(f"{README} lacks the lines {marks[0].strip()} and {marks[1]}")
    README.write_text(f"{before}{mark}{text}\n{end}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zoo", type=Path, help="folder of models exported by zoo.py")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, like 1,2")
    parser.add_argument("--seconds", type=float, default=12.0, help="for each model and number")
    parser.add_argument(
        "--odd-seconds", type=float, default=30.0, help="tuning of each odd operator; 0: leave out"
    )
    parser.add_argument("--results", type=Path, default=Path("benchmark-results"), help="folder")
    parser.add_argument("--again", action="store_true", help="measure everything again")
    parser.add_argument("--only", default="", help='parts whose names begin so, like "odd 2"')
    parser.add_argument("--readme", action="store_true", help="put the tables into README.md")
    given = parser.parse_args()
    counts = [int(n) for n in given.threads.split(",")]
    given.results.mkdir(parents=True, exist_ok=True)
    results = Results(given.results / "results.json", given.again, given.only)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        models = zoo(given.zoo, scratch)
        for m in models:
            for n in counts:
                results.need(f"latency {m.stem} {n}", lambda m=m, n=n: latency(m, n, given.seconds))
        for n in counts:
            source = given.zoo or models[0]
            results.need(f"kernels {n}", lambda n=n, s=source: kernels(s, n, scratch))
        for n in counts:
            for name in odd_names() if given.odd_seconds > 0 else ():
                results.need(f"odd {n} {name}", lambda n=n, o=name: odd(o, n, given.odd_seconds))
        results.need("call", lambda: part("call.py", threads=1))
        most = max(counts)
        results.need("gemm", lambda: part("gemm.py", "--threads", str(most), threads=most))
        results.need("features", lambda: part("features.py", threads=1))
        timed = [str(m) for m in models if f"compile {m.stem}, cold" in BARS]
        results.need("compile_time", lambda: part("compile_time.py", *timed, threads=most))
    text = markdown(results.found)
    (given.results / "results.md").write_text(text)
    print(text)
    if given.readme:
        names = list(results.found["parts"])
        if any(n.startswith("latency ") for n in names):
            update_readme(models_tables(results.found), MARKS)
        if any(n.startswith("odd ") for n in names):
            update_readme(odd_tables(results.found), ODD_MARKS)


if __name__ == "__main__":
    main()
