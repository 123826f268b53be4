"""Indices that PyTorch refuses are refused: ATen's operators know none from the end but few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilesmith as ts

torch = pytest.importorskip("torch")
F = torch.nn.functional
i = torch.tensor
TABLE = torch.arange(12.0).view(4, 3)

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "embedding": lambda x, j: F.embedding(j, x),
    "gather": lambda x, j: x.gather(0, j[:, None]),
    "index_select": lambda x, j: x.index_select(0, j),
    "scatter": lambda x, j: x.scatter(0, j[:, None], torch.ones(2, 1)),
    "scatter_add": lambda x, j: x.scatter_add(0, j[:, None], torch.ones(2, 1)),
    "scatter_reduce": lambda x, j: x.scatter_reduce(0, j[:, None], torch.ones(2, 1), "amax"),
    "index_add": lambda x, j: x.index_add(0, j, torch.ones(2, 3), alpha=2),
    "index_copy": lambda x, j: x.index_copy(0, j, torch.ones(2, 3)),
    "cross_entropy": lambda x, j: F.cross_entropy(x[:2], j),
    "embedding_bag": lambda x, j: F.embedding_bag(j, x, i([0])),
}


class Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@pytest.mark.parametrize("road", ["compile", "backend"])
@pytest.mark.parametrize("name", CASES)
def test_indices_from_the_end_are_refused(name: str, road: str) -> None:
    function, good = CASES[name], (TABLE, i([1, 2]))
    torch._dynamo.reset()
    found = (
        ts.compile(Module(function), good, threads=1)
        if road == "compile"
        else torch.compile(function, backend=ts.torch.backend)
    )
    torch.testing.assert_close(torch.as_tensor(found(*good)), function(*good))
    for bad in (i([-1, 2]), i([1, 7])):
        with pytest.raises((IndexError, RuntimeError)):
            function(TABLE, bad)
        with pytest.raises((ts.ModelError, IndexError, RuntimeError)) as refused:
            found(TABLE, bad)
        if isinstance(refused.value, ts.ModelError) and "expected indices" in str(refused.value):
            assert f"found {int(bad.min() if bad.min() < 0 else bad.max())}" in str(refused.value)


@pytest.mark.parametrize("index", [-1, -4, 3])
def test_indices_from_the_end_are_allowed_where_pytorch_allows_them(index: int) -> None:
    for function in (
        lambda x, j: x[j],
        lambda x, j: x.take(j),
        lambda x, j: x.put(j, j * 1.0),
        lambda x, j: x.index_fill(0, j, 7.0),
        lambda x, j: x.take_along_dim(j[:, None], 0),
    ):
        args = TABLE, i([index, 2])
        found = ts.compile(Module(function), args, threads=1)(*args)
        torch.testing.assert_close(torch.as_tensor(found), function(*args))


def test_a_source_that_is_too_short_is_refused() -> None:
    args = torch.zeros(4), i([True, False, True, False]), i([5.0, 6.0])
    found = ts.compile(Module(lambda x, m, s: x.masked_scatter(m, s)), args, threads=1)
    assert torch.as_tensor(found(*args)).tolist() == [5, 0, 6, 0]
    with pytest.raises(ts.ModelError, match="found 2"):
        found(args[0], i([True, True, True, False]), args[2])
