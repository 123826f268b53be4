"""Local response normalization: each channel over a sum of squares of its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilesmith import te
from tilesmith.ir.expr import Expr

from .operator import Model, Operator, Way, normal


@dataclass(frozen=True)
class LocalResponse(Operator):
    """Across channels: x / (bias + alpha / size * sum of squares) ** beta."""

    name: ClassVar[str] = "local response normalization"
    about: ClassVar[str] = "AlexNet's first"
    batch: int = 4
    channels: int = 96
    edge: int = 55
    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 2.0

    def define(self) -> list[te.Tensor]:
        shape, half = (self.batch, self.channels, self.edge, self.edge), self.size // 2
        x = te.placeholder(shape, name="x")
        s = te.reduce_axis(self.size, "s")

        def squared(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
            inside = te.all(c >= half, c < self.channels + half)
            value = te.if_then_else(inside, x[n, c - half, i, j], 0.0)
            return value * value

        total = te.compute(
            shape, lambda n, c, i, j: te.sum(squared(n, c + s, i, j), axis=s), "total"
        )
        y = te.compute(
            shape,
            lambda n, c, i, j: (
                x[n, c, i, j]
                * te.power(self.bias + (self.alpha / self.size) * total[n, c, i, j], -self.beta)
            ),
            "y",
        )
        return [x, y]

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        return [normal(rng, self.batch, self.channels, self.edge, self.edge, scale=20.0)]

    def reference(self, *arrays: np.ndarray) -> list[np.ndarray]:
        x = arrays[0].astype(np.float64)
        half = self.size // 2
        wide = np.pad(x**2, ((0, 0), (half, half), (0, 0), (0, 0)))
        total = np.lib.stride_tricks.sliding_window_view(wide, self.size, 1).sum(-1)
        return [x / (self.bias + self.alpha / self.size * total) ** self.beta]

    def torch(self, *arrays: np.ndarray) -> list[Way]:
        import torch
        import torch.nn.functional as f

        x = torch.from_numpy(arrays[0])
        half, c = self.size // 2, self.channels

        def library(x: Any) -> Any:
            return f.local_response_norm(x, self.size, self.alpha, self.beta, self.bias)

        def shifted(x: Any) -> Any:
            wide = f.pad(x * x, (0, 0, 0, 0, half, half))
            total = wide[:, :c]
            for k in range(1, self.size):
                total = total + wide[:, k : k + c]
            return x * (self.bias + self.alpha / self.size * total) ** -self.beta

        return [Way("library", library, [x]), Way("shifted", shifted, [x])]

    def onnx(self, *arrays: np.ndarray) -> list[Way]:
        m = Model()
        x = m.input(arrays[0])
        y = m.add("LRN", x, size=self.size, alpha=self.alpha, beta=self.beta, bias=self.bias)
        return [m.way(y)]

    @property
    def flops(self) -> int:
        return 20 * self.batch * self.channels * self.edge**2
