"""Strided transposed convolutions become plain ones with the same answers."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.sub_pixel import sub_pixel
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.support.options import Options


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
        (ConvTranspose(strides=(2, 2), pads=(1, 1, 1, 1)), (2, 3, 4, 5), (3, 16, 4, 4)),
        (ConvTranspose(strides=(2, 2), pads=(2, 1, 0, 1)), (1, 4, 3, 4), (4, 8, 3, 3)),
        (ConvTranspose(strides=(2, 3), groups=2, pads=(5, 0, 1, 4)), (1, 4, 5, 4), (4, 16, 5, 4)),
        (ConvTranspose(strides=(3, 1), output_padding=(2, 0)), (1, 2, 2, 6), (2, 32, 4, 3)),
    ],
)
def test_same_answers_without_transposed_convolution(op, x, w) -> None:
    graph = transposed(op, x, w)
    rewritten = sub_pixel(graph)
    assert not any(isinstance(n.op, ConvTranspose) for n in rewritten.nodes)
    value = np.random.default_rng(1).standard_normal(x).astype(np.float32)
    expected = evaluate(graph, [value])["y"]
    np.testing.assert_allclose(evaluate(rewritten, [value])["y"], expected, rtol=1e-5, atol=1e-5)


HALVED = ConvTranspose(strides=(2, 2), pads=(1, 1, 1, 1), output_padding=(1, 1))


@pytest.mark.parametrize(
    ("op", "x", "w", "convolutions"),
    [
        (HALVED, (1, 8, 6, 5), (8, 16, 3, 3), 4),  # 9 taps in all, of 16
        (HALVED, (1, 8, 6, 5), (8, 4, 3, 3), 1),  # four phases fill the lanes of one
        (HALVED, (1, 8, 6, 5), (8, 16, 1, 3), 1),  # phases without taps
        (ConvTranspose(strides=(2, 2), pads=(1, 1, 1, 1)), (1, 8, 4, 4), (8, 16, 4, 4), 4),
        (ConvTranspose(strides=(2, 2)), (1, 8, 4, 4), (8, 16, 2, 2), 1),  # nothing in vain
        (
            ConvTranspose(strides=(2, 3), groups=2, pads=(1, 0, 2, 4)),
            (2, 8, 5, 4),
            (8, 16, 5, 4),
            6,
        ),
        (ConvTranspose(strides=(3,), pads=(2, 1)), (1, 8, 9), (8, 24, 7), 3),
        (ConvTranspose(strides=(2, 1, 2)), (1, 4, 3, 2, 3), (4, 16, 3, 2, 3), 4),
        (ConvTranspose(), (2, 8, 1, 1), (8, 16, 4, 3), 1),
    ],
)
def test_phases_are_apart_where_that_is_less_work(op, x, w, convolutions) -> None:
    graph = transposed(op, x, w)
    rewritten = sub_pixel(graph)
    assert sum(isinstance(n.op, Conv) for n in rewritten.nodes) == convolutions
    value = np.random.default_rng(1).standard_normal(x).astype(np.float32)
    expected = evaluate(graph, [value])["y"]
    np.testing.assert_allclose(evaluate(rewritten, [value])["y"], expected, rtol=1e-4, atol=1e-4)
    for threads in (1, 2):
        exe = driver.compile(graph, options=Options(use_cache=False, threads=threads))
        np.testing.assert_allclose(exe(value), expected, rtol=1e-4, atol=1e-4)


def test_dilated_and_unit_strides_stay() -> None:
    for op in (ConvTranspose(), ConvTranspose(strides=(2, 2), dilations=(2, 2))):
        graph = transposed(op, (1, 2, 4, 4), (2, 2, 3, 3))
        assert sub_pixel(graph) is graph
