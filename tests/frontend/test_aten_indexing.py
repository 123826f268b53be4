"""ATen operators that take, write, sort and resample: compiled modules against eager mode."""

from __future__ import annotations

import pytest
from torch_modules import check

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def test_reads():
    x, w = torch.randn(4, 5, 6), torch.randn(9, 3)
    i, j, k = torch.tensor([[0, 8], [3, 3]]), torch.tensor([0, -1, 2]), torch.tensor([[1], [3]])

    def reads(x, w, i, j, k):
        return (
            F.embedding(i, w), x.index_select(1, j.abs()), x[:, j], x[k, j], x[k, :, j],
            x[..., j], x.gather(2, j.abs().expand(2, 3, 3)),
            torch.take_along_dim(w, i.abs()[:, :1], 0),
        )  # fmt: skip

    check(reads, x, w, i, j, k)


def test_writes():
    x, i, v = torch.zeros(4, 5), torch.tensor([0, 3, 0]), torch.randn(3, 5)
    j = torch.tensor([[0, 1, 2, 0, 1], [2, 2, 0, 3, 1], [3, 3, 3, 3, 3]])

    def writes(x, i, v, j):
        low = torch.full_like(x, 2.0)
        return (
            x.index_put((i,), v, accumulate=True), low.scatter_add(0, j, v),
            low.scatter(0, j[:1], 7.0), low.scatter_reduce(0, j, v, "mean"),
            low.scatter_reduce(0, j, v, "amax", include_self=False),
            low.index_put((x >= 0,), torch.tensor(3.0)),
            low.masked_scatter(j[:1] > 0, v), (x > 0).scatter_reduce(0, j, v > 0, "sum"),
        )  # fmt: skip

    check(writes, x, i, v, j)


def test_empty_indices_of_any_rank():
    x, v = torch.randn(5, 4), torch.randn(5)
    line, rows = torch.zeros(0, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64)

    def nothing(x, v, line, rows):
        return (
            x.gather(0, line), v.gather(0, rows), x.scatter(0, line, 1.0), x.scatter(0, line, x),
            x.scatter_add(1, line, x), x.scatter_reduce(0, line, x, "mean"), x.take(rows),
            (x > 0).scatter_add(0, line, x > 1),
        )  # fmt: skip

    check(nothing, x, v, line, rows)


@pytest.mark.parametrize("order", [2.0, 1.0])
def test_rows_of_a_table_become_shorter(order):
    table, ids = torch.randn(6, 4) * 2, torch.tensor([[1, 3], [1, 5]])

    def limited(table, ids):
        table = table.clone()
        return F.embedding(ids, table, max_norm=2.0, norm_type=order), table

    check(limited, table, ids)


def test_products_of_bools():
    x = torch.rand(3, 5) > 0.2
    check(lambda x: (x.prod(1, dtype=torch.bool), x.prod(0), (x * 3).prod(1, dtype=torch.bool)), x)


def test_powers_of_two_and_ranges_of_integers():
    x, i = torch.randn(3, 2), torch.tensor([[1], [-2], [0]])

    def numbers(x, i):
        whole = [torch.linspace(4.3, -3, n, dtype=torch.int64) for n in (0, 1, 2, 50)]
        return x.ldexp(i), i.ldexp(i), x.ldexp(x), *whole

    check(numbers, x, i)


def test_order():
    x = torch.randn(3, 7)
    check(lambda x: (*x.topk(3), *x.sort(0, descending=True), x.argsort(), (x > 0).sort(1)[0]), x)


def test_positions_that_depend_on_data():
    x = torch.tensor([[0.0, 2.0, 3.0], [4.0, 0.0, 0.0]])
    check(lambda x: (x.nonzero(), x[x > 2], x.masked_select(x > 0)), x)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)
    mask = None if causal else torch.randn(5, 6)

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=True)

    check(attention, q, k, v)


def test_resampling():
    x, grid = torch.randn(1, 2, 6, 9), torch.rand(1, 4, 5, 2) * 2 - 1

    def resampled(x, grid):
        return (
            F.interpolate(x, scale_factor=2), F.interpolate(x, (4, 5), mode="nearest-exact"),
            F.interpolate(x, (9, 4), mode="bilinear"),
            F.interpolate(x, scale_factor=1.7, mode="bilinear"),
            F.interpolate(x, (9, 4), mode="bicubic", align_corners=True),
            F.interpolate(x, (3, 4), mode="bilinear", antialias=True),
            F.grid_sample(x, grid, align_corners=False),
            F.grid_sample(x, grid, padding_mode="reflection", align_corners=True),
        )  # fmt: skip

    check(resampled, x, grid)
