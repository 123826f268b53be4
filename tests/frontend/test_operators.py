"""Operators and cases of operators that ONNX's backend tests leave out, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_models as om
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_nodes import check, made, normal, onnxruntime

from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate


def refer(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX's reference evaluator gives."""
    return ReferenceEvaluator(model).run(None, dict(inputs))


def chain(
    nodes: list[onnx.NodeProto], inputs: dict[str, np.ndarray], opset: int = 21
) -> onnx.ModelProto:
    """A model of several nodes whose result is y."""
    infos = [
        om.value(n, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in inputs.items()
    ]
    return om.model(nodes, infos, ["y"], opset=opset)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_max_roi_pool(scale):
    rois = np.float32([[0, 1, 1, 6, 7], [1, 0, 0, 3, 2], [1, 5, 5, 5, 5], [0, 9, 9, 12, 12]])
    inputs = {"x": normal(2, 3, 9, 8), "rois": rois}
    check(made("MaxRoiPool", inputs, pooled_shape=[3, 2], spatial_scale=scale), inputs)


@pytest.mark.parametrize(("op", "dtype"), [("Mod", "f8"), ("Mod", "f4"), ("Div", "i8")])
def test_a_division_in_the_tail_of_a_product(op, dtype):
    """Lanes behind the last column of a register tile are masked off."""
    inputs = {"a": 9 * normal(1, 5), "b": 9 * normal(1, 7), "c": 1 + 9 * abs(normal(7))}
    inputs = {n: x.astype(dtype) for n, x in inputs.items()}
    attributes = {"fmod": 1} if op == "Mod" else {}
    product = helper.make_node("Gemm", ["a", "b"], ["g"], transA=1)
    model = chain([product, helper.make_node(op, ["g", "c"], ["y"], **attributes)], inputs)
    check(model, inputs, refer(model, inputs), 1e-3, 1e-3)


@pytest.mark.parametrize("op", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_roots_and_logarithms_of_integers(op, dtype):
    inputs = {"x": np.asarray([[3, 4, 5], [1, 2, 9]], dtype)}
    check(made(op, inputs, opset=17, axes=[1]), inputs)


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_fractions_of_an_integer_product(alpha):
    inputs = {n: np.asarray([[1, 2], [3, -5]], np.int32) for n in "abc"}
    wide = alpha * (inputs["a"] @ inputs["b"]) + 1.5 * inputs["c"]
    model = made("Gemm", inputs, alpha=alpha, beta=1.5)
    check(model, inputs, [np.trunc(wide).astype(np.int32)])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_interpolated_integers_are_rounded(mode, dtype):
    inputs = {"x": np.random.default_rng(1).integers(0, 127, (1, 1, 4, 4)).astype(dtype)}
    constants = {"roi": np.float32([]), "scales": np.float32([1, 1, 1.5, 0.5])}
    model = made("Resize", inputs, constants=constants, mode=mode)
    wide = {"x": inputs["x"].astype(np.float64)}
    (exact,) = refer(made("Resize", wide, constants=constants, mode=mode), wide)
    info = np.iinfo(dtype)
    check(model, inputs, [np.rint(exact).clip(info.min, info.max).astype(dtype)], 0, 0)


NOTHING = np.zeros((2, 0, 3), np.float32)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [12, 13])
def test_normalised_nothing(op, opset):
    inputs = {"x": NOTHING}
    check(made(op, inputs, opset=opset, axis=1), inputs, [NOTHING])


def test_resized_nothing():
    inputs = {"x": np.zeros((1, 1, 0, 4), np.float32)}
    constants = {"roi": np.float32([]), "scales": np.float32([1, 1, 2, 2])}
    check(made("Resize", inputs, constants=constants), inputs)


def test_instances_without_places():
    """Each channel is its own mean, so that only the bias is left."""
    inputs = {"x": normal(2, 3), "s": normal(3, seed=1), "b": normal(3, seed=2)}
    expected = np.broadcast_to(inputs["b"], (2, 3))
    check(made("InstanceNormalization", inputs), inputs, [expected])


@pytest.mark.parametrize(("word", "opset"), [("linear", 18), ("bilinear", 20), ("cubic", 16)])
def test_words_of_grid_sample(word, opset):
    """Exporters write the words of either version."""
    inputs = {"x": normal(1, 1, 4, 4), "g": 0.5 * normal(1, 2, 3, 2, seed=1)}
    today = {"linear": "linear", "bilinear": "linear", "cubic": "cubic"}[word]
    expected = onnxruntime(made("GridSample", inputs, opset=20, mode=today), inputs)
    check(made("GridSample", inputs, opset=opset, mode=word), inputs, expected, 1e-4, 1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize(("padding", "beyond"), [("border", -2), ("zeros", 0)])
def test_places_at_infinity_are_outside(mode, padding, beyond):
    """Infinity has no fraction between two pixels: it gave NaN."""
    places = [[np.inf, 0], [-np.inf, 3e38], [0, 0]]
    inputs = {"x": np.full((1, 1, 5, 5), -2, np.float32), "g": np.float32([[places]])}
    expected = np.float32([[[[beyond, beyond, -2]]]])
    model = made("GridSample", inputs, opset=20, mode=mode, padding_mode=padding, align_corners=1)
    check(model, inputs, [expected])


@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers_with_lengths_and_states(op, gates, direction):
    count = 2 if direction == "bidirectional" else 1
    inputs = {
        "x": normal(4, 3, 4),
        "w": normal(count, gates * 6, 4),
        "r": normal(count, gates * 6, 6),
        "b": normal(count, 2 * gates * 6),
        "lengths": np.int32([4, 2, 3]),
        "h": normal(count, 3, 6),
    }
    if op == "LSTM":
        inputs["c"] = normal(count, 3, 6)
    attributes = {"linear_before_reset": 1} if op == "GRU" else {}
    outputs = 3 if op == "LSTM" else 2
    model = made(op, inputs, outputs=outputs, hidden_size=6, direction=direction, **attributes)
    check(model, inputs, relative=1e-4, absolute=1e-5)


@pytest.mark.parametrize("boolean", [True, False])
def test_a_query_that_sees_no_key(boolean):
    seen = np.ones((3, 3), bool)
    seen[1] = False
    mask = seen if boolean else np.where(seen, 0, -np.inf).astype(np.float32)
    inputs = {"q": normal(1, 2, 3, 4), "k": normal(1, 2, 3, 4), "v": normal(1, 2, 3, 4), "m": mask}
    model = made("Attention", inputs, opset=23)
    check(model, inputs, refer(model, inputs), 1e-4, 1e-5)


def test_windows_that_lie_in_padding_are_empty():
    """A dilated window of two taps around an axis of one place reads padding only."""
    inputs = {"x": normal(1, 1, 1, 4)}
    attributes = {"kernel_shape": [2, 1], "dilations": [2, 1], "auto_pad": "SAME_UPPER"}
    expected = np.full((1, 1, 1, 4), -np.inf, np.float32)
    check(made("MaxPool", inputs, **attributes), inputs, [expected])


def test_integers_that_shrink_by_a_fraction():
    """The difference is cut, not the bias."""
    x = np.array([40433, 3, 0], np.uint16)
    check(made("Shrink", {"x": x}, bias=1.7, lambd=0.5), {"x": x})


def test_a_sum_of_squares_of_integers_wraps():
    """As in the body that ONNX gives for ReduceL2."""
    x = np.full(3, 40000, np.int32)
    found = evaluate(load(made("ReduceL2", {"x": x}, opset=12, axes=[-1])), {"x": x})
    assert found["y0"].tolist() == [int(np.sqrt(3 * 40000**2 - (1 << 32)))]
