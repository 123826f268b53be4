"""Quantised ONNX models with convolutions that the accelerator runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Model:
    """A quantised ONNX model of convolutions, in the making.

    kind: element type of quantised values, whose zero point is 0.
    """

    def __init__(self, kind: type[np.int8] | type[np.uint8]) -> None:
        self.rng = np.random.default_rng(5)
        self.kind = kind
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def node(self, op: str, inputs: list[str], **attributes: object) -> str:
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, array: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantised(self, x: str, scale: float) -> str:
        s, z = self.constant(np.float32(scale)), self.constant(self.kind(0))
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [x, s, z]), s, z])

    def conv(self, x: str, inputs: int, outputs: int, size: int, **attributes: object) -> str:
        w = self.rng.integers(-127, 128, (outputs, inputs, size, size)).astype(np.int8)
        scales = self.rng.uniform(0.001, 0.01, outputs).astype(np.float32)
        zeros = np.zeros(outputs, np.int8)
        w = self.node("DequantizeLinear", [*map(self.constant, (w, scales, zeros))], axis=0)
        b = self.constant(self.rng.standard_normal(outputs, np.float32))
        return self.node("Conv", [x, w, b], pads=[size // 2] * 4, **attributes)

    def saved(self, path: Path, shape: list[int], y: str) -> Path:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        out = helper.make_tensor_value_info(y, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", [x], [out], self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(made, path)
        return path


def residual_block(path: Path, kind: type[np.int8] | type[np.uint8] = np.int8) -> Path:
    """A model of four convolutions, x f32[2,16,8,8] to y."""
    m = Model(kind)
    x = m.quantised("x", 0.05)
    a = m.quantised(m.node("Relu", [m.conv(x, 16, 32, 3)]), 0.07)
    b = m.quantised(m.conv(a, 32, 32, 3), 0.07)
    c = m.quantised(m.node("Relu", [m.node("Add", [a, b])]), 0.1)
    y = m.quantised(m.node("Relu", [m.conv(c, 32, 48, 1, strides=[2, 2])]), 0.07)
    y = m.quantised(m.conv(y, 48, 16, 1), 0.09)
    return m.saved(path, [2, 16, 8, 8], y)


def mobilenet_v1(path: Path, width: float, pixels: int) -> Path:
    """MobileNetV1 (arXiv:1704.04861, table 1) with random weights: 27 convolutions, 13 of them
    depthwise, and a dense layer.
    """
    m = Model(np.int8)
    scale = 0.02
    x = m.quantised("x", scale)

    def layer(x: str, inputs: int, outputs: int, size: int, stride: int, groups: int = 1) -> str:
        nonlocal scale
        read = inputs // groups
        y = m.conv(x, read, outputs, size, strides=[stride, stride], group=groups)
        scale *= (read * size * size) ** 0.5 / 5  # the results fill a byte
        return m.quantised(m.node("Relu", [y]), scale)

    channels = int(32 * width)
    x = layer(x, 3, channels, 3, 2)
    for factor, stride in zip(
        (2, 4, 4, 8, 8, 16, 16, 16, 16, 16, 16, 32, 32),
        (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1),
        strict=True,
    ):
        outputs = int(32 * width) * factor
        x = layer(x, channels, channels, 3, stride, channels)
        x = layer(x, channels, outputs, 1, 1)
        channels = outputs
    x = m.quantised(m.node("GlobalAveragePool", [x]), scale)
    x = layer(x, channels, 10, 1, 1)
    return m.saved(path, [1, 3, pixels, pixels], x)
