"""Operators of PyTorch with open sizes give what eager mode gives, at several sizes each."""

from __future__ import annotations

import pytest
import torch

import tilesmith as ts  # noqa: F401  (registers the backend)

SIZES = ((3, 6), (5, 9), (2, 4), (7, 5))

ROLLS = {
    "forwards": lambda x: x.roll(2, 1),
    "backwards": lambda x: x.roll(-1, 0),
    "both axes": lambda x: x.roll((1, -2), (0, 1)),
    "beyond the extent": lambda x: x.roll((-17, 23), (0, 1)),
    "flat": lambda x: x.roll(-3),
    "by a size": lambda x: x.roll(x.shape[1] // 2, 1),
    "a number of columns by a size": lambda x: x[:, :4].roll(x.shape[0], 1) + x[:, :4],
    "fftshift": torch.fft.fftshift,
}


@pytest.mark.parametrize("name", ROLLS)
def test_roll(name: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(ROLLS[name], backend="tilesmith", dynamic=True)
    for rows, columns in SIZES:
        x = torch.arange(float(rows * columns)).view(rows, columns)
        assert torch.equal(compiled(x), ROLLS[name](x)), (rows, columns)


PLACES = {
    "gather": lambda x, i, y: x.gather(1, i),
    "gather, shorter along another axis": lambda x, i, y: x.gather(1, i[:-1]),
    "scatter": lambda x, i, y: x.scatter(1, i.argsort(1), y),
    "scatter, longer source": lambda x, i, y: x.scatter(0, i[:, :1] * 0, y),
    "scatter of a number": lambda x, i, y: x.scatter(1, i, 2.5),
    "scatter_add": lambda x, i, y: x.scatter_add(1, i, y),
    "scatter_reduce mean": lambda x, i, y: x.scatter_reduce(1, i, y, "mean"),
    "scatter_reduce amax": lambda x, i, y: x.scatter_reduce(1, i, y, "amax", include_self=False),
    "index_reduce": lambda x, i, y: x.index_reduce(1, i[0], y, "prod"),
}


@pytest.mark.parametrize("name", PLACES)
def test_places_in_open_tensors(name: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        PLACES[name], backend="tilesmith", dynamic=True, options={"fallback": "error"}
    )
    for rows, columns in SIZES:
        x, y = torch.randn(rows, columns), torch.randn(rows, columns)
        i = torch.randint(0, columns, (rows, columns))
        torch.testing.assert_close(compiled(x, i, y), PLACES[name](x, i, y), equal_nan=True)
