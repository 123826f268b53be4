"""Deformable convolution as models have it, in machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.support.errors import ModelError

RNG = np.random.default_rng(0)


def model(x: list[int], w: list[int], offset: list[int], mask: bool, **attributes: Any) -> Any:
    """`x` and `offset` (and `mask`) to `y`, with a bias."""
    shapes = {"x": x, "offset": offset}
    if mask:
        shapes["mask"] = [offset[0], offset[1] // 2, *offset[2:]]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    names = ["x", "w", "offset", "b", *(["mask"] if mask else [])]
    weights = {"w": RNG.standard_normal(w), "b": RNG.standard_normal(w[0])}
    stored = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    node = helper.make_node("DeformConv", names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    arrays = {n: (RNG.standard_normal(s) * 2).astype(np.float32) for n, s in shapes.items()}
    return made, arrays


@pytest.mark.parametrize(
    ("x", "w", "offset", "mask", "attributes"),
    [
        ([1, 8, 5, 6], [9, 8, 3, 3], [1, 18, 5, 6], True, {"pads": [1, 1, 1, 1]}),
        ([2, 6, 8, 7], [4, 3, 3, 2], [2, 36, 4, 6], False,
         {"pads": [1, 0, 1, 0], "strides": [2, 1], "group": 2, "offset_group": 3}),
        ([1, 4, 9, 8], [5, 4, 3, 3], [1, 18, 5, 4], True, {"dilations": [2, 2]}),
    ],
)  # fmt: skip
def test_against_onnx(
    x: list[int], w: list[int], offset: list[int], mask: bool, attributes: dict[str, Any]
) -> None:
    made, arrays = model(x, w, offset, mask, **attributes)
    (want,) = ReferenceEvaluator(made).run(None, arrays)  # type: ignore[misc]  # one output
    for threads in (1, 2):
        got = ts.compile(made, threads=threads).run(arrays)["y"]
        np.testing.assert_allclose(got, want, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("offset", "attributes", "message"),
    [
        ([1, 17, 2, 2], {}, r"expected offsets \(1, 18, 2, 2\)"),
        ([1, 18, 3, 2], {}, r"expected offsets \(1, 18, 2, 2\)"),
        ([1, 54, 2, 2], {"offset_group": 3}, "3 groups of channels"),
        ([1, 18, 2, 2], {"kernel_shape": [2, 2]}, "kernel_shape: expected that of weights"),
    ],
)
def test_what_does_not_fit(offset: list[int], attributes: dict[str, Any], message: str) -> None:
    made, _ = model([1, 4, 4, 4], [5, 4, 3, 3], offset, False, **attributes)
    with pytest.raises(ModelError, match=message):
        load(made)
