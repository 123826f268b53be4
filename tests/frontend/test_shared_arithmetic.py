"""Arithmetic that readers share, and the tables in which they register operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilesmith.frontend.common.arithmetic import expm1, logarithm, rounded_away
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.registry import Registry
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import by_name
from tilesmith.ir.types import TensorType


def computed(function: Callable[[Value], Value], x: np.ndarray) -> np.ndarray:
    builder = FoldingBuilder("main")
    dtype = by_name(f"f{8 * x.itemsize}")
    assert dtype is not None
    graph = builder.finish([function(builder.input("x", TensorType(dtype, x.shape)))], ["y"])
    return np.asarray(evaluate(graph, [x])["y"])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_neighbours_of_ties_and_large_floats_are_rounded_exactly(dtype) -> None:
    digits = np.finfo(dtype).nmant
    half, ties = np.array(0.5, dtype), np.array([0.5, 1.5, 2.5, 3.5], dtype)
    below, large = np.nextafter(ties, half * 0), np.array([2**digits + 1, 2**digits + 3], dtype)
    x = np.concatenate([ties, below, large])
    wanted = np.concatenate([[1, 2, 3, 4], [0, 1, 2, 3], large])
    np.testing.assert_array_equal(computed(rounded_away, x), wanted)
    np.testing.assert_array_equal(computed(rounded_away, -x), -wanted)


def test_exponentials_less_1_keep_their_precision() -> None:
    x = np.float64([-np.inf, -800, -3, -0.5, -1e-12, 0, 1e-12, 0.3, 0.5, 5, 700, np.inf])
    np.testing.assert_allclose(computed(expm1, x), np.expm1(x), rtol=1e-14)


def test_logarithms_of_each_base() -> None:
    x = np.float64([0.1, 1, 8, 1000])
    np.testing.assert_allclose(computed(lambda v: logarithm(v, 2), x), np.log2(x), rtol=1e-14)


@pytest.mark.parametrize("since, until", [(1, None), (4, 9), (7, 7), (9, None)])
def test_a_version_of_an_operator_has_one_function(since: int, until: int | None) -> None:
    table: Registry = Registry()
    table.register("x", since=4, until=7)(abs)
    if since > 7:
        table.register("x", since=since, until=until)(abs)
        assert table.versions("", "x") == "4-7, 9+"
        return
    with pytest.raises(ValueError, match="operator 'x' has two functions at version"):
        table.register("x", since=since, until=until)(abs)
