"""STFT of ONNX: windows of the model make filters of a convolution, others weigh frames."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts

RNG = np.random.default_rng(3)
WINDOW = np.hanning(25).astype(np.float32)


def _model(samples: int | str, constant: bool, onesided: int) -> onnx.ModelProto:
    values = [("x", [2, samples, 1])] + ([] if constant else [("w", [25])])
    inputs = [helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in values]
    given = {"s": np.array(10), **({"w": WINDOW} if constant else {})}
    node = helper.make_node("STFT", ["x", "s", "w"], ["y"], onesided=onesided)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    stored = [numpy_helper.from_array(v, k) for k, v in given.items()]
    graph = helper.make_graph([node], "g", inputs, [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("samples", [95, "n"])
def test_frames_are_transformed(samples: int | str, constant: bool, onesided: int) -> None:
    exe = ts.compile(_model(samples, constant, onesided))
    for n in (95,) if samples == 95 else (25, 95, 124):
        x = RNG.standard_normal((2, n, 1)).astype(np.float32)
        given = {"x": x} if constant else {"x": x, "w": WINDOW}
        frames = np.stack([x[:, a : a + 25, 0] for a in range(0, n - 24, 10)], 1) * WINDOW
        want = (np.fft.rfft if onesided else np.fft.fft)(frames.astype(np.float64))
        got = exe.run(given)["y"]
        np.testing.assert_allclose(got, np.stack([want.real, want.imag], -1), atol=1e-5)
        operators = {o for k in exe.program.kernels.values() for o in k.operators}
        assert ("gather" in operators) != constant  # frames of a signal are never copied
