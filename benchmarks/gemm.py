#!/usr/bin/env python3
"""A 640x640x640 float32 matrix product against NumPy's BLAS and other engines that are installed:
`python benchmarks/gemm.py`.

Measured twice: the hand-written schedule that `examples/gemm_schedule.py` ends with, and the
default schedule that a model with one MatMul gets.  `share` is our speed as a share of NumPy's in
the same round (median over rounds).  NumPy takes its number of threads from the environment, so
`run.py` starts this program with the right one.  Prints one JSON list.
"""

from __future__ import annotations

import argparse
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import tilesmith as ts
from matmul_peers import peers
from tilesmith.support.measure import interleave, ratio

N = 640
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "gemm_schedule.py"


def scheduled(a: np.ndarray, b: np.ndarray, threads: int) -> Callable[[], np.ndarray]:
    """The last schedule of the example."""
    return runpy.run_path(str(EXAMPLE))["best"](a, b, threads)


def compiled(a: np.ndarray, b: np.ndarray, threads: int) -> Callable[[], np.ndarray]:
    """`product` compiled."""
    exe = ts.compile(product(), threads=threads)
    return lambda: exe(a, b)


def product() -> bytes:
    """A model that is one MatMul of its two inputs."""
    tensor = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])],
        "gemm",
        [helper.make_tensor_value_info(n, tensor, [N, N]) for n in "ab"],
        [helper.make_tensor_value_info("c", tensor, [N, N])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model.SerializeToString()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, N), dtype=np.float32) for _ in range(2))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    out = np.empty((N, N), np.float32)
    others = {
        "numpy": lambda: np.matmul(a, b, out=out),
        **peers(product(), a, b, given.threads),
    }
    rows: list[dict[str, Any]] = []
    for name, make in (("schedule", scheduled), ("model", compiled)):
        run = make(a, b, given.threads)
        error = float(np.abs(run() - expected).max() / np.abs(expected).max())
        samples = interleave(
            {"tilesmith": run, **others},
            rounds=given.rounds,
            turn_seconds=0.05,
        )
        flops = 2 * N**3
        rows.append(
            {
                "what": f"{N}^3 GEMM, {name}",
                "threads": given.threads,
                "times": {engine: s.as_dict() for engine, s in samples.items()},
                "gflops": {engine: flops / s.median / 1e9 for engine, s in samples.items()},
                "share": ratio(samples["numpy"], samples["tilesmith"]),
                "error": error,
            }
        )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
