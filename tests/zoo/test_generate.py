"""`generate()` of transformers: greedy tokens are those of eager mode, with each kind of cache."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

import tilesmith as ts

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

OPTIONS = {"threads": 1, "fallback": "error", "opt_level": 0}
NEW = 6


def decoder() -> Any:
    """A small GPT-2 whose tokens differ."""
    zoo = import_module("zoo")  # of the benchmarks
    with zoo.without_compiled_torchvision_ops():
        import transformers

        config = transformers.GPT2Config(
            vocab_size=97, n_positions=64, n_embd=32, n_layer=1, n_head=4, bos_token_id=1,
            eos_token_id=None, pad_token_id=0, tie_word_embeddings=False,
        )  # fmt: skip
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(8 if p.ndim > 1 else 1)
    return model


def prompts_and_tokens(model):
    prompts = [torch.randint(2, 97, (1, n)) for n in (5, 7, 11)]
    wanted = [model.generate(p, max_new_tokens=NEW, do_sample=False) for p in prompts]
    assert len(set(wanted[0][0, 5:].tolist())) > 2
    return zip(prompts, wanted, strict=True)


def test_generate_needs_no_graphs_for_other_lengths():
    model = decoder()
    texts = prompts_and_tokens(model)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return ts.torch.backend(graph, inputs, options=OPTIONS)

    torch._dynamo.reset()
    model.forward = torch.compile(model.forward, backend=backend, dynamic=True)
    counts = []
    for prompt, tokens in texts:
        found = model.generate(prompt, max_new_tokens=NEW, do_sample=False)
        assert torch.equal(found, tokens)
        counts.append(len(graphs))
    assert counts[0] <= 3
    assert counts[1:] == [counts[0]] * 2


class Step(torch.nn.Module):
    def __init__(self, model, cache):
        super().__init__()
        self.model, self.cache = model, cache

    def forward(self, ids, at):
        out = self.model(
            input_ids=ids, past_key_values=self.cache, position_ids=at[None], cache_position=at
        )
        return out.logits[:, -1]


def test_one_program_writes_a_static_cache():
    model = decoder()
    from transformers import StaticCache

    texts = prompts_and_tokens(model)
    cache: Any = StaticCache(config=model.config, max_cache_len=16)
    cache.early_initialization(1, 4, 8, torch.float32, torch.device("cpu"))
    count = torch.export.Dim("count", min=1, max=16)
    room = {"ids": {1: count}, "at": {0: count}}
    options = ts.Options(threads=1, opt_level=0)
    with torch.no_grad():
        exe = ts.compile(
            Step(model, cache),
            (torch.ones(1, 5, dtype=torch.int64), torch.arange(5)),
            dynamic=room,
            options=options,
        )
    for prompt, tokens in texts:
        for layer in cache.layers:
            for tensor in (layer.keys, layer.values, layer.cumulative_length):
                tensor.zero_()
        found, ids, at = [prompt], prompt, torch.arange(prompt.shape[1])
        for _ in range(NEW):
            ids = exe(ids, at).argmax(-1, keepdim=True)
            found.append(ids)
            at = at[-1:] + 1
        assert torch.equal(torch.cat(found, 1), tokens)
