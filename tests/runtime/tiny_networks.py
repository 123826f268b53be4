"""Networks like those of MLPerf Tiny (Banbury et al., 2021), with random weights, quantised to 8
bits."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static


@dataclass
class Network:
    """An ONNX model in the making: `last` is the value that the next layer reads, of shape `shape`
    without the batch.
    """

    shape: tuple[int, ...]
    seed: int
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    last: str = "x"

    def __post_init__(self) -> None:
        self.first = self.shape
        self.random = np.random.default_rng(self.seed)

    def add(self, kind: str, *more: np.ndarray, **attributes: Any) -> None:
        names = [f"w{len(self.weights) + i}" for i in range(len(more))]
        self.weights += [numpy_helper.from_array(a, n) for a, n in zip(more, names, strict=True)]
        result = f"v{len(self.nodes)}"
        node = helper.make_node(kind, [self.last, *names], [result], name=f"{kind}_{result}",
                                **attributes)  # fmt: skip
        self.nodes.append(node)
        self.last = result

    def _drawn(self, *shape: int) -> np.ndarray:
        fan_in = np.prod(shape[1:])
        return (self.random.standard_normal(shape) * (2 / fan_in) ** 0.5).astype(np.float32)

    def conv(self, out: int, kernel: tuple[int, int], stride: int = 1, depthwise: bool = False,
             relu: bool = True) -> None:  # fmt: skip
        channels, *size = self.shape
        groups, out = (channels, channels) if depthwise else (1, out)
        bias = self.random.standard_normal(out).astype(np.float32) * np.float32(0.1)
        self.add("Conv", self._drawn(out, channels // groups, *kernel), bias, group=groups,
                 strides=[stride, stride], auto_pad="SAME_UPPER", kernel_shape=kernel)  # fmt: skip
        self.shape = (out, *(-(-n // stride) for n in size))
        if relu:
            self.add("Relu")

    def dense(self, out: int, relu: bool = True) -> None:
        (inner,) = self.shape
        weight, bias = self._drawn(out, inner), self.random.standard_normal(out) * 0.1
        self.add("Gemm", weight, bias.astype(np.float32), transB=1)
        self.shape = (out,)
        if relu:
            self.add("Relu")

    def pooled(self) -> None:
        self.add("GlobalAveragePool")
        self.add("Flatten")
        self.shape = self.shape[:1]

    def model(self) -> onnx.ModelProto:
        f32 = TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes, "tiny",
            [helper.make_tensor_value_info("x", f32, [1, *self.first])],
            [helper.make_tensor_value_info(self.last, f32, [1, *self.shape])], self.weights,
        )  # fmt: skip
        opset = helper.make_opsetid("", 17)
        return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def keywords() -> Network:
    """Keyword spotting: DS-CNN on 49 x 10 coefficients."""
    n = Network((1, 49, 10), 1)
    n.conv(64, (10, 4), 2)
    for _ in range(4):
        n.conv(0, (3, 3), depthwise=True)
        n.conv(64, (1, 1))
    n.pooled()
    n.dense(12, relu=False)
    return n


def person() -> Network:
    """Person detection: MobileNetV1 of width 0.25 on 96 x 96 pixels."""
    n = Network((3, 96, 96), 2)
    n.conv(8, (3, 3), 2)
    for out, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5,
                        (256, 2), (256, 1)):  # fmt: skip
        n.conv(0, (3, 3), stride, depthwise=True)
        n.conv(out, (1, 1))
    n.pooled()
    n.dense(2, relu=False)
    return n


def anomaly() -> Network:
    """Anomaly detection: an autoencoder of 640 numbers."""
    n = Network((640,), 3)
    for out in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        n.dense(out)
    n.dense(640, relu=False)
    return n


def residual() -> Network:
    """Image classification: ResNet-8 on 32 x 32 pixels."""
    n = Network((3, 32, 32), 4)
    n.conv(16, (3, 3))
    for out, stride in ((16, 1), (32, 2), (64, 2)):
        before, shape = n.last, n.shape
        n.conv(out, (3, 3), stride)
        n.conv(out, (3, 3), relu=False)
        main = n.last
        if stride > 1:
            n.last, n.shape = before, shape
            n.conv(out, (1, 1), stride, relu=False)
            before = n.last
        n.nodes.append(helper.make_node("Add", [main, before], [f"sum{out}"], name=f"Add_{out}"))
        n.last = f"sum{out}"
        n.add("Relu")
    n.pooled()
    n.dense(10, relu=False)
    return n


NETWORKS = {"keywords": keywords, "person": person, "anomaly": anomaly, "residual": residual}


class _Samples(CalibrationDataReader):
    """Random inputs to calibrate on."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        draw = np.random.default_rng(9)
        self.left = [draw.standard_normal((1, *shape)).astype(np.float32) for _ in range(4)]

    def get_next(self) -> Any:
        return {"x": self.left.pop()} if self.left else None


def quantised(name: str) -> bytes:
    """The network, all its layers in 8 bits by ONNX Runtime's quantiser (QDQ, per channel)."""
    network = NETWORKS[name]()
    with tempfile.TemporaryDirectory() as folder:
        plain, made = Path(folder) / "plain.onnx", Path(folder) / "made.onnx"
        onnx.save(network.model(), plain)
        quantize_static(
            plain, made, _Samples(network.first), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        return made.read_bytes()
