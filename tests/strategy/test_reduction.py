"""Reductions and norms: every axis, odd sizes, NaN and ties, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import bool_, f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.norm import GroupNorm, InstanceNorm, LayerNorm, LogSoftmax, RmsNorm, Softmax
from tilesmith.ops.reduce import ArgMax, ReduceL2, ReduceMax, ReduceMean, ReduceMin, ReduceSum
from tilesmith.support.arrays import difference
from tilesmith.support.options import Options

UNCACHED = Options(use_cache=False, threads=2)
SHAPES = [(5, 197), (3, 7, 7), (2, 3, 40, 64), (4, 1000), (1, 1), (17,), (6, 2, 9, 5)]


def one(op: Op, shape: tuple[int, ...], *others: tuple[int, ...]) -> Graph:
    b = Builder("one")
    inputs = [b.input(f"x{i}", TensorType(f32, s)) for i, s in enumerate((shape, *others))]
    return b.finish([b.add(op, *inputs)], ["y"])


def assert_right(graph: Graph, x: np.ndarray | None = None) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.type.static_shape).astype(np.float32) for v in graph.inputs]
    if x is not None:
        arrays[0] = x
    expected = next(iter(evaluate(graph, arrays).values()))
    exe = driver.compile(graph, options=UNCACHED)
    names = [v.name for v in graph.inputs]
    found = next(iter(exe.run(dict(zip(names, arrays, strict=True))).values()))
    assert found.shape == expected.shape
    assert difference(found, expected) < 1e-5


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduce", [ReduceSum, ReduceMax, ReduceMin, ReduceMean, ReduceL2])
def test_every_axis(reduce: type, shape: tuple[int, ...]) -> None:
    axes = [(i,) for i in range(len(shape))]
    axes += [tuple(range(len(shape))), tuple(range(1, len(shape)))]
    for a in dict.fromkeys(axes):
        for keepdims in (True, False):
            assert_right(one(reduce(a, keepdims), shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", [Softmax, LogSoftmax])
def test_softmax_along_every_axis(op: type, shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        assert_right(one(op(axis), shape))


def test_rows_too_long_to_keep() -> None:
    assert_right(one(Softmax(-1), (2, 200_003)))


@pytest.mark.parametrize("width", [1, 15, 16, 17, 50, 384, 1000])
def test_norms(width: int) -> None:
    assert_right(one(LayerNorm(-1), (9, width), (width,), (width,)))
    assert_right(one(RmsNorm(-1), (9, width), (width,)))
    assert_right(one(InstanceNorm(), (2, 4, 3, width), (4,), (4,)))
    assert_right(one(GroupNorm(2), (2, 4, 3, width), (4,), (4,)))


@pytest.mark.parametrize("shape", SHAPES)
def test_argmax_takes_the_first_of_equals_and_any_nan(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).integers(0, 4, shape).astype(np.float32)
    broken = x.copy()
    broken.flat[x.size // 2] = np.nan
    for axis in range(len(shape)):
        assert_right(one(ArgMax(axis), shape), x)
        assert_right(one(ArgMax(axis, False), shape), broken)


@pytest.mark.parametrize("place", [0, 15, 16, 63, 64, 196])
def test_maximum_keeps_nan_wherever_it_is(place: int) -> None:
    x = np.random.default_rng(3).standard_normal((3, 197)).astype(np.float32)
    x[1, place] = np.nan
    assert_right(one(ReduceMax((1,)), (3, 197)), x)


@pytest.mark.parametrize("op", [ReduceMin, ReduceMax])
def test_bools_in_registers_that_vectors_of_several_widths_read(
    op: type[ReduceMin | ReduceMax],
) -> None:
    """75 elements: a whole number of no vector."""
    b = Builder("all_or_any")
    x = b.input("x", TensorType(bool_, (3, 5, 5, 1)))
    exe = driver.compile(b.finish(b.add(op((0, 1, 2, 3), True), x)), options=UNCACHED)
    usual = op is ReduceMin
    for k in range(75):
        a = np.full((3, 5, 5, 1), usual)
        assert exe(a).item() == usual
        a.reshape(-1)[k] = not usual
        assert exe(a).item() != usual
