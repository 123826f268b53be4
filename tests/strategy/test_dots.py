"""Products of factors that lie along the reduced axis: read as they lie, not copied first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import DType, bf16, f16, f32, i32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Gelu, Relu
from tilesmith.ops.elementwise import Add
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.shape import Transpose
from tilesmith.support.options import Options


def product(a: tuple[int, ...], b: tuple[int, ...], dtype: DType = f32, by: bool = True) -> Graph:
    g = Builder("m")
    x, w = g.input("x", TensorType(dtype, a)), g.input("w", TensorType(dtype, b))
    return g.finish([g.add(MatMul(transpose_b=by), x, w)], ["y"])


def check(graph: Graph, dtype: DType = f32, threads: int = 1, tolerance: float = 1e-4) -> None:
    rng = np.random.default_rng(0)
    inputs = [
        (rng.standard_normal if dtype.is_float else lambda s: rng.integers(-9, 9, s))(
            v.type.static_shape
        ).astype(dtype.numpy)
        for v in graph.inputs
    ]
    exe = driver.compile(graph, options=Options(use_cache=False, threads=threads))
    found = exe.run(dict(zip([v.name for v in graph.inputs], inputs, strict=True)))["y"]
    expected = evaluate(graph, inputs)["y"]
    assert found.dtype == expected.dtype and found.shape == expected.shape
    scale = np.abs(expected.astype(np.float64)).max(initial=1.0)
    error = np.abs(found.astype(np.float64) - expected.astype(np.float64)).max(initial=0.0)
    assert error <= tolerance * scale


def loops(graph: Graph, target: str = "x86-64-v3") -> str:
    exe = driver.compile(graph, options=Options(use_cache=False, target=target))
    (kernel,) = (k for k in exe.program.kernels.values() if "matmul" in k.operators)
    return kernel.loops


SIZES = st.sampled_from((1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 70, 129))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from((1, 1, 2, 3, 5, 8, 11)), SIZES, SIZES, st.sampled_from(((), (3,), (2, 3))))
def test_dot_products_are_those_of_the_reference(m: int, k: int, n: int, batch) -> None:
    check(product((*batch, m, k), (*batch, n, k)))
    check(product((*batch, n, k), (*batch, k, 1), by=False))


@pytest.mark.parametrize(
    ("a", "b", "by"),
    [
        ((1, 700), (513, 700), True),
        ((3, 700), (500, 700), True),
        ((600, 301), (301, 1), False),
        ((600, 301), (301,), False),
        ((301,), (600, 301), True),
        ((9, 1, 64), (9, 300, 64), True),
        ((9, 1, 64), (300, 64), True),
        ((40, 700), (40, 700), True),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_large_ones_are_shared_among_threads(a, b, by: bool, threads: int) -> None:
    check(product(a, b, by=by), threads=threads)


@pytest.mark.parametrize(("dtype", "tolerance"), [(f16, 2e-3), (bf16, 2e-2), (i32, 0.0)])
def test_other_types(dtype: DType, tolerance: float) -> None:
    for k in (8, 50, 130):
        check(product((2, k), (37, k), dtype), dtype, tolerance=tolerance)
        check(product((37, k), (k, 1), dtype, by=False), dtype, tolerance=tolerance)


@pytest.mark.parametrize(("m", "n"), [(1, 45), (4, 16), (5, 1)])
def test_what_comes_before_and_after_is_fused(m: int, n: int) -> None:
    g = Builder("m")
    x, w, bias = (
        g.input(c, TensorType(f32, s)) for c, s in zip("xwb", ((m, 90), (n, 90), (n,)), strict=True)
    )
    y = g.add(MatMul(), g.add(Relu(), x), g.add(Transpose((1, 0)), w))
    check(g.finish([g.add(Gelu(), g.add(Add(), y, bias))], ["y"]))


@pytest.mark.parametrize(
    ("a", "b", "by"), [((1, 512), (300, 512), True), ((300, 512), (512, 1), False)]
)
def test_a_matrix_that_is_used_once_is_not_copied(a, b, by: bool) -> None:
    assert "heap" not in loops(product(a, b, by=by))


def test_a_matrix_that_many_rows_use_is_copied() -> None:
    assert "heap" in loops(product((512, 64), (300, 64)))
