"""Concatenation: right along every axis; short rows are written whole, in one loop."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.passes.fuse import fuse
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.loop.nodes import For
from tilesmith.loop.visit import walk
from tilesmith.ops.slicing import Concat
from tilesmith.strategy.cpu import lower_by_rule

TARGETS = ("x86-64-v2", "x86-64-v3", "native")


def joined(axis: int, extents: tuple[int, ...], shape: tuple[int, ...]) -> Graph:
    b = Builder("t")
    shapes = [(*shape[:axis], n, *shape[axis + 1 :]) for n in extents]
    parts = [b.input(f"x{i}", TensorType(f32, s)) for i, s in enumerate(shapes)]
    return b.finish(b.add(Concat(axis), *parts))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("extents", ((3, 5), (16, 16), (24, 40, 1), (1, 1, 1, 1), (300, 7)))
@pytest.mark.parametrize("axis", (0, 1, 2))
def test_concat(axis: int, extents: tuple[int, ...], target: str) -> None:
    graph = joined(axis, extents, (3, 11, 6))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.type.static_shape, np.float32) for v in graph.inputs]
    got = driver.compile(graph, target=target)(*arrays)
    np.testing.assert_array_equal(got, np.concatenate(arrays, axis))


def outermost(graph: Graph) -> list[For]:
    (node,) = fuse(graph).nodes
    assert isinstance(node.op, Fused)
    func = lower_by_rule(node.op.body, driver.Session.of(None).target, "k")
    loops = [s for s in walk(func.body) if isinstance(s, For)]
    inside = {s for loop in loops for s in walk(loop.body)}
    return [loop for loop in loops if loop not in inside]


def test_short_rows_share_a_loop_and_long_ones_do_not() -> None:
    assert len(outermost(joined(2, (24, 40, 8), (4, 64, 1)))) == 1
    assert len(outermost(joined(2, (24000, 40000), (4, 64, 1)))) == 2
    assert len(outermost(joined(0, (2, 3), (1, 4, 8)))) == 2
