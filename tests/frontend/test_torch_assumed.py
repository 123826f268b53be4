"""Runs with sizes for which Python would have taken another branch than for the example."""

from __future__ import annotations

import io

import pytest
import torch

import tilesmith as ts
from tilesmith.support.errors import ModelError

GUARDED = {
    "parts": (lambda x, y: x.tensor_split(3, 0), (7, 10), (8, 9)),
    "an odd number": (lambda x, y: x * 2 if x.shape[0] % 2 == 1 else x + 1, (7, 11), (8, 10)),
    "a branch": (lambda x, y: x * 2 if x.shape[0] % 4 == 3 else x + 1, (7, 11), (8, 9)),
    "a branch on two sizes": (
        lambda x, y: x.sum() + y["y"][0].sum() if x.shape[0] != y["y"][0].shape[0] else x,
        (7, 12),
        (5,),
    ),
}


@pytest.mark.parametrize("road", ["module", "archive"])
@pytest.mark.parametrize("name", GUARDED)
def test_runs_that_would_take_another_branch_are_refused(name: str, road: str) -> None:
    function, right, wrong = GUARDED[name]

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, more: dict[str, list[torch.Tensor]]) -> torch.Tensor:
            return function(x, more)

    def given(rows: int) -> tuple[torch.Tensor, dict[str, list[torch.Tensor]]]:
        return torch.randn(rows, 2), {"y": [torch.randn(5, 2)]}

    size = torch.export.Dim.DYNAMIC
    dynamic = {"x": {0: size}, "more": {"y": [{0: size}]}}
    if road == "module":
        exe = ts.compile(Module(), given(7), dynamic=dynamic, threads=1)
    else:
        out = io.BytesIO()
        torch.export.save(torch.export.export(Module(), given(7), dynamic_shapes=dynamic), out)
        exe = ts.compile(out.getvalue(), threads=1)
    for rows in right:
        args = given(rows)
        torch.testing.assert_close(exe(*args), function(*args))
    for rows in wrong:
        with pytest.raises(ModelError, match="sizes or data of this run"):
            exe(*given(rows))
