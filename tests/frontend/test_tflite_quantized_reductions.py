"""Quantised pools, means, resizes and joins against TFLite's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tflite_oracle import check, one_graph
from tflite_quantized_cases import I8, I16, NONE, RELU6, U8, integers

from tflite_models import GraphWriter

SAME, VALID = 0, 1
BYTES = [(I8, 0.05, -3), (U8, 0.05, 131), (I16, 0.0004, 0)]


def run(
    kind: str,
    x: Sequence[int],
    given: Any,
    result: Any,
    options: str,
    second: np.ndarray | None = None,
    is_open: bool = False,
    **values: Any,
) -> None:
    """Compares an operator of an input of shape `x`, and of a stored operand."""

    def build(g: GraphWriter) -> None:
        dims = [*[-1] * (len(x) - 1), x[-1]] if is_open else x
        operands = [g.input(dims, given[0], scale=given[1], zero=given[2])]
        if second is not None:
            operands.append(g.const(second))
        y = g.tensor([-1] * 4 if is_open else [], result[0], scale=result[1], zero=result[2])
        g.op(kind, operands, [y], options, **values)
        g.output(y)

    check(one_graph(build), [integers(0, x, given[0])])


@pytest.mark.parametrize("kind", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize("of", BYTES, ids=lambda p: np.dtype(p[0]).name)
def test_pools(kind, of):
    for padding, activation, size in ((SAME, NONE, 3), (VALID, RELU6, 2)):
        run(kind, (2, 7, 9, 5), of, of, "Pool2DOptions", padding=padding, stride_h=2, stride_w=1,
            filter_height=size, filter_width=3, fused_activation_function=activation)  # fmt: skip


@pytest.mark.parametrize("kind", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_pools_of_open_images(kind):
    run(kind, (2, 7, 9, 5), BYTES[0], BYTES[0], "Pool2DOptions", is_open=True, padding=SAME,
        stride_h=2, stride_w=2, filter_height=3, filter_width=3)  # fmt: skip


@pytest.mark.parametrize("of", BYTES, ids=lambda p: np.dtype(p[0]).name)
def test_means(of):
    for axes, scale in (([1, 2], of[1] * 0.9), ([-1], of[1] * 0.02), ([0, 3], of[1])):
        run("MEAN", (2, 7, 9, 5), of, (of[0], scale, of[2]), "ReducerOptions",
            np.array(axes, np.int32), keep_dims=True)  # fmt: skip


def test_means_of_open_images():
    run("MEAN", (2, 7, 9, 5), BYTES[0], (I8, 0.03, 4), "ReducerOptions",
        np.array([1, 2], np.int32), is_open=True, keep_dims=True)  # fmt: skip


def test_sums():
    run("SUM", (2, 7, 9, 5), BYTES[1], (U8, 0.5, 120), "ReducerOptions", np.array([1, 2], np.int32))


@pytest.mark.parametrize("of", BYTES, ids=lambda p: np.dtype(p[0]).name)
@pytest.mark.parametrize("how", [{}, {"align_corners": True}, {"half_pixel_centers": True}])
def test_bilinear_resizes(of, how):
    for size in ((10, 17), (3, 4)):
        run("RESIZE_BILINEAR", (2, 5, 7, 3), of, of, "ResizeBilinearOptions",
            np.array(size, np.int32), **how)  # fmt: skip


def test_joins_of_unsigned_bytes_with_other_scales():
    def build(g: GraphWriter) -> None:
        parts = [(0.05, 131), (0.021, 3), (0.05, 130)]
        x = [g.input((3, 50 + i), U8, scale=s, zero=z) for i, (s, z) in enumerate(parts)]
        y = g.tensor((3, 153), U8, scale=0.05, zero=131)
        g.op("CONCATENATION", x, [y], "ConcatenationOptions", axis=1)
        g.output(y)

    check(one_graph(build), [integers(i, (3, 50 + i), U8) for i in range(3)])
