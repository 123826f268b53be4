"""Types of tensors and numbers that few programs have: 8-bit floats, nested tensors, -0.0."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

import tilesmith as ts  # noqa: E402
from tilesmith import te  # noqa: E402


def compiled(function, **kwargs):
    torch._dynamo.reset()
    return torch.compile(function, backend=ts.torch.backend, fullgraph=True, **kwargs)


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.float64, torch.int32])
def test_casts_to_8_bits_beyond_the_range(source):
    """PyTorch saturates in float8_e4m3fn, and in no other type."""
    found = [1.0, -3.0, 448.0, 465.0, -1e4, 3e4, 6e4]
    if source.is_floating_point:
        found += [float("inf"), float("-inf"), float("nan")]
    x = torch.tensor(found).to(source)
    types = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)

    def function(x):
        return [x.to(d).float() for d in types]

    for a, b in zip(compiled(function)(x), function(x), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def test_nested_tensors_have_sizes_without_a_value():
    """AttributeError: 'NestedIntNode' object has no attribute 'guard_int'."""
    layer = torch.nn.Linear(3, 4)

    def function(x):
        return (layer(x) * 2).relu()

    f = compiled(function)
    for rows in ((2, 4), (1, 3, 3), (2, 5)):
        x = torch.nested.nested_tensor([torch.randn(n, 3) for n in rows], layout=torch.jagged)
        torch.testing.assert_close(f(x).values(), function(x).values())


def test_zeros_of_both_signs_are_two_numbers_for_an_operator():
    """The kernel and the graph of 0.0 were those of -0.0, too."""

    @ts.torch.register("tests_daily::quotient")
    def quotient(x, alpha: float = 1.0):
        return te.compute(x.shape, lambda *i: alpha / x[i])

    def both(x):
        return quotient(x, 0.0), quotient(x, -0.0)

    x = torch.ones(3)
    for found in (both(x), compiled(both)(x)):
        assert [math.copysign(1, t[0].item()) for t in found] == [1, -1]


def test_fake_tensors_give_fake_tensors():
    """They have no memory: native code that is ready for real ones must not read them."""
    from torch._subclasses import FakeTensorMode

    def function(x, y):
        return torch.relu(x) * 2 + y

    for calls in (1, 2, 3):  # the code of the first call, and the quick call after it
        call, x = compiled(function), torch.randn(2, 3)
        for _ in range(calls - 1):
            assert torch.equal(call(x, x), function(x, x))
        with FakeTensorMode():
            fake = torch.empty(2, 3)
        found = call(fake, fake)
        assert type(found) is type(fake) and found.shape == (2, 3)
        assert torch.equal(call(x, x), function(x, x))


def test_tensors_inside_func_are_refused_with_a_way_out():
    exe = ts.compile(torch.nn.Tanh(), (torch.ones(3),))
    for inside in (torch.func.vmap(exe), torch.func.grad(lambda x: exe(x).sum())):
        with pytest.raises(ts.ModelError, match=r"expected one with memory.*backend='tilesmith'"):
            inside(torch.ones(3))
