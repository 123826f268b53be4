"""Convolutions of one image that are added up become one with the same answers."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.fold_batch_norm import fold_batch_norm
from tilesmith.graph.passes.merge_branches import merge_branches
from tilesmith.graph.verify import verify
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.support.options import Options

Branch = tuple[Conv, tuple[int, ...]]


def network(*branches: Branch, same: bool = True, read: bool = False) -> Graph:
    """Convolutions of one image (or, not `same`, of two), each with a bias, added up; `read`: the
    first one's result is a result of the graph, too.
    """
    rng = np.random.default_rng(0)
    b = Builder("net")
    x = b.input("x", TensorType(f32, (2, 8, 7, 6)))
    images = [x] + [x if same else b.add(Relu(), x) for _ in branches[1:]]
    total, first = None, None
    for image, (op, kernel) in zip(images, branches):
        shape = (16, 8 // op.groups, *kernel)
        w = b.constant(rng.standard_normal(shape).astype(np.float32))
        bias = b.constant(rng.standard_normal((16, 1, 1)).astype(np.float32))
        y = b.add(op, image, w)
        first = first or y
        y = b.add(Add(), y, bias)
        total = y if total is None else b.add(Add(), total, y)
    y = b.add(Relu(), total)
    return b.finish([y, first], ["y", "z"]) if read else b.finish([y], ["y"])


def convolutions(graph: Graph) -> int:
    return sum(isinstance(n.op, Conv) for n in graph.nodes)


ONE: Branch = (Conv(), (1, 1))
THREE: Branch = (Conv(pads=(1, 1, 1, 1)), (3, 3))


@pytest.mark.parametrize(
    "branches",
    [
        (ONE, ONE, ONE, ONE),
        (THREE, ONE),
        (ONE, THREE, THREE),
        ((Conv(pads=(1, 2, 1, 2)), (3, 5)), (Conv(pads=(0, 1, 0, 1)), (1, 3)), ONE),
        ((Conv((2, 2), (1, 1, 1, 1)), (3, 3)), (Conv((2, 2)), (1, 1))),
        ((Conv(pads=(1, 1, 1, 1), groups=8), (3, 3)), (Conv(groups=8), (1, 1))),
        ((Conv(pads=(2, 2, 2, 2), dilations=(2, 2)), (3, 3)), (Conv(dilations=(2, 2)), (1, 1))),
        ((Conv(pads=(0, 0, 1, 1)), (2, 2)), ONE),
    ],
)
def test_added_convolutions_of_one_image_are_one(branches) -> None:
    graph = network(*branches)
    merged = fold_batch_norm(merge_branches(graph))
    verify(merged)
    assert convolutions(merged) == 1
    assert [n.op.name for n in merged.nodes] == ["conv", "add", "relu"]  # one bias
    x = np.random.default_rng(1).standard_normal((2, 8, 7, 6)).astype(np.float32)
    expected = evaluate(graph, [x])["y"]
    np.testing.assert_allclose(evaluate(merged, [x])["y"], expected, rtol=1e-4, atol=1e-4)
    found = driver.compile(graph, options=Options(use_cache=False)).run({"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("graph", "left"),
    [
        (network(ONE, ONE, same=False), 2),
        (network(ONE, ONE, read=True), 2),
        (network(THREE, ONE, ONE, read=True), 2),  # the others are still one
        (network((Conv(pads=(0, 1, 0, 1)), (1, 3)), (Conv(pads=(1, 0, 1, 0)), (3, 1))), 2),
        (network((Conv(groups=2), (1, 1)), ONE), 2),
        (network((Conv(pads=(2, 2, 2, 2), dilations=(2, 2)), (3, 3)), THREE), 2),
        (network((Conv(pads=(0, 0, 2, 2)), (3, 3)), (Conv(pads=(1, 1, 1, 1)), (3, 3))), 2),
    ],
)
def test_others_stay(graph, left) -> None:
    merged = merge_branches(graph)
    assert convolutions(merged) == left
    assert (merged is graph) == (left == convolutions(graph))


def test_a_sum_of_very_many_terms() -> None:
    b = Builder("net")
    x = b.input("x", TensorType(f32, (4,)))
    total = x
    for _ in range(2000):
        total = b.add(Add(), total, x)
    graph = b.finish([total], ["y"])
    assert merge_branches(graph) is graph
