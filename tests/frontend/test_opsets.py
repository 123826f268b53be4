"""One network written at every opset gives the same answers, and those of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_models as om
import pytest
from onnx import TensorProto, helper

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError

OPSETS = (1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 18, 21, onnx.defs.onnx_opset_version())
IMAGE = np.random.default_rng(7).standard_normal((2, 3, 8, 8)).astype(np.float32)


class Network:
    """A network whose operators changed over time, as a model of `opset` writes it."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.random = np.random.default_rng(3)

    def weight(self, *shape: int) -> str:
        return self.constant(self.random.uniform(0.2, 1.0, shape).astype(np.float32))

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.asarray(values, np.int64))

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Any:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def binary(self, op: str, x: str, array: np.ndarray, axis: int) -> str:
        """`array` along the axes of a rank-4 `x` from `axis` on."""
        if self.opset < 7:
            return self.add(op, [x, self.constant(array)], broadcast=1, axis=axis)
        spread = array.reshape(*array.shape, *[1] * (4 - axis - array.ndim))
        return self.add(op, [x, self.constant(spread)])

    def listed(self, op: str, inputs: Sequence[str], since: int, name: str, *values: int) -> str:
        """A list that became an input at opset `since`."""
        if self.opset < since:
            return self.add(op, inputs, **{name: values})
        return self.add(op, [*inputs, self.ints(*values)])

    def image_part(self, x: str) -> str:
        old = self.opset
        x = self.add("Conv", [x, self.weight(4, 3, 3, 3), self.weight(4)], pads=[1] * 4)
        phase: dict[str, Any] = {"is_test": 1} if old < 7 else {}
        if old < 6:
            phase["consumed_inputs"] = [0, 0, 0, 1, 1]
        x = self.add("BatchNormalization", [x, *(self.weight(4) for _ in range(4))], **phase)
        x = self.binary("Add", x, np.float32([0.5, -0.5, 1, -1]), axis=1)
        x = self.binary("Mul", x, np.float32([[2]]), axis=2)
        x = self.add("LeakyRelu", [x], alpha=0.25)
        slope = self.weight(4) if old < 7 else self.weight(4, 1, 1)
        x = self.add("PRelu", [x, slope])
        x = self.add("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
        x = self.add("AveragePool", [x], kernel_shape=[2, 2])
        x = self.listed("Pad", [x], 11, "paddings" if old < 2 else "pads", *[0, 0, 1, 0] * 2)
        return self.upsampled(x)

    def upsampled(self, x: str) -> str:
        scales = [1.0, 1.0, 2.0, 3.0]
        if self.opset < 7:
            return self.add("Upsample", [x], height_scale=2.0, width_scale=3.0)
        if self.opset < 9:
            return self.add("Upsample", [x], scales=scales)
        stored = self.constant(np.float32(scales))
        if self.opset < 11:
            return self.add("Upsample" if self.opset == 9 else "Resize", [x, stored])
        attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.add("Resize", [x, "", stored], **attributes)

    def shape_part(self, x: str) -> str:
        old = self.opset
        if old < 10:
            x = self.add("Slice", [x], axes=[2], starts=[1], ends=[-1])
        else:
            x = self.add("Slice", [x, self.ints(1), self.ints(-1), self.ints(2)])
        split = [x, self.ints(1, 3)] if old >= 13 else [x]
        a, b = self.add("Split", split, 2, axis=1, **({} if old >= 13 else {"split": [1, 3]}))
        x = self.add("Concat", [b, a], axis=1)
        x = self.listed("Squeeze", [self.listed("Unsqueeze", [x], 13, "axes", 1)], 13, "axes", 1)
        if old < 6:
            tiles = [self.constant(np.float32(2)), self.constant(np.float32(1))]
        else:
            tiles = [self.ints(1, 2, 1, 1)]
        x = self.add("Tile", [x, *tiles])
        x = self.listed("ReduceMean", [x], 18, "axes", 3)
        x = self.listed("ReduceSum", [x], 13, "axes", 2)
        double, single = ("DOUBLE", "FLOAT") if old < 6 else (TensorProto.DOUBLE, TensorProto.FLOAT)
        x = self.add("Cast", [self.add("Cast", [x], to=double)], to=single)
        x = self.listed("Reshape", [x], 5, "shape", 2, -1)
        x = self.add("Dropout", [x], **({"is_test": 1} if old < 7 else {}))
        if old < 11:
            return self.add("Clip", [x], min=-20.0, max=20.0)
        return self.add("Clip", [x, *(self.constant(np.float32(v)) for v in (-20, 20))])

    def model(self) -> onnx.ModelProto:
        x = self.shape_part(self.image_part("x"))
        broadcast = {"broadcast": 1} if self.opset < 7 else {}
        x = self.add("Gemm", [x, self.weight(8, 5), self.weight(5)], alpha=0.125, **broadcast)
        x = self.add("Selu", [x], alpha=1.5, gamma=1.25)
        y = self.add("Softmax", [x], axis=1)
        if self.opset < 10:
            best, at = self.add("TopK", [x], 2, k=3)
        else:
            best, at = self.add("TopK", [x, self.ints(3)], 2)
        made = om.model(
            self.nodes,
            [om.value("x", IMAGE.shape)],
            [
                om.value(y, None),
                om.value(best, None),
                om.value(at, None, TensorProto.INT64),
            ],
            self.constants,
            opset=self.opset,
        )
        made.ir_version = 10
        return made


@pytest.fixture(scope="module")
def expected() -> list[np.ndarray]:
    import onnxruntime as ort

    session = ort.InferenceSession(Network(21).model().SerializeToString())
    return session.run(None, {"x": IMAGE})


@pytest.mark.parametrize("opset", OPSETS)
def test_a_network_gives_the_same_answers_at_every_opset(opset, expected):
    found = evaluate(load(Network(opset).model()), {"x": IMAGE})
    for got, want in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-6)


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 11, 13, 17, 21, OPSETS[-1]])
def test_it_does_so_compiled(opset, expected):
    found = ts.compile(Network(opset).model(), threads=1).run({"x": IMAGE})
    for got, want in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-6)


