"""Other engines that run ONNX models, for `compare` and the benchmarks.

Each is imported only when it is used.  `prepare` gives a function that runs the model once on fixed
inputs and returns its outputs in the model's order.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Run: TypeAlias = Callable[[], Sequence[np.ndarray]]
Prepare: TypeAlias = Callable[[Path, Mapping[str, np.ndarray], int], Run]


def onnxruntime(model: Path, inputs: Mapping[str, np.ndarray], threads: int) -> Run:
    """ONNX Runtime on the CPU, all graph optimisations on."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    feed = dict(inputs)
    return lambda: session.run(None, feed)  # type: ignore[return-value]  # dense outputs only


def openvino(model: Path, inputs: Mapping[str, np.ndarray], threads: int) -> Run:
    """OpenVINO on the CPU, kept to float32 (it would use bf16 by itself where AMX is present)."""
    import openvino as ov

    core = ov.Core()
    read = core.read_model(str(model))
    read.reshape({name: list(a.shape) for name, a in inputs.items()})
    config: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = core.compile_model(read, "CPU", config).create_infer_request()
    feed = dict(inputs)
    count = len(read.outputs)

    def run() -> Sequence[np.ndarray]:
        results = request.infer(feed, share_inputs=True, share_outputs=True)
        return [results[i] for i in range(count)]

    return run


ENGINES: dict[str, Prepare] = {"onnxruntime": onnxruntime, "openvino": openvino}


def installed() -> list[str]:
    """Names of the engines that can be imported here."""
    return [name for name in ENGINES if importlib.util.find_spec(name) is not None]
