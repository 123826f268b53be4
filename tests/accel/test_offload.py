"""Models whose convolutions run on the accelerator, beside the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.program.nodes import HostCall


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


def calls(exe: ts.Executable) -> int:
    """The number of layers on the accelerator."""
    return sum(isinstance(s, HostCall) and s.function == "accelerator" for s in exe.program.steps)


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


@pytest.mark.parametrize(("kind", "count"), [(np.int8, 4), (np.uint8, 2)], ids=["i8", "u8"])
def test_a_residual_block_equals_the_cpus(
    kind: type[np.int8] | type[np.uint8], count: int, tmp_path: Path
):
    """Results of unsigned bytes run on the accelerator only where all readers take signed ones."""
    path = residual_block(tmp_path / "m.onnx", kind)
    image = np.random.default_rng(6).standard_normal((2, 16, 8, 8), np.float32) * 3
    beside = ts.compile(path, target="accel-sim")
    assert calls(beside) == count
    np.testing.assert_array_equal(beside(image), ts.compile(path)(image))
    beside.save(tmp_path / "m.tsm")
    np.testing.assert_array_equal(ts.load(tmp_path / "m.tsm")(image), beside(image))


def test_dense_layers_equal_the_cpus(tmp_path: Path):
    m = Model(np.int8)
    x = m.quantised("x", 0.05)
    for inputs, outputs in ((24, 64), (64, 20)):
        w = m.rng.integers(-127, 128, (inputs, outputs)).astype(np.int8)
        scales = m.rng.uniform(0.001, 0.01, outputs).astype(np.float32)
        made = [*map(m.constant, (w, scales, np.zeros(outputs, np.int8)))]
        w = m.node("DequantizeLinear", made, axis=1)
        x = m.quantised(m.node("MatMul", [x, w]), 0.2)
    path = m.saved(tmp_path / "m.onnx", [2, 7, 24], x)
    rows = np.random.default_rng(6).standard_normal((2, 7, 24), np.float32) * 3
    beside = ts.compile(path, target="accel-sim")
    assert calls(beside) == 2
    np.testing.assert_array_equal(beside(rows), ts.compile(path)(rows))


def test_what_the_accelerator_lacks_runs_on_the_cpu(tmp_path: Path):
    m = Model(np.int8)
    x = m.quantised("x", 0.05)
    x = m.quantised(m.conv(x, 1, 16, 3, group=16), 0.05)  # depthwise
    x = m.quantised(m.node("Tanh", [m.conv(x, 16, 16, 3)]), 0.01)
    x = m.quantised(m.conv(x, 16, 16, 3, dilations=[2, 2]), 0.05)
    path = m.saved(tmp_path / "m.onnx", [1, 16, 9, 9], x)
    image = np.random.default_rng(6).standard_normal((1, 16, 9, 9), np.float32)
    beside = ts.compile(path, target="accel-sim")
    assert calls(beside) == 0
    np.testing.assert_array_equal(beside(image), ts.compile(path)(image))
