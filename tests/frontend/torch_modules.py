"""Modules of PyTorch made of functions, and their comparison with eager mode."""

from __future__ import annotations

import pytest

import tilesmith as ts

torch = pytest.importorskip("torch")


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def check(function, *args):
    wanted = function(*(a.clone() for a in args))
    exe = ts.compile(Module(function), args, threads=1, fallback="error")
    torch.testing.assert_close(exe(*args), wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
