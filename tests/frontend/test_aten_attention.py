"""Attention of ATen programs: how exact it is for 16-bit floats."""

from __future__ import annotations

import pytest

import tilesmith as ts

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Attention(torch.nn.Module):
    def forward(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_scores_of_16_bits_are_not_rounded(dtype):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 8, 32) * by for by in (6.0, 6.0, 1.0))
    given = [t.to(dtype) for t in (q, k, v, torch.randn(8, 8) * 4)]
    right = F.scaled_dot_product_attention(*(t.double() for t in given[:3]), given[3].double())
    found = ts.compile(Attention().eval(), tuple(given), threads=1)(*given)
    # scores reach 100: rounded to this type, they would be off by many units of a weight
    assert (found.double() - right).abs().max() < 2 * torch.finfo(dtype).eps