def _pair(op: str, a: tuple[int, ...], b: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op, ["a", "b"], ["y"], **attributes)
    return om.model([node], [om.value("a", a), om.value("b", b)], ["y"], opset=6)


def test_operands_broadcast_from_an_axis_on():
    a, b = np.ones((2, 3, 4, 5), np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    graph = load(_pair("Add", a.shape, b.shape, broadcast=1, axis=1))
    (got,) = evaluate(graph, {"a": a, "b": b}).values()
    np.testing.assert_array_equal(got, a + b[:, :, None])
    graph = load(_pair("Sub", a.shape, (5,), broadcast=1))
    (got,) = evaluate(graph, {"a": a, "b": np.arange(5, dtype=np.float32)}).values()
    np.testing.assert_array_equal(got, a - np.arange(5))


@pytest.mark.parametrize(
    ("a", "b", "attributes", "message"),
    [
        ((2, 3), (3,), {}, "expected operands of one shape"),
        ((3,), (2, 3), {"broadcast": 1}, "operand of at most rank 1"),
        ((2, 3, 4), (3, 4), {"broadcast": 1, "axis": 2}, "expected at most 1"),
    ],
)
def test_operands_that_do_not_broadcast(a, b, attributes, message):
    with pytest.raises(ModelError, match=message):
        load(_pair("Mul", a, b, **attributes))


def test_a_cast_to_a_name_that_is_none():
    node = helper.make_node("Cast", ["x"], ["y"], to="REAL")
    with pytest.raises(ModelError, match="expected one of FLOAT"):
        load(om.model([node], [om.value("x", [2])], ["y"], opset=5))


@pytest.mark.parametrize("opset", [6, 8])
def test_statistics_of_each_place(opset):
    """BatchNormalization with spatial=0, which opset 9 dropped."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    parts = [rng.uniform(0.5, 1, (3, 4)).astype(np.float32) for _ in range(4)]
    names = ["s", "b", "m", "v"]
    attributes = {"spatial": 0, **({"is_test": 1} if opset < 7 else {})}
    node = helper.make_node("BatchNormalization", ["x", *names], ["y"], **attributes)
    made = om.model(
        [node], [om.value("x", x.shape)], ["y"], dict(zip(names, parts, strict=True)), opset=opset
    )
    (got,) = evaluate(load(made), {"x": x}).values()
    scale, bias, mean, variance = parts
    np.testing.assert_allclose(
        got, (x - mean) / np.sqrt(variance + 1e-5) * scale + bias, 1e-4, 1e-5
    )
