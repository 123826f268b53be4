"""Functions of one quantised tensor, for all its numbers, against TFLite's reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_oracle import check, one_graph
from tflite_quantized_cases import I8, I16, U8, run

from tflite_models import GraphWriter

SCALES = [((I8, 0.05, -3), (I8, 0.04, 11)), ((U8, 0.05, 131), (U8, 0.04, 17))]
WORDS = ((I16, 0.0004, 0), (I16, 0.0003, 0))


def check_all(
    kind: str, given: Any, result: Any, options: str = "", least: int | None = None, **values: Any
) -> None:
    """Compares a function for all numbers of a type, from `least` on."""
    info = np.iinfo(given[0])
    x = np.maximum(np.arange(info.min, info.max + 1), info.min if least is None else least)
    x = x.astype(given[0]).reshape(4, -1)

    def build(g: GraphWriter) -> None:
        a = g.input(x.shape, given[0], scale=given[1], zero=given[2])
        y = g.tensor(x.shape, result[0], scale=result[1], zero=result[2])
        g.op(kind, [a], [y], options, **values)
        g.output(y)

    check(one_graph(build), [x])


@pytest.mark.parametrize("kind", ["RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1"])
def test_rectifiers(kind):
    pairs = [*SCALES, WORDS] if kind in ("RELU", "RELU6") else SCALES
    for given, result in pairs:
        check_all(kind, given, result)


@pytest.mark.parametrize("alpha", [0.2, -0.3, 1.7])
def test_leaky_rectifiers(alpha):
    for given, result in [*SCALES, WORDS]:
        check_all("LEAKY_RELU", given, result, "LeakyReluOptions", alpha=alpha)


def test_parametric_rectifiers():
    for given, result in SCALES:
        run("PRELU", [(2, 5, 7, 9), (9,)], [given, (given[0], 0.01, given[2])], result)


def test_absolute_values():
    check_all("ABS", *SCALES[0])
    check_all("ABS", SCALES[0][0], SCALES[0][0])
    check_all("ABS", *WORDS)


@pytest.mark.parametrize("scale", [0.01, 0.05, 0.4])
def test_hard_swish(scale):
    for (dtype, _, zero), (to, _, y_zero) in SCALES:
        check_all("HARD_SWISH", (dtype, scale, zero), (to, scale * 0.9, y_zero))


@pytest.mark.parametrize("scale", [0.01, 0.05, 0.4])
def test_sigmoids_of_bytes(scale):
    check_all("LOGISTIC", (I8, scale, -3), (I8, 1 / 256, -128))
    check_all("LOGISTIC", (U8, scale, 130), (U8, 1 / 256, 0))
    check_all("TANH", (I8, scale, -3), (I8, 1 / 128, 0))
    check_all("TANH", (U8, scale, 130), (U8, 1 / 128, 128))


@pytest.mark.parametrize("scale", [2.0**-12, 2.0**-11, 2.0**-14, 0.0003, 0.0011])
def test_sigmoids_of_words(scale):
    check_all("LOGISTIC", (I16, scale, 0), (I16, 2.0**-15, 0))
    check_all("TANH", (I16, scale, 0), (I16, 2.0**-15, 0))


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu(approximate):
    for given, result in [*SCALES, WORDS]:
        check_all("GELU", given, result, "GeluOptions", approximate=approximate)


def test_other_tables():
    check_all("ELU", *SCALES[0])
    check_all("EXP", (I8, 0.03, 5), (I8, 0.1, -120))
    check_all("EXP", (I16, 0.0002, 0), (I16, 0.02, 0))
    check_all("LOG", (I8, 0.03, -100), (I8, 0.04, 7))
    check_all("LOG", (I16, 0.001, 0), (I16, 0.0003, 0))
    check_all("RSQRT", (I8, 0.03, -100), (I8, 0.05, -60), least=-100)
    check_all("RSQRT", (I16, 0.001, 0), (I16, 0.0007, 0), least=0)
    check_all("SQRT", (I8, 0.03, -100), (I8, 0.02, -60), least=-100)
    check_all("SQRT", (I16, 0.001, 0), (I16, 0.0003, 0), least=0)
