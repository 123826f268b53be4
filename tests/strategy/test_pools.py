"""Pools along rows and short innermost axes: right at odd sizes, without gathers."""

from __future__ import annotations

import numpy as np
import pytest
from resamplings import TARGETS, check, graph_of

from tilesmith import driver
from tilesmith.codegen.emit import emit
from tilesmith.codegen.math import expand_math
from tilesmith.codegen.targets import target as cpu
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.passes.decompose import decompose
from tilesmith.graph.passes.fuse import fuse
from tilesmith.ir.dtypes import f32, i32, i64
from tilesmith.ir.types import TensorType
from tilesmith.loop.nodes import Allocate
from tilesmith.loop.visit import walk
from tilesmith.ops.base import Op
from tilesmith.ops.elementwise import Mul
from tilesmith.ops.pool import AvgPool, MaxPool, MaxPoolIndices
from tilesmith.ops.shape import Transpose
from tilesmith.strategy.cpu import lower_by_rule

POOLS = (
    MaxPool((2, 2), (2, 2)),
    MaxPool((3, 3), (2, 2)),
    MaxPool((3, 3), (2, 2), (1, 1, 1, 1)),
    MaxPool((3, 3), (2, 2), (0, 0, 1, 1), ceil_mode=True),
    MaxPool((5, 5), (1, 1), (2, 2, 2, 2)),
    AvgPool((2, 2), (2, 2)),
    AvgPool((3, 3), (2, 2), (1, 1, 1, 1)),
    AvgPool((7, 7), (3, 3)),
)


def code_of(graph: Graph, target: str) -> str:
    (node,) = fuse(decompose(graph)).nodes
    assert isinstance(node.op, Fused)
    session = driver.Session.of(None, target=target, threads=1)
    func = driver.run_loop_passes(lower_by_rule(node.op.body, session.target, "k"), session)
    return emit(expand_math(func, session.target), session.target).text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", POOLS, ids=str)
@pytest.mark.parametrize("size", ((8, 16), (9, 33), (15, 127), (12, 300)))
def test_pool(size: tuple[int, int], op: Op, target: str) -> None:
    check(graph_of(op, (2, 3, *size)), target)


@pytest.mark.parametrize("target", ("x86-64-v3", "x86-64-v4"))
def test_rows_of_pools_are_not_gathered(target: str) -> None:
    for op in POOLS[:3]:
        assert "gather" not in code_of(graph_of(op, (1, 4, 63, 65)), target)


def test_nan_and_infinities_are_maxima() -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 9, 37), np.float32)
    x[0, 0, 3, 5], x[0, 1, 2, 30], x[0, 1, 8, 0] = np.nan, np.inf, -np.inf
    op = MaxPool((3, 3), (2, 2), (1, 1, 1, 1))
    got = driver.compile(graph_of(op, x.shape))(x)
    np.testing.assert_array_equal(got, op.reference(x))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("channels", (2, 3, 4, 5, 7, 9))
@pytest.mark.parametrize("size", ((8, 16), (5, 7), (1, 3), (13, 50)))
def test_few_channels_side_by_side(size: tuple[int, int], channels: int, target: str) -> None:
    check(graph_of(Transpose((0, 2, 3, 1)), (2, channels, *size)), target)


@pytest.mark.parametrize("channels", (2, 3, 4))
def test_short_rows_fill_their_vectors(channels: int) -> None:
    graph = graph_of(Transpose((0, 2, 3, 1)), (1, channels, 32, 48))
    text = code_of(graph, "x86-64-v4")
    assert "gather" not in text and "store <16 x float>" in text


@pytest.mark.parametrize("target", TARGETS)
def test_a_factor_for_each_channel_of_the_last_axis(target: str) -> None:
    b = Builder("t")
    x, w = b.input("x", TensorType(f32, (2, 9, 31, 3))), b.input("w", TensorType(f32, (3,)))
    graph = b.finish(b.add(Mul(), x, w))
    rng = np.random.default_rng(0)
    a, c = rng.standard_normal((2, 9, 31, 3), np.float32), rng.standard_normal(3, np.float32)
    np.testing.assert_array_equal(driver.compile(graph, target=target)(a, c), a * c)


@pytest.mark.parametrize(("size", "number"), [(32, i32), (50_000, i64)])
def test_places_of_maxima_are_found_in_registers(size: int, number: object) -> None:
    """By numbers of 32 bits where a plane has no more places."""
    b = Builder("m")
    x = b.input("x", TensorType(f32, (1, 1, size, size)))
    places = b.add(MaxPoolIndices((3, 3), (2, 2), (1, 1, 1, 1)), x)[1]
    (*_, node) = fuse(decompose(b.finish([places], ["y"]))).nodes
    assert isinstance(node.op, Fused)
    func = lower_by_rule(node.op.body, cpu("x86-64-v4"), "k")
    stored = [s.buffer for s in walk(func.body) if isinstance(s, Allocate)]
    assert [(t.dtype, t.scope) for t in stored] == [(number, "register")]
