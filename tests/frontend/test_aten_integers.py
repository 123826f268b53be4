"""Integer arithmetic of PyTorch: all pairs of bytes, and the limits of wider types."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilesmith as ts

torch = pytest.importorskip("torch")
nn = torch.nn

DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floor": lambda a, b: a // b,
    "truncated": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
}
OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a, b: -a,
    "abs": lambda a, b: abs(a),
    "shift left": lambda a, b: a << b,
    "shift right": lambda a, b: a >> b,
    "power": lambda a, b: a ** (b & 31),
    "least": torch.minimum,
    "bits": lambda a, b: (a & b) ^ (a | b),
    "less": lambda a, b: a < b,
}


class All(nn.Module):
    """Every function of a table on the same operands."""

    def __init__(self, functions: dict[str, Callable[[Any, Any], Any]]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, a: Any, b: Any) -> tuple[Any, ...]:
        return tuple(f(a, b) for f in self.functions.values())


def pairs(dtype: Any) -> tuple[Any, Any]:
    limits = torch.iinfo(dtype)
    least, most = limits.min, limits.max
    near = (least, least + 1, -3, -2, -1, 0, 1, 2, 7, 31, 32, 63, 64, most // 2, most - 1, most)
    values = range(least, most + 1) if limits.bits == 8 else near
    found = torch.tensor(list(itertools.product(values, values)), dtype=dtype)
    return found[:, 0].contiguous(), found[:, 1].contiguous()


@pytest.mark.parametrize("target", ("native", "c"))
@pytest.mark.parametrize("dtype", ("int8", "uint8", "int16", "int32", "int64"))
def test_as_eager_mode(dtype: str, target: str) -> None:
    a, b = pairs(getattr(torch, dtype))
    traps = (b == 0) | ((b == -1) & (a == torch.iinfo(a.dtype).min))
    for functions, x, y in ((OTHERS, a, b), (DIVISIONS, a[~traps], b[~traps])):
        with torch.no_grad():
            wanted = All(functions)(x, y)
            found = ts.compile(All(functions), (x, y), threads=1, target=target)(x, y)
        for name, want, got in zip(functions, wanted, found, strict=True):
            np.testing.assert_array_equal(np.asarray(got), want.numpy(), err_msg=name)
