"""Small ONNX models made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

Dims = Sequence[int | str]
Node = NodeProto


def node(op: str, inputs: str, outputs: str, **attributes: object) -> NodeProto:
    """`node("Add", "x y", "z")`."""
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Dims],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray | TensorProto] | None = None,
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """Outputs are declared without a type."""
    weights = [
        c if isinstance(c, TensorProto) else numpy_helper.from_array(c, name)
        for name, c in (constants or {}).items()
    ]
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(name, dtype, dims) for name, dims in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def network() -> onnx.ModelProto:
    """conv, relu, pool, gemm, softmax: `x` f32[2,3,12,12] to `y` f32[2,10]."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32) / 3

    return model(
        [
            node("Conv", "x w wb", "c", pads=[1, 1, 1, 1]),
            node("Relu", "c", "r"),
            node("MaxPool", "r", "m", kernel_shape=[3, 3], strides=[2, 2]),
            node("GlobalAveragePool", "m", "p"),
            node("Flatten", "p", "f"),
            node("Gemm", "f v vb", "g"),
            node("Softmax", "g", "y"),
        ],
        {"x": [2, 3, 12, 12]},
        ["y"],
        {"w": weight(20, 3, 3, 3), "wb": weight(20), "v": weight(20, 10), "vb": weight(10)},
    )
