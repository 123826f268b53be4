#!/usr/bin/env python3
"""All benchmarks, as one table: `python benchmarks/run.py [--zoo DIR] [--json F] [--markdown F]`.

Times of one machine mean little on another; the ratios do.  Each part runs in its own process:
whole models against ONNX Runtime, a 640x640x640 matrix product against NumPy's BLAS, compile and
import time.  Without --zoo the only model is the ResNet-50 that `make_resnet.py` makes; with it,
every .onnx file in that folder (see `zoo.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

BARS = {
    "resnet50": 2.0,  # our time over ONNX Runtime's
    "gemm": 0.85,  # our speed over NumPy's
    "compile resnet50, cold": 15.0,  # seconds
    "compile resnet50, cached": 1.0,
    "import tilesmith": 0.3,
    "import tilesmith.driver": 0.3,
}
"""What must hold; the other rows are for information."""


def part(program: str, *arguments: str, threads: int = 2) -> list[dict[str, Any]]:
    """The rows that one of the programs here prints, run with `threads` threads."""
    print(f"{program} {' '.join(arguments)} ...", file=sys.stderr, flush=True)
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    done = subprocess.run(
        [sys.executable, str(HERE / program), *arguments],
        env={**os.environ, **{v: str(threads) for v in variables}},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        return [{"what": f"{program} {' '.join(arguments)}", "failed": done.returncode}]
    return json.loads(done.stdout.splitlines()[-1])


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"### {title}", "", f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    return "\n".join([*lines, *(f"| {' | '.join(r)} |" for r in rows)]) + "\n"


def verdict(met: bool | None) -> str:
    return "" if met is None else "met" if met else "**missed**"


def markdown(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    models, gemm, compiling = [], [], []
    for r in results["models"]:
        if "failed" in r:
            models.append([r["what"], "failed", "", "", "", "**missed**"])
            continue
        bar = BARS.get(r["model"])
        models.append(
            [
                r["model"],
                f"{r['tilesmith']['median_ms']:.2f}",
                f"{r['onnxruntime']['median_ms']:.2f}",
                f"{r['ratio']:.2f}",
                f"{r['difference']:.1e}",
                "" if bar is None else f"<= {bar:g} {verdict(r['ratio'] <= bar)}",
            ]
        )
    for r in results["gemm"]:
        if "failed" in r:
            gemm.append([r["what"], "failed", "", "", "**missed**"])
            continue
        bar = BARS["gemm"]
        gemm.append(
            [
                r["what"],
                f"{r['gflops']:.0f}",
                f"{r['numpy_gflops']:.0f}",
                f"{r['share']:.0%}",
                f">= {bar:.0%} {verdict(r['share'] >= bar)}",
            ]
        )
    for r in results["compile_time"]:
        if "failed" in r:
            compiling.append([r["what"], "failed", "**missed**"])
            continue
        bar = BARS.get(r["what"])
        compiling.append(
            [
                r["what"],
                f"{r['seconds']:.2f}",
                "" if bar is None else f"<= {bar:g} s {verdict(r['seconds'] <= bar)}",
            ]
        )
    m = results["machine"]
    head = f"{m['cpu']}, {m['threads']} threads, Python {m['python']}\n"
    return "\n".join(
        [
            head,
            table(
                "Models against ONNX Runtime (float32, median ms)",
                ("model", "tilesmith", "onnxruntime", "ratio", "difference", "bar"),
                models,
            ),
            table(
                "Matrix product against NumPy (GFLOP/s)",
                ("what", "tilesmith", "numpy", "share", "bar"),
                gemm,
            ),
            table("Compile and import time", ("what", "seconds", "bar"), compiling),
        ]
    )


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zoo", type=Path, help="folder of models exported by zoo.py")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contender")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    given = parser.parse_args()
    threads, rounds = given.threads, ("--rounds", str(given.rounds))
    count = ("--threads", str(threads))
    with tempfile.TemporaryDirectory() as scratch:
        if given.zoo is None:
            resnet = Path(scratch) / "resnet50.onnx"
            subprocess.run(
                [sys.executable, str(HERE / "make_resnet.py"), str(resnet)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            models = [resnet]
        else:
            models = sorted(given.zoo.glob("*.onnx"))
        resnets = [str(m) for m in models if m.stem == "resnet50"]
        results = {
            "machine": {
                "cpu": cpu_name(),
                "threads": threads,
                "python": platform.python_version(),
                "platform": platform.platform(),
            },
            "models": [
                row
                for m in models
                for row in part("models.py", str(m), *count, *rounds, threads=threads)
            ],
            "gemm": part("gemm.py", *count, *rounds, threads=threads),
            "compile_time": part("compile_time.py", *resnets, threads=threads),
        }
    text = markdown(results)
    print(text)
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")
    if given.markdown:
        given.markdown.write_text(text)


if __name__ == "__main__":
    main()
