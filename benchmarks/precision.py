#!/usr/bin/env python3
"""Low precision against f32, in time and in error: `python benchmarks/precision.py ZOO`.

Each row is a model of ZOO, or a dense layer whose weights come from memory.  `ratio` is the time in
f32 over that in the precision, the median over rounds in which all take turns.  `error` is the
largest difference of the outputs from those of f32, relative to their largest magnitude; the error
of f32 itself is a thousandth of it.  `operands_error` is that of a machine with AVX512-BF16: its
graph, computed by this one.  OpenVINO stands beside both with the same precision where it is
installed and has it.  Prints one JSON list.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

import tilesmith as ts
from tilesmith.driver import Session, compile_program, load_graph
from tilesmith.driver.automatic import relative_error
from tilesmith.driver.passes import before_target
from tilesmith.driver.precision import precision_pass
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.matmul import MatMul
from tilesmith.runtime.executable import Executable
from tilesmith.support.measure import interleave, ratio
from tilesmith.support.options import Options

LAYERS = [(1, 4096, 4096), (1, 1024, 30000), (4, 4096, 4096), (16, 4096, 4096)]
"""Rows, and the shape of the weights."""

WITH_BF16 = "x86-64-v4+avx512bf16"

Arrays = dict[str, np.ndarray]


def layer(rows: int, k: int, n: int) -> tuple[Graph, Arrays]:
    rng = np.random.default_rng(0)
    b = Builder("layer")
    x = b.input("x", TensorType(f32, (rows, k)))
    w = b.constant(rng.standard_normal((k, n), np.float32))
    graph = b.finish([b.add(MatMul(), x, w, loc="fc")], ["y"])
    return graph, {"x": rng.standard_normal((rows, k), np.float32)}


def of_another_machine(graph: Graph, precision: str) -> Executable | None:
    """What a machine with AVX512-BF16 computes, for this one; it has no instruction for f16."""
    if precision != "bf16":
        return None
    there = Session.of(Options(target=WITH_BF16, precision=precision))
    low = precision_pass(there)(before_target(graph, there))
    return Executable(compile_program(low, Session.of(Options.from_environment())))


def error(found: Arrays, wanted: Arrays) -> float:
    return max(relative_error(found[k], wanted[k]) for k in wanted)


def openvino(path: Path, threads: int, inputs: Arrays, low: str) -> dict[str, Any]:
    """OpenVINO's calls in f32 and in the low precision; empty where it is not installed or the CPU
    has no such arithmetic.
    """
    try:
        import openvino as ov  # pyright: ignore[reportMissingImports]  # installed to compare
    except ImportError:
        return {}
    core = ov.Core()
    if low.upper() not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        return {}
    made: dict[str, Any] = {}
    for name in ("f32", low):
        config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": name}
        made[name] = core.compile_model(str(path), "CPU", config).create_infer_request()
    return {name: lambda r=r: dict(enumerate(r.infer(inputs).values())) for name, r in made.items()}


def measured(
    name: str, model: Any, inputs: Arrays, threads: int, rounds: int, low: str
) -> dict[str, Any]:
    graph = model if isinstance(model, Graph) else load_graph(str(model))
    exes = {p: ts.compile(model, precision=p, threads=threads) for p in ("f32", low)}
    runs = {p: lambda e=e: e.run(inputs) for p, e in exes.items()}
    others = {} if isinstance(model, Graph) else openvino(model, threads, inputs, low)
    answers = {p: run() for p, run in runs.items()}
    row = {"name": name, "precision": low, "error": error(answers[low], answers["f32"])}
    elsewhere = of_another_machine(graph, low)
    if elsewhere is not None:
        row["operands_error"] = error(elsewhere.run(inputs), answers["f32"])
    if others:
        theirs = {p: run() for p, run in others.items()}
        row["openvino_error"] = error(theirs[low], theirs["f32"])
    timed = {**runs, **{f"openvino {p}": run for p, run in others.items()}}
    times = interleave(timed, rounds=rounds)
    row |= {f"{p} ms": t.median * 1e3 for p, t in times.items()}
    row["ratio"] = ratio(times["f32"], times[low])
    if others:
        row["against_openvino"] = ratio(times[f"openvino {low}"], times[low])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="Low precision against f32, in time and in error.")
    parser.add_argument("zoo", type=Path, help="folder of models, by zoo.py")
    parser.add_argument("--precision", choices=("bf16", "f16"), default="bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default=".", help="regular expression of names")
    given = parser.parse_args()
    cases: list[tuple[str, Any, Arrays]] = []
    for rows, k, n in LAYERS:
        name = f"{rows}x{k} {k}x{n}"
        if re.search(given.only, name):
            cases.append((name, *layer(rows, k, n)))
    for path in sorted(given.zoo.glob("*.onnx")):
        if re.search(given.only, path.stem):
            arrays = np.load(path.with_suffix(".npz"))
            inputs = {k.removeprefix("in_"): v for k, v in arrays.items() if k.startswith("in_")}
            cases.append((path.stem, path, inputs))
    settings = given.threads, given.rounds, given.precision
    print(json.dumps([measured(*case, *settings) for case in cases], indent=1))


if __name__ == "__main__":
    main()
