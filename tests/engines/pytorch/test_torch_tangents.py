"""Forward-mode derivatives: a tangent is computed by PyTorch, or refused; none is dropped."""

from __future__ import annotations

import pytest

import tilesmith as ts

torch = pytest.importorskip("torch")
forward_ad = torch.autograd.forward_ad
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def compiled(module):
    return torch.compile(module, backend=ts.torch.backend)


@torch.no_grad()
def test_compiled_code_leaves_tangents_to_pytorch():
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
    made, x = compiled(module), torch.randn(2, 4)
    for _ in range(2):  # the first calls, and the quick ones
        assert torch.allclose(made(x), module(x), atol=1e-6)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.randn(2, 4))
        for _ in range(2):
            found, wanted = (forward_ad.unpack_dual(f(dual)) for f in (made, module))
            assert torch.allclose(found.primal, wanted.primal, atol=1e-6)
            assert torch.allclose(found.tangent, wanted.tangent, atol=1e-6)
        assert forward_ad.unpack_dual(made(x)).tangent is None
    assert torch.allclose(made(x), module(x), atol=1e-6)


def test_code_that_records_gradients_says_that_it_has_no_tangents():
    made, x = compiled(torch.nn.Linear(4, 3)), torch.randn(2, 4)
    made(x)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward mode AD"):
        made(forward_ad.make_dual(x, torch.ones(2, 4)))
