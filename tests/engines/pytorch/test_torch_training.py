"""Training through `torch.compile(backend="tilesmith")`: gradients are those of eager mode."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

import tilesmith as ts

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
EXAMPLES = Path(__file__).parents[3] / "examples"


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


class Grouped(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 6, 3, stride=2)
        self.norm, self.plain = nn.GroupNorm(4, 8), nn.GroupNorm(2, 6, affine=False)

    def forward(self, x):
        return self.plain(self.second(torch.relu(self.norm(self.first(x)))))


class Transformer(nn.Module):
    """Learned positions, padding, two layers, tied weights."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 16, padding_idx=0), nn.Embedding(8, 16)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=first)
            for first in (True, False)
        )

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return x @ self.words.weight.T


MODELS = {
    "grouped norms": lambda: (Grouped(), torch.randn(2, 3, 8, 7)),
    "transformer": lambda: (Transformer(), torch.randint(0, 11, (3, 6))),
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


def _normal(x, axes):
    mean = x.mean(axes, keepdim=True)
    return mean, (x.var(axes, correction=0, keepdim=True) + 1e-5).rsqrt()


def _layer_norm(weight, mask):
    x = torch.randn(2, 3, 4, 5)
    statistics = _normal(x, (2, 3))
    others = (weight, None if weight is None else torch.randn(4, 5), list(mask))
    return (torch.randn_like(x), x, [4, 5], *statistics, *others)


def _group_norm(weight, mask):
    x = torch.randn(2, 6, 3, 2)
    statistics = [v.reshape(2, 3) for v in _normal(x.reshape(2, 3, -1), (2,))]
    return (torch.randn_like(x), x, *statistics, weight, 2, 6, 6, 3, list(mask))


def _rows(padding, is_scaled):
    return torch.randn(4, 5, 3), torch.randint(0, 7, (4, 5)), 7, padding, is_scaled


BACKWARD = {
    "layer norm": ("native_layer_norm_backward", _layer_norm, (torch.randn(4, 5), (1, 1, 1))),
    "layer norm, plain": ("native_layer_norm_backward", _layer_norm, (None, (1, 0, 0))),
    "layer norm, bias": ("native_layer_norm_backward", _layer_norm, (torch.randn(4, 5), (0, 0, 1))),
    "group norm": ("native_group_norm_backward", _group_norm, (torch.randn(6), (1, 1, 1))),
    "group norm, plain": ("native_group_norm_backward", _group_norm, (None, (1, 0, 0))),
    "embedding": ("embedding_dense_backward", _rows, (-1, False)),
    "embedding, padding": ("embedding_dense_backward", _rows, (3, False)),
    "embedding, frequency": ("embedding_dense_backward", _rows, (-1, True)),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_operators_of_backward_graphs(name):
    operator, make, given = BACKWARD[name]
    args = make(*given)
    places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]

    class Called(nn.Module):
        def forward(self, *tensors):
            whole = list(args)
            for i, t in zip(places, tensors, strict=True):
                whole[i] = t
            found = getattr(torch.ops.aten, operator)(*whole)
            return [f for f in (found if isinstance(found, tuple) else (found,)) if f is not None]

    tensors = tuple(args[i] for i in places)
    exe = ts.compile(Called(), tensors, threads=1, fallback="error")
    for found, wanted in zip(exe(*tensors), Called()(*tensors), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


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


def test_autocast_in_training():
    """Statistics of batch norm are saved for the backward graph in the type that PyTorch traced."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
    model.append(nn.Linear(8 * 16, 4))
    eager, x = copy.deepcopy(model), torch.randn(4, 3, 6, 6)
    options = {"threads": 1, "fallback": "error"}
    compiled = torch.compile(model, backend=ts.torch.backend, options=options)
    for f in (compiled, eager):
        with torch.autocast("cpu", torch.bfloat16):
            loss = f(x).float().square().mean()
        loss.backward()
    for found, wanted in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, rtol=0.05, atol=0.02)
    for found, wanted in zip(model.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0.01, atol=0.01)


def test_the_gradient_of_an_open_table_that_only_its_size_describes():
    """The backward pass gets the number of rows as a tensor: no tensor that it reads has them."""
    rows = torch.tensor([2, 6, 5, 6])

    def looked_up(table):
        return nn.functional.embedding(rows, table) * 2

    compiled = torch.compile(looked_up, backend="tilesmith", dynamic=True)
    for count in (8, 12):
        tables = [torch.ones(count, 2, requires_grad=True) for _ in range(2)]
        for function, table in zip((looked_up, compiled), tables, strict=True):
            function(table).sum().backward()
        assert torch.equal(tables[0].grad, tables[1].grad)


def test_results_that_are_not_row_major_can_be_written():
    """A graph break leaves the write to eager mode: the result must be no view."""

    def masked(x, mask):
        y = x.clone()
        y[mask] = 1
        return y

    compiled = torch.compile(masked, backend="tilesmith")
    columns = [torch.randn(6, 5).t().requires_grad_() for _ in range(2)]
    with torch.no_grad():
        columns[1].copy_(columns[0])
    mask = torch.tensor(False)
    results = [f(x, mask) for f, x in zip((masked, compiled), columns, strict=True)]
    assert torch.equal(*results) and results[0].stride() == results[1].stride()
    for result in results:
        (result * 3).sum().backward()
    assert torch.equal(columns[0].grad, columns[1].grad)
