"""TFLite's convolutions, pools and products of matrices of floats, against LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tflite_oracle import check, numbers, one_graph

from tflite_models import GraphWriter

SAME, VALID = 0, 1
RELU, RELU6 = 1, 3


def _run(
    name: str,
    options: str,
    x: Sequence[int],
    weights: Sequence[Any],
    *,
    declared: Sequence[int] = (),
    first: Sequence[int] = (),
    relative: float = 1e-5,
    **values: Any,
) -> None:
    """Compares an operator of an input of shape `x` and stored operands: arrays, or their shapes.

    declared: the input's shape in the file.
    first: the shape of the result, stored as the operator's first operand.
    """

    def build(g: GraphWriter) -> None:
        given = g.input(tuple(declared or x))
        operands = [
            -1 if w is None else g.const(numbers(i + 1, *w) if isinstance(w, tuple) else w)
            for i, w in enumerate(weights)
        ]
        if first:
            operands = [g.const(np.array(first, np.int32)), operands[0], given, *operands[1:]]
        else:
            operands = [given, *operands]
        y = g.tensor(tuple(-1 for _ in declared))
        g.op(name, operands, [y], options, **values)
        g.output(y)

    check(one_graph(build), [numbers(0, *x)], relative)


def _steps(h: int, w: int, dilation: int = 1) -> dict[str, int]:
    return {"stride_h": h, "stride_w": w, "dilation_h_factor": dilation,
            "dilation_w_factor": dilation}  # fmt: skip


@pytest.mark.parametrize(
    ("x", "w", "values"),
    [
        ((1, 7, 9, 3), (4, 3, 3, 3), {"padding": SAME, **_steps(1, 1)}),
        ((2, 8, 9, 3), (5, 3, 2, 3), {"padding": SAME, **_steps(2, 2)}),
        ((1, 8, 9, 4), (4, 3, 5, 4), {"padding": VALID, **_steps(2, 3)}),
        ((1, 11, 10, 2), (3, 3, 3, 2), {"padding": SAME, **_steps(1, 1, 2)}),
        ((1, 6, 6, 6), (4, 3, 3, 3), {"padding": SAME, **_steps(1, 2)}),  # two groups
        ((1, 5, 5, 8), (8, 1, 1, 8), {"padding": VALID, **_steps(1, 1)}),
    ],
)
def test_conv_2d(x: tuple[int, ...], w: tuple[int, ...], values: dict[str, int]) -> None:
    bias = (w[0],)
    _run("CONV_2D", "Conv2DOptions", x, [w, bias], fused_activation_function=RELU6, **values)


@pytest.mark.parametrize("x", [(2, 8, 9, 3), (1, 5, 4, 3)])
@pytest.mark.parametrize("padding", [SAME, VALID])
def test_conv_2d_of_open_extents(x: tuple[int, ...], padding: int) -> None:
    _run(
        "CONV_2D", "Conv2DOptions", x, [(4, 3, 3, 3), (4,)], declared=(-1, -1, -1, 3),
        padding=padding, fused_activation_function=RELU, **_steps(2, 2),
    )  # fmt: skip


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_depthwise_conv_2d(multiplier: int, padding: int, stride: int, dilation: int) -> None:
    filters = 6 * multiplier
    _run(
        "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", (1, 9, 8, 6),
        [(1, 3, 3, filters), (filters,)], depth_multiplier=multiplier, padding=padding,
        **_steps(stride, stride, dilation),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "stride", "padding", "bias"),
    [
        ((1, 10, 8, 4), 2, SAME, None),
        ((1, 9, 7, 4), 2, SAME, (4,)),
        ((1, 11, 9, 4), 2, VALID, (4,)),
        ((1, 12, 10, 4), 2, VALID, None),  # an edge that no window reaches
        ((1, 5, 4, 4), 1, SAME, (4,)),
    ],
)
def test_transpose_conv(
    shape: tuple[int, ...], stride: int, padding: int, bias: tuple[int, ...] | None
) -> None:
    _run(
        "TRANSPOSE_CONV", "TransposeConvOptions", (1, 5, 4, 3),
        [(4, 3, 3, 3), *([] if bias is None else [bias])], first=shape,
        padding=padding, stride_h=stride, stride_w=stride,
    )  # fmt: skip


@pytest.mark.parametrize("padding", [SAME, VALID])
def test_conv_3d(padding: int) -> None:
    steps = {"stride_d": 2, "dilation_d_factor": 1, **_steps(1, 2)}
    weights = [(2, 3, 3, 2, 4), (4,)]
    _run("CONV_3D", "Conv3DOptions", (1, 5, 6, 7, 2), weights, padding=padding, **steps)


@pytest.mark.parametrize(
    ("shape", "padding"), [((1, 6, 8, 10, 3), SAME), ((1, 7, 9, 11, 3), VALID)]
)
def test_conv_3d_transpose(shape: tuple[int, ...], padding: int) -> None:
    steps = {"stride_d": 2, "dilation_d_factor": 1, **_steps(2, 2)}
    _run(
        "CONV_3D_TRANSPOSE", "Conv3DOptions", (1, 3, 4, 5, 2), [(3, 3, 3, 3, 2), (3,)],
        first=shape, padding=padding, **steps,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"])
@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize("declared", [(), (-1, -1, -1, 3)])
def test_pools(name: str, padding: int, declared: tuple[int, ...]) -> None:
    values = {"stride_h": 2, "stride_w": 3, "filter_height": 3, "filter_width": 2}
    _run(
        name, "Pool2DOptions", (2, 8, 9, 3), [], declared=declared, padding=padding,
        fused_activation_function=RELU, **values,
    )  # fmt: skip


@pytest.mark.parametrize("radius", [0, 1, 2])
def test_local_response_normalization(radius: int) -> None:
    _run(
        "LOCAL_RESPONSE_NORMALIZATION", "LocalResponseNormalizationOptions", (2, 3, 4, 5), [],
        radius=radius, bias=1.5, alpha=0.3, beta=0.7,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("x", "declared", "bias", "keep"),
    [
        ((4, 6), (), True, False),
        ((4, 6), (), False, False),
        ((2, 3, 6), (), True, True),
        ((2, 3, 6), (), True, False),
        ((2, 3, 2, 2), (), True, False),
        ((5, 6), (-1, 6), True, False),
        ((2, 3, 6), (-1, -1, 6), True, True),
        ((2, 3, 2), (-1, 3, 2), True, False),
    ],
)
def test_fully_connected(
    x: tuple[int, ...], declared: tuple[int, ...], bias: bool, keep: bool
) -> None:
    _run(
        "FULLY_CONNECTED", "FullyConnectedOptions", x, [(5, 6), (5,) if bias else None],
        declared=declared, keep_num_dims=keep, fused_activation_function=RELU,
    )  # fmt: skip


def _two(name: str, options: str, a: tuple[int, ...], b: tuple[int, ...], **values: Any) -> None:
    """Compares an operator of two inputs."""

    def build(g: GraphWriter) -> None:
        operands = [g.input(a), g.input(b)]
        y = g.tensor(())
        g.op(name, operands, [y], options, **values)
        g.output(y)

    check(one_graph(build), [numbers(0, *a), numbers(1, *b)])


def test_fully_connected_with_computed_weights() -> None:
    _two("FULLY_CONNECTED", "FullyConnectedOptions", (4, 6), (5, 6))


@pytest.mark.parametrize(
    ("a", "b", "adj_x", "adj_y"),
    [
        ((2, 3, 4), (2, 4, 5), False, False),
        ((2, 4, 3), (2, 4, 5), True, False),
        ((2, 3, 4), (2, 5, 4), False, True),
        ((2, 1, 4, 3), (3, 5, 4), True, True),
        ((3, 4), (4, 2), False, False),
    ],
)
def test_batch_matmul(a: tuple[int, ...], b: tuple[int, ...], adj_x: bool, adj_y: bool) -> None:
    _two("BATCH_MATMUL", "BatchMatMulOptions", a, b, adj_x=adj_x, adj_y=adj_y)
