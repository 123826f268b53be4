"""Operators of one's own in PyTorch: a tensor expression with a gradient, and a schedule.

    python examples/torch_operator.py

Both run in eager mode, under `torch.compile` with any backend, in `torch.export` and in
`ts.compile(module)`.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.expr import Expr


@ts.torch.register("example::snake_gradient")
def snake_gradient(g: te.Tensor, x: te.Tensor, alpha: float = 1.0) -> te.Tensor:
    """The gradient for `x`, of the gradient `g` of the result."""
    return te.compute(x.shape, lambda *i: g[i] * (1.0 + te.sin(2.0 * alpha * x[i])))


@ts.torch.register("example::snake", gradient=snake_gradient)
def snake(x: te.Tensor, alpha: float = 1.0) -> te.Tensor:
    """x + sin(`alpha` x)^2 / `alpha` (arXiv:2006.08195), scheduled by rule."""

    def element(*i: Expr) -> Expr:
        wave = te.sin(alpha * x[i])
        return x[i] + wave * wave / alpha

    return te.compute(x.shape, element)


@ts.torch.register("example::rows")
def rows(x: te.Tensor, w: te.Tensor) -> Any:
    """x w^T for `x` [n, k] and `w` [m, k], with a schedule of one's own: 4 rows at once, threads
    share blocks of rows.
    """
    k = te.reduce_axis(x.shape[1], "k")
    y = te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), "y")
    s = te.create_schedule(y)
    i, j = s[y].axis
    block, row = s[y].split(i, factor=4)
    s[y].reorder(block, j, k, row)
    s[y].unroll(row)
    s[y].parallel(block)
    return s, [x, w, y]


class Block(torch.nn.Module):
    """A linear layer by `rows`, and the activation `snake`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return snake(rows(x, self.weight.detach()), 2.0)


def main() -> None:
    """Run both operators in eager mode, compiled, and backwards; compare with PyTorch."""
    torch.manual_seed(0)
    block = Block().eval()
    compiled = torch.compile(block, backend=ts.torch.backend, dynamic=True)
    exe = ts.compile(block, (torch.randn(4, 16),), dynamic={"x": {0: (1, 64)}})
    for count in (4, 9):
        x = torch.randn(count, 16)
        h = x @ block.weight.detach().T
        wanted = h + torch.sin(2 * h) ** 2 / 2
        for found in (block(x), compiled(x), exe(x)):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    x = torch.randn(5, requires_grad=True)
    snake(x, 2.0).sum().backward()
    torch.testing.assert_close(x.grad, (1 + torch.sin(4 * x)).detach())
    print("eager mode, torch.compile, ts.compile and the gradient agree with PyTorch")


if __name__ == "__main__":
    main()
