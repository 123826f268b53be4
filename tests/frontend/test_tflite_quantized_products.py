"""Quantised convolutions and products: the integers are those of TFLite's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tflite_oracle import check, one_graph
from tflite_quantized_cases import I8, I16, NONE, RELU6, U8, integers

from tflite_models import GraphWriter

SAME, VALID = 0, 1
Parameters = tuple[Any, Any, Any]
"""The element type, scale and zero point of a tensor."""

BYTES = ((I8, 0.04, -3), (I8, 0.01, 0), (I8, 0.11, 5))
UNSIGNED = ((U8, 0.04, 131), (U8, 0.01, 119), (U8, 0.11, 3))
WORDS = ((I16, 0.0003, 0), (I8, 0.01, 0), (I16, 0.0008, 0))


def _weights(seed: int, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Weights in the range that TFLite's converter uses."""
    low, high = (0, 255) if dtype is U8 else (-7, 7) if dtype == "INT4" else (-127, 127)
    return np.random.default_rng(seed).integers(low, high, shape, endpoint=True)


def _stored(g: GraphWriter, w: np.ndarray, parameters: Parameters, axis: int) -> int:
    dtype, scale, zero = parameters
    if np.ndim(scale) == 0 and scale == "each":
        scale = np.linspace(0.002, 0.02, w.shape[axis])
    if dtype == "INT4":
        flat = np.pad(w.reshape(-1), (0, w.size % 2)) & 15
        data = (flat[::2] | flat[1::2] << 4).astype(np.uint8).tobytes()
        return g.tensor(w.shape, dtype, data=data, scale=scale, zero=zero, axis=axis)
    return g.const(w.astype(dtype), scale=scale, zero=zero, axis=axis)


def run(
    kind: str,
    options: str,
    x: Sequence[int],
    w: Sequence[int],
    of: tuple[Parameters, Parameters, Parameters],
    *,
    channel: int = 0,
    bias: Any = None,
    first: Sequence[int] = (),
    is_open: bool = False,
    **values: Any,
) -> None:
    """Compares an operator of an input of shape `x` and weights of shape `w`.

    of: quantisation of the input, the weights and the result.
    channel: the axis of the weights for the result's channels.
    bias: the bias's element type; None for an operator without one.
    first: the shape of the result, stored as the operator's first operand.
    """

    def build(g: GraphWriter) -> None:
        (dtype, scale, zero), weights, (to, y_scale, y_zero) = of
        given = g.input(
            [-1] * (len(x) - 1) + [x[-1]] if is_open else x, dtype, scale=scale, zero=zero
        )
        operands = [given, _stored(g, _weights(1, w, weights[0]), weights, channel)]
        if first:
            operands = [g.const(np.array(first, np.int32)), operands[1], given]
        if bias is not None:
            numbers = np.random.default_rng(2).integers(-3000, 3000, w[channel]).astype(bias)
            s = 0.01 if isinstance(weights[1], str) else weights[1]
            operands.append(g.const(numbers, scale=scale * s, zero=0))
        y = g.tensor([-1] * 4 if is_open else [], to, scale=y_scale, zero=y_zero)
        g.op(kind, operands, [y], options, **values)
        g.output(y)

    check(one_graph(build), [integers(0, x, of[0][0])])


def _each(of: Any) -> Any:
    """The same quantisation with a scale for each channel of the weights."""
    return (of[0], (of[1][0], "each", 0), of[2])


CONV, DEPTHWISE = "Conv2DOptions", "DepthwiseConv2DOptions"


def _steps(h: int, w: int, dilation: int = 1) -> dict[str, int]:
    return {"stride_h": h, "stride_w": w, "dilation_h_factor": dilation,
            "dilation_w_factor": dilation}  # fmt: skip


@pytest.mark.parametrize("of", [BYTES, _each(BYTES), UNSIGNED], ids=["bytes", "each", "unsigned"])
def test_convolutions(of):
    for x, w, values in [
        ((1, 9, 7, 16), (20, 3, 3, 16), {"padding": SAME, **_steps(1, 1)}),
        ((2, 8, 9, 3), (5, 3, 2, 3), {"padding": SAME, **_steps(2, 2)}),
        ((1, 6, 6, 8), (7, 1, 1, 8), {"padding": VALID, **_steps(1, 1)}),
        ((1, 9, 9, 4), (8, 3, 3, 4), {"padding": VALID, **_steps(1, 1, 2)}),
    ]:
        for activation in (NONE, RELU6):
            run("CONV_2D", CONV, x, w, of, bias=np.int32,
                fused_activation_function=activation, **values)  # fmt: skip
    run("CONV_2D", CONV, (1, 9, 7, 4), (6, 3, 3, 4), of, bias=np.int32, is_open=True,
        padding=SAME, **_steps(2, 2))  # fmt: skip


def test_grouped_convolutions():
    run("CONV_2D", CONV, (1, 6, 6, 8), (4, 3, 3, 4), BYTES, bias=np.int32, padding=SAME,
        **_steps(1, 1))  # fmt: skip


