"""Dilated convolutions that meet mostly padding: the same sums, of what their taps meet."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.split_taps import split_taps
from tilesmith.graph.verify import verify
from tilesmith.ir.dtypes import DType, f16, f32, f64
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv
from tilesmith.support.options import Options


def network(
    op: Conv, x: tuple[int, ...], kernel: tuple[int, ...], dtype: DType = f32, constant: bool = True
) -> Graph:
    rng = np.random.default_rng(0)
    b = Builder("net")
    image = b.input("x", TensorType(dtype, x))
    w = (24, x[1] // op.groups, *kernel)
    weights = rng.standard_normal(w).astype(dtype.numpy)
    given = b.constant(weights, name="w") if constant else b.input("w", TensorType(dtype, w))
    return b.finish([b.add(Relu(), b.add(op, image, given))], ["y"])


def around(n: int, rank: int = 2) -> Conv:
    return Conv(pads=(n,) * (2 * rank), dilations=(n,) * rank)


CASES = [
    (around(5), (1, 64, 7, 7), (3, 3)),
    (around(5), (2, 64, 7, 6), (3, 3)),
    (around(6, 1), (1, 64, 8), (3,)),
    (around(3, 3), (1, 64, 4, 5, 4), (3, 3, 3)),
    (Conv(pads=(8, 2, 0, 10), dilations=(4, 6)), (1, 64, 7, 8), (3, 3)),  # uneven margins
    (Conv(pads=(4, 6, 4, 6), dilations=(4, 6)), (1, 64, 5, 7), (2, 3)),  # an even kernel
    (around(9), (1, 64, 7, 7), (3, 3)),  # taps that meet nothing
]


@pytest.mark.parametrize(("op", "x", "kernel"), CASES)
def test_sums_over_taps_are_the_convolution(op, x, kernel) -> None:
    graph = network(op, x, kernel)
    split = split_taps(graph)
    assert split is not graph
    verify(split)
    assert all(math.prod(n.inputs[1].shape[2:]) == 1 for n in split.nodes if n.op.name == "conv")
    inputs = {"x": np.random.default_rng(1).standard_normal(x).astype(np.float32)}
    expected = evaluate(graph, inputs)["y"]
    np.testing.assert_allclose(evaluate(split, inputs)["y"], expected, rtol=1e-4, atol=1e-4)
    found = driver.compile(graph, options=Options(use_cache=False)).run(inputs)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("op", "x", "dtype", "constant"),
    [
        (around(2), (1, 64, 14, 14), f32, True),  # meets the image nearly everywhere
        (around(5), (1, 4, 7, 7), f32, True),  # too few channels to pay for the sums
        (Conv(pads=(1,) * 4), (1, 64, 2, 2), f32, True),  # not dilated
        (Conv((2, 2), (5,) * 4, (5, 5)), (1, 64, 7, 7), f32, True),
        (Conv((), (5,) * 4, (5, 5), 2), (1, 64, 7, 7), f32, True),
        (around(5), (1, 64, 7, 7), f16, True),  # parts would be rounded
        (around(5), (1, 64, 7, 7), f32, False),
    ],
)
def test_others_stay(op: Conv, x: tuple[int, ...], dtype: DType, constant: bool) -> None:
    graph = network(op, x, (3, 3), dtype, constant)
    assert split_taps(graph) is graph


def test_every_float_that_is_summed_in_itself_is_split() -> None:
    graph = network(around(5), (1, 64, 7, 7), (3, 3), f64)
    assert len([n for n in split_taps(graph).nodes if n.op.name == "conv"]) == 9
