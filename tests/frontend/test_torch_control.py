"""`torch.cond` and `while_loop` through `ts.compile` and `torch.compile`."""

from __future__ import annotations

import pytest

import tilesmith as ts

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Chosen(nn.Module):
    """A branch with weights, one without; two results."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x, y):
        def positive(x, y):
            return self.layer(x) * 2, y + 1

        def other(x, y):
            return x - 1, y * 2

        return torch.cond(x.sum() > 0, positive, other, (x, y))


class Repeated(nn.Module):
    """A loop with weights, in which a branch is chosen."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x, limit):
        def step(i, x):
            y = x + self.layer(x).abs()
            return i + 1, torch.cond(i % 2 == 0, lambda y: y + 1, lambda y: y * 1.5, (y,))

        def is_below(i, x):
            return (x.sum() < limit) & (i < 20)

        return torch._higher_order_ops.while_loop(is_below, step, (torch.tensor(0), x))


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


@torch.no_grad()
@pytest.mark.parametrize("road", ["ts.compile", "torch.compile"])
def test_a_run_chooses_the_branch(road):
    module, x, y = Chosen().eval(), torch.ones(2, 3), torch.randn(2, 4)
    if road == "ts.compile":
        exe = ts.compile(module, (x, y), threads=1)
    else:
        options = {"threads": 1, "fallback": "error"}
        exe = torch.compile(module, backend=ts.torch.backend, options=options)
    for v in (x, -x):
        for found, wanted in zip(exe(v, y), module(v, y), strict=True):
            torch.testing.assert_close(found, wanted)


@torch.no_grad()
def test_a_run_says_when_a_loop_ends():
    module, x = Repeated().eval(), torch.ones(2, 3)
    exe = ts.compile(module, (x, torch.tensor(50.0)), threads=1)
    counts = set()
    for limit in (50.0, 0.0, 9.0, 1e30):
        found, wanted = exe(x, torch.tensor(limit)), module(x, torch.tensor(limit))
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)
        counts.add(int(found[0]))
    assert 0 in counts and 20 in counts and len(counts) > 2


@torch.no_grad()
def test_branches_with_an_open_batch():
    module, x, y = Chosen().eval(), torch.ones(2, 3), torch.randn(2, 4)
    sizes = {"x": {0: (2, 9)}, "y": {0: (2, 9)}}
    exe = ts.compile(module, (x, y), dynamic=sizes, threads=1)
    for rows, sign in ((2, 1), (7, 1), (7, -1)):
        args = (torch.full((rows, 3), 1.0 * sign), torch.randn(rows, 4))
        for found, wanted in zip(exe(*args), module(*args), strict=True):
            torch.testing.assert_close(found, wanted)


def test_what_a_branch_calls_may_be_unsupported():
    class Random(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x + torch.rand(3), lambda x: x - 1, (x,))

    with pytest.raises(ts.UnsupportedError, match=r"aten\.rand\.default.*random numbers"):
        ts.compile(Random(), torch.ones(3))
