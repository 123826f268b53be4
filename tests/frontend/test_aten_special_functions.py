"""Gamma and Bessel functions have the digits of their type; deviations its range."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tilesmith as ts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

DTYPES = [torch.float32, torch.float64, torch.bfloat16]


class Of(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def compiled(function, *args):
    return ts.compile(Of(function), args, threads=1)(*args)


def trigamma(x):
    return torch.polygamma(1, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("function", "low", "high", "digits"),
    [
        (torch.lgamma, 1e-3, 60.0, 3),
        (torch.digamma, 1.6, 60.0, 12),
        (torch.i0, -60.0, 60.0, 8),
        (torch.special.i0e, -60.0, 60.0, 8),
        (torch.special.i1, -60.0, 60.0, 20),
        (torch.special.i1e, -60.0, 60.0, 20),
    ],
)
def test_the_error_is_a_few_units_in_the_last_place(function, low, high, digits, dtype):
    x = torch.cat([torch.linspace(low, high, 800), torch.tensor([0.75, 1, 2, 2.25, 7.99, 8])])
    x = x.to(dtype)
    found = compiled(function, x)
    wanted = function(x.double())
    assert found.dtype == dtype
    unit = torch.finfo(dtype).eps * wanted.abs()
    own = 0.0 if dtype is not torch.float64 else digits  # of what it is compared with
    assert float(((found.double() - wanted).abs() - (digits + own) * unit).max()) <= 0


def test_trigamma():
    """At places where it is known: PyTorch's own has 9 digits."""
    catalan = 0.9159655941772190
    x = torch.tensor([1.0, 0.5, 0.25, 2.0, -0.5], dtype=torch.float64)
    square = math.pi**2
    wanted = [square / 6, square / 2, square + 8 * catalan, square / 6 - 1, square / 2 + 4]
    np.testing.assert_allclose(compiled(trigamma, x), wanted, rtol=2e-15)
    np.testing.assert_allclose(compiled(trigamma, x.float()), wanted, rtol=1e-6)


def test_lgamma_keeps_its_digits_beside_its_zeros():
    x = torch.tensor([1 + 2.0**-20, 1 - 2.0**-20, 2 + 2.0**-20, 2 - 2.0**-20])
    wanted = [math.lgamma(v) for v in x.tolist()]
    np.testing.assert_allclose(compiled(torch.lgamma, x), wanted, rtol=3e-7)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [torch.lgamma, torch.digamma])
def test_gamma_functions_of_poles_and_negative_numbers(function, dtype):
    ends = [math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, -2.0, 1e-30, -1e-30, 3e38, -3e38]
    x = torch.tensor([*ends, -0.25, -0.5, -2.3, -7.75]).to(dtype)
    bound = 2e-2 if dtype.itemsize == 2 else 1e-5
    found, wanted = compiled(function, x), function(x)
    torch.testing.assert_close(found, wanted, equal_nan=True, rtol=bound, atol=0.0)


@pytest.mark.parametrize("size", [1.0, 3e18, 1e20, 1e-25, 1e-42])
def test_variances_and_deviations_have_the_range_of_their_type(size):
    x = torch.tensor(np.random.default_rng(0).normal(size=(5, 7)) * size, dtype=torch.float32)

    def function(x):
        return (
            x.std(), x.var(), x.std(0), x.var(1), x.std(1, keepdim=True, correction=0),
            torch.std_mean(x, 1),
        )  # fmt: skip

    found, wanted = compiled(function, x), function(x)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=0.0)
    found = compiled(lambda x: (x.std(), x.var(1)), x.bfloat16())
    torch.testing.assert_close(
        [t.float() for t in found], [x.bfloat16().float().std(), x.bfloat16().float().var(1)],
        rtol=1e-2, atol=1e-37,
    )  # fmt: skip


def test_variances_of_what_is_not_finite_or_empty():
    x = torch.tensor([[1.0, math.inf], [math.nan, 2.0], [0.0, 0.0], [5.0, 5.0], [1e38, 1e38]])
    found = compiled(lambda x: (x.std(1), x.var(1)), x)
    torch.testing.assert_close(found, (x.std(1), x.var(1)), equal_nan=True)
    empty = torch.zeros(0, 4)
    assert torch.isnan(compiled(lambda x: x.std(0), empty)).all()
