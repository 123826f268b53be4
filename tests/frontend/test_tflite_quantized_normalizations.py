"""Softmax and norms of quantised tensors against TFLite's reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_oracle import check, one_graph
from tflite_quantized_cases import I8, I16, U8, integers

import tilesmith as ts
from tflite_models import GraphWriter

BYTES = {I8: (1 / 256, -128), U8: (1 / 256, 0), I16: (2.0**-15, 0)}


def _model(
    kind: str, shape: tuple[int, ...], dtype: Any, scale: float, zero: int, to: Any, of: Any,
    options: str, **values: Any,
) -> bytes:  # fmt: skip
    """A model of an operator; `of` is the scale and zero point of its result."""

    def build(g: GraphWriter) -> None:
        a = g.input(shape, dtype, scale=scale, zero=zero)
        y = g.tensor(shape, to, scale=of[0], zero=of[1])
        g.op(kind, [a], [y], options, **values)
        g.output(y)

    return one_graph(build)


def run(
    kind: str, x: np.ndarray, scale: float, zero: int, to: Any, of: Any, options: str, **values: Any
) -> None:
    """Compares an operator; `of` is the scale and zero point of its result."""
    check(_model(kind, x.shape, x.dtype, scale, zero, to, of, options, **values), [x])


def _rows(dtype: Any) -> list[np.ndarray]:
    """Random rows, short and long, and rows of equal numbers."""
    equal = np.full((3, 40), 5, dtype)
    near = (integers(3, (9, 50), I8) % 7).astype(dtype)
    return [integers(0, (16, 10), dtype), integers(1, (2, 3, 1001), dtype), equal, near]


@pytest.mark.parametrize("dtype", [I8, U8, I16])
def test_softmax(dtype):
    unit = 1 / 200 if dtype is I16 else 1
    for x, scale, beta in zip(_rows(dtype), (0.1, 0.02, 1.3, 0.1), (1, 0.5, 1, 1), strict=True):
        zero = 0 if dtype is I16 else 3
        run("SOFTMAX", x, scale * unit, zero, dtype, BYTES[dtype], "SoftmaxOptions",
            beta=beta)  # fmt: skip


@pytest.mark.parametrize("dtype", [I8, U8])
def test_softmax_of_long_rows_of_equal_numbers(dtype: Any):
    """TFLite's reference kernel stops at sums of 512 or more, so the shares are stated here."""
    for count in (300, 511, 513, 1000, 4000):
        model = _model("SOFTMAX", (2, count), dtype, 0.1, 3, dtype, BYTES[dtype],
                       "SoftmaxOptions", beta=1.0)  # fmt: skip
        exe = ts.compile(model)
        found = exe(np.full((2, count), 7, dtype))
        share = round(256 / count) + BYTES[dtype][1]
        np.testing.assert_array_equal(found, np.full((2, count), share, dtype))


@pytest.mark.parametrize("dtype", [I8, U8])
def test_a_scale_below_the_reference_kernels_limit_gives_equal_shares(dtype: Any):
    """The reference kernel ends the process there; converted models have such scales."""
    x = integers(4, (3, 10), dtype)
    for scale in (7.8e-9, 1e-30):
        for kind, of, share in (
            ("SOFTMAX", BYTES[dtype], round(256 / 10) + BYTES[dtype][1]),
            ("LOG_SOFTMAX", (16 / 256, np.iinfo(dtype).max), np.iinfo(dtype).max - 37),
        ):
            options = "SoftmaxOptions" if kind == "SOFTMAX" else "LogSoftmaxOptions"
            beta = {"beta": 1.0} if kind == "SOFTMAX" else {}
            model = _model(kind, (3, 10), dtype, scale, 3, dtype, of, options, **beta)
            np.testing.assert_array_equal(ts.compile(model)(x), np.full((3, 10), share, dtype))


def test_softmax_of_bytes_as_words():
    run("SOFTMAX", integers(0, (16, 10), I8), 0.1, 3, I16, BYTES[I16], "SoftmaxOptions", beta=1.0)


@pytest.mark.parametrize("dtype", [I8, U8])
def test_log_softmax(dtype):
    for x, scale in zip(_rows(dtype), (0.1, 0.02, 1.3, 0.1), strict=True):
        run("LOG_SOFTMAX", x, scale, 3, dtype, (16 / 256, np.iinfo(dtype).max),
            "LogSoftmaxOptions")  # fmt: skip


@pytest.mark.parametrize("dtype", [I8, U8])
def test_l2_normalization(dtype):
    zero = 3 if dtype is I8 else 131
    rows = [*_rows(dtype), np.full((2, 4), zero, dtype), np.full((2, 1), zero + 1, dtype)]
    for x in rows:
        run("L2_NORMALIZATION", x, 0.03, zero, dtype, (1 / 128, 0 if dtype is I8 else 128),
            "L2NormOptions")  # fmt: skip
