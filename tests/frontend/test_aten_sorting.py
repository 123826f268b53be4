"""ATen operators that sort, find and write: compiled modules against eager mode."""

from __future__ import annotations

import re

import pytest
from torch_modules import check

import tilesmith as ts

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

NAN = float("nan")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def test_ranks_and_running_extremes():
    x = torch.randn(3, 5, 4)
    x[1, 2, 3] = NAN
    i = torch.tensor([[3, 1, 3, 2], [0, 0, 5, 5]])

    def ranks(x, i):
        return (
            x.kthvalue(2, 1), x.median(1, keepdim=True)[0], x.nanmedian(-1)[0], x.median(),
            i.median(0)[0], x.cummax(1), i.cummin(1), (i > 2).cummax(0),
        )  # fmt: skip

    check(ranks, x, i)


@pytest.mark.parametrize("right", [False, True])
def test_places_among_sorted_elements(right: bool):
    keys = torch.tensor([0.0, 1.0, 1.0, 4.0])
    rows = torch.stack([keys, keys - 2])
    x = torch.tensor([[1.0, 4.0, NAN], [-3.0, 5.0, 0.5]])

    def places(keys, rows, x):
        return (
            torch.searchsorted(keys, x, right=right),
            torch.searchsorted(rows, x, right=right, out_int32=True),
            torch.bucketize(x, keys, right=right),
        )

    check(places, keys, rows, x)


@pytest.mark.parametrize("keys_type", [torch.float16, torch.bfloat16, torch.int64, torch.uint8])
@pytest.mark.parametrize("type", [torch.float16, torch.float64, torch.int8])
def test_places_among_elements_of_another_type(keys_type, type):
    keys = torch.tensor([0, 1, 1, 3, 100], dtype=keys_type)
    x = torch.tensor([0, 1, 1.3, 100, 101, 7]).to(type)

    def places(keys, x):
        return torch.searchsorted(keys, x), torch.bucketize(x, keys, right=True), (
            torch.searchsorted(keys, 0.5), torch.bucketize(2, keys),
        )  # fmt: skip

    check(places, keys, x)


def test_elements_that_differ():
    x = torch.tensor([[3, 1, 1, 3], [2, 1, 1, 2], [3, 1, 1, 3]])

    def unique(x):
        return (
            torch.unique(x, return_inverse=True, return_counts=True),
            torch.unique(x, dim=1, return_inverse=True, return_counts=True),
            torch.unique(x > 1),
            torch.unique_consecutive(x, return_inverse=True, return_counts=True),
            torch.unique_consecutive(x, dim=1),
        )

    check(unique, x)


def test_writes_at_places_of_memory():
    x, d, v = torch.randn(4, 5), torch.randn(4), torch.randn(2, 3)
    i, s = torch.tensor([0, -1, 7]), torch.randn(3, 5)

    def writes(x, d, v, i, s):
        return (
            x.diagonal_scatter(d), x.as_strided_scatter(v, (2, 3), (6, 2), 1),
            x.put(i, d[:3]), x.put(i.abs() * 0, d[:3], accumulate=True),
            x.index_reduce(0, i[:3] % 4, s, "mean"), x.unfold(1, 3, 2),
        )  # fmt: skip

    check(writes, x, d, v, i, s)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows(mode: str):
    w, i = torch.randn(9, 4), torch.tensor([3, 3, 0, 8, 5, 2, 5])
    offsets = torch.tensor([0, 3, 3, 6])  # the second bag is empty
    weights = torch.randn(7)

    def bags(w, i, offsets, weights):
        found = [
            F.embedding_bag(i, w, offsets, mode=mode),
            F.embedding_bag(i, w, offsets, mode=mode, padding_idx=5),
            F.embedding_bag(i[:6].reshape(2, 3), w, mode=mode),
            F.embedding_bag(i, w, F.pad(offsets, (0, 1), value=7), mode=mode,
                            include_last_offset=True),
        ]  # fmt: skip
        if mode == "sum":
            found.append(F.embedding_bag(i, w, offsets, mode=mode, per_sample_weights=weights))
        return found

    check(bags, w, i, offsets, weights)


def test_windows_of_adaptive_pools_and_columns():
    x, y = torch.randn(2, 3, 7, 10), torch.randn(2, 12, 20)

    def windows(x, y):
        return (
            F.adaptive_max_pool2d(x, (3, 4), return_indices=True),
            F.adaptive_max_pool1d(x[0], 4),
            F.adaptive_max_pool3d(x, (2, 7, 3)),
            F.fold(y, (5, 6), 2),
        )

    check(windows, x, y)


def test_distances_and_functions_of_two_numbers():
    x, y = torch.randn(5, 3), torch.randn(4, 3)
    special = torch.tensor([0.0, -0.0, NAN, float("inf"), -2.5])

    def functions(x, y, s):
        t = s[:, None]
        return (
            torch.cdist(x, y), torch.cdist(x, y, p=1), F.pdist(x, 3), torch.dist(x[:4], y),
            torch.fmax(s, t), torch.fmin(s, t), torch.copysign(s, t), torch.signbit(s),
            torch.hypot(s, t), torch.exp2(s), F.bilinear(x, x, y[:, :3, None].expand(4, 3, 3)),
            torch.addbmm(x[:, :2], x[None, :, :2], y[None, :2, :2]), torch.addmv(s, x, y[0]),
        )  # fmt: skip

    check(functions, x, y, special)


def test_random_operators_are_refused_with_what_to_do():
    class Noisy(torch.nn.Module):
        def forward(self, x):
            x = x + torch.randn_like(x)
            return x * torch.rand(3)

    with pytest.raises(ts.UnsupportedError, match="2 nodes of 2 operators") as e:
        ts.compile(Noisy(), (torch.zeros(3),))
    for operator, line in (
        ("randn_like", "x = x + torch.randn_like(x)"), ("rand", "return x * torch.rand(3)"),
    ):  # fmt: skip
        why = rf"aten\.{operator}\.default at '.*in forward: {re.escape(line)}': it draws random"
        assert re.search(f"{why} numbers[^;]*; draw them outside", str(e.value))
