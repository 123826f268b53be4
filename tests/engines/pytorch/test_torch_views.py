"""Writes through views, and views that change their shape, by every road, against eager mode."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from roads import ROADS, Module, check, compiled  # noqa: E402

from tilesmith.support.errors import UnsupportedError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

VIEWS = {
    "narrow": lambda x: x.narrow(1, 1, 2),
    "diagonal": lambda x: x.diagonal(1),
    "unbind": lambda x: x.unbind(1)[2],
    "split": lambda x: x.split(2, 1)[1],
    "split with sizes": lambda x: x.split([1, 3], 1)[1],
    "mT": lambda x: x.mT[0],
    "numpy T": lambda x: x.T[1],
    "positive": lambda x: x.positive(),
    "a diagonal of a part": lambda x: x[:, 1:].diagonal(),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("road", ROADS)
def test_writes_reach_what_is_viewed(road, name, tmp_path):
    def write(x):
        VIEWS[name](x).mul_(3)
        return x + 1

    check(road, Module(write), (torch.arange(16.0).view(4, 4),), tmp_path)


@pytest.mark.parametrize("road", ["module", "exported", "archive", "trace"])
def test_writes_through_windows_are_refused(road, tmp_path):
    """PyTorch puts 0 where no window is."""

    def write(x):
        y = x.clone()
        y.unfold(0, 1, 2)[:, 0].add_(2)
        return y

    with pytest.raises(UnsupportedError, match="written to through"):
        compiled(road, Module(write), (torch.arange(6.0),), tmp_path)


def test_windows_of_what_is_written_are_compiled(tmp_path):
    def write(x):
        y = x * 2
        windows = y.unfold(0, 2, 1)
        y.add_(1)
        return windows * 1

    for road in ROADS:
        check(road, Module(write), (torch.arange(6.0),), tmp_path)


@pytest.mark.parametrize("road", ROADS)
def test_a_view_that_changes_its_shape_writes_nothing(road, tmp_path):
    def turn(x):
        y = x.clone()
        part = y[1:]
        part.transpose_(0, 1)
        part[0].add_(5)
        whole = y.view(-1)
        whole.unsqueeze_(0)
        y.mul_(2)
        return part + 1, whole + 1, y

    check(road, Module(turn), (torch.arange(12.0).view(4, 3),), tmp_path)


@pytest.mark.parametrize("road", [r for r in ROADS if r != "archive"])
def test_what_has_the_type_already_is_written_itself(road, tmp_path):
    """An archive does not say whether `to` gives a copy, and is refused."""

    def write(x):
        same, other = x.to(torch.float32), x.to(torch.float64)
        same[0] = 7
        other[1] = 8
        same.add_(1)
        return other * 2

    check(road, Module(write), (torch.arange(6.0).view(2, 3),), tmp_path)


@pytest.mark.parametrize("road", ROADS)
def test_numbers_are_copied_into_views(road, tmp_path):
    def write(x):
        y = x.clone()
        y[::2].copy_(3)
        return y * 1

    check(road, Module(write), (torch.arange(6.0).view(3, 2),), tmp_path)


@pytest.mark.parametrize("road", ROADS)
def test_truths_of_bytes_are_bytes(road, tmp_path):
    def truths(x):
        return x.any(0), x.all(), x.any(1, keepdim=True), torch.all(x, (0, 1)), x.bool().any(0)

    check(road, Module(truths), (torch.tensor([[0, 3], [0, 5]], dtype=torch.uint8),), tmp_path)


class Counted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.ones(3, dtype=torch.bfloat16))

    def forward(self, x):
        self.count.add_(x)
        return self.count * 1


def test_buffers_of_bfloat16_in_archives_are_written(tmp_path):
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16)
    exe = compiled("archive", Counted(), (x,), tmp_path)
    module = Counted()
    for _ in range(2):
        torch.testing.assert_close(exe(x), module(x))


def test_sizes_that_a_trace_does_not_bound(tmp_path):
    """A backward graph's inputs have sizes whose bounds are infinite."""

    def f(x, w):
        return torch.nn.functional.conv2d(x, w, None, 2, 2, 2)

    torch._dynamo.reset()
    x, w = (torch.randn(2, 1, 5, 4), torch.randn(3, 1, 3, 3))
    gradients = []
    import tilesmith as ts

    for g in (f, torch.compile(f, backend=ts.torch.backend, dynamic=True)):
        for size in (3, 2):
            a, b = x.clone().requires_grad_(), w[:, :, :size, :size].clone().requires_grad_()
            g(a, b).sum().backward()
            gradients += [a.grad, b.grad]
    for ours, theirs in zip(gradients[4:], gradients[:4], strict=True):
        torch.testing.assert_close(ours, theirs)
