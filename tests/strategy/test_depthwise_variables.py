"""Depthwise convolutions of variables: where lanes run along channels, and the same sums."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import DType, f16, f32, f64
from tilesmith.ir.types import TensorType
from tilesmith.ops.conv import Conv
from tilesmith.support.options import Options


def gradient(samples: int, channels: int, size: int, dtype: DType = f32, stride: int = 1) -> Graph:
    """The gradient of a weight [channels, 1, 3, 3], samples in place of a spatial axis."""
    places = (size - 1) // stride + 1
    end = 2 + stride * (places - 1) - size
    b = Builder("m")
    x = b.input("x", TensorType(dtype, (1, channels, samples, size, size)))
    w = b.input("w", TensorType(dtype, (channels, 1, samples, places, places)))
    pads, far = (0, 1, 1, 0, end, end), (1, stride, stride)
    return b.finish([b.add(Conv((1, 1, 1), pads, far, channels), x, w)], ["y"])


def loops(graph: Graph) -> str:
    exe = driver.compile(graph, options=Options(use_cache=False, target="x86-64-v4"))
    return "\n".join(k.loops for k in exe.program.kernels.values() if "conv" in k.operators)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_gradient_of_weights_has_lanes_along_channels(stride: int) -> None:
    text = loops(gradient(8, 96, 16, stride=stride))
    assert "in vectorized(16)" in text and "in vectorized(3)" not in text
    assert "w_heap" in text or "in1_heap" in text  # brought into that order once


def test_few_channels_have_no_lanes() -> None:
    assert "in vectorized(3)" in loops(gradient(8, 3, 16))


def test_an_image_decides_for_itself() -> None:
    b = Builder("m")
    x, w = (
        b.input("x", TensorType(f32, (8, 96, 4, 4))),
        b.input("w", TensorType(f32, (96, 1, 3, 3))),
    )
    graph = b.finish([b.add(Conv((), (1, 1, 1, 1), (), 96), x, w)], ["y"])
    assert "in vectorized(4)" in loops(graph)  # its readers would have to follow


@pytest.mark.parametrize(
    ("samples", "channels", "size", "dtype", "stride"),
    [
        (8, 96, 16, f32, 1), (8, 96, 17, f32, 2), (1, 37, 32, f32, 1), (3, 50, 21, f32, 2),
        (8, 96, 5, f32, 1), (8, 64, 16, f64, 1), (2, 64, 18, f16, 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("threads", [1, 2])
def test_sums(samples: int, channels: int, size: int, dtype: DType, stride: int, threads: int):
    graph = gradient(samples, channels, size, dtype, stride)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(v.type.static_shape).astype(v.dtype.numpy) for v in graph.inputs]
    exe = driver.compile(graph, options=Options(use_cache=False, threads=threads))
    found = exe.run(dict(zip("xw", inputs, strict=True)))["y"].astype(np.float64)
    expected = evaluate(graph, inputs)["y"].astype(np.float64)
    assert found.shape == expected.shape
    tolerance = 2e-3 if dtype is f16 else 1e-5
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()
