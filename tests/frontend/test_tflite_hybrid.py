"""Products of f32 inputs and weights of bytes against TFLite's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tflite_oracle import check, numbers, one_graph

from tflite_models import GraphWriter

SAME = 0


def run(
    kind: str,
    options: str,
    x: Sequence[int],
    w: Sequence[int],
    each: bool,
    channel: int = 0,
    bias: bool = True,
    **values: Any,
) -> None:
    """Compares an operator of an input of shape `x` and weights of shape `w`.

    each: whether each channel of the weights, along the axis `channel`, has a scale of its own.
    """

    def build(g: GraphWriter) -> None:
        weights = np.random.default_rng(1).integers(-127, 127, w, endpoint=True).astype(np.int8)
        scale = np.linspace(0.002, 0.02, w[channel]) if each else 0.01
        operands = [g.input(x), g.const(weights, scale=scale, axis=channel)]
        operands += [g.const(numbers(2, w[channel]))] if bias else []
        y = g.tensor([])
        g.op(kind, operands, [y], options, **values)
        g.output(y)

    arrays = numbers(0, *x)
    arrays[-1] *= 100
    check(one_graph(build), [arrays], 1e-5)


@pytest.mark.parametrize("each", [False, True])
def test_convolutions(each):
    steps = {"padding": SAME, "stride_h": 1, "stride_w": 2, "dilation_h_factor": 1,
             "dilation_w_factor": 1}  # fmt: skip
    run("CONV_2D", "Conv2DOptions", (2, 7, 9, 5), (6, 3, 3, 5), each, **steps)


def test_depthwise_convolutions():
    run("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", (2, 7, 9, 6), (1, 3, 3, 6), True, 3,
        padding=SAME, stride_h=1, stride_w=1, depth_multiplier=1)  # fmt: skip


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_fully_connected(each, asymmetric):
    run("FULLY_CONNECTED", "FullyConnectedOptions", (5, 70), (33, 70), each,
        asymmetric_quantize_inputs=asymmetric, fused_activation_function=1)  # fmt: skip


@pytest.mark.parametrize("asymmetric", [False, True])
def test_batch_matmul(asymmetric):
    for adj_y in (False, True):
        w = (3, 7, 20) if adj_y else (3, 20, 7)
        run("BATCH_MATMUL", "BatchMatMulOptions", (3, 5, 20), w, False, bias=False, adj_y=adj_y,
            asymmetric_quantize_inputs=asymmetric)  # fmt: skip


def test_an_input_of_zeros_gives_the_bias():
    def build(g: GraphWriter) -> None:
        w = g.const(np.ones((4, 6), np.int8), scale=0.1)
        y = g.tensor([])
        g.op("FULLY_CONNECTED", [g.input((2, 6)), w, g.const(numbers(1, 4))], [y],
             "FullyConnectedOptions")  # fmt: skip
        g.output(y)

    check(one_graph(build), [np.zeros((2, 6), np.float32)])
