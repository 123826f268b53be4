"""Borders of axes whose extents, or whose own widths, only a run knows."""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts

Mode = Literal["reflect", "wrap", "edge"]


def _model(mode: Mode, shape: list[str | int], pads: list[int] | None) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if pads is None:
        inputs.append(helper.make_tensor_value_info("p", TensorProto.INT64, [4]))
    stored = [] if pads is None else [numpy_helper.from_array(np.array(pads), "p")]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Pad", ["x", "p"], ["y"], mode=mode)
    graph = helper.make_graph([node], "g", inputs, [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("mode", ["reflect", "wrap", "edge"])
def test_borders_narrower_and_wider_than_an_open_axis(mode: Mode) -> None:
    pads = [2, 20, 3, 19]
    exe = ts.compile(_model(mode, ["h", "w"], pads))
    for h, w in ((5, 64), (3, 21), (4, 20), (2, 19), (1, 3), (7, 1)):
        x = np.arange(h * w, dtype=np.float32).reshape(h, w)
        want = np.pad(x, [(2, 3), (20, 19)], mode=mode)
        np.testing.assert_array_equal(exe.run({"x": x})["y"], want)


@pytest.mark.parametrize("mode", ["reflect", "wrap", "edge"])
def test_borders_of_a_run(mode: Mode) -> None:
    exe = ts.compile(_model(mode, [5, 40], None))
    x = np.arange(200, dtype=np.float32).reshape(5, 40)
    for pads in ([2, 20, 3, 19], [0, 0, 0, 0], [0, 17, 9, 0], [4, 39, 4, 39], [5, 40, 5, 41],
                 [1, 90, 2, 130]):  # fmt: skip
        want = np.pad(x, [(pads[0], pads[2]), (pads[1], pads[3])], mode=mode)
        np.testing.assert_array_equal(exe.run({"x": x, "p": np.array(pads)})["y"], want)
