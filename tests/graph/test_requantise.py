"""The way from one product of quantised numbers to the next."""

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
from tilesmith.ops.elementwise import Div
from tilesmith.ops.winograd import WinogradConv
from tilesmith.support.options import Options


def residual(seed: int, zero: int = 101, channels: int = 16) -> tuple[bytes, tuple[int, ...]]:
    """x + conv(relu(conv(x))), all through 8 bits; x and the result are floats."""
    m, shape = Quantised(seed), (1, channels, 10, 12)
    x = m.rounded("x", 0.02, zero)
    inner = m.rounded(m.add("Relu", m.conv(x, channels, 24, 1)), 0.01, 0)
    outer = m.rounded(m.conv(inner, 24, channels, 3), 0.017, 133)
    total = m.rounded(m.add("Add", x, outer), 0.031, 120)
    return m.model(shape, m.rounded(m.conv(total, channels, 8, 1), 0.043, 99)), shape


def kernels(graph: Graph) -> list[Graph]:
    return [n.op.body for n in graph.nodes if isinstance(n.op, Fused)]


def test_numbers_between_kernels_are_narrow_and_nothing_is_divided() -> None:
    model, _ = residual(0)
    made = kernels(optimise(load(model), Session.of(Options(target="x86-64-v3"))))
    assert [str(k.outputs[0].dtype) for k in made] == ["i16", "i16", "i16", "f32"]
    after = [n.op for k in made[1:] for n in k.nodes]
    assert not any(isinstance(op, Div) for op in after)
    made = kernels(optimise(load(model), Session.of(Options(target="x86-64-v4+avx512vnni"))))
    assert [str(k.outputs[0].dtype) for k in made] == ["u8", "u8", "i16", "f32"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("target", ["native", "c"])
def test_answers_within_one_step(seed: int, target: str) -> None:
    zero = int(np.random.default_rng(seed).integers(256))
    model, shape = residual(seed, zero, 5 + 3 * seed)
    x = np.random.default_rng(seed).uniform(-3, 3, shape).astype(np.float32)
    (wanted,) = evaluate(load(model), {"x": x}).values()
    found = ts.compile(model, target=target)(x)
    steps = np.abs(found - wanted) / 0.043
    assert steps.max() < 1.01, seed
    assert np.mean(steps > 0.01) < 0.02, seed
    strict = ts.compile(model, target=target, accuracy="strict")(x)
    np.testing.assert_allclose(strict, wanted, atol=1e-6)


def test_limits_of_eight_bits_hold() -> None:
    """Numbers beyond the range take its ends; a scale of a tenth makes most of them so."""
    m, shape = Quantised(1), (1, 8, 6, 6)
    x = m.rounded("x", 0.02, 128)
    model = m.model(shape, m.rounded(m.conv(x, 8, 16, 1), 0.0003, 77))
    given = np.random.default_rng(0).uniform(-3, 3, shape).astype(np.float32)
    (wanted,) = evaluate(load(model), {"x": given}).values()
    found = ts.compile(model)(given)
    ends = np.float32(-77 * np.float32(0.0003)), np.float32(178 * np.float32(0.0003))
    assert np.isin(wanted, ends).mean() > 0.5
    np.testing.assert_allclose(found, wanted, atol=0.00031)
    np.testing.assert_array_equal(np.isin(found, ends), np.isin(wanted, ends))


def convolution(channels: int, size: int, filters: int) -> Graph:
    m = Quantised(0)
    x = m.rounded("x", 0.02, 10)
    y = m.rounded(m.conv(x, channels, filters, 3), 0.02, 10)
    return load(m.model((1, channels, size, size), y))


@pytest.mark.parametrize(("channels", "size", "chosen"), [(64, 56, WinogradConv), (8, 7, Conv)])
def test_the_cheaper_algorithm(channels: int, size: int, chosen: type) -> None:
    """Winograd's algorithm on floats does fewer multiplications than pairs of integers save, but
    its transforms cost more than all products of a small convolution.
    """
    session = Session.of(Options(target="x86-64-v3"))
    graph = optimise(convolution(channels, size, channels), session)
    found = [n.op for k in kernels(graph) for n in k.nodes]
    assert [type(op) for op in found if isinstance(op, (Conv, WinogradConv))] == [chosen]


def test_an_odd_number_of_channels_becomes_even() -> None:
    graph = optimise(convolution(3, 20, 16), Session.of(Options(target="x86-64-v3")))
    found = [n for k in kernels(graph) for n in k.nodes if isinstance(n.op, Conv)]
    assert [n.inputs[0].shape[1] for n in found] == [4]
