"""Convolutions of variables as matrix products: the same sums."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.codegen.targets import target
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph, Node
from tilesmith.graph.passes.columns import columns
from tilesmith.graph.verify import verify
from tilesmith.ir.dtypes import DType, f16, f32, f64
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.shape import Transpose
from tilesmith.strategy.cpu.full_lanes import columns_choice
from tilesmith.support.options import Options

Shape = tuple[Dim, ...]


def always(node: Node, is_exchanged: bool) -> bool:
    return True


def network(op: Op, x: Shape, w: Shape, dtype: DType = f32, exchanged: bool = False) -> Graph:
    b = Builder("net")
    y = b.add(op, b.input("x", TensorType(dtype, x)), b.input("w", TensorType(dtype, w)))
    last = Transpose((1, 0, *range(2, len(x)))) if exchanged else Relu()
    return b.finish([b.add(last, y)], ["y"])


def inputs_of(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {v.name: rng.standard_normal(v.type.static_shape).astype(v.dtype.numpy)
            for v in graph.inputs}  # fmt: skip


CASES = [
    (Conv(), (2, 3, 5, 6), (4, 3, 2, 3)),
    (Conv(pads=(1, 2, 0, 1)), (2, 3, 5, 6), (4, 3, 3, 3)),
    (Conv((2, 3), (1, 1, 1, 1), (2, 1)), (3, 2, 9, 8), (4, 2, 3, 2)),
    (Conv(pads=(2, 1, -1, -2)), (1, 3, 6, 7), (2, 3, 3, 3)),
    (Conv((2,), (1, 0)), (4, 3, 8), (5, 3, 3)),
    (Conv(pads=(1,) * 6), (1, 2, 3, 4, 3), (3, 2, 2, 3, 3)),
    (ConvTranspose(), (2, 3, 4, 5), (3, 4, 2, 3)),
    (ConvTranspose(pads=(1, 0, 1, 2)), (2, 3, 4, 5), (3, 4, 3, 3)),
    (ConvTranspose((2, 3), (1, 1, 0, 1), (1, 2), 1, (1, 2)), (2, 3, 4, 3), (3, 2, 3, 3)),
    (ConvTranspose((3,), (0, 0), (), 1, (2,)), (2, 3, 4), (3, 4, 2)),
]


@pytest.mark.parametrize("dtype", (f32, f64), ids=str)
@pytest.mark.parametrize(("op", "x", "w"), CASES)
def test_products_are_the_convolution(op: Op, x: Shape, w: Shape, dtype: DType) -> None:
    graph = network(op, x, w, dtype)
    products = columns(graph, always)
    verify(products)
    names = [n.op.name for n in products.nodes]
    assert "matmul" in names and op.name not in names
    inputs = inputs_of(graph)
    wanted = evaluate(graph, inputs)["y"]
    np.testing.assert_allclose(evaluate(products, inputs)["y"], wanted, rtol=1e-4, atol=1e-5)
    found = driver.compile(products, options=Options(use_cache=False)).run(inputs)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_others_stay() -> None:
    n = symbol("n")
    for graph in (
        network(Conv(groups=3), (2, 3, 5, 6), (3, 1, 2, 3)),
        network(Conv(), (2, 3, 5, 6), (4, 3, 2, 3), f16),
        network(Conv(), (n, 3, 5, 6), (4, 3, 2, 3)),
        network(Conv(), (0, 3, 5, 6), (4, 3, 2, 3)),
    ):
        assert columns(graph, always) is graph
    b = Builder("net")
    w = b.constant(np.ones((4, 3, 2, 3), np.float32), name="w")
    graph = b.finish([b.add(Conv(), b.input("x", TensorType(f32, (2, 3, 5, 6))), w)], ["y"])
    assert columns(graph, always) is graph


def test_narrow_images_are_chosen() -> None:
    """Two columns fill an eighth of sixteen lanes, sixteen all of them."""
    choice = columns_choice(target("x86-64-v4"))
    same = Conv(pads=(1,) * 4)
    back = ConvTranspose(pads=(1,) * 4)
    for op in (same, back):
        for size, chosen in ((2, True), (16, False)):
            graph = network(op, (8, 128, size, size), (128, 128, 3, 3))
            assert ("matmul" in {n.op.name for n in columns(graph, choice).nodes}) == chosen


def test_a_result_that_is_read_exchanged_costs_no_copy() -> None:
    """The gradient of a weight: images and filters take the place of samples and channels."""
    asked: list[bool] = []

    def choice(node: Node, is_exchanged: bool) -> bool:
        asked.append(is_exchanged)
        return True

    x, op = (512, 8, 2, 2), Conv(pads=(1,) * 4)
    for exchanged in (False, True):
        columns(network(op, x, x, f32, exchanged), choice)
    assert asked == [False, True]
    gradient = columns_choice(target("x86-64-v4"))
    (node,) = (n for n in network(op, x, x).nodes if n.op == op)
    assert gradient(node, True) and not gradient(node, False)
