"""Training through `torch.compile(backend="tilesmith")`: gradients are those of eager mode."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

import tilesmith as ts

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
EXAMPLES = Path(__file__).parents[2] / "examples"


class Pools(nn.Module):
    def forward(self, x):
        means = nn.functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)
        uneven = nn.functional.adaptive_avg_pool2d(x, 3)
        largest = nn.functional.max_pool2d(x, 3, 2, 1)
        few = nn.functional.adaptive_max_pool2d(x, 3)
        return few.sum() + means.sum() + (uneven * uneven).sum() + largest.sin().sum()


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(10, 8), nn.LayerNorm(8)

    def forward(self, ids):
        x = self.norm(self.table(ids)).unsqueeze(1)
        return nn.functional.gelu(
            nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        )


MODELS = {
    "grouped": lambda: (
        nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), nn.SiLU()),
        torch.randn(2, 4, 9, 8),
    ),
    "transposed": lambda: (
        nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        torch.randn(2, 4, 7),
    ),
    "pools": lambda: (Pools(), torch.randn(1, 2, 8, 7)),
    "attention": lambda: (Attending(), torch.randint(0, 10, (2, 6))),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_eager_mode(name):
    torch._dynamo.reset()
    eager, x = MODELS[name]()
    mine = copy.deepcopy(eager)
    options = {"fallback": "error", "threads": 1}
    compiled = torch.compile(mine, backend=ts.torch.backend, options=options)
    grads = []
    for model in (compiled, eager):
        given = x.clone().requires_grad_(x.is_floating_point())
        (model(given) ** 2).sum().backward()
        grads.append([given.grad, *(p.grad for p in model.parameters())])
    for found, wanted in zip(*grads, strict=True):
        assert (found is None) == (wanted is None)
        if wanted is not None:
            assert wanted.abs().max() > 0
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_network_learns_as_in_eager_mode(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = __import__("train_digits")
    torch._dynamo.reset()
    images, classes = example.digits()
    batches = [(images[i : i + 16], classes[i : i + 16]) for i in range(0, 64, 16)]
    eager = example.network()
    options = {"fallback": "error", "threads": 1}
    mine = torch.compile(copy.deepcopy(eager), backend=ts.torch.backend, options=options)
    wanted = example.trained(eager, batches)
    assert example.trained(mine, batches) == pytest.approx(wanted, abs=1e-3)
    assert wanted[-1] != pytest.approx(wanted[0], abs=1e-3)
