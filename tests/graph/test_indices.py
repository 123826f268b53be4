"""Inputs that are indices, and made-up ones that stay inside the axes that they index."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.indices import index_limits
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32, i8, i32, i64
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.ops.elementwise import Add, Cast, Less, Mul, Where
from tilesmith.ops.gather import FromFront, Gather, GatherElements, GatherNd
from tilesmith.ops.scatter import ScatterElements, ScatterNd
from tilesmith.ops.shape import Reshape, Squeeze, Unsqueeze
from tilesmith.ops.slicing import Concat, Slice


def edges() -> Graph:
    """Rows of two tables by a list of pairs, added up by the second ones."""
    b = Builder("edges")
    x = b.input("x", TensorType(f32, (7, 3)))
    y = b.input("y", TensorType(f32, (4, 3)))
    e = b.input("e", TensorType(i32, (2, 9)))
    cut = [b.add(Slice((n,), (n + 1,), (0,), (1,)), e) for n in (0, 1)]
    i, j = (b.add(Squeeze((0,)), b.add(Cast(i64), c)) for c in cut)
    j = b.add(Where(), b.add(Less(), j, b.constant(np.int64(0))), b.add(Add(), j, j), j)
    rows = b.add(Gather(0), x, i)
    at = b.add(Unsqueeze((1,)), j)
    return b.finish(b.add(ScatterNd("add"), y, at, rows))


def single(op: object, data: tuple[int, ...], shape: tuple[int, ...], *more: int) -> Graph:
    b = Builder("one")
    x = b.input("x", TensorType(f32, data))
    i = b.input("i", TensorType(i64, shape))
    rest = [b.input("u", TensorType(f32, more))] if more else []
    return b.finish(b.add(op, x, i, *rest))  # type: ignore[arg-type]  # an operator


CASES = {
    "gather": (single(Gather(1), (9, 5, 2), (4,)), 5),
    "elements": (single(GatherElements(-1), (6, 1), (6, 3)), 1),
    "nd": (single(GatherNd(), (6, 3, 8), (4, 2)), 3),
    "nd of a batch": (single(GatherNd(1), (2, 6, 9), (2, 4, 2)), 6),
    "scatter": (single(ScatterElements(1), (4, 11), (4, 2), 4, 2), 11),
    "scatter nd": (single(ScatterNd(), (6, 4, 3), (5, 2), 5, 3), 4),
}


@pytest.mark.parametrize("name", CASES)
def test_operands_that_are_indices(name: str) -> None:
    graph, limit = CASES[name]
    assert index_limits(graph) == {"i": limit}
    seen = set[int]()
    for seed in range(20):
        inputs = driver.random_inputs(graph, seed)
        seen |= {*inputs["i"].reshape(-1).tolist()}
        evaluate(graph, inputs)
    assert seen == {*range(limit)}


def test_indices_go_through_what_moves_elements() -> None:
    graph = edges()
    assert index_limits(graph) == {"e": 4}
    for seed in range(5):
        evaluate(graph, driver.random_inputs(graph, seed))


def test_what_is_computed_is_no_index_of_its_own() -> None:
    b = Builder("computed")
    x = b.input("x", TensorType(f32, (1, 3)))
    i = b.input("i", TensorType(i64, (4,)))
    k = b.input("k", TensorType(i64, (4,)))
    both = b.add(Concat(0), b.add(Mul(), k, b.constant(np.zeros(4, np.int64))), i)
    graph = b.finish([b.add(Gather(0), x, both), b.add(FromFront(9), b.add(Reshape((2, 2)), i))])
    assert index_limits(graph) == {"i": 1}


def test_sizes_are_the_expected_ones_and_types_have_limits() -> None:
    b = Builder("open")
    x = b.input("x", TensorType(f32, (symbol("n", 1, 5000, 300), 3)))
    i = b.input("i", TensorType(i8, (4,)))
    j = b.input("j", TensorType(i64, (4,)))
    graph = b.finish([b.add(Gather(0), x, i), b.add(Gather(0), x, j)])
    assert index_limits(graph) == {"i": 127, "j": 300}
