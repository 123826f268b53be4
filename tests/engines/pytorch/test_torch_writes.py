"""Writes in place, by every road, against eager mode."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

from roads import ROADS, Module, check  # noqa: E402

import tilesmith as ts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.mark.parametrize("cut", [(0, 0), (1, 1), (3, 3), (2, 1), (0, 1), (0, 3)])
@pytest.mark.parametrize("road", ROADS)
def test_a_write_to_a_slice_keeps_the_shape(road, cut, tmp_path):
    def write(x):
        y = x.clone()
        y[:, cut[0] : cut[1]].add_(2)
        y[cut[0] : cut[1] : 2].mul_(3)
        return y * 1, torch.slice_scatter(x, x[:, : cut[0]], 1, 0, cut[0])

    check(road, Module(write), (torch.arange(6.0).view(2, 3),), tmp_path)


def _scaled(x):
    y = x.clone()
    y[y > 1] *= 3
    return y


def _assigned(x):
    y = x.clone()
    y[y > 1] = y[y > 1] * 2
    return y


@pytest.mark.parametrize("function", [_scaled, _assigned])
def test_writes_where_a_condition_holds(function):
    """Dynamo's graph breaks make the count of places a number in one graph, measured in another."""
    x = torch.tensor([1.5, -1.0, 2.0, 0.25, 3.0])
    torch._dynamo.reset()
    found = torch.compile(function, backend=ts.torch.backend)
    for _ in range(3):
        torch.testing.assert_close(found(x), function(x))


def test_a_result_that_nothing_computes_stays_with_its_call():
    """The gradient of EmbeddingBag reads a result of the call that no importer gives."""
    module = torch.nn.EmbeddingBag(20, 4, mode="sum")
    args = torch.randint(0, 20, (9,)), torch.tensor([0, 3, 3, 7])
    torch._dynamo.reset()
    gradients = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.torch.FallbackWarning)
        for f in (module, torch.compile(module, backend=ts.torch.backend)):
            module.zero_grad()
            f(*args).pow(2).sum().backward()
            gradients.append(module.weight.grad.clone())
    torch.testing.assert_close(*gradients)
