"""A decoder with a cache of keys and values, compiled once for a token at a time."""

from __future__ import annotations

import copy

import pytest

import tilesmith as ts

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

FAST = ts.Options(opt_level=0)
"""Compiles in less time: the answers count here."""

ROOM, WORDS, WIDTH, HEADS = 24, 50, 32, 4


class Decoder(nn.Module):
    """One layer of attention; its cache is a pair of buffers that each call writes."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(ROOM, WIDTH)
        self.inner, self.outer = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WORDS)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, HEADS, ROOM, WIDTH // HEADS))

    def forward(self, tokens, at):
        x = self.words(tokens) + self.places(at)
        split = self.inner(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = split.unbind(0)
        self.keys[:, :, at] = key
        self.values[:, :, at] = value
        seen = torch.arange(ROOM)[None] <= at[:, None]
        x = x + nn.functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=seen
        ).transpose(1, 2).flatten(2)
        return self.outer(x[:, -1])


def generated(model, prompt, count):
    """The likeliest tokens after a prompt, one after the other."""
    tokens = prompt[0].tolist()
    for at in range(len(tokens) + count - 1):
        logits = model(torch.tensor([[tokens[at]]]), torch.tensor([at]))
        if at + 1 == len(tokens):
            tokens.append(int(logits.argmax()))
    return tokens[-count:]


def test_one_program_generates_what_eager_does():
    torch.manual_seed(0)
    model = Decoder().eval()
    eager = copy.deepcopy(model)
    example = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    exe = ts.compile(model, example, threads=1, options=FAST)
    for length in (7, 1):
        prompt = torch.randint(WORDS, (1, length))
        wanted = generated(eager, prompt, 12)
        assert len(set(wanted)) > 2
        assert generated(exe, prompt, 12) == wanted
    torch.testing.assert_close(model.keys, eager.keys, rtol=1e-5, atol=1e-5)


class Store:
    """A cache that is no module, as those of transformers: PyTorch knows nothing of its tensors."""

    def __init__(self):
        self.rows, self.count = torch.zeros(6, 3), torch.zeros((), dtype=torch.long)


class Storing(nn.Module):
    def __init__(self, is_registered):
        super().__init__()
        self.store = Store()
        if is_registered:
            self.register_buffer("rows", self.store.rows)

    def forward(self, x):
        at = self.store.count + torch.arange(x.shape[0])
        self.store.count.add_(x.shape[0])
        self.store.rows.index_copy_(0, at, x)
        return self.store.rows * 2


@pytest.mark.parametrize("is_registered", [False, True])
def test_tensors_of_objects_are_written(is_registered):
    module = Storing(is_registered)
    exe = ts.compile(module, (torch.ones(2, 3),), dynamic={"x": {0: (1, 4)}}, options=FAST)
    store = module.store
    store.rows.zero_()
    store.count.zero_()
    assert exe(torch.ones(2, 3)).sum() == 12
    assert exe(torch.full((1, 3), 5.0)).sum() == 42
    assert store.count == 3
    assert store.rows[:, 0].tolist() == [1, 1, 5, 0, 0, 0]
