#!/usr/bin/env python3
"""Write ResNet-50 (He et al., 2015; stride in the 3x3, as torchvision has it) as an ONNX file.

    python benchmarks/make_resnet.py resnet50.onnx

The weights are random but seeded: the file is the same everywhere and nothing is downloaded.
Needs numpy and onnx only.  Input `input`: f32[1,3,224,224]; output `output`: f32[1,1000].
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks and inner channels of each stage; a block's output has four times its inner channels."""


class ResNet:
    """Nodes and weights of the network, in the making."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def node(self, op: str, inputs: list[str], name: str, **attributes: object) -> str:
        output = f"{name}_out"
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def conv(self, x: str, name: str, ic: int, oc: int, kernel: int, stride: int = 1) -> str:
        """Convolution without bias, then batch norm."""
        scale = np.sqrt(2 / (ic * kernel * kernel))
        shape = (oc, ic, kernel, kernel)
        w = self.weight(f"{name}.weight", self.rng.standard_normal(shape, np.float32) * scale)
        y = self.node(
            "Conv",
            [x, w],
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
        )
        statistics = {
            "scale": self.rng.uniform(0.5, 1.0, oc),
            "bias": self.rng.normal(0, 0.1, oc),
            "mean": self.rng.normal(0, 0.1, oc),
            "var": self.rng.uniform(0.5, 1.5, oc),
        }
        names = [self.weight(f"{name}.bn.{k}", v) for k, v in statistics.items()]
        return self.node("BatchNormalization", [y, *names], f"{name}.bn", epsilon=1e-5)

    def relu(self, x: str, name: str) -> str:
        return self.node("Relu", [x], name)

    def block(self, x: str, name: str, ic: int, channels: int, stride: int) -> str:
        """A bottleneck: 1x1 down, 3x3, 1x1 up, and the shortcut."""
        oc = 4 * channels
        y = self.relu(self.conv(x, f"{name}.conv1", ic, channels, 1), f"{name}.relu1")
        y = self.relu(self.conv(y, f"{name}.conv2", channels, channels, 3, stride), f"{name}.relu2")
        y = self.conv(y, f"{name}.conv3", channels, oc, 1)
        if stride != 1 or ic != oc:
            x = self.conv(x, f"{name}.shortcut", ic, oc, 1, stride)
        return self.relu(self.node("Add", [y, x], f"{name}.add"), f"{name}.relu3")

    def model(self, batch: int = 1, size: int = 224) -> onnx.ModelProto:
        y = self.relu(self.conv("input", "conv1", 3, 64, 7, 2), "relu1")
        y = self.node(
            "MaxPool", [y], "maxpool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
        )
        ic = 64
        for stage, (blocks, channels) in enumerate(STAGES):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                y = self.block(y, f"layer{stage + 1}.{block}", ic, channels, stride)
                ic = 4 * channels
        y = self.node("Flatten", [self.node("GlobalAveragePool", [y], "pool")], "flatten")
        w = self.weight("fc.weight", self.rng.standard_normal((1000, ic), np.float32) / np.sqrt(ic))
        b = self.weight("fc.bias", self.rng.normal(0, 0.01, 1000))
        self.nodes.append(helper.make_node("Gemm", [y, w, b], ["output"], name="fc", transB=1))
        tensor = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "resnet50",
            [helper.make_tensor_value_info("input", tensor, [batch, 3, size, size])],
            [helper.make_tensor_value_info("output", tensor, [batch, 1000])],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, default=224, help="height and width of the image")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    onnx.save(ResNet(given.seed).model(given.batch, given.size), given.output)
    print(f"wrote {given.output} ({given.output.stat().st_size / 1e6:.0f} MB)")


if __name__ == "__main__":
    main()
