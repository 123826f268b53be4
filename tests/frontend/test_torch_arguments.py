"""Arguments of compiled modules: by position or keyword, dicts in any order, exact numbers."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tilesmith as ts  # noqa: E402
from tilesmith.support.errors import ModelError  # noqa: E402


class Sum(torch.nn.Module):
    def forward(self, x, y, *, more, scale=2):
        return x * scale - y + more["a"][0] - more["b"]


class Scaled(torch.nn.Module):
    def forward(self, x, scale):
        return x * scale


def roads(module, args, kwargs, path):
    exported = torch.export.export(module, args, kwargs)
    yield ts.compile(exported)
    torch.export.save(exported, path)
    yield ts.compile(path)
    yield ts.compile(module, args, example_kwargs=kwargs)


def test_names_and_orders(tmp_path):
    x, y, a, b = torch.randn(4, 3)
    more = {"a": [a], "b": b}
    for exe in roads(Sum(), (x, y), {"more": more, "scale": 3}, tmp_path / "m.pt2"):
        expected = Sum()(x, y, more=more, scale=3)
        turned = {"b": b, "a": [a]}
        for found in (
            exe(x, y, more=more, scale=3),
            exe(x, y, scale=3, more=turned),
            exe(x, y=y, more=turned, scale=3),
            exe(scale=3, y=y, more=more, x=x),
        ):
            torch.testing.assert_close(torch.as_tensor(found), expected)
        for args, kwargs in (
            ((x,), {"more": more, "scale": 3}),
            ((x, y), {"x": x, "more": more, "scale": 3}),
            ((x,), {"z": y, "more": more, "scale": 3}),
            ((x, y), {"more": {"a": [a], "c": b}, "scale": 3}),
        ):
            with pytest.raises(ModelError, match="expected arguments"):
                exe(*args, **kwargs)


@pytest.mark.parametrize(
    ("constant", "others"),
    [
        (2, [2.0, 3, np.float32(2)]),
        (1, [True, 1.0]),
        (0.0, [-0.0, 0]),
        (float("nan"), [1.0]),
        (True, [1]),
    ],
)
def test_constants_are_of_one_type_and_sign(constant, others, tmp_path):
    """An integer tensor times 2.0 is a float one, times 2 it is none."""
    x = torch.arange(3)
    for exe in roads(Scaled(), (x, constant), {}, tmp_path / "m.pt2"):
        expected = Scaled()(x, constant)
        again = float(str(constant)) if isinstance(constant, float) else constant
        found = torch.as_tensor(exe(x, again))
        torch.testing.assert_close(found, expected, equal_nan=True)
        for other in others:
            with pytest.raises(ModelError, match="compiled for"):
                exe(x, other)


@pytest.mark.parametrize("axis", [2, -3, "a"])
def test_axes_that_an_argument_does_not_have(axis):
    """An axis that is none was an IndexError of PyTorch's, without the argument's name."""
    with pytest.raises(ts.UsageError, match=f"'x' has 2 axes, numbered from 0; found {axis!r}"):
        ts.compile(Scaled(), (torch.ones(2, 3), 2), dynamic={"x": {axis: "n"}})


def test_axes_from_the_end():
    exe = ts.compile(Scaled(), (torch.ones(2, 3), 2), dynamic={"x": {-1: "n"}})
    for columns in (3, 5):
        x = torch.randn(2, columns)
        torch.testing.assert_close(exe(x, 2), x * 2)


def test_sums_of_sizes():
    def function(x, y, z):
        return x.new_ones(torch.sym_sum([x.shape[0], y.shape[0], z.shape[0]])) * x.sum()

    torch._dynamo.reset()
    options = {"fallback": "error"}
    f = torch.compile(function, backend=ts.torch.backend, dynamic=True, options=options)
    for rows in ((2, 3, 4), (5, 7, 2)):
        given = [torch.randn(n, 2) for n in rows]
        torch.testing.assert_close(f(*given), function(*given))
