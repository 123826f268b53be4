"""Attention on devices: one launch, whose answers are the reference's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilesmith.codegen.targets import target
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import DType, f16, f32
from tilesmith.ir.expr import const
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType
from tilesmith.loop.interpret import interpret
from tilesmith.loop.launches import launches
from tilesmith.loop.nodes import Allocate, Func
from tilesmith.loop.visit import walk
from tilesmith.ops.elementwise import Add, Div, Exp, Mul, Sub
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.reduce import ReduceMax, ReduceSum
from tilesmith.strategy.device import RULES

GPU = target("opencl-gpu")


def units(number: int, gpu: Target = GPU) -> Target:
    """A device that runs so many blocks at the same time: with one, tiles of rows are tall."""
    assert gpu.device is not None
    return replace(gpu, device=replace(gpu.device, units=number))


def attention(
    queries: tuple[int, ...],
    keys: int,
    width: int,
    mask: bool = False,
    added: bool = False,
    turned: bool = False,
    low: DType = f32,
) -> Graph:
    """softmax(q @ k * scale + mask) @ v + x.

    turned: keys are stored with the width as rows.
    low: the type of queries and keys.
    """
    b = Builder("attention")
    *heads, rows, size = queries
    stored = (*heads, size, keys) if turned else (*heads, keys, size)
    q, k = b.input("q", TensorType(low, queries)), b.input("k", TensorType(low, stored))
    v = b.input("v", TensorType(f32, (*heads, keys, width)))
    scores = b.add(MatMul(transpose_b=not turned, to=f32), q, k)
    scores = b.add(Mul(), scores, b.constant(np.float32(size**-0.5)))
    if mask:
        scores = b.add(Add(), scores, b.input("mask", TensorType(f32, (rows, keys))))
    e = b.add(Exp(), b.add(Sub(), scores, b.add(ReduceMax((-1,), True), scores)))
    y = b.add(MatMul(), b.add(Div(), e, b.add(ReduceSum((-1,), True), e)), v)
    return b.finish([b.add(Add(), y, b.input("x", y.type)) if added else y])


def check(graph: Graph, gpu: Target = GPU) -> Func:
    """Compare the kernel of a whole graph with the reference."""
    func = RULES.lower_group(graph, gpu, "k")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(v.type.static_shape).astype(np.float32) for v in graph.inputs]
    (wanted,) = evaluate(graph, given).values()
    found = np.full_like(wanted, np.nan)
    interpret(func, [*given, found])
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
    return func


@pytest.mark.parametrize(
    ("graph", "gpu", "threads", "blocks"),
    [
        (attention((2, 32, 16), 64, 16), GPU, (8, 16, 1), 2),
        (attention((2, 37, 20), 50, 13, mask=True), GPU, (8, 16, 1), 3),
        (attention((1, 2, 9, 33), 41, 70, added=True), GPU, (8, 8, 1), 2),
        (attention((64, 16), 20, 48), units(1), (8, 16, 1), 1),
        (attention((63, 24), 65, 40, True, True, turned=True), units(1), (8, 16, 1), 2),
    ],
    ids=["even", "tails and a mask", "few rows, a wide result", "tall tiles", "keys turned"],
)
def test_one_launch(graph: Graph, gpu: Target, threads: tuple[int, int, int], blocks: int):
    func = check(graph, gpu)
    (launch,) = launches(func)
    assert launch.threads == threads and launch.blocks[0] is const(blocks)
    assert not any(isinstance(s, Allocate) and s.buffer.scope == "heap" for s in walk(func.body))


def test_a_row_that_is_too_long_for_shared_memory():
    """The logits lie in global memory then."""
    graph = attention((8, 8), 1024, 8)
    assert len(launches(RULES.lower_group(graph, units(1), "k"))) > 1
    large = units(1)
    assert large.device is not None
    large = replace(large, device=replace(large.device, shared_bytes=48 << 10))
    assert len(launches(RULES.lower_group(graph, large, "k"))) == 1


def test_other_products_are_not_joined():
    """One query and three keys are too few; matrix instructions take products of halves."""
    assert len(launches(RULES.lower_group(attention((4, 1, 16), 64, 16), GPU, "k"))) > 1
    assert len(launches(check(attention((2, 9, 16), 3, 16)))) > 1
    halves = attention((2, 64, 32), 64, 32, low=f16)
    assert "tensor mma_f16_t" in str(RULES.lower_group(halves, target("cuda-sm_80"), "k"))
