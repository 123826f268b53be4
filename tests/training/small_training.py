"""A small classifier in ONNX and its data, which tests of training share."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES, CLASSES = 8, 4


def classifier(batch: int | str = "N") -> onnx.ModelProto:
    """Two layers, of 16 and 4 units; the batch is open by default."""
    rng = np.random.default_rng(0)
    weights = {
        "body.weight": rng.standard_normal((16, FEATURES)) / 3,
        "body.bias": np.zeros(16),
        "head.weight": rng.standard_normal((CLASSES, 16)) / 4,
        "head.bias": np.zeros(CLASSES),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "body.weight", "body.bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "head.weight", "head.bias"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, CLASSES])],
        [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def samples(count: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Features f32[count, 8] and the classes that a linear model gives them."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((count, FEATURES)).astype(np.float32)
    return x, (x @ rng.standard_normal((FEATURES, CLASSES))).argmax(1)
