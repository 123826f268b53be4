"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def value(
    name: str, shape: Sequence[int | str | None] | None, dtype: int = TensorProto.FLOAT
) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 20,
    initializers: Sequence[Any] = (),
    functions: Sequence[Any] = (),
) -> onnx.ModelProto:
    """A model of one graph; outputs may be names, whose types are then left open."""
    stored = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    infos = [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs]
    graph = helper.make_graph(nodes, "g", inputs, infos, [*stored, *initializers])
    domains = {"": opset, **{f.domain: 1 for f in functions}}
    imports = [helper.make_opsetid(d, v) for d, v in domains.items()]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def relu() -> onnx.ModelProto:
    """x: f32[2,3] -> y = relu(x)."""
    return model(
        [helper.make_node("Relu", ["x"], ["y"])], [value("x", [2, 3])], [value("y", [2, 3])]
    )


def with_weight(weight: Any, shape: Sequence[int] = (2, 3)) -> onnx.ModelProto:
    """y = x + w for an initializer `weight` named w."""
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return model([node], [value("x", shape)], ["y"], initializers=[weight])
