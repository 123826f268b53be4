"""`as_strided` reads memory: of tensors in any order of axes, of parts of others, on every road."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

import tilesmith as ts  # noqa: E402
from tilesmith.support.errors import UnsupportedError  # noqa: E402


def turned(x):
    return (x * 2).as_strided((5, 10), (4, 1), 0) + 1


def copied(x):
    return torch.as_strided_copy(x * 2, (3, 4), (2, 1))


def behind(x):
    return (x.t().contiguous() * 2)[1:].as_strided((2, 3), (3, 1), 8) + 1


def own_offset(x):
    return (x * 2)[1].as_strided((5,), (1,)) + 1


def scattered(x):
    return torch.as_strided_scatter(x + 1, torch.ones(3, 4), (3, 4), (2, 1), 1)


def channels_last():
    return torch.arange(100.0).reshape(2, 5, 2, 5).to(memory_format=torch.channels_last)


def transposed():
    return torch.arange(24.0).reshape(4, 6).t()


CASES = [
    (turned, channels_last), (copied, transposed), (behind, transposed),
    (own_offset, channels_last), (scattered, channels_last), (scattered, transposed),
]  # fmt: skip


@pytest.mark.parametrize(("function", "make"), CASES)
def test_places_are_those_of_the_traced_memory(function, make, tmp_path):
    """In a channels_last tensor, elements of the row-major order were taken."""
    x = make()
    expected = function(x)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=ts.torch.backend)
    torch.testing.assert_close(compiled(x), expected)

    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x)

    torch.testing.assert_close(ts.compile(Module(), (x,))(x), expected)
    exported = torch.export.export(Module(), (x,))
    torch.export.save(exported, tmp_path / "m.pt2")
    torch.testing.assert_close(torch.as_tensor(ts.compile(tmp_path / "m.pt2")(x)), expected)


def test_memory_that_is_not_the_tensors_own():
    """Of a part of a tensor: what lies outside of it is refused, or left to PyTorch as a whole."""

    def function(x):
        return (x * 2)[1:].as_strided((2, 3), (3, 1), 0) + 1

    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x)

    x = torch.arange(24.0).reshape(4, 6)
    with pytest.raises(UnsupportedError, match=r"memory that is not the tensor's own.*contiguous"):
        ts.compile(Module(), (x,))
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.torch.FallbackWarning)
        found = torch.compile(function, backend=ts.torch.backend)(x)
    torch.testing.assert_close(found, function(x))


def test_open_sizes_in_another_order():
    def function(x):
        return torch.as_strided_copy((x * 2).t(), (2, 2), (1, 1), 0) + 1

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=ts.torch.backend, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.torch.FallbackWarning)
        for rows in (3, 5):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(compiled(x), function(x))
