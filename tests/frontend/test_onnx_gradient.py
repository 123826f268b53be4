"""Gradient of ONNX's training domain."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts

DOMAIN = "ai.onnx.preview.training"
RNG = np.random.default_rng(0)
W, X = (RNG.standard_normal((3, 4)).astype(np.float32) for _ in "wx")


def _model(nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    """A model of x [3, 4] with the initialiser w [3, 4]."""
    shape = TensorProto.FLOAT, [3, 4]
    graph = helper.make_graph(
        nodes,
        "gradient",
        [helper.make_tensor_value_info("x", *shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(W, "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _gradient(inputs: list[str], outputs: list[str], **attributes: object) -> onnx.NodeProto:
    return helper.make_node("Gradient", inputs, outputs, domain=DOMAIN, **attributes)


FUNCTION = [
    helper.make_node("Mul", ["x", "w"], ["product"]),
    helper.make_node("Sin", ["product"], ["y"]),
]


def test_derivatives_by_an_input_and_a_weight_of_a_tensor_whose_sum_counts() -> None:
    node = _gradient(["x", "w"], ["dx", "dw"], xs=["x", "w"], y="y")
    dx, dw = ts.compile(_model([*FUNCTION, node], ["dx", "dw"]))(X)
    np.testing.assert_allclose(dx, np.cos(X * W) * W, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dw, np.cos(X * W) * X, rtol=1e-5, atol=1e-6)


def test_derivatives_at_other_values_and_by_a_tensor_between() -> None:
    twice = helper.make_node("Add", ["x", "x"], ["other"])
    nodes = [*FUNCTION, twice, _gradient(["other", "w"], ["dx"], xs=["x"], zs=["w"], y="y")]
    nodes += [_gradient(["product"], ["dp"], xs=["product"], y="y")]
    dx, dp = ts.compile(_model(nodes, ["dx", "dp"]))(X)
    np.testing.assert_allclose(dx, np.cos(2 * X * W) * W, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dp, np.cos(X * W), rtol=1e-5, atol=1e-6)


def test_a_gradient_is_differentiated_again() -> None:
    first = _gradient(["x", "w"], ["dx"], xs=["x"], zs=["w"], y="y")
    again = _gradient(["x", "w"], ["ddx"], xs=["x"], zs=["w"], y="dx")
    ddx = ts.compile(_model([*FUNCTION, first, again], ["ddx"]))(X)
    np.testing.assert_allclose(ddx, -np.sin(X * W) * W * W, rtol=1e-4, atol=1e-5)


def test_a_tensor_that_does_not_count_has_the_gradient_zero() -> None:
    other = helper.make_node("Add", ["x", "x"], ["other"])
    node = _gradient(["product", "other"], ["dp", "d"], xs=["product", "other"], y="y")
    _, d = ts.compile(_model([*FUNCTION, other, node], ["dp", "d"]))(X)
    np.testing.assert_array_equal(d, np.zeros((3, 4)))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (_gradient(["x"], ["dx"], xs=["x"], y="z"), "'z' is used, which nothing defines"),
        (_gradient(["x"], ["dx"], xs=["x", "w"], y="y"), "inputs for the 2 tensors .*, found 1"),
        (_gradient(["w"], ["dw"], xs=["product"], y="x"), "it needs 'x', too"),
    ],
)
def test_what_has_no_meaning_is_refused(node: onnx.NodeProto, message: str) -> None:
    with pytest.raises(ts.ModelError, match=message):
        ts.compile(_model([*FUNCTION, node], list(node.output)))