def test_convolutions_with_weights_of_4_bits():
    for scale in (0.1, "each"):
        of = (BYTES[0], ("INT4", scale, 0), BYTES[2])
        run("CONV_2D", CONV, (1, 6, 6, 8), (7, 3, 3, 8), of, bias=np.int32, padding=SAME,
            **_steps(1, 1))  # fmt: skip


@pytest.mark.parametrize("of", [BYTES, _each(BYTES), UNSIGNED], ids=["bytes", "each", "unsigned"])
def test_depthwise_convolutions(of):
    for x, w, values in [
        ((1, 9, 7, 16), (1, 3, 3, 16), {"padding": SAME, **_steps(1, 1)}),
        ((2, 8, 9, 3), (1, 3, 2, 6), {"padding": SAME, **_steps(2, 2), "depth_multiplier": 2}),
        ((1, 9, 9, 4), (1, 3, 3, 4), {"padding": VALID, **_steps(1, 1, 2)}),
    ]:
        values = {"depth_multiplier": 1, **values}
        run("DEPTHWISE_CONV_2D", DEPTHWISE, x, w, of, bias=np.int32, channel=3, **values)


@pytest.mark.parametrize("of", [WORDS, _each(WORDS)], ids=["one", "each"])
def test_convolutions_of_words(of):
    for channels in (3, 300):  # sums that fit 32 bits, and others
        run("CONV_2D", CONV, (1, 5, 4, channels), (6, 3, 3, channels), of, bias=np.int64,
            padding=SAME, **_steps(1, 1))  # fmt: skip
    run("CONV_2D", CONV, (1, 5, 4, 3), (6, 3, 3, 3), of, bias=np.int32, padding=SAME,
        quantized_bias_type=2, **_steps(1, 1))  # fmt: skip
    run("DEPTHWISE_CONV_2D", DEPTHWISE, (1, 6, 5, 8), (1, 3, 3, 8), of, bias=np.int64, channel=3,
        padding=SAME, depth_multiplier=1, **_steps(1, 1))  # fmt: skip


@pytest.mark.parametrize("of", [BYTES, _each(BYTES), UNSIGNED, _each(WORDS)],
                         ids=["bytes", "each", "unsigned", "words"])  # fmt: skip
def test_transposed_convolutions(of):
    bias = np.int64 if of[0][0] is I16 else np.int32
    for first, padding in (((2, 8, 10, 5), SAME), ((2, 9, 11, 5), VALID)):
        run("TRANSPOSE_CONV", "TransposeConvOptions", (2, 4, 5, 3), (5, 3, 3, 3), of, bias=bias,
            first=first, padding=padding, stride_h=2, stride_w=2)  # fmt: skip


FULLY = "FullyConnectedOptions"


@pytest.mark.parametrize("of", [BYTES, _each(BYTES), UNSIGNED, WORDS, _each(WORDS)],
                         ids=["bytes", "each", "unsigned", "words", "words-each"])  # fmt: skip
def test_fully_connected(of):
    bias = np.int64 if of[0][0] is I16 else np.int32
    for activation in (NONE, RELU6):
        run("FULLY_CONNECTED", FULLY, (5, 64), (33, 64), of, bias=bias,
            fused_activation_function=activation)  # fmt: skip
    run("FULLY_CONNECTED", FULLY, (2, 3, 700), (8, 700), of, keep_num_dims=True)


def test_fully_connected_with_other_weights():
    asymmetric = (BYTES[0], (I8, 0.01, 7), BYTES[2])
    run("FULLY_CONNECTED", FULLY, (5, 64), (33, 64), asymmetric, bias=np.int32)
    narrow = (BYTES[0], ("INT4", 0.1, 0), BYTES[2])
    run("FULLY_CONNECTED", FULLY, (5, 64), (33, 64), narrow, bias=np.int32)


@pytest.mark.parametrize(
    "of",
    [
        ((I8, 0.04, -3), (I8, 0.03, 9), (I8, 0.3, 5)),
        ((I16, 0.0004, 0), (I16, 0.0003, 0), (I16, 0.001, 0)),
        ((I16, 0.0004, 0), (I8, 0.0003, 0), (I16, 0.001, 0)),
    ],
    ids=["bytes", "words", "mixed"],
)
def test_batch_matmul(of):
    for adj_x, adj_y in ((False, False), (True, False), (False, True)):
        x = (3, 17, 5) if adj_x else (3, 5, 17)
        y = (1, 7, 17) if adj_y else (1, 17, 7)

        def build(g: GraphWriter, x=x, y=y, adj_x=adj_x, adj_y=adj_y) -> None:
            a, b = (
                g.input(s, d, scale=scale, zero=zero)
                for s, (d, scale, zero) in zip((x, y), of, strict=False)
            )
            out = g.tensor((3, 5, 7), of[2][0], scale=of[2][1], zero=of[2][2])
            g.op("BATCH_MATMUL", [a, b], [out], "BatchMatMulOptions", adj_x=adj_x, adj_y=adj_y)
            g.output(out)

        check(one_graph(build), [integers(0, x, of[0][0]), integers(1, y, of[1][0])])
