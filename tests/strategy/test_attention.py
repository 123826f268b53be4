"""Attention: one kernel whatever the sizes, masks and head layouts, and the reference's answer."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import bool_, dtype
from tilesmith.ir.types import TensorType
from tilesmith.loop.text import print_func
from tilesmith.ops.attention import Attention
from tilesmith.ops.elementwise import Add, Div, Exp, Mul
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import Softmax
from tilesmith.ops.reduce import ReduceSum
from tilesmith.ops.shape import Reshape, Transpose
from tilesmith.search_space.groups import lower_group
from tilesmith.support.arrays import difference
from tilesmith.support.options import Options

UNCACHED = Options(use_cache=False, threads=2)


def heads_in_place(
    batch: int, heads: int, queries: int, keys: int, width: int, out: int, mask: tuple | None
) -> Graph:
    """The usual form: [batch, sequence, heads * width] split, transposed, attended and merged."""
    b = Builder("attention")
    f32 = dtype("f32")

    def split(name: str, length: int, size: int) -> Any:
        x = b.input(name, TensorType(f32, (batch, length, heads * size)))
        return b.add(Transpose((0, 2, 1, 3)), b.add(Reshape((batch, length, heads, size)), x))

    q, k, v = split("q", queries, width), split("k", keys, width), split("v", keys, out)
    scores = b.add(MatMul(transpose_b=True), q, k)
    scores = b.add(Mul(), scores, b.constant(np.float32(width**-0.5)))
    if mask is not None:
        scores = b.add(Add(), scores, b.input("mask", TensorType(f32, mask)))
    y = b.add(MatMul(), b.add(Softmax(-1), scores), v)
    y = b.add(Reshape((batch, queries, heads * out)), b.add(Transpose((0, 2, 1, 3)), y))
    return b.finish([y], ["y"])


def kernels(graph: Graph) -> int:
    return len(driver.optimise(graph, driver.Session.of(UNCACHED)).nodes)


def assert_right(graph: Graph, tolerance: float = 1e-5, **inputs: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    given_ = {
        v.name: inputs.get(v.name, rng.standard_normal(v.type.static_shape).astype(v.dtype.numpy))
        for v in graph.inputs
    }
    expected = next(iter(evaluate(graph, list(given_.values())).values()))
    found = next(iter(driver.compile(graph, options=UNCACHED).run(given_).values()))
    assert difference(found, expected) < tolerance


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 12, 197, 197, 64, 64, None),
        (1, 12, 128, 128, 64, 64, (1, 1, 1, 128)),
        (2, 12, 64, 64, 32, 32, (2, 1, 64, 64)),
        (2, 3, 50, 77, 40, 24, (50, 77)),  # a width that whole vectors don't fill
        (1, 8, 1, 333, 64, 64, None),  # one query
        (1, 1, 300, 20, 16, 128, None),  # one head: rows are shared
        (1, 2, 9, 7, 8, 200, (1, 2, 9, 1)),
    ],
)
def test_one_kernel(sizes: tuple) -> None:
    graph = heads_in_place(*sizes)
    assert kernels(graph) == 1
    assert_right(graph)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(
        st.integers(1, 3), st.integers(1, 6), st.integers(1, 70), st.integers(1, 70),
        st.integers(1, 40), st.integers(1, 70),
    ),
    st.booleans(),
)  # fmt: skip
def test_any_sizes(sizes: tuple[int, ...], masked: bool) -> None:
    batch, _, queries, keys, _, _ = sizes
    graph = heads_in_place(*sizes, mask=(batch, 1, queries, keys) if masked else None)
    assert kernels(graph) == 1
    assert_right(graph)


@pytest.mark.parametrize("element", ["f32", "f64", "f16"])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_heads_masks_and_element_types(element: str, key_heads: int, causal: bool) -> None:
    b = Builder("grouped")
    e = dtype(element)
    shapes = {"q": (2, 4, 33, 32), "k": (2, key_heads, 47, 32), "v": (2, key_heads, 47, 48)}
    values = [b.input(n, TensorType(e, s)) for n, s in shapes.items()]
    mask = b.input("mask", TensorType(bool_, (33, 47)))
    graph = b.finish([b.add(Attention(is_causal=causal), *values, mask)], ["y"])
    allowed = np.random.default_rng(1).random((33, 47)) > 0.3
    allowed[:, 0] = True
    allowed[3] = False  # a row that attends to nothing: zeros
    assert kernels(graph) <= 2
    assert_right(graph, {"f32": 1e-5, "f64": 1e-12, "f16": 5e-3}[element], mask=allowed)


def test_grouped_heads_share_packed_keys() -> None:
    b = Builder("shared")
    shapes = {"q": (1, 16, 33, 32), "k": (1, 4, 47, 32), "v": (1, 4, 47, 48)}
    values = [b.input(n, TensorType(dtype("f32"), s)) for n, s in shapes.items()]
    graph = b.finish([b.add(Attention(), *values)], ["y"])
    session = driver.Session.of(UNCACHED)
    (node,) = driver.optimise(graph, session).nodes
    assert isinstance(node.op, Fused)
    text = print_func(lower_group(node.op.body, session.target, session.backend.rules, "k"))
    packed = re.findall(r"alloc (\w+_heap)", text)
    assert len(packed) == 1
    _, _, behind = text.partition(f"alloc {packed[0]}")
    assert re.search(r"for \w+ in range\(4\)", behind)  # the heads of a group, after the copy
    assert text.count("parallel(4)") == 1
    assert_right(graph)


def test_a_softmax_in_parts_without_the_maximum() -> None:
    b = Builder("parts")
    f32 = dtype("f32")
    q, k = (b.input(n, TensorType(f32, (3, 20, 8))) for n in "qk")
    v = b.input("v", TensorType(f32, (3, 20, 16)))
    e = b.add(Exp(), b.add(MatMul(transpose_b=True), q, k))
    graph = b.finish([b.add(MatMul(), b.add(Div(), e, b.add(ReduceSum((2,), True), e)), v)], ["y"])
    assert kernels(graph) == 1
    assert_right(graph)


def test_weights_that_are_asked_for_are_written() -> None:
    """The rows are needed outside, so nothing is fused across them."""
    b = Builder("weights")
    f32 = dtype("f32")
    q, k, v = (b.input(n, TensorType(f32, (2, 20, 16))) for n in "qkv")
    p = b.add(Softmax(-1), b.add(MatMul(transpose_b=True), q, k))
    graph = b.finish([b.add(MatMul(), p, v), p], ["y", "p"])
    assert kernels(graph) > 1
    assert_right(graph)


def test_a_norm_between_products_with_weights_is_no_attention() -> None:
    b = Builder("norm")
    rng = np.random.default_rng(0)
    f32 = dtype("f32")
    x = b.input("x", TensorType(f32, (24, 48)))
    first, second = (
        b.constant(rng.standard_normal(shape).astype(np.float32)) for shape in [(48, 40), (40, 100)]
    )
    h = b.add(MatMul(), x, first)
    scaled = b.add(Div(), h, b.add(ReduceSum((-1,), True), b.add(Exp(), h)))
    graph = b.finish([b.add(MatMul(), scaled, second)], ["y"])
    groups = [
        [n.op.name for n in node.op.body.nodes]  # type: ignore[attr-defined]  # all are fused
        for node in driver.optimise(graph, driver.Session.of(UNCACHED)).nodes
    ]
    assert not any(names.count("matmul") > 1 for names in groups)
    assert_right(graph)


@pytest.mark.parametrize("shape", [(4, 16, 8), (40, 24), (1, 2, 9, 7)])
def test_queries_keys_and_values_that_are_one_computed_tensor(shape: tuple[int, ...]) -> None:
    """softmax(y y^T) y: one copy of y serves as queries and as keys."""
    b = Builder("similarity")
    x = b.input("x", TensorType(dtype("f32"), shape))
    y = b.add(Add(), x, b.input("bias", TensorType(dtype("f32"), shape[-1:])))
    p = b.add(Softmax(-1), b.add(MatMul(transpose_b=True), y, y))
    graph = b.finish([b.add(MatMul(), p, y)], ["z"])
    assert kernels(graph) == 1
    assert_right(graph)
