#!/usr/bin/env python3
"""A product of 1024^3 in int8 and in bf16 on one core, against a loop on registers alone and other
engines: `python -m benchmarks.low_products`.

`peak` is the share of the rate of that loop, which runs the best instruction that the CPU has for
the type (f32 where it has none).  `torch` (`torch.mm`, bf16 alone: its int8 product has no fast
kernel on every CPU), `openvino` and `onnxruntime` are their times divided by ours.  int8 is a QDQ
model: our time and that of both engines include the quantisation of the first factor.  All take
turns; medians of the ratios within a round count.  Prints one JSON object for each type.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.cli.engines import installed
from tilesmith.codegen.targets import host
from tilesmith.runtime.peaks import fastest, register_loop
from tilesmith.support.measure import interleave, ratio

SIZE = 1024
Contenders = dict[str, Callable[[], Any]]


def model(kind: str) -> bytes:
    """An ONNX model: x times a constant, between quantisations for int8."""
    rng = np.random.default_rng(0)
    if kind == "int8":
        arrays = {
            "w": rng.integers(-127, 128, (SIZE, SIZE)).astype(np.int8),
            "ws": rng.uniform(0.01, 0.02, SIZE).astype(np.float32),
            "wz": np.zeros(SIZE, np.int8),
            "s": np.float32(0.02),
            "z": np.uint8(128),
        }
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["a"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["b"], axis=1),
            helper.make_node("MatMul", ["a", "b"], ["y"]),
        ]
    else:
        arrays = {"w": rng.standard_normal((SIZE, SIZE), np.float32)}
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [SIZE, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [SIZE, SIZE])],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def engines(kind: str, x: np.ndarray) -> Contenders:
    """The installed engines, each with the type if it has it."""
    found: Contenders = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "product.onnx"
        path.write_bytes(model(kind))
        if kind == "int8":
            found = {name: make(path, {"x": x}, 1) for name, make in installed(path).items()}
        elif "openvino" in installed():
            import openvino as ov

            config = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": 1}
            request = ov.Core().compile_model(str(path), "CPU", config).create_infer_request()
            found["openvino"] = lambda: request.infer({"x": x}, share_inputs=True)
    if kind == "bf16" and importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
        shape = SIZE, SIZE
        a, b = (torch.randn(shape).to(torch.bfloat16) for _ in range(2))
        found["torch"] = lambda: torch.mm(a, b)
    return found


def measured(kind: str, rounds: int) -> dict[str, Any]:
    x = np.random.default_rng(1).standard_normal((SIZE, SIZE), np.float32)
    exe = ts.compile(model(kind), threads=1, precision="f32" if kind == "int8" else kind)
    best = fastest(host())
    intrinsic = best.get(kind, best["f32"])
    loop, operations = register_loop(intrinsic, host(), 1)
    others = engines(kind, x)
    times = interleave({"ours": lambda: exe(x), "peak": loop, **others}, rounds=rounds)
    work = 2 * SIZE**3
    return {
        "type": kind,
        "ms": times["ours"].median * 1e3,
        "gops": work / times["ours"].median / 1e9,
        "loop": intrinsic.name,
        "peak": ratio(times["peak"], times["ours"]) * work / operations,
        **{name: ratio(times[name], times["ours"]) for name in others},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    for kind in ("int8", "bf16"):
        print(json.dumps(measured(kind, given.rounds)), flush=True)


if __name__ == "__main__":
    main()
