"""What is refused says what to do, where PyTorch can't be left to do it."""

from __future__ import annotations

import io
import warnings

import pytest

torch = pytest.importorskip("torch")

import tilesmith as ts  # noqa: E402
from tilesmith.support.errors import UnsupportedError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

MATRIX = 4 * torch.eye(3) + 1
ADVICE = r"torch.compile\(model, backend='tilesmith'\) leaves it to PyTorch"
CASES = {
    "qr": (lambda x: torch.linalg.qr(x)[1], "not supported; " + ADVICE),
    "fft": (lambda x: torch.fft.rfft(x).abs(), "complex numbers.*; " + ADVICE),
    "cholesky": (torch.linalg.cholesky, ADVICE),
    "histc": (torch.histc, "give min and max"),
    "polygamma": (lambda x: torch.polygamma(2, x), "expected the order 0 or 1, found 2"),
}


class Of(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_of_a_module_and_of_an_archive_says_what_to_do(name):
    function, message = CASES[name]
    with pytest.raises(UnsupportedError, match=message):
        ts.compile(Of(function), (MATRIX,), threads=1)
    out = io.BytesIO()
    torch.export.save(torch.export.export(Of(function), (MATRIX,), strict=False), out)
    with pytest.raises(UnsupportedError, match=message):
        ts.compile(out.getvalue(), threads=1)


@pytest.mark.parametrize("name", CASES)
def test_the_backend_leaves_it_to_pytorch(name):
    function, _ = CASES[name]
    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = torch.compile(function, backend="tilesmith")(MATRIX)
    torch.testing.assert_close(found, function(MATRIX))
    told = [str(w.message) for w in caught if "Fallback" in w.category.__name__]
    assert told and not any("leaves it to PyTorch" in t for t in told)
