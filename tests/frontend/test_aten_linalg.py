"""ATen operators on the values of whole matrices: compiled modules against eager mode."""

from __future__ import annotations

import pytest
from torch_modules import check

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def matrices(*shape: int) -> torch.Tensor:
    """Matrices that are far from singular, whose largest elements are off the diagonal."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(shape[-1], generator=generator)
    return 4 * torch.eye(shape[-1])[order] + torch.rand(*shape, generator=generator) - 0.5


def test_inverses():
    def inverses(x, y):
        return torch.linalg.inv(x), y.inverse(), torch.inverse(x.double())

    check(inverses, matrices(2, 3, 4, 4), matrices(1, 1))


def test_systems_of_equations():
    def solved(a, b, vector, vectors, row):
        return (
            torch.linalg.solve(a, b),
            torch.linalg.solve(a[0], vector),
            torch.linalg.solve(a, vectors),
            torch.linalg.solve(a, row, left=False),
        )

    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(1))
    vectors = x[0].clone(), x, x[:, None].clone()
    check(solved, matrices(2, 3, 3), torch.ones(5, 1, 3, 2), *vectors)
