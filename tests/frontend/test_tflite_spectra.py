"""Fourier transforms and complex numbers, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from tflite_oracle import check, numbers

import tilesmith as ts
from tflite_models import ModelWriter


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("batch", [3, -1])
def test_a_magnitude_and_parts_of_a_transform(rows: int, batch: int) -> None:
    model = ModelWriter()
    g = model.graph()
    x = g.input((batch, rows, 16), name="x")
    lengths = g.const(np.array([rows, 16], np.int32))
    spectrum = g.tensor((batch, rows, 9), "COMPLEX64")
    moved = g.tensor((rows, batch, 9), "COMPLEX64")
    results = [g.tensor((rows, batch, 9)) for _ in range(4)]
    g.op("RFFT2D", [x, lengths], [spectrum], "Rfft2dOptions")
    order = g.const(np.array([1, 0, 2], np.int32))
    g.op("TRANSPOSE", [spectrum, order], [moved], "TransposeOptions")
    # LiteRT's TRANSPOSE has no complex numbers; the test with it reads the spectrum itself.
    for name, options, y in zip(
        ("COMPLEX_ABS", "REAL", "IMAG", "CAST"), ("", "", "", "CastOptions"), results, strict=True
    ):
        g.op(name, [moved], [y], options)
    g.output(*results)
    values = numbers(0, 3, rows, 16)
    answers = ts.compile(model.bytes())(values)
    expected = np.fft.rfft2(values, (rows, 16)) if rows > 1 else np.fft.rfft(values)
    expected = expected.transpose(1, 0, 2)
    for y, z in zip(answers, (abs(expected), expected.real, expected.imag, expected.real)):
        np.testing.assert_allclose(y, z, atol=2e-4)


def test_a_spectrum_as_litert_computes_it() -> None:
    model = ModelWriter()
    g = model.graph()
    x, y = g.input((2, 1, 32), name="x"), g.tensor((2, 17))
    wide, flat = g.tensor((2, 1, 17), "COMPLEX64"), g.tensor((2, 17), "COMPLEX64")
    g.op("RFFT2D", [x, g.const(np.array([1, 32], np.int32))], [wide], "Rfft2dOptions")
    g.op("SQUEEZE", [wide], [flat], "SqueezeOptions", squeeze_dims=[1])
    g.op("CAST", [flat], [y], "CastOptions")
    g.output(y)
    check(model.bytes(), [numbers(1, 2, 1, 32)], 1e-4)


def test_arithmetic_of_complex_numbers_is_refused() -> None:
    model = ModelWriter()
    g = model.graph()
    x, y = g.input((1, 8), name="x"), g.tensor((1, 5))
    first, second = g.tensor((1, 5), "COMPLEX64"), g.tensor((1, 5), "COMPLEX64")
    g.op("RFFT2D", [x, g.const(np.array([1, 8], np.int32))], [first], "Rfft2dOptions")
    g.op("MUL", [first, first], [second], "MulOptions")
    g.op("COMPLEX_ABS", [second], [y])
    g.output(y)
    with pytest.raises(ts.UnsupportedError, match="of complex numbers is not supported"):
        ts.compile(model.bytes())
