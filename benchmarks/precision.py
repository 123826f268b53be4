"""Low precision against f32 and against OpenVINO: `python benchmarks/precision.py ZOO`.

Each row is a model of ZOO, or a dense layer whose weights come from memory.  `ratio` is the time in
f32 over that in the precision, the median over rounds in which all take turns;
`against_openvino` is OpenVINO's time in the same precision over ours, and `least_ratio` the same of
the shortest times, for a machine that others use too.  `error` is the root mean square of what the
outputs are off, relative to that of the answers stored with the model (else those of f32), and
`largest` the largest difference relative to the largest magnitude.  The largest one of a single
input is that of one element, so the bar is on the other.  `operands_error` is, on a CPU without
AVX512-BF16, the error of a machine that has it: its graph, computed by this one.

Prints a JSON object for each row, then one with the geometric mean and the bars; exit status 1
where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tilesmith as ts
from tilesmith.codegen.targets import host
from tilesmith.driver import Request, Session, compile_program, load_graph
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

MEAN, LEAST, ERROR = 1.1, 0.9, 1.1
"""The geometric mean of OpenVINO's times over ours, the least of them, and the largest error
relative to OpenVINO's.
"""

Arrays = dict[str, np.ndarray]
Given = tuple[Arrays, list[np.ndarray]]
"""Inputs, and the answers that are stored with them, if any."""


def layer(rows: int, k: int, n: int) -> tuple[Graph, Arrays]:
    rng = np.random.default_rng(0)
    b = Builder("layer")
    x = b.input("x", TensorType(f32, (rows, k)))
    w = b.constant(rng.standard_normal((k, n), np.float32))
    graph = b.finish([b.add(MatMul(), x, w, loc="fc")], ["y"])
    return graph, {"x": rng.standard_normal((rows, k), np.float32)}


def of_another_machine(graph: Graph, precision: str) -> Executable | None:
    """What a machine with AVX512-BF16 computes, for one without; it has no instruction for f16."""
    if precision != "bf16" or "avx512bf16" in host().features:
        return None
    there = Session.of(Options(target=WITH_BF16, precision=precision))
    low = precision_pass(there)(before_target(graph, there))
    return Executable(compile_program(low, Session.of(Options.from_environment())))


def error(found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """Root mean square of the differences, relative to that of what is wanted."""
    a, b = (np.concatenate([np.ravel(y).astype(np.float64) for y in ys]) for ys in (found, wanted))
    return float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0))


def largest(found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    return max(relative_error(a, b) for a, b in zip(found, wanted, strict=True))


def openvino(path: Path, threads: int, inputs: Arrays, low: str) -> Callable[[], list] | None:
    """OpenVINO's run in the low precision; None where it is not installed or the CPU has no such
    arithmetic.
    """
    try:
        import openvino as ov  # pyright: ignore[reportMissingImports]  # installed to compare
    except ImportError:
        return None
    core = ov.Core()
    if low.upper() not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        return None
    read = core.read_model(str(path))
    read.reshape({name: list(a.shape) for name, a in inputs.items()})
    config: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": low,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    request = core.compile_model(read, "CPU", config).create_infer_request()

    def run() -> list[np.ndarray]:
        results = request.infer(inputs, share_inputs=True, share_outputs=True)
        return [results[i] for i in range(len(read.outputs))]

    return run


def measured(
    name: str, model: Any, given: Given, threads: int, rounds: int, low: str
) -> dict[str, Any]:
    inputs, stored = given
    graph = model if isinstance(model, Graph) else load_graph(Request.of(str(model)))
    exes = {p: ts.compile(model, precision=p, threads=threads) for p in ("f32", low)}
    runs: dict[str, Callable[[], list[np.ndarray]]] = {
        p: lambda e=e: [*e.run(inputs).values()] for p, e in exes.items()
    }
    other = None if isinstance(model, Graph) else openvino(model, threads, inputs, low)
    wanted = stored or runs["f32"]()
    found = runs[low]()
    row = {"name": name, "precision": low, "error": error(found, wanted)}
    row["largest"] = largest(found, wanted)
    elsewhere = of_another_machine(graph, low)
    if elsewhere is not None:
        row["operands_error"] = error([*elsewhere.run(inputs).values()], wanted)
    if other is not None:
        theirs = [np.array(y) for y in other()]
        row |= {"openvino_error": error(theirs, wanted)}
        row |= {"openvino_largest": largest(theirs, wanted)}
        runs["openvino"] = other
    times = interleave(runs, rounds=rounds)
    row |= {f"{p} ms": t.median * 1e3 for p, t in times.items()}
    row["ratio"] = ratio(times["f32"], times[low])
    if other is not None:
        row["against_openvino"] = ratio(times["openvino"], times[low])
        row["least_ratio"] = times["openvino"].minimum / times[low].minimum
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The bars, of the rows that have OpenVINO's time."""
    ratios = [r["against_openvino"] for r in rows]
    errors = [r["error"] / r["openvino_error"] for r in rows]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    met = mean >= MEAN and min(ratios) >= LEAST and max(errors) <= ERROR
    return {
        "geometric_mean": mean,
        "least": min(ratios),
        "error_against_openvino": max(errors),
        "bars": {"geometric_mean": MEAN, "least": LEAST, "error_against_openvino": ERROR},
        "met": met,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Low precision against f32 and OpenVINO.")
    parser.add_argument("zoo", type=Path, help="folder of models, by zoo.py")
    parser.add_argument("--precision", choices=("bf16", "f16"), default="bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default=".", help="regular expression of names")
    given = parser.parse_args()
    cases: list[tuple[str, Any, Given]] = []
    for rows, k, n in LAYERS:
        name = f"{rows}x{k} {k}x{n}"
        if re.search(given.only, name):
            graph, inputs = layer(rows, k, n)
            cases.append((name, graph, (inputs, [])))
    for path in sorted(given.zoo.glob("*.onnx")):
        if re.search(given.only, path.stem):
            with np.load(path.with_suffix(".npz")) as arrays:
                inputs = {k[3:]: arrays[k] for k in arrays if k.startswith("in_")}
                answers = [arrays[k] for k in arrays if k.startswith("out_")]
            cases.append((path.stem, path, (inputs, answers)))
    compared: list[dict[str, Any]] = []
    for case in cases:
        row = measured(*case, given.threads, given.rounds, given.precision)
        print(json.dumps(row), flush=True)
        if "against_openvino" in row:
            compared.append(row)
    if not compared:
        return 0
    bars = summary(compared)
    print(json.dumps(bars))
    return int(not bars["met"])


if __name__ == "__main__":
    sys.exit(main())
