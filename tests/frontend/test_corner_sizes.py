"""Sizes and values at the ends of their ranges."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_models as om
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilesmith as ts
from tilesmith.support.errors import ModelError, OpenDimensionError


def _agrees(model: onnx.ModelProto, *arrays: np.ndarray) -> None:
    names = [i.name for i in model.graph.input]
    inputs = dict(zip(names, arrays, strict=True))
    wanted = ReferenceEvaluator(model).run(None, inputs)
    found = ts.compile(model.SerializeToString(), threads=1).run(inputs)
    for got, want in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 2), (2, 3)])
def test_padding_of_nothing_by_a_computed_value(before: int, after: int) -> None:
    node = helper.make_node("Pad", ["x", "p", "v"], ["y"])
    inputs = [om.value("x", ["n", 0]), om.value("v", [])]
    model = om.model([node], inputs, ["y"], {"p": np.array([0, before, 0, after])}, opset=22)
    _agrees(model, np.zeros((2, 0), np.float32), np.array(-2, np.float32))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("rows", [1, 2, 4, 9])
def test_an_open_axis_is_resized_to_a_number(mode: str, rows: int) -> None:
    attributes = {"mode": mode, "coordinate_transformation_mode": "align_corners"}
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **attributes)
    model = om.model([node], [om.value("x", ["n", 6])], ["y"], {"s": np.array([3, 6])}, opset=16)
    _agrees(model, np.random.default_rng(0).standard_normal((rows, 6)).astype(np.float32))


def test_zeros_are_quantised_with_a_scale_that_is_not_zero() -> None:
    """With scale 1, as ONNX Runtime does; the reference evaluator says 1/255."""
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    model = om.model([node], [om.value("x", [8, 4])], ["y", "scale", "zero"], opset=19)
    found = ts.compile(model, threads=1)(np.zeros((8, 4), np.float32))
    assert [float(a.max()) for a in found] == [0, 1, 0]


def test_nothing_is_gathered_from_nothing() -> None:
    index = om.value("i", [], TensorProto.INT32)
    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=0)
    model = om.model([node], [om.value("x", [0, 16]), index], ["y"])
    with pytest.raises(ModelError, match=r"gather\(f32\[0,16\], i32\[\]\).*along axis 0, found no"):
        ts.compile(model)


def test_a_kernel_that_is_not_proved_for_all_sizes_asks_for_shapes() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[1, 2**31 - 1])
    weights = np.ones((2, 5, 3, 2), np.float32)
    model = om.model([node], [om.value("x", [1, 5, "h", "w"])], ["y"], {"w": weights})
    with pytest.raises(OpenDimensionError, match="can't be compiled for all sizes; give shapes"):
        ts.compile(model)
    exe = ts.compile(model, shapes={"h": 4, "w": 4})
    assert (exe(np.ones((1, 5, 4, 4), np.float32)) == 30).all()


def test_a_maximum_of_nan_is_where_nan_is() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2], strides=[2])
    model = om.model([node], [om.value("x", [1, 1, 8])], ["y", "i"])
    nan = np.nan
    x = np.array([1, nan, nan, 1, nan, nan, 2, 3], np.float32).reshape(1, 1, 8)
    y, i = ts.compile(model, threads=1)(x)
    np.testing.assert_array_equal(y.ravel(), [nan, nan, nan, 3])
    assert i.ravel().tolist() == [1, 2, 4, 7]


@pytest.mark.parametrize("mode", ["cubic", "linear"])
def test_open_axes_are_resized_by_scales_of_a_run(mode: str) -> None:
    """The largest sizes that four axes may have multiply to more than 64 bits."""
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)
    inputs = [om.value("x", ["a", "b", "h", "w"]), om.value("s", [4])]
    model = om.model([node], inputs, ["y"], opset=19)
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 5)).astype(np.float32)
    _agrees(model, x, np.float32([1, 1, 2, 2]))
    _agrees(model, x[:, :, :3], np.float32([1, 1, 2, 3]))


@pytest.mark.parametrize("size", [(10, 12), (3, 4), (4, 5), (4, 9)])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_axes_that_keep_their_size_are_not_resampled(mode: str, size: tuple[int, int]) -> None:
    """Also where only a run knows that they do."""
    attributes = {"mode": mode, "coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **attributes)
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 5)).astype(np.float32)
    sizes = np.array([1, 2, *size])
    known = {"s": sizes}
    (wanted,) = _results(om.model([node], [om.value("x", [1, 2, 4, 5])], ["y"], known, opset=13), x)
    opened = om.value("x", ["a", "b", "h", "w"])
    given = om.value("s", [4], TensorProto.INT64)
    for model, inputs in (
        (om.model([node], [opened], ["y"], known, opset=13), (x,)),
        (om.model([node], [opened, given], ["y"], opset=13), (x, sizes)),
    ):
        (found,) = _results(model, *inputs)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def _results(model: onnx.ModelProto, *arrays: np.ndarray) -> list[np.ndarray]:
    names = [i.name for i in model.graph.input]
    exe = ts.compile(model.SerializeToString(), threads=1)
    return [*exe.run(dict(zip(names, arrays, strict=True))).values()]
