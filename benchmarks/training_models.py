"""The networks of `benchmarks/training.py`, in PyTorch alone, each with a batch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional as F

Batch = tuple[torch.Tensor, torch.Tensor]


def conv(before: int, after: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    pad = size // 2
    same = nn.Conv2d(before, after, size, stride, pad, groups=groups, bias=False)
    return [same, nn.BatchNorm2d(after)]


class Residual(nn.Module):
    """Two convolutions beside a shortcut (He and others, 2015)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        first = conv(before, after, 3, stride)
        self.main = nn.Sequential(*first, nn.ReLU(), *conv(after, after, 3))
        is_same = before == after and stride == 1
        self.short = nn.Identity() if is_same else nn.Sequential(*conv(before, after, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.main(x) + self.short(x))


def resnet18() -> nn.Module:
    layers = [*conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for after, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(before, after, stride), Residual(after, after, 1)]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Inverted(nn.Module):
    """A depthwise convolution between two of 1x1 (Sandler and others, 2018)."""

    def __init__(self, before: int, after: int, stride: int, factor: int) -> None:
        super().__init__()
        inner = before * factor
        wide = [*conv(before, inner, 1), nn.ReLU6()] if factor > 1 else []
        depthwise = conv(inner, inner, 3, stride, inner)
        self.main = nn.Sequential(*wide, *depthwise, nn.ReLU6(), *conv(inner, after, 1))
        self.is_residual = stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.main(x) if self.is_residual else self.main(x)


def mobilenet_v2() -> nn.Module:
    layers: list[nn.Module] = [*conv(3, 32, 3, 2), nn.ReLU6()]
    before = 32
    rows = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)
    for factor, after, count, stride in (*rows, (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            layers.append(Inverted(before, after, stride if i == 0 else 1, factor))
            before = after
    layers += [*conv(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


def digits() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


class Block(nn.Module):
    """Causal attention and two layers, normalised before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, width))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))


class Gpt(nn.Module):
    """A decoder; it gives a row of scores for each token."""

    def __init__(self, words: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return (self.norm(x) @ self.words.weight.T).flatten(0, 1)


class Last(nn.Module):
    """A recurrent layer whose last step is classified."""

    def __init__(self, layer: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.layer, self.out = layer, nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.layer(x)[0][:, -1])


def _images(batch: int, size: int, classes: int, channels: int = 3) -> Batch:
    x = torch.randn(batch, channels, size, size)
    return x, torch.randint(0, classes, (batch,))


def _text() -> Batch:
    ids = torch.randint(0, 1000, (8, 65))
    return ids[:, :-1].contiguous(), ids[:, 1:].flatten()


def _steps() -> Batch:
    return torch.randn(16, 50, 64), torch.randint(0, 10, (16,))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch]]] = {
    "digits": (digits, lambda: _images(48, 8, 10, 1)),
    "resnet18": (resnet18, lambda: _images(8, 64, 1000)),
    "mobilenet_v2": (mobilenet_v2, lambda: _images(8, 64, 1000)),
    "gpt": (lambda: Gpt(1000, 128, 4, 4, 64), _text),
    "lstm": (lambda: Last(nn.LSTM(64, 128, 2, batch_first=True), 128, 10), _steps),
    "gru": (lambda: Last(nn.GRU(64, 128, 2, batch_first=True), 128, 10), _steps),
}
"""By name: makes the network, and a batch of inputs and classes."""


def in_turns(
    steps: Mapping[str, Callable[[], object]], rounds: int
) -> tuple[dict[str, list[float]], str, float]:
    """Milliseconds of each round of steps that take turns, a text of their minima and medians, and
    the least minimum of the others divided by that of "tilesmith".
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append((time.perf_counter() - start) * 1e3)
    shown = " | ".join(f"{min(t):.2f} ({statistics.median(t):.2f})" for t in times.values())
    ratio = min(min(t) for n, t in times.items() if n != "tilesmith") / min(times["tilesmith"])
    return times, shown, ratio
