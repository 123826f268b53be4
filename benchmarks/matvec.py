#!/usr/bin/env python3
"""Few rows times a matrix that is an input, against other engines: `python benchmarks/matvec.py`.

Such products read each element of the matrix once, so memory decides: `rate` is the matrix's bytes
per second, beside those of the other engines that are installed and of NumPy's sum of the same
matrix (one thread).  `ratio` is an engine's time over ours, the median over rounds.  All take
turns; medians count.  `--only REGEX` chooses rows by name.  Prints one JSON list.
"""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

import numpy as np
import onnx
from onnx import helper

import tilesmith as ts
from matmul_peers import peers
from tilesmith.support.measure import interleave, ratio

PRODUCTS = [
    ((1, 512), (512, 30000), False),
    ((1, 512), (512, 30001), False),
    ((1, 1024), (1024, 1024), False),
    ((1, 2048), (2048, 2048), False),
    ((1, 4096), (4096, 4096), False),
    ((1, 4095), (4095, 4099), False),
    ((1, 30000), (30000, 512), False),
    ((1, 60000), (60000, 200), False),
    ((2, 4096), (4096, 4096), False),
    ((8, 4096), (4096, 4096), False),
    ((1, 512), (512, 512), True),
    ((1, 4096), (4096, 4096), True),
    ((1, 511), (3001, 511), True),
    ((4, 4096), (4096, 4096), True),
    ((4096, 4096), (4096, 1), False),
    ((30000, 64), (64, 1), False),
    ((32, 1, 128), (32, 2048, 128), True),
    ((32, 1, 2048), (32, 2048, 128), False),
]
"""Shapes of the factors, and whether the second is transposed first."""


def model(a: tuple[int, ...], b: tuple[int, ...], transposed: bool) -> bytes:
    kind = onnx.TensorProto.FLOAT
    order = [*range(len(b) - 2), len(b) - 1, len(b) - 2]
    turn = [helper.make_node("Transpose", ["b"], ["t"], perm=order)] if transposed else []
    graph = helper.make_graph(
        [*turn, helper.make_node("MatMul", ["a", "t" if transposed else "b"], ["c"])],
        "matvec",
        [helper.make_tensor_value_info(n, kind, s) for n, s in (("a", a), ("b", b))],
        [helper.make_tensor_value_info("c", kind, None)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default=".")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for a, b, transposed in PRODUCTS:
        name = f"{'x'.join(map(str, a))} {'x'.join(map(str, b))}{' transposed' * transposed}"
        if not re.search(given.only, name):
            continue
        program = model(a, b, transposed)
        feeds = {n: rng.standard_normal(s, dtype=np.float32) for n, s in (("a", a), ("b", b))}
        matrix = max(feeds.values(), key=np.size)
        exe = ts.compile(program, threads=given.threads)
        others = peers(program, feeds["a"], feeds["b"], given.threads, transposed)
        second = np.swapaxes(feeds["b"], -1, -2) if transposed else feeds["b"]
        want = feeds["a"] @ second
        np.testing.assert_allclose(
            exe.run(feeds)["c"], want, rtol=1e-3, atol=1e-3 * abs(want).max()
        )
        runs = {
            "tilesmith": lambda exe=exe, feeds=feeds: exe.run(feeds),
            **others,
            "sum": matrix.sum,
        }
        times = interleave(runs, rounds=given.rounds, turn_seconds=0.05)
        rates = {k: round(matrix.nbytes / t.median / 1e9, 1) for k, t in times.items()}
        ratios = {k: round(ratio(times[k], times["tilesmith"]), 2) for k in others}
        rows.append({"name": name, "threads": given.threads, "rate": rates, "ratio": ratios})
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
