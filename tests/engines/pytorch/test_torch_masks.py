"""Attention of which a mask leaves some rows no key: zeros, as in eager mode."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from roads import ROADS, Module, as_tensors, check, compiled  # noqa: E402

nn, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
roads = pytest.mark.parametrize("road", ROADS)


class Decoder(nn.Module):
    """Two layers; the mask of padding and the causal one are joined."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.project = nn.ModuleList(nn.Linear(16, 48) for _ in range(2))
        self.back = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, ids, mask):
        b, t = ids.shape
        allowed = mask[:, None, None, :] & torch.ones(t, t, dtype=torch.bool).tril()
        x = self.table(ids)
        for project, back in zip(self.project, self.back, strict=True):
            q, k, v = project(x).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
            x = x + back(y.transpose(1, 2).reshape(b, t, 16))
        return x


def padded():
    mask = torch.tensor([[True] * 6, [False] * 3 + [True] * 3])
    return torch.randint(0, 50, (2, 6)), mask


@roads
def test_left_padding_reaches_no_real_token(road, tmp_path):
    torch.manual_seed(0)
    module, args = Decoder().eval(), padded()
    check(road, module, args, tmp_path)
    with torch.no_grad():
        found = as_tensors(compiled(road, module, args, tmp_path)(*args))
    assert found.isfinite().all()


def test_gradients_of_left_padding(tmp_path):
    torch.manual_seed(0)
    module, (ids, mask) = Decoder(), padded()
    gradients = []
    for f in (module, compiled("backend", module, (ids, mask), tmp_path)):
        module.zero_grad()
        f(ids, mask).pow(2).mean().backward()
        gradients.append(module.table.weight.grad.clone())
    assert gradients[0].isfinite().all()
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)


def _masks():
    allowed = torch.rand(2, 1, 5, 7) > 0.4
    allowed[0, :, 2] = False
    yield "bool", allowed
    yield "nothing", torch.zeros(5, 7, dtype=torch.bool)
    yield "infinite", torch.where(allowed, 0.0, float("-inf"))
    yield "lowest", torch.where(allowed, 0.0, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("mask", [pytest.param(m, id=n) for n, m in _masks()])
@pytest.mark.parametrize("groups", [1, 2])
@roads
def test_rows_without_keys(road, groups, mask, tmp_path):
    def attend(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=groups > 1)

    q = torch.randn(2, 4, 5, 8)
    k, v = torch.randn(2, 2, 4 // groups, 7, 8).unbind()
    check(road, Module(attend), (q, k, v, mask), tmp_path)
