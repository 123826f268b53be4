"""Values at the edges, where PyTorch's operators differ from ONNX's."""

from __future__ import annotations

import pytest
import torch

import tilesmith as ts
from tilesmith.support.errors import UnsupportedError


class Module(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_nan_has_no_sign(dtype):
    x = torch.tensor([float("nan"), -float("inf"), -0.0, 0.0, 1e-38, -2.5]).to(dtype)
    exe = ts.compile(Module(lambda x: (x.sign(), x.sgn())), (x,), threads=1)
    for found, wanted in zip(exe(x), (x.sign(), x.sgn()), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_bools_have_no_largest_place(name):
    x = torch.tensor([[True, False]])
    with pytest.raises(UnsupportedError, match="for numbers only, found bool"):
        ts.compile(Module(lambda x: getattr(x, name)()), (x,), threads=1)
    exe = ts.compile(Module(lambda x: x.max(1).indices), (x,), threads=1)
    assert exe(x).tolist() == [0]


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_buffers_are_refused():
    class Sparse(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("adjacent", torch.eye(3).to_sparse())

        def forward(self, x):
            return torch.sparse.mm(self.adjacent, x)

    with pytest.raises(UnsupportedError, match=r"adjacent has the layout torch\.sparse_coo"):
        ts.compile(Sparse(), (torch.ones(3, 2),), threads=1)


def test_copies_of_views_are_the_views():
    def views(x):
        first, second = torch.unbind_copy(x, 0)
        return (
            torch.squeeze_copy(first[None]), torch.squeeze_copy(x[:, :1], 1), torch.t_copy(second),
            torch.transpose_copy(x, 0, 2), torch.narrow_copy(x, 1, 1, 2),
            torch.view_copy(x, dtype=torch.int32),
        )  # fmt: skip

    x = torch.randn(2, 3, 4)
    exe = ts.compile(Module(views), (x,), threads=1)
    for found, wanted in zip(exe(x), views(x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
