"""Weights are compared by native code as Python compares them."""

from __future__ import annotations

import pytest

import tilesmith as ts
from tilesmith.runtime._native import Unchanged

torch = pytest.importorskip("torch")
guards = pytest.importorskip("tilesmith.torch.guards")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(params=["native", "python"])
def road(request, monkeypatch):
    """Both ways; the second is that of a PyTorch of which something is not as expected."""
    if request.param == "python":
        monkeypatch.setattr(guards, "_interface", lambda: None)
    else:
        assert guards._interface() is not None


def guard(args, numbers):
    weights = [args[i] for i in numbers]
    versions = [w._version for w in weights]
    return guards.unchanged(numbers, weights, [w.data_ptr() for w in weights], versions)


@torch.no_grad()
@pytest.mark.parametrize("container", [list, tuple])
def test_every_change_is_seen(road, container):
    parameters = [nn.Parameter(torch.randn(2, n)) for n in (3, 0, 4)]
    args = container([torch.randn(2), *parameters, torch.randn(5)[2:]])
    is_same = guard(args, (1, 2, 3, 4))
    assert is_same(args)
    others = container([torch.randn(2), *args[1:]])
    assert is_same(others)  # input 0 is no weight
    args[3].mul_(2)
    assert not is_same(args)
    is_same = guard(args, (1, 2, 3, 4))
    args[1].data = torch.randn(2, 3)
    assert not is_same(args)
    is_same = guard(args, (1, 2, 3, 4))
    assert is_same(args)
    assert not is_same(container([*args[:4], torch.randn(3)]))
    assert guard(args, ())(args)


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


def test_arguments_of_the_native_type():
    with pytest.raises(ValueError, match="tuples of one length"):
        Unchanged(0, 0, 16, (1,), (), (), ())
    with pytest.raises(TypeError, match="must be tuple"):
        Unchanged(0, 0, 16, [], (), (), ())
    nothing = Unchanged(0, 0, 16, (), (), (), ())
    assert nothing.is_in([]) and nothing.is_in(())
    with pytest.raises(TypeError, match="a list or a tuple"):
        nothing.is_in(3)
    with pytest.raises(IndexError):
        Unchanged(0, 0, 16, (1,), (None,), (0,), (0,)).is_in([None])
