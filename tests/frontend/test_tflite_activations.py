"""TFLite's activation functions against its reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_cases import check_operator, one_operator

import tilesmith as ts

NUMBERS = (np.random.default_rng(0).standard_normal((3, 4, 6)) * 4).astype(np.float32)

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("RELU", "", {}),
    ("RELU6", "", {}),
    ("RELU_N1_TO_1", "", {}),
    ("RELU_0_TO_1", "", {}),
    ("LEAKY_RELU", "LeakyReluOptions", {"alpha": 0.3}),
    ("ELU", "", {}),
    ("GELU", "GeluOptions", {"approximate": False}),
    ("GELU", "GeluOptions", {"approximate": True}),
    ("HARD_SWISH", "HardSwishOptions", {}),
    ("LOGISTIC", "", {}),
    ("TANH", "", {}),
    ("SOFTMAX", "SoftmaxOptions", {"beta": 1.0}),
    ("SOFTMAX", "SoftmaxOptions", {"beta": 0.5}),
    ("LOG_SOFTMAX", "LogSoftmaxOptions", {}),
]


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(("kind", "options", "values"), CASES)
def test_activation(kind: str, options: str, values: dict[str, Any], is_open: bool) -> None:
    check_operator(kind, [NUMBERS], options, is_open=is_open, **values)


@pytest.mark.parametrize("shape", [(6,), (1, 1, 6), (4, 6), (3, 4, 6)])
def test_prelu(shape: tuple[int, ...]) -> None:
    slope = np.random.default_rng(1).random(shape, np.float32)
    check_operator("PRELU", [NUMBERS, slope], stored=[1])


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL", "DIV"])
@pytest.mark.parametrize("number", range(4))
def test_fused(kind: str, number: int) -> None:
    other = np.random.default_rng(2).random((4, 1), np.float32) + 1
    options = f"{kind.title()}Options"
    check_operator(kind, [NUMBERS, other], options, fused_activation_function=number)


def test_fused_function_of_an_unknown_number() -> None:
    model = one_operator(
        "ADD", [NUMBERS, NUMBERS], [(NUMBERS.shape, np.float32)], "AddOptions",
        fused_activation_function=9,
    )  # fmt: skip
    with pytest.raises(ts.ModelError, match=r"expected one of NONE, RELU, .* found number 9"):
        ts.compile(model)
