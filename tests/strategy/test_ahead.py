"""What is not read in order is prefetched, a little ahead of its turn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesmith import driver
from tilesmith.codegen.targets import target
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.passes.decompose import decompose
from tilesmith.graph.passes.fuse import fuse
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.types import TensorType
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Allocate
from tilesmith.loop.visit import walk
from tilesmith.ops.elementwise import Add, Neg
from tilesmith.ops.gather import Gather
from tilesmith.ops.slicing import Flip
from tilesmith.strategy.cpu import lower_by_rule, schedule
from tilesmith.support.options import Options

SMALL = target("x86-64-v4").with_model(l2_bytes=1 << 14)


def taking(axis: int, shape: tuple[int, ...], indices: tuple[int, ...]) -> Graph:
    b = Builder("taking")
    x, i = b.input("x", TensorType(f32, shape)), b.input("i", TensorType(i64, indices))
    return b.finish(b.add(Neg(), b.add(Gather(axis), x, i)))


def prefetches(graph: Graph) -> list[str]:
    (node,) = fuse(decompose(graph)).nodes
    assert isinstance(node.op, Fused)
    s, _ = schedule(node.op.body, SMALL)
    return [line.split("prefetch")[1] for line in s.text().splitlines() if "prefetch" in line]


def test_rows_are_asked_for_some_kilobytes_ahead() -> None:
    (found,) = prefetches(taking(0, (1000, 256), (50,)))
    assert "offset=4" in found and "over=" in found
    (found,) = prefetches(taking(0, (1000, 2048), (50,)))
    assert "offset=1" in found


def test_the_row_after_that_whose_columns_are_taken_is_asked_for() -> None:
    (found,) = prefetches(taking(1, (1000, 512), (300,)))
    assert "offset=1" in found and "over=" in found


def test_scalars_are_not_asked_for() -> None:
    b = Builder("shifted")
    x, by = b.input("x", TensorType(f32, (8, 40, 256))), b.input("by", TensorType(f32, ()))
    (found,) = prefetches(b.finish(b.add(Add(), b.add(Flip((2,)), x), by)))
    assert "offset=" in found


def flipped(shape: tuple[int, ...], *axes: int) -> Graph:
    b = Builder("flipped")
    return b.finish(b.add(Flip(axes), b.input("x", TensorType(f32, shape))))


@pytest.mark.parametrize("axis", (1, 2))
def test_what_is_read_backwards_is_asked_for(axis: int) -> None:
    (found,) = prefetches(flipped((8, 40, 256), axis))
    assert "offset=4" in found and "over=" in found
    assert not prefetches(flipped((2, 4, 256), axis))  # already in the cache


def test_an_image_that_is_read_backwards_is_asked_for_vector_by_vector() -> None:
    (found,) = prefetches(flipped((8, 200, 256), 1, 2))
    assert "offset=64" in found and "over=" not in found


@settings(max_examples=20, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(1, 300)),
    axes=st.sampled_from(((0,), (1,), (2,), (1, 2), (0, 1, 2))),
)
def test_flips_of_any_size(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    session = driver.Session.of(Options(use_cache=False))
    (node,) = fuse(decompose(flipped(shape, *axes))).nodes
    assert isinstance(node.op, Fused)
    func = driver.run_loop_passes(lower_by_rule(node.op.body, SMALL, "k"), session)
    found = np.zeros(x.size, np.float32)
    interpret(func, [x.ravel(), found])
    np.testing.assert_array_equal(found.reshape(shape), np.flip(x, axes))
    exe = driver.compile(flipped(shape, *axes), options=Options(use_cache=False))
    np.testing.assert_array_equal(exe(x), np.flip(x, axes))


def positions(graph: Graph) -> bool:
    (node,) = fuse(decompose(graph)).nodes
    assert isinstance(node.op, Fused)
    func = lower_by_rule(node.op.body, SMALL, "k")
    return any(isinstance(s, Allocate) for s in walk(func.body))


def test_positions_that_many_rows_share_are_computed_once() -> None:
    assert positions(taking(1, (100, 512), (300,)))
    assert not positions(taking(0, (100, 512), (300,)))  # one for a row
    assert not positions(taking(1, (3, 512), (300,)))  # few rows
    assert not positions(taking(0, (10000,), (300,)))


def test_nothing_is_asked_for_that_is_not_taken() -> None:
    assert not prefetches(taking(1, (1000, 512), (3,)))  # most lines of a row
    assert not prefetches(taking(0, (10, 256), (50,)))  # already in the cache
    assert not prefetches(taking(0, (100000,), (5000,)))  # no rows


@pytest.mark.parametrize(
    "case",
    (
        (0, (3000, 256), (50,)),
        (0, (9000, 60), (2, 7)),
        (1, (700, 700), (100,)),
        (1, (700, 700), (9, 7)),
        (1, (17, 5), ()),
        (2, (4, 5, 70), (33,)),
        (1, (5, 7000, 20), (33,)),
        (2, (2, 600, 512), (300,)),
    ),
    ids=str,
)
def test_results(case: tuple[int, tuple[int, ...], tuple[int, ...]]) -> None:
    graph = taking(*case)
    rng = np.random.default_rng(0)
    n = case[1][case[0]]
    x, indices = rng.standard_normal(case[1], np.float32), rng.integers(-n, n, case[2])
    exe = driver.compile(graph, threads=2, options=Options(use_cache=False))
    (want,) = evaluate(graph, [x, indices]).values()
    np.testing.assert_array_equal(exe(x, indices), want)
