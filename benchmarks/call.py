#!/usr/bin/env python3
"""What a call from Python costs, on a model of one small operator: `python benchmarks/call.py`.

The operator adds two vectors of 16 numbers, so that nearly all of the time is the way into the
native code and back.  Prints one JSON list: microseconds of a call (the least median of several
rounds, engines taking turns), and of our kernel alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

import tilesmith as ts

N = 16
CALLS = 2000


def one_operator() -> onnx.ModelProto:
    """c = a + b."""
    tensor = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])],
        "add",
        [helper.make_tensor_value_info(n, tensor, [N]) for n in "ab"],
        [helper.make_tensor_value_info("c", tensor, [N])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def median_call(run: Callable[[], object]) -> float:
    """Seconds of a call in the middle of `CALLS`."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) * 1e-9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    model = one_operator()
    a, b = (np.arange(N, dtype=np.float32) + i for i in range(2))
    exe = ts.compile(model, threads=1)
    np.testing.assert_array_equal(exe(a, b), a + b)
    contenders: dict[str, Callable[[], Any]] = {"nothing": lambda: None, "call": lambda: exe(a, b)}
    try:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        contenders["onnxruntime"] = lambda: session.run(None, {"a": a, "b": b})
    except ImportError:
        pass
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(given.rounds):
        for name, run in contenders.items():
            best[name] = min(best[name], median_call(run))
    clock = best.pop("nothing")
    found = {name: (t - clock) * 1e6 for name, t in best.items()}
    found["kernel"] = exe.profile(a, b, repeats=200).seconds * 1e6
    print(json.dumps([{"what": "one small operator", "us": found}]))


if __name__ == "__main__":
    main()
