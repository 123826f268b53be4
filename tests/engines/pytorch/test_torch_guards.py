"""Weights are compared by native code as Python compares them."""

from __future__ import annotations

import random

import pytest

import tilesmith as ts
from tilesmith.runtime._native import Unchanged, digest

torch = pytest.importorskip("torch")
guards = pytest.importorskip("tilesmith.engines.torch.guards")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(params=["native", "python"])
def road(request, monkeypatch):
    """Both ways; the second is that of a PyTorch of which something is not as expected."""
    if request.param == "python":
        monkeypatch.setattr(guards, "_interface", lambda: None)
    else:
        assert guards._interface() is not None


def guard(args, numbers, freeze):
    weights = [args[i] for i in numbers]
    return guards.unchanged(numbers, weights, guards.state(weights, freeze))


@torch.no_grad()
@pytest.mark.parametrize("freeze", [True, False])
@pytest.mark.parametrize("container", [list, tuple])
def test_every_change_is_seen(road, container, freeze):
    parameters = [nn.Parameter(torch.randn(2, n)) for n in (3, 0, 4)]
    args = container([torch.randn(2), *parameters, torch.randn(5)[2:]])
    is_same = guard(args, (1, 2, 3, 4), freeze)
    assert is_same(args)
    others = container([torch.randn(2), *args[1:]])
    assert is_same(others)  # input 0 is no weight
    args[3].mul_(2)
    assert not is_same(args)
    is_same = guard(args, (1, 2, 3, 4), freeze)
    args[1].data = torch.randn(2, 3)
    assert not is_same(args)
    is_same = guard(args, (1, 2, 3, 4), freeze)
    assert is_same(args)
    assert not is_same(container([*args[:4], torch.randn(3)]))
    assert guard(args, (), freeze)(args)


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65, 1000])
def test_a_change_of_one_byte_that_nobody_counts_is_seen(road, count):
    x = torch.arange(count, dtype=torch.uint8)
    is_same = guard([x], (0,), freeze=False)
    memory, version = x.numpy(), x._version
    for at in {0, count // 2, count - 1}:
        memory[at] += 1
        assert x._version == version and not is_same([x])
        memory[at] -= 1
        assert is_same([x])


@torch.no_grad()
def test_a_model_follows_its_weights(road):
    torch._dynamo.reset()
    model, x = nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)]), torch.randn(2, 4)
    compiled = torch.compile(model, backend=ts.torch.backend, options={"threads": 1})
    for change in (
        lambda: None,
        lambda: None,
        lambda: model[1].weight.mul_(2),
        lambda: setattr(model[0].bias, "data", torch.randn(4)),
        lambda: setattr(model[2], "weight", nn.Parameter(torch.randn(4, 4))),
        lambda: None,
    ):
        change()
        torch.testing.assert_close(compiled(x), model(x))


def _fused_step(model, x):
    with torch.enable_grad():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
        model(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def _statistics(model, x):
    model.train()
    model(5 * x + 2)
    model.eval()


def _reused(model, x):
    model[0].weight.data = torch.randn(4, 4)


@torch.no_grad()
@pytest.mark.parametrize(
    "change",
    [
        _fused_step,
        _statistics,
        _reused,
        lambda model, x: model[0].weight.data.mul_(0.5),
        lambda model, x: model[2].bias.detach().numpy().__iadd__(1),
        lambda model, x: model[1].running_var.data.fill_(2),
        lambda model, x: model.double().float(),
    ],
    ids=["fused", "statistics", "address", "data", "numpy", "buffer", "to"],
)
def test_writes_that_nobody_counts_are_seen(change):
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()
    compiled = torch.compile(model, backend=ts.torch.backend, options={"threads": 1})
    x = torch.randn(8, 4)
    for _ in range(5):
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        change(model, x)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def test_inference_mode_around_the_first_call():
    guards._interface.cache_clear()
    with torch.inference_mode():
        assert guards._interface() is not None


@pytest.mark.parametrize("freeze", [True, False])
def test_writes_in_inference_mode_are_seen(road, freeze):
    torch._dynamo.reset()
    with torch.inference_mode():
        model, x = nn.Linear(4, 4), torch.randn(2, 4)
        compiled = torch.compile(
            model, backend=ts.torch.backend, options={"threads": 1, "freeze": freeze}
        )
        for _ in range(4):
            torch.testing.assert_close(compiled(x), model(x))
            model.weight.mul_(1.5)


def test_numbers_of_python_that_change_their_type():
    torch._dynamo.reset()
    source = random.Random(5)

    def f(x):
        return x * source.random() + source.randint(0, 3)

    found = torch.compile(f, backend=ts.torch.backend)(torch.ones(2))
    torch._dynamo.reset()
    source.seed(5)
    assert torch.equal(found, torch.compile(f, backend="eager")(torch.ones(2)))


def test_a_frozen_option_that_is_none():
    torch._dynamo.reset()
    f = torch.compile(lambda x: x + 1, backend=ts.torch.backend, options={"freeze": 1})
    with pytest.raises(Exception, match="freeze: expected True or False, found 1"):
        f(torch.ones(2))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("watch", ["0", "1"])
def test_every_part_of_large_weights_is_compared(monkeypatch, threads, watch):
    monkeypatch.setenv("TILESMITH_WATCH_PAGES", watch)
    monkeypatch.setattr(guards, "_PATIENCE", 0)
    weights = torch.zeros(300_001), torch.zeros(5), torch.zeros(0), torch.zeros(70_000)
    numbers = 0, 2, 3, 1
    held = [weights[i] for i in numbers]
    is_same = guards.unchanged(numbers, held, guards.state(held, False), threads)
    assert is_same(weights) and is_same([*weights])
    for number, place in ((0, 0), (0, 16_384), (0, 150_000), (0, -1), (1, 4), (3, 0), (3, -1)):
        array = weights[number].numpy()  # PyTorch does not count these writes
        array[place] = 1
        assert not is_same(weights), (number, place)
        array[place] = 0
        assert is_same(weights)
    weights[0].data = torch.zeros(300_001)  # the same at another address
    assert is_same(weights)


def test_arguments_of_the_native_type():
    with pytest.raises(ValueError, match="tuples of one length"):
        Unchanged(0, 0, 16, (1,), (), (), (), (), 1, -1, bool)
    with pytest.raises(TypeError, match="must be tuple"):
        Unchanged(0, 0, 16, [], (), (), (), (), 1, -1, bool)
    nothing = Unchanged(0, 0, 16, (), (), (), (), (), 1, -1, bool)
    assert nothing.is_in([]) and nothing.is_in(())
    with pytest.raises(TypeError, match="a list or a tuple"):
        nothing.is_in(3)
    with pytest.raises(IndexError):
        Unchanged(0, 0, 16, (1,), (None,), (0,), (0,), (-1,), 1, -1, bool).is_in([None])
    with pytest.raises(ValueError, match="bytes"):
        digest(0, -1)
