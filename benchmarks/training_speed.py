#!/usr/bin/env python3
"""Training steps per second of `ts.Trainer`, eager PyTorch and PyTorch's compiler, in turns:
`python -m benchmarks.training_speed [NAMES]`.

A step is the forward pass, the backward pass and SGD with momentum, on 2 threads by default.  The
networks are those of `training_models.py` and, of published sizes, BERT-base and GPT-2 small at
batch 8.  `--precision bf16` rounds operands of products: by `precision="bf16"` here, by autocast
in PyTorch.  The first losses must agree within 1% (bf16: 5%).  Prints minima in milliseconds and
the ratio of the better peer's to ours; exit status 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import copy
import math
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

MEAN, LEAST = 1.3, 1.0
"""Bars: the better peer's time over ours, as a geometric mean and for each network."""
RATE, MOMENTUM = 1e-3, 0.9
AGREES = {"f32": 0.01, "bf16": 0.05}

Step = Callable[[], float]
"""Makes a step; gives the loss before it."""


def networks() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """By name: makes the network, and a batch of inputs and classes."""
    import torch
    from torch import nn

    from training_losses import resnet20
    from training_models import MODELS, Gpt

    def text(words: int, length: int) -> Any:
        ids = torch.randint(0, words, (8, length + 1))
        return ids[:, :-1].contiguous(), ids[:, 1:].flatten()

    def first(x: Any) -> Any:
        return torch.tensor(x[0]), torch.tensor(x[1])

    class Bert(nn.Module):
        """Encoder layers of BERT-base over embeddings, and a classifier of each token."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(30522, 768), nn.Embedding(128, 768)
            layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "gelu", batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
            self.out = nn.Linear(768, 768)

        def forward(self, ids: Any) -> Any:
            x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
            return (self.out(self.layers(x)) @ self.words.weight.T).flatten(0, 1)

    return {
        **MODELS,
        "resnet20": (lambda: resnet20(1).module, lambda: first(resnet20(1).batches[0])),
        "bert_base": (Bert, lambda: text(30522, 128)),
        "gpt2_small": (lambda: Gpt(50257, 768, 12, 12, 128), lambda: text(50257, 128)),
    }


def ours(module: Any, batch: Any, threads: int, precision: str) -> Step:
    import tilesmith as ts
    from tilesmith.training import SGD

    x, y = batch
    trainer = ts.Trainer(
        copy.deepcopy(module), optimizer=SGD(RATE, momentum=MOMENTUM), threads=threads,
        precision=precision, example_inputs=(x,),
    )  # fmt: skip
    arrays = [(x.numpy(), y.numpy())]

    def step() -> float:
        (epoch,) = trainer.fit(arrays, epochs=trainer.steps + 1)
        return epoch.measures["loss"]

    return step


def of_torch(module: Any, batch: Any, precision: str, backend: str | None) -> Step:
    import torch

    from training import _with_own_code

    mine = copy.deepcopy(module)
    call = mine if backend is None else torch.compile(_with_own_code(mine), backend=backend)
    optimizer = torch.optim.SGD(mine.parameters(), RATE, MOMENTUM)
    x, y = batch

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(call(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def measured(name: str, threads: int, rounds: int, precision: str, has_compiler: bool) -> float:
    """Prints a network's row; the ratio of the better peer's time to ours."""
    import torch

    torch.manual_seed(0)
    torch._dynamo.reset()
    make, draw = networks()[name]
    module, batch = make().train(), draw()
    steps = {"tilesmith": ours(module, batch, threads, precision)}
    steps["eager"] = of_torch(module, batch, precision, None)
    if has_compiler:
        steps["inductor"] = of_torch(module, batch, precision, "inductor")
    losses = {b: step() for b, step in steps.items()}
    for b, loss in losses.items():
        if abs(loss - losses["eager"]) > AGREES[precision] * abs(losses["eager"]):
            raise SystemExit(f"{name}: {b} begins with the loss {loss}, not {losses['eager']}")
    from training_models import in_turns

    for step in steps.values():
        step()
    times, shown, ratio = in_turns(steps, rounds)
    print(f"| {name} | {shown} | {1e3 / min(times['tilesmith']):.1f} | {ratio:.2f} |", flush=True)
    return ratio


def main() -> int:
    import torch

    names = networks()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"default: {' '.join(names)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    has_compiler = any(map(shutil.which, ("c++", "g++", "clang++", "cl")))
    columns = ["tilesmith", "eager", *(["inductor"] if has_compiler else [])]
    print(f"| network | {' | '.join(f'{c}, ms' for c in columns)} | steps/s | ratio |")
    print("| --- |" + " --- |" * (len(columns) + 2))
    ratios = [
        measured(n, given.threads, given.rounds, given.precision, has_compiler)
        for n in given.names or names
    ]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"\nmean {mean:.2f} (bar {MEAN}), least {min(ratios):.2f} (bar {LEAST})")
    return int(mean < MEAN or min(ratios) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
