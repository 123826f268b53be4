"""Operators of PyTorch with open sizes give what eager mode gives, at several sizes each."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tilesmith as ts

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


def _halves(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, 1)
    return torch.cat([second, first * 2], 1)


SHAPED = {
    "clamp by a size": lambda x: x.clamp(-x.shape[0], x.shape[1] - 1),
    "chunk": _halves,
    "diagonal": lambda x: x.diagonal(),
    "diagonal below": lambda x: x.diagonal(-1) * 2,
    "diagonal above": lambda x: x[None].diagonal(1, 1, 2),
    "trace": torch.trace,
    "unfold": lambda x: x.unfold(1, 3, 2),
    "unfold of the first axis": lambda x: x.unfold(0, 2, 1),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x[None], 3),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x[None], (3, 2)),
    "interpolate linear": lambda x: F.interpolate(x[None], scale_factor=1.7, mode="linear"),
    "interpolate bicubic": lambda x: F.interpolate(x[None, None], (5, 7), mode="bicubic"),
    "pad replicate": lambda x: F.pad(x[None], (1, 2), mode="replicate"),
}


@pytest.mark.parametrize("name", SHAPED)
def test_operators_that_look_at_sizes(name: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        SHAPED[name], backend="tilesmith", dynamic=True, options={"fallback": "error"}
    )
    for rows, columns in SIZES:
        x = torch.randn(rows, columns)
        torch.testing.assert_close(compiled(x), SHAPED[name](x))


class Parts(torch.nn.Module):
    """`x` in parts, each used in another way."""

    def __init__(self, split) -> None:
        super().__init__()
        self.split = split

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [y * i for i, y in enumerate(self.split(x))]


@pytest.mark.parametrize(
    ("split", "fits", "others"),
    [
        (lambda x: x.split(2), (5, 6), (4, 7)),
        (lambda x: x.unbind(0), (5,), (4, 6)),
        (lambda x: x.chunk(3), (5, 6, 8), (2, 4)),
    ],
)
def test_parts_of_an_open_axis(split, fits, others) -> None:
    """Their number is the program's; a run with sizes that make another number is refused."""
    exe = ts.compile(Parts(split), (torch.randn(5, 4),), dynamic="auto")
    for rows in fits:
        x = torch.randn(rows, 4)
        torch.testing.assert_close(exe(x), Parts(split)(x))
    for rows in others:
        with pytest.raises(ts.ModelError, match=r"expected"):
            exe(torch.randn(rows, 4))


def test_a_place_that_the_range_of_a_size_does_not_prove():
    """torch.export loses that `b[:, 3]` needs four columns where it sees `b[:, None, 2:]`, too."""

    class Overlap(torch.nn.Module):
        def forward(self, b):
            area = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
            first = torch.max(b[:, None, :2], b[None, :, :2])
            return area, (torch.min(b[:, None, 2:], b[None, :, 2:]) - first).clamp(min=0).prod(-1)

    exe = ts.compile(Overlap(), (torch.rand(5, 4),), dynamic="auto")
    for rows in (2, 7):
        b = torch.rand(rows, 4)
        for found, wanted in zip(exe(b), Overlap()(b), strict=True):
            torch.testing.assert_close(found, wanted)
    with pytest.raises(ts.ModelError):
        exe(torch.rand(5, 3))


def test_chunks_of_an_axis_without_elements() -> None:
    """As many as were asked for."""

    class Chunks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.chunk(3)

    x = torch.zeros(0, 2)
    parts = ts.compile(torch.export.export(Chunks(), (x,)))(x.numpy())
    assert [tuple(p.shape) for p in parts] == [tuple(p.shape) for p in x.chunk(3)]


class Numbers(torch.nn.Module):
    """Numbers that only a run knows, beside tensors of rank 0."""

    def forward(self, x, count, factor):
        share, columns = 0.1 / x.shape[1], x.shape[1]
        total = x.sum()
        return (
            total * share,
            count * columns,
            torch.full((2,), share),
            total.clamp(max=share),
            torch.where(total > 0, total, share),
            total * factor.item(),
            total * factor,
            F.cross_entropy(x, x[:, 0].long() % 2, label_smoothing=0.1),
        )


def test_numbers_of_a_run_are_no_tensors() -> None:
    """They have no part in the element type of a result: f32 times a number stays f32."""
    count, factor = torch.tensor(3, dtype=torch.int32), torch.tensor(2.5, dtype=torch.float64)
    x = torch.randn(4, 5)
    exe = ts.compile(Numbers(), (x, count, factor), dynamic={"x": {1: (1, 10)}})
    compiled = torch.compile(Numbers(), backend="tilesmith", dynamic=True)
    for columns in (5, 7):
        x = torch.randn(4, columns)
        expected = Numbers()(x, count, factor)
        for results in (exe(x, count, factor), compiled(x, count, factor)):
            for result, wanted in zip(results, expected, strict=True):
                torch.testing.assert_close(torch.as_tensor(result), wanted, rtol=1e-5, atol=1e-5)
