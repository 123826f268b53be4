"""Quantised elementwise operators: the integers are those of TFLite's reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_oracle import check, one_graph
from tflite_quantized_cases import I8, I16, NONE, RELU, RELU6, RELU_N1_TO_1, U8, run

import tilesmith as ts
from tflite_models import GraphWriter
from tilesmith.support.errors import TilesmithError

PAIRS = [
    ((I8, 0.02, -3), (I8, 0.05, 7), (I8, 0.07, 11)),
    ((U8, 0.5, 128), (U8, 0.3, 0), (U8, 0.9, 255)),
    ((I16, 0.0002, 0), (I16, 0.001, 0), (I16, 0.0013, 0)),
]


@pytest.mark.parametrize("kind", ["ADD", "SUB"])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: np.dtype(p[0][0]).name)
def test_sums(kind, pair):
    options = f"{kind.title()}Options"
    *given, result = pair
    for activation in (NONE, RELU, RELU6, RELU_N1_TO_1):
        run(kind, [(3, 257), (3, 257)], given, result, options,
            fused_activation_function=activation)  # fmt: skip
    run(kind, [(4, 1, 33), (5, 1)], given, result, options)
    run(kind, [(4, 33), (33,)], given, result, options, is_open=True)


@pytest.mark.parametrize("kind", ["ADD", "SUB"])
def test_sums_of_words_with_scales_that_are_powers_of_two(kind):
    given = [(I16, 2.0**-12, 0), (I16, 2.0**-14, 0)]
    run(kind, [(7, 300), (7, 300)], given, (I16, 2.0**-12, 0), f"{kind.title()}Options")
    run(kind, [(7, 300), (7, 300)], given, (I16, 2.0**-12, 0), f"{kind.title()}Options",
        pot_scale_int16=False)  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: np.dtype(p[0][0]).name)
def test_products(pair):
    *given, result = pair
    for activation in (NONE, RELU6):
        run("MUL", [(3, 257), (257,)], given, result, "MulOptions",
            fused_activation_function=activation)  # fmt: skip
    run("MUL", [(3, 257), (3, 257)], given, (result[0], 1e-6, 0), "MulOptions")


def test_squared_differences():
    run("SQUARED_DIFFERENCE", [(3, 257), (257,)], PAIRS[0][:2], PAIRS[0][2])


@pytest.mark.parametrize(
    "kind", ["EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"]
)
def test_comparisons(kind):
    for a, b, _ in PAIRS:
        run(kind, [(3, 257), (257,)], [a, b], np.bool_)
        run(kind, [(3, 257), (257,)], [a, a], np.bool_)


@pytest.mark.parametrize("to", [(I8, 0.031, -5), (U8, 0.031, 99), (I16, 0.0007, 0)])
def test_floats_become_integers(to):
    run("QUANTIZE", [(5, 301)], [(np.float32, None, 0)], to)
    run("QUANTIZE", [(5, 301)], [(np.float32, None, 0)], to, is_open=True)
    steps = np.arange(-130, 130).astype(np.float32)  # ties, and their neighbours

    def build(g: GraphWriter) -> None:
        y = g.tensor((3, 260), to[0], scale=0.25, zero=to[2])
        g.op("QUANTIZE", [g.input((3, 260))], [y])
        g.output(y)

    ties = (steps + np.float32(0.5)) * np.float32(0.25)
    around = np.stack([np.nextafter(ties, np.float32(t)) for t in (-1e9, 0, 1e9)])
    around[1] = ties
    check(one_graph(build), [around])


def test_conversions_along_an_axis():
    def build(g: GraphWriter) -> None:
        scales, zeros = [0.1, 0.02, 0.5], [0, 3, -4]
        q = g.tensor((2, 3, 5), I8, scale=scales, zero=zeros, axis=1)
        y = g.tensor((2, 3, 5))
        g.op("QUANTIZE", [g.input((2, 3, 5))], [q])
        g.op("DEQUANTIZE", [q], [y])
        g.output(q, y)

    check(one_graph(build), [np.random.default_rng(0).normal(0, 5, (2, 3, 5)).astype(np.float32)])


@pytest.mark.parametrize(
    ("source", "to"),
    [
        ((I8, 0.5, 3), (I8, 0.3, -7)),
        ((I8, 0.5, -10), (U8, 0.5, 118)),
        ((U8, 0.5, 130), (I8, 0.5, 2)),
        ((U8, 0.5, 130), (I16, 0.001, 0)),
        ((I8, 0.5, 3), (I16, 0.003, 0)),
        ((I16, 0.003, 0), (I8, 0.5, -9)),
        ((I16, 0.003, 0), (I16, 0.001, 0)),
        ((I16, 0.003, 0), (np.int32, 0.0001, 0)),
        ((np.int32, 1e-8, 0), (I8, 0.1, 4)),
        ((np.int32, 1e-8, 0), (I16, 0.0007, 0)),
    ],
)
def test_requantisation(source, to):
    run("QUANTIZE", [(4, 65)], [source], to)
    run("QUANTIZE", [(4, 65)], [source], to, is_open=True)


@pytest.mark.parametrize("source", [(I8, 0.013, -3), (U8, 0.013, 200), (I16, 0.0007, 0)])
def test_integers_become_floats(source):
    run("DEQUANTIZE", [(257, 256)], [source], np.float32)


def test_fake_quantisation():
    for bits, low, high in ((8, -3.0, 4.1), (4, 0.0, 6.0), (16, -0.3, 0.2)):
        run("FAKE_QUANT", [(5, 301)], [(np.float32, None, 0)], np.float32, "FakeQuantOptions",
            num_bits=bits, min=low, max=high)  # fmt: skip


def test_unusual_quantisation_is_refused():
    def compiled(scale: Any, zero: Any = 0) -> None:
        def build(g: GraphWriter) -> None:
            x = g.input((2, 3), I8, scale=scale, zero=zero, axis=1)
            y = g.tensor((2, 3), I8, scale=0.1)
            g.op("ADD", [x, x], [y], "AddOptions")
            g.output(y)

        ts.compile(one_graph(build))

    with pytest.raises(TilesmithError, match="a scale for each index of an axis"):
        compiled([0.1, 0.2, 0.3])
    with pytest.raises(TilesmithError, match="expected a scale above 0"):
        compiled(0.0)
