"""Two models that every image gives another size: a recogniser of text lines and a detector.

Weights are random, drawn from fixed seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

CHARACTERS, HIDDEN, LINE_HEIGHT = 97, 128, 32
LINE_CONVOLUTIONS = ((32, (2, 2)), (64, (2, 2)), (128, (2, 1)), (128, (2, 1)))
"""Of the recogniser: output channels, and the pool behind."""

CLASSES, ANCHORS = 4, (0.7, 1.0, 1.4)
"""Of the detector: classes, and the anchors' sides in units of 4 strides."""
BACKBONE = (32, 64, 128, 128, 256)
"""Of the detector: channels after each halving of the image; the last two maps get heads."""


class _Net:
    """Nodes and constants of a model in the making; each method returns the name of a value."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._constants: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weights(self, *shape: int, fan: int) -> str:
        """Normally distributed, so that sums over `fan` terms keep the variance behind a ReLU."""
        drawn = self._rng.standard_normal(shape) * math.sqrt(2 / fan)
        return self.constant(drawn.astype(np.float32))

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"y{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, [*inputs], [name], **attributes))
        return name

    def conv(self, x: str, before: int, after: int, stride: int = 1) -> str:
        """A 3x3 convolution with bias."""
        w, b = self.weights(after, before, 3, 3, fan=9 * before), self.weights(after, fan=after)
        sides = [stride, stride]
        return self.add("Conv", x, w, b, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=sides)

    def model(self, shape: Sequence[int | str], results: dict[str, int]) -> onnx.ModelProto:
        """The model of one input `image` and these results (each with its element type)."""
        image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, shape)
        infos = [helper.make_tensor_value_info(y, kind, None) for y, kind in results.items()]
        graph = helper.make_graph(self._nodes, "net", [image], infos, self._constants)
        versions = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=versions, ir_version=9)


def recogniser() -> onnx.ModelProto:
    """image [batch, 3, 32, width] -> probabilities [width // 4, batch, 97].

    Convolutions over the image of a text line, an LSTM in both directions along its width, and the
    probabilities of characters.
    """
    net = _Net()
    y, before = "image", 3
    for after, pool in LINE_CONVOLUTIONS:
        y = net.add("Relu", net.conv(y, before, after))
        y = net.add("MaxPool", y, kernel_shape=[*pool], strides=[*pool])
        before = after
    features = before * (LINE_HEIGHT >> len(LINE_CONVOLUTIONS))
    y = net.add("Transpose", y, perm=[3, 0, 1, 2])
    y = net.add("Reshape", y, net.integers(0, 0, features))
    w = net.weights(2, 4 * HIDDEN, features, fan=features)
    r = net.weights(2, 4 * HIDDEN, HIDDEN, fan=2 * HIDDEN)
    b = net.weights(2, 8 * HIDDEN, fan=HIDDEN)
    y = net.add("LSTM", y, w, r, b, hidden_size=HIDDEN, direction="bidirectional")
    y = net.add("Transpose", y, perm=[0, 2, 1, 3])
    y = net.add("Reshape", y, net.integers(0, 0, 2 * HIDDEN))
    y = net.add("MatMul", y, net.weights(2 * HIDDEN, CHARACTERS, fan=2 * HIDDEN))
    y = net.add("Softmax", y, axis=-1)
    return net.model(["batch", 3, LINE_HEIGHT, "width"], {y: onnx.TensorProto.FLOAT})


def detector() -> onnx.ModelProto:
    """image [1, 3, height, width] -> boxes [found, 4], scores [found], classes [found].

    A single-shot detector: a convolutional backbone, heads on its last two maps, boxes decoded
    relative to anchors whose number follows from the size of the image, and non-maximum
    suppression.
    """
    net = _Net()
    y, before = "image", 3
    boxes, scores = [], []
    for level, after in enumerate(BACKBONE, 1):
        y = net.add("Relu", net.conv(y, before, after, stride=2))
        y = net.add("Relu", net.conv(y, after, after))
        before = after
        if level >= len(BACKBONE) - 1:
            boxes.append(_boxes(net, y, after, 2**level))
            scores.append(_rows(net, net.conv(y, after, len(ANCHORS) * CLASSES), CLASSES))
    all_boxes = net.add("Concat", *boxes, axis=1)
    likely = net.add("Sigmoid", net.add("Concat", *scores, axis=1))
    by_class = net.add("Transpose", likely, perm=[0, 2, 1])
    most, overlap, least = (
        net.integers(20),
        net.constant(np.array([0.5], np.float32)),
        net.constant(np.array([0.6], np.float32)),
    )
    kept = net.add("NonMaxSuppression", all_boxes, by_class, most, overlap, least)
    column = [net.add("Gather", kept, net.integers(i), axis=1) for i in range(3)]
    where = net.add("Concat", column[0], column[2], axis=1)
    found = net.add("GatherND", all_boxes, where)
    score = net.add("GatherND", by_class, kept)
    class_ = net.add("Squeeze", column[1], net.integers(1))
    real, whole = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    return net.model([1, 3, "height", "width"], {found: real, score: real, class_: whole})


def _rows(net: _Net, y: str, width: int) -> str:
    """[1, anchors * width, h, w] as [1, h * w * anchors, width]."""
    last = net.add("Transpose", y, perm=[0, 2, 3, 1])
    return net.add("Reshape", last, net.integers(1, -1, width))


def _boxes(net: _Net, y: str, channels: int, stride: int) -> str:
    """Corners of the boxes that a map [1, channels, h, w] proposes, [1, h * w * anchors, 4].

    A cell proposes shifts of its centre, in strides, and factors of its anchors' sides.
    """
    raw = net.add("Transpose", net.conv(y, channels, len(ANCHORS) * 4), perm=[0, 2, 3, 1])
    raw = net.add("Reshape", raw, net.integers(-1, len(ANCHORS), 4))
    shift = net.add("Slice", raw, net.integers(0), net.integers(2), net.integers(2))
    factor = net.add("Slice", raw, net.integers(2), net.integers(4), net.integers(2))
    centre = net.add("Mul", net.add("Add", _centres(net, y), shift), _number(net, stride))
    sides = np.array([[4 * stride * a] * 2 for a in ANCHORS], np.float32)
    size = net.add("Mul", net.add("Exp", net.add("Tanh", factor)), net.constant(sides))
    half = net.add("Mul", size, _number(net, 0.5))
    corners = net.add("Sub", centre, half), net.add("Add", centre, half)
    return net.add("Reshape", net.add("Concat", *corners, axis=2), net.integers(1, -1, 4))


def _centres(net: _Net, y: str) -> str:
    """Row and column of the centre of each cell of a map [1, channels, h, w], [h * w, 1, 2]."""
    shape = net.add("Shape", y, start=2)
    target = net.add("Concat", shape, net.integers(1), axis=0)
    zero, one = (net.constant(np.array(n, np.int64)) for n in (0, 1))
    places = []
    for axis in (0, 1):
        extent = net.add("Gather", shape, net.constant(np.array(axis, np.int64)))
        along = net.add("Range", zero, extent, one)
        others = net.integers(*(d for d in range(3) if d != axis))
        places.append(net.add("Expand", net.add("Unsqueeze", along, others), target))
    cells = net.add("Reshape", net.add("Concat", *places, axis=2), net.integers(-1, 1, 2))
    return net.add("Add", net.add("Cast", cells, to=onnx.TensorProto.FLOAT), _number(net, 0.5))


def _number(net: _Net, value: float) -> str:
    return net.constant(np.array(value, np.float32))
