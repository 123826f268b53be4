"""Strided transposed convolutions become plain ones with the same answers."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.sub_pixel import sub_pixel
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.conv import ConvTranspose


def transposed(op: ConvTranspose, x: tuple[int, ...], w: tuple[int, ...]) -> Graph:
    rng = np.random.default_rng(0)
    b = Builder("t")
    value = b.input("x", TensorType(f32, x))
    weight = b.constant(rng.standard_normal(w).astype(np.float32), name="w")
    return b.finish([b.add(op, value, weight)], ["y"])


@pytest.mark.parametrize(
    ("op", "x", "w"),
    [
        (ConvTranspose(strides=(2, 2)), (1, 3, 4, 5), (3, 4, 2, 2)),
        (ConvTranspose(strides=(2, 2), pads=(1, 1, 1, 1)), (2, 3, 4, 5), (3, 4, 4, 4)),
        (ConvTranspose(strides=(2, 3), pads=(0, 1, 2, 0)), (1, 4, 3, 5), (4, 2, 3, 5)),
        (
            ConvTranspose(strides=(2, 2), pads=(1, 1, 1, 1), output_padding=(1, 1)),
            (1, 2, 3, 3),
            (2, 2, 3, 3),
        ),
        (ConvTranspose(strides=(3, 2), output_padding=(2, 1)), (1, 2, 3, 3), (2, 2, 1, 2)),
        (ConvTranspose(strides=(2, 2), groups=2), (1, 4, 3, 4), (4, 3, 3, 2)),
        (ConvTranspose(strides=(2,), pads=(1, 0)), (1, 3, 7), (3, 2, 5)),
        (ConvTranspose(strides=(2, 1, 2)), (1, 2, 3, 2, 3), (2, 2, 2, 3, 3)),
        (ConvTranspose(strides=(1, 2)), (1, 2, 3, 3), (2, 2, 3, 3)),
        (ConvTranspose(), (2, 3, 1, 1), (3, 4, 4, 3)),
        (ConvTranspose(strides=(2, 1), pads=(1, 0, 2, 0)), (1, 3, 1, 4), (3, 4, 5, 1)),
        (ConvTranspose(strides=(3,), output_padding=(2,), groups=2), (1, 4, 1), (4, 2, 2)),
    ],
)
def test_same_answers_without_transposed_convolution(op, x, w) -> None:
    graph = transposed(op, x, w)
    rewritten = sub_pixel(graph)
    assert not any(isinstance(n.op, ConvTranspose) for n in rewritten.nodes)
    value = np.random.default_rng(1).standard_normal(x).astype(np.float32)
    expected = evaluate(graph, [value])["y"]
    np.testing.assert_allclose(evaluate(rewritten, [value])["y"], expected, rtol=1e-5, atol=1e-5)


def test_dilated_and_unit_strides_stay() -> None:
    for op in (ConvTranspose(), ConvTranspose(strides=(2, 2), dilations=(2, 2))):
        graph = transposed(op, (1, 2, 4, 4), (2, 2, 3, 3))
        assert sub_pixel(graph) is graph
