#!/usr/bin/env python3
"""What a call from Python costs, of a model of one small operator and of a built function:
`python benchmarks/call.py`.

The operator adds two vectors of 16 numbers, so that nearly all of the time is the way into the
native code and back.  Prints one JSON list: microseconds of a call (the least median of several
rounds, contenders taking turns), and of our kernel alone.  The built function takes three arrays;
its bound call was checked before.
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
from tilesmith import te
from tilesmith.runtime.function import NativeFunction

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


def built() -> NativeFunction:
    """c = a + b, as a tensor expression."""
    a, b = (te.placeholder((N,), "f32", name) for name in "ab")
    c = te.compute((N,), lambda i: a[i] + b[i], "c")
    return ts.build(te.create_schedule(c.op), [a, b, c], threads=1)


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
    add, c = built(), np.empty(N, np.float32)
    bound = add.bind(a, b, c)
    contenders: dict[str, Callable[[], Any]] = {
        "nothing": lambda: None,
        "call": lambda: exe(a, b),
        "built": lambda: add(a, b, c),
        "bound": bound,
    }
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
    kernel = exe.profile(a, b, repeats=200).seconds * 1e6
    names = {"built": "a built function of three arrays", "bound": "the same, bound"}
    rows = {what: {"call": found.pop(name), "kernel": kernel} for name, what in names.items()}
    rows = {"one small operator": {**found, "kernel": kernel}, **rows}
    print(json.dumps([{"what": what, "us": us} for what, us in rows.items()]))


if __name__ == "__main__":
    main()
