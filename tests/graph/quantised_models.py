"""ONNX models of quantised layers."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper


class Quantised:
    """A model of convolutions between QuantizeLinear and DequantizeLinear."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list = []
        self.constants: dict[str, np.ndarray] = {}

    def add(self, op: str, *inputs: str, **attributes) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*inputs], [name], **attributes))
        return name

    def constant(self, array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def rounded(self, x: str, scale: float, zero: int) -> str:
        """`x` through 8 bits."""
        by = self.constant(np.float32(scale)), self.constant(np.uint8(zero))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *by), *by)

    def conv(self, x: str, channels: int, filters: int, kernel: int) -> str:
        w = self.rng.integers(-127, 128, (filters, channels, kernel, kernel), np.int8)
        b = self.rng.integers(-500, 500, filters, np.int32)
        ws = self.rng.uniform(0.001, 0.003, filters).astype(np.float32)
        weights = self.add("DequantizeLinear", self.constant(w), self.constant(ws), axis=0)
        bias = self.add(
            "DequantizeLinear", self.constant(b), self.constant(ws * np.float32(0.02)), axis=0
        )
        return self.add("Conv", x, weights, bias, pads=[kernel // 2] * 4)

    def model(self, shape: tuple[int, ...], y: str) -> bytes:
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(a, name) for name, a in self.constants.items()],
        )
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
