"""Images of open sizes that archives enlarge by factors, against eager mode at several sizes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tilesmith as ts

SIZES = ((2, 6), (5, 13))
MODES = {
    "linear": (1, {"scale_factor": 2.0, "mode": "linear"}),
    "linear, a fraction": (1, {"scale_factor": 1.5, "mode": "linear"}),
    "linear, smaller": (1, {"scale_factor": 0.75, "mode": "linear"}),
    "linear, corners": (1, {"scale_factor": 2.0, "mode": "linear", "align_corners": True}),
    "nearest": (1, {"scale_factor": 2.5, "mode": "nearest"}),
    "nearest-exact": (1, {"scale_factor": 1.25, "mode": "nearest-exact"}),
    "bilinear": (2, {"scale_factor": (2.0, 1.5), "mode": "bilinear"}),
    "bicubic": (2, {"scale_factor": 2.0, "mode": "bicubic"}),
    "bilinear of new factors": (
        2,
        {"scale_factor": 1.5, "mode": "bilinear", "recompute_scale_factor": True},
    ),
    "nearest of images": (2, {"scale_factor": 2.0, "mode": "nearest"}),
    "trilinear": (3, {"scale_factor": 2.0, "mode": "trilinear"}),
}


class Enlarging(nn.Module):
    def __init__(self, arguments: dict) -> None:
        super().__init__()
        self.arguments = arguments

    def forward(self, x):
        return nn.functional.interpolate(x, **self.arguments) * 2


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", MODES)
def test_enlarged(name: str, tmp_path) -> None:
    rank, arguments = MODES[name]
    module = Enlarging(arguments)

    def image(batch: int, side: int) -> torch.Tensor:
        return torch.randn(batch, 3, *(side + a for a in range(rank)))

    open_axes = {0: torch.export.Dim.AUTO} | dict.fromkeys(
        range(2, 2 + rank), torch.export.Dim.AUTO
    )
    program = torch.export.export(module, (image(3, 7),), dynamic_shapes=(open_axes,))
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    for run in (ts.compile(str(path)), ts.compile(program)):
        for batch, side in SIZES:
            x = image(batch, side)
            (found,) = torch.utils._pytree.tree_leaves(run(x))
            torch.testing.assert_close(
                torch.as_tensor(found),
                module(x),
                rtol=1e-4,
                atol=1e-5,
                msg=f"{name} {batch} {side}",
            )
