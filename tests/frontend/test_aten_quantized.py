"""Quantised graphs of PyTorch, and those of autocast: against eager mode, on integers."""

from __future__ import annotations

import pytest
from torch_modules import check

import tilesmith as ts
from tilesmith.driver.passes import optimise
from tilesmith.driver.session import Session
from tilesmith.frontend.load import load
from tilesmith.graph.control import nodes_in
from tilesmith.graph.nodes import Fused
from tilesmith.ir.dtypes import i32
from tilesmith.ops.conv import Conv
from tilesmith.ops.matmul import MatMul

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")  # registers the operators
nn = torch.nn
F = nn.functional
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


class Quantized(nn.Module):
    """A convolution and a linear layer as PyTorch's quantisation after training leaves them.

    limits: of the activations' integers.
    is_dynamic: whether the range of the linear layer's input is found by each run.
    """

    def __init__(self, limits: tuple[int, int], is_dynamic: bool) -> None:
        super().__init__()
        self.limits, self.is_dynamic = limits, is_dynamic
        self.register_buffer("conv", torch.randint(-128, 128, (16, 8, 1, 1), dtype=torch.int8))
        self.register_buffer("linear", torch.randint(-128, 128, (10, 16), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(16) * 0.01 + 0.01)
        self.register_buffer("zeros", torch.zeros(16, dtype=torch.int64))
        self.bias = nn.Parameter(torch.randn(16))

    def forward(self, x):
        ops = torch.ops.quantized_decomposed
        byte = (-128, 127, torch.int8)
        given = (0.02, 30, *self.limits, torch.uint8)
        x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *given), *given)
        w = ops.dequantize_per_channel(self.conv, self.scales, self.zeros, 0, *byte)
        y = torch.relu(F.conv2d(x, w, self.bias)).mean((2, 3))
        if self.is_dynamic:
            found = ops.choose_qparams(y, 0, 255, 1e-6, torch.uint8)
        else:
            found = (0.05, 0)
        given = (*found, 0, 255, torch.uint8)
        y = ops.dequantize_per_tensor(ops.quantize_per_tensor(y, *given), *given)
        w = ops.dequantize_per_tensor(self.linear, 0.01, 0, *byte)
        return F.linear(y, w)


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("limits", [(0, 255), (0, 127)])
def test_products_of_quantised_graphs_are_of_integers(limits: tuple[int, int], is_dynamic: bool):
    module, x = Quantized(limits, is_dynamic).eval(), torch.randn(2, 8, 5, 5)
    program = torch.export.export(module, (x,), strict=False)
    graph = optimise(load(program), Session.of(ts.Options()))
    bodies = [n.op.body.nodes if isinstance(n.op, Fused) else (n,) for _, n in nodes_in(graph)]
    products = [n.op for body in bodies for n in body if isinstance(n.op, (Conv, MatMul))]
    assert [p.to for p in products] == [i32, i32]
    found = ts.compile(program, threads=1, fallback="error")(x)
    torch.testing.assert_close(found, module(x), rtol=1e-4, atol=1e-4)


def test_channels_are_quantised_along_an_axis():
    def quantized(x, scales, zeros):
        ops = torch.ops.quantized_decomposed
        given = (scales, zeros, 1, -100, 90, torch.int8)
        q = ops.quantize_per_channel(x, *given)
        return (
            q,
            ops.dequantize_per_channel(q, *given),
            *ops.choose_qparams_symmetric(x, -127, 127, 1e-6, torch.int8),
        )

    x = torch.randn(3, 4, 5)
    check(quantized, x, torch.rand(4) * 0.05 + 0.01, torch.tensor([0, 5, -9, 60]))


def test_products_of_bytes():
    a, b = (torch.randint(-128, 128, s, dtype=torch.int8) for s in ((33, 16), (16, 8)))
    check(torch._int_mm, a, b)


def test_autocast():
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.out = nn.Conv2d(3, 8, 3), nn.LayerNorm(8), nn.Linear(8, 4)
            self.batch, self.group = nn.BatchNorm2d(8), nn.GroupNorm(2, 8)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                y = self.norm(self.group(torch.relu(self.batch(self.conv(x)))).mean((2, 3)))
                return self.out(y), y.softmax(-1)

    module, x = Cast().eval(), torch.randn(2, 3, 6, 6)
    found, wanted = ts.compile(module, (x,), threads=1, fallback="error")(x), module(x)
    assert [f.dtype for f in found] == [w.dtype for w in wanted]
    assert found[0].dtype is torch.bfloat16
    torch.testing.assert_close(found, wanted, rtol=0.03, atol=0.03)
