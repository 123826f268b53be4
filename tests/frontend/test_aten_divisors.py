"""Divisions of integers by 0, which PyTorch refuses, are refused in a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilesmith as ts

torch = pytest.importorskip("torch")
i = torch.tensor

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "floor": lambda x, y: x // y,
    "floor of bytes": lambda x, y: x.to(torch.uint8) // y.to(torch.uint8),
    "truncated": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "remainder": lambda x, y: x % y,
    "remainder of a number": lambda x, y: 7 % y,
    "fmod": torch.fmod,
    "in place": lambda x, y: x.clone().floor_divide_(y),
    "along an axis": lambda x, y: x[:, None] // y,
    "computed": lambda x, y: x // (y * 2),
    "among more work": lambda x, y: ((x // y).float().softmax(0) * 2).sum(),
}


class Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, y: Any = None) -> Any:
        return self.function(x) if y is None else self.function(x, y)


@pytest.mark.parametrize("road", ["compile", "c", "open", "backend"])
@pytest.mark.parametrize("name", CASES)
def test_integers_are_not_divided_by_zero(name: str, road: str) -> None:
    function = CASES[name]
    x, good, bad = torch.arange(-9, 10), torch.full((19,), 3), torch.full((19,), 3)
    bad[13] = 0
    torch._dynamo.reset()
    if road == "backend":
        found = torch.compile(function, backend=ts.torch.backend)
    else:
        open_dims = {"x": {0: "n"}, "y": {0: "n"}} if road == "open" else None
        target = "c" if road == "c" else "native"
        module = Module(function)
        found = ts.compile(module, (x, good), dynamic=open_dims, target=target, threads=1)
    torch.testing.assert_close(torch.as_tensor(found(x, good)), function(x, good))
    with pytest.raises(RuntimeError):
        function(x, bad)
    with pytest.raises((ts.ModelError, RuntimeError)) as refused:
        found(x, bad)
    if road != "backend":
        wanted = "expected divisors other than 0, found 0 at position 13 "
        assert wanted in str(refused.value)


def test_a_number_is_no_check_and_zero_is_refused() -> None:
    x = torch.arange(-9, 10)
    exe = ts.compile(Module(lambda x: x // 4), (x,), threads=1)
    torch.testing.assert_close(torch.as_tensor(exe(x)), x // 4)
    assert "divisor" not in str(exe.program)
    with pytest.raises(ts.ModelError, match="divisors other than 0"):
        ts.compile(Module(lambda x: x % 0), (x,), threads=1)


def test_a_branch_that_is_not_taken_divides_by_what_it_likes() -> None:
    def choose(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x // 0, lambda x: x + 1, (x,))

    exe = ts.compile(Module(choose), (-torch.ones(3, dtype=torch.int64),), threads=1)
    assert exe(-torch.ones(3, dtype=torch.int64)).tolist() == [0, 0, 0]
    with pytest.raises(ts.ModelError, match="divisors other than 0"):
        exe(torch.ones(3, dtype=torch.int64))


@pytest.mark.parametrize("function", [torch.linalg.inv, lambda a: torch.linalg.solve(a, a[..., 0])])
@pytest.mark.parametrize("rows", [1, 4])
def test_singular_matrices_are_refused(rows: int, function: Callable[[Any], Any]) -> None:
    good = torch.stack([torch.eye(rows) * 2, torch.eye(rows).flip(0)])
    exe = ts.compile(Module(function), (good,), threads=1)
    torch.testing.assert_close(torch.as_tensor(exe(good)), function(good))
    bad = torch.stack([torch.eye(rows), torch.zeros(rows, rows)])
    with pytest.raises(RuntimeError, match="singular"):
        function(bad)
    with pytest.raises(ts.ModelError, match="expected invertible matrices, found a singular one"):
        exe(bad)
