"""erfc has the digits of its type, also where it is tiny."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tilesmith as ts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Erfc(torch.nn.Module):
    def forward(self, x):
        return torch.erfc(x)


@pytest.mark.parametrize(
    ("dtype", "most", "bound"),
    [(torch.float32, 9.0, 2e-6), (torch.float64, 26.0, 1e-13), (torch.bfloat16, 9.0, 8e-3)],
)
def test_erfc_has_the_digits_of_its_type(dtype, most, bound):
    x = torch.cat([torch.linspace(-most, most, 999), torch.tensor([0.5, -0.5, 1e-30])]).to(dtype)
    found = ts.compile(Erfc(), (x,), threads=1)(x)
    wanted = torch.erfc(x.double())
    assert found.dtype == dtype
    assert float(((found.double() - wanted) / wanted).abs().max()) < bound


def test_erfc_of_what_is_not_finite():
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0], np.float32)
    found = ts.compile(Erfc(), (torch.tensor(x),), threads=1)(x)
    np.testing.assert_array_equal(found, np.float32([np.nan, 0, 2, 0, 2, 1]))


class Erfinv(torch.nn.Module):
    def forward(self, x):
        return torch.erfinv(x)


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 2e-12), (torch.bfloat16, 8e-3)]
)
def test_erfinv_has_the_digits_of_its_type(dtype, bound):
    near_one = 1 - torch.logspace(-16, -1, 99, dtype=torch.float64)
    small = torch.logspace(-30, -1, 99, dtype=torch.float64)
    x = torch.cat([torch.linspace(-1, 1, 998).double(), near_one, small]).to(dtype)
    x = x[x.abs() < 1]
    found = ts.compile(Erfinv(), (x,), threads=1)(x)
    wanted = torch.erfinv(x.double())
    assert found.dtype == dtype
    assert float(((found.double() - wanted) / wanted).abs().max()) < bound


def test_erfinv_at_the_ends_and_beyond():
    x = np.array([1, -1, 2, -2, np.nan, np.inf, 0.0], np.float32)
    found = ts.compile(Erfinv(), (torch.tensor(x),), threads=1)(x)
    inf, nan = np.inf, np.nan
    np.testing.assert_array_equal(found, np.float32([inf, -inf, nan, nan, nan, nan, 0]))
