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
