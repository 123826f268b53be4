"""Sizes that nobody foresees: windows beyond the usual sizes, empty batches, caches of a byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.codegen.targets import target
from tilesmith.graph.builder import Builder
from tilesmith.graph.expectations import with_possible_sizes
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.symbols import expected, symbol
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.conv import Conv
from tilesmith.ops.shape import Reshape, Transpose
from tilesmith.strategy.cpu.winograd_cost import Sizes, blocking
from tilesmith.support.options import Options


def convolution(x: tuple[Dim, ...], w: tuple[int, ...]) -> Graph:
    b = Builder("conv")
    weights = b.constant(np.ones(w, np.float32), "w")
    axes = len(w) - 2
    op = Conv((1,) * axes, (0,) * 2 * axes, (1,) * axes, 1)
    return b.finish(b.add(op, b.input("x", TensorType(f32, x)), weights))


def test_windows_beyond_the_usual_size() -> None:
    n = symbol("n", low=1, high=4000)
    graph = convolution((1, 3, n), (2, 3, 300))
    (out,) = with_possible_sizes(graph).outputs
    assert expected(out.shape[2]) >= 32
    exe = driver.compile(graph, options=Options(use_cache=False))
    for size in (300, 310, 1024):
        y = exe(np.ones((1, 3, size), np.float32))
        np.testing.assert_array_equal(y, np.full((1, 2, size - 299), 900, np.float32))


def test_batches_do_not_grow_with_windows() -> None:
    """`n * frames` is of the right size as soon as the frames are."""
    n, samples = symbol("n", expected=1), symbol("samples", expected=128)
    b = Builder("frames")
    x = b.input("x", TensorType(f32, (n, 1, samples)))
    frames = b.add(Conv((160,), (0, 0), (1,), 1), x, b.constant(np.ones((2, 1, 400), np.float32)))
    rows = b.add(Reshape((-1, 2)), b.add(Transpose((0, 2, 1)), frames))
    (out,) = with_possible_sizes(b.finish(rows)).outputs
    assert 32 <= expected(out.shape[0]) < 100


def test_possible_sizes_stay() -> None:
    graph = convolution((1, 3, symbol("n")), (2, 3, 5))
    assert with_possible_sizes(graph) is graph
    # no size in the range is large enough
    graph = convolution((1, 3, symbol("n", high=200)), (2, 3, 300))
    assert with_possible_sizes(graph) is graph


@pytest.mark.parametrize("window", ((3, 3), (1, 1)))
def test_convolutions_of_nothing(window: tuple[int, int]) -> None:
    exe = driver.compile(
        convolution((0, 3, 8, 8), (2, 3, *window)), options=Options(use_cache=False)
    )
    found = exe(np.zeros((0, 3, 8, 8), np.float32))
    assert found.shape == (0, 2, 9 - window[0], 9 - window[1])


@pytest.mark.parametrize("field", ("l1_bytes = 1", "l1_ways = 1099511627776", "l2_bytes = 1"))
def test_caches_of_a_byte(field: str, tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(f'base = "x86-64-v3"\n{field}\n')
    machine = target(str(file))
    assert blocking(Sizes(4, 25, 32, 32), machine).tile.rows >= 1
    assert machine.model.l1_way_bytes >= 1 and machine.model.l2_way_bytes >= 1
