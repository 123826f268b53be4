"""Functions of one quantised number as tables."""

from __future__ import annotations

import numpy as np
import pytest
from quantised_models import Quantised

import tilesmith as ts
from tilesmith.driver.passes import optimise
from tilesmith.driver.session import Session
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ops.conv import Conv
from tilesmith.ops.gather import Gather
from tilesmith.support.options import Options


def operators(graph: Graph) -> list[list[str]]:
    """The operators of each kernel."""
    return [[m.op.name for m in n.op.body.nodes] for n in graph.nodes if isinstance(n.op, Fused)]


def silu(seed: int) -> tuple[bytes, tuple[int, ...]]:
    """A convolution, then x * sigmoid(x), each step through 8 bits."""
    m, shape = Quantised(seed), (1, 6, 7, 9)
    y = m.rounded(m.conv(m.rounded("x", 0.02, 77), 6, 16, 1), 0.02, 100 + seed)
    gate = m.rounded(m.add("Sigmoid", y), 1 / 256, 0)
    return m.model(shape, m.rounded(m.add("Mul", y, gate), 0.015, 20)), shape


def test_a_function_of_one_number_is_one_table_in_the_kernel_before() -> None:
    model, _ = silu(0)
    found = operators(optimise(load(model), Session.of(Options(target="x86-64-v3"))))
    (kernel,) = (k for k in found if Conv.name in k)
    assert kernel.count(Gather.name) == 1
    assert not {"exp", "sigmoid", "reciprocal"} & {op for k in found for op in k}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("target", ["native", "c"])
def test_tables_are_exact(seed: int, target: str) -> None:
    """Of numbers that are on steps already, a table gives what the operators give."""
    m, shape = Quantised(seed), (4, 33)
    x = m.rounded("x", 0.25, 128)
    y = m.rounded(m.add("Mul", x, m.rounded(m.add("Sigmoid", x), 1 / 256, 0)), 0.05, 7 * seed)
    model = m.model(shape, y)
    given = np.random.default_rng(seed).uniform(-40, 40, shape).astype(np.float32)
    (wanted,) = evaluate(load(model), {"x": given}).values()
    np.testing.assert_array_equal(ts.compile(model, target=target)(given), wanted)


@pytest.mark.parametrize("seed", range(2))
def test_answers_after_products_within_one_step(seed: int) -> None:
    model, shape = silu(seed)
    given = np.random.default_rng(seed).uniform(-3, 3, shape).astype(np.float32)
    (wanted,) = evaluate(load(model), {"x": given}).values()
    # a step of 0.02 before the function is at most 0.022 after it, one step and a half of 0.015
    steps = np.abs(ts.compile(model)(given) - wanted) / 0.015
    assert steps.max() < 2.01, seed
    assert np.mean(steps > 0.01) < 0.02, seed


def test_a_function_of_two_numbers_stays() -> None:
    m, shape = Quantised(0), (4, 33)
    a = m.rounded("x", 0.25, 128)
    b = m.rounded(m.add("Transpose", m.add("Transpose", m.add("Abs", "x"))), 0.2, 0)
    y = m.rounded(m.add("Mul", a, m.add("Sigmoid", b)), 0.05, 3)
    found = operators(optimise(load(m.model(shape, y)), Session.of(Options())))
    assert not any(Gather.name in k for k in found)
