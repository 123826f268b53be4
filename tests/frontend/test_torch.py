"""Modules of PyTorch: captured, compiled and called like the original."""

from __future__ import annotations

import copy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.frontend.torch.capture import captured

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def assert_same(found, wanted, tolerance=1e-5):
    torch.testing.assert_close(found, wanted.detach(), rtol=tolerance, atol=tolerance)


class Convolutions(nn.Module):
    """Nested arguments and results, a size among them."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x, more):
        y = torch.relu(self.norm(self.conv(x)))
        y = nn.functional.max_pool2d(y, 2).mean((2, 3))
        return {"y": self.head(y) + more["bias"], "count": x.shape[0] * 2, "none": None}


@pytest.mark.parametrize("dynamic", [None, {"x": {0: (1, 8)}}, {"x": {0: "batch"}}, "auto"])
def test_nested_arguments_and_results(dynamic):
    module = Convolutions().eval()
    args = torch.randn(2, 3, 8, 8), {"bias": torch.randn(4)}
    exe = ts.compile(module, args, dynamic=dynamic, threads=1)
    for x in [args[0]] if dynamic is None else [args[0], torch.randn(5, 3, 8, 8)]:
        found, wanted = exe(x, args[1]), module(x, args[1])
        assert_same(found["y"], wanted["y"])
        assert found["count"] == wanted["count"] and found["none"] is None


def test_ranges_and_names_of_open_dimensions():
    exported = torch.export.export(
        nn.Linear(4, 2), (torch.randn(3, 4),), dynamic_shapes={"input": {0: torch.export.Dim.AUTO}}
    )
    graph = load(exported)
    (symbol,) = graph.symbols
    assert symbol.name == "input.0" and symbol.sizes.expected == 3


def test_arrays_in_arrays_out():
    module, x = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), torch.randn(3, 8)
    exe = ts.compile(module, x, threads=1)
    assert_same(exe(x), module(x))
    found = exe(x.numpy())
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_inputs_of_any_layout():
    module = nn.Softmax(-1)
    exe = ts.compile(module, torch.randn(4, 6), threads=1)
    for x in (
        torch.randn(6, 4).T,
        torch.randn(6).expand(4, 6),
        torch.randn(4, 12)[:, ::2],
        torch.randn(4, 6, requires_grad=True),
    ):
        assert_same(exe(x), module(x))


def test_parameters_share_the_modules_memory():
    module = nn.Linear(64, 64)
    graph = load(torch.export.export(module, (torch.randn(1, 64),)))
    weight = next(c for c in graph.constants if c.value.type.rank == 2)
    assert weight.data.array.ctypes.data == module.weight.data_ptr()


def test_tied_weights_are_one_constant():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))

    graph = load(torch.export.export(Tied(), (torch.randn(1, 8),)))
    assert len(graph.constants) == 1


def test_written_buffers():
    norm = nn.BatchNorm1d(8).train()
    exe = ts.compile(norm, torch.randn(5, 8), threads=1)
    twin = copy.deepcopy(norm)
    for _ in range(2):
        x = torch.randn(5, 8)
        assert_same(exe(x), twin(x))
        assert_same(norm.running_var, twin.running_var)
        assert norm.num_batches_tracked == twin.num_batches_tracked


def test_written_arguments():
    class Writes(nn.Module):
        def forward(self, x, y):
            x.add_(y)
            return x * 2

    exe = ts.compile(Writes(), (torch.zeros(3), torch.ones(3)), threads=1)
    x = torch.zeros(3)
    found = exe(x, torch.full((3,), 2.0))
    assert x.tolist() == [2, 2, 2] and found.tolist() == [4, 4, 4]


def test_written_arguments_that_share_memory():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x, y):
            self.total += y
            x.mul_(2)
            return x + y

    model = Writes()
    exe = ts.compile(model, (torch.zeros(4), torch.ones(4)), threads=1)
    base = torch.ones(8)
    assert exe(base[:4], base[4:]).tolist() == [3, 3, 3, 3]
    assert exe(base[::2], base[1::2]).tolist() == [6, 6, 3, 3]
    assert base.tolist() == [4, 2, 4, 2, 2, 1, 2, 1]
    for x, y, message in (
        (base[:4], base[3:7], "argument number 1 is written .* with argument number 2"),
        (base[:4], base[:4], "argument number 1 is written .* with argument number 2"),
        (base[:4].numpy(), base[3:7].numpy(), "argument number 1 .* with argument number 2"),
        (model.total, base[:4], "argument number 1 is written .* with buffer 'total'"),
        (base[:4], model.total, "buffer 'total' is written .* with argument number 2"),
    ):
        with pytest.raises(ts.UsageError, match=message):
            exe(x, y)
    assert base.tolist() == [4, 2, 4, 2, 2, 1, 2, 1]


def test_constants_among_the_arguments():
    class Scaled(nn.Module):
        def forward(self, x, by: float, flip: bool = False):
            return -x * by if flip else x * by

    exe = ts.compile(Scaled(), {"x": torch.ones(2), "by": 3.0, "flip": True}, threads=1)
    assert exe(flip=True, x=torch.ones(2), by=3.0).tolist() == [-3, -3]
    with pytest.raises(ts.ModelError, match=r"4\.0; the module was compiled for 3\.0"):
        exe(x=torch.ones(2), by=4.0, flip=True)
    with pytest.raises(ts.ModelError, match="expected arguments of the structure"):
        exe(torch.ones(2))


def test_registered_dataclasses():
    @dataclass
    class Result:
        first: torch.Tensor
        second: torch.Tensor

    torch.export.register_dataclass(Result, serialized_type_name="test.Result")

    class Twice(nn.Module):
        def forward(self, x):
            return Result(x + 1, x * 2)

    exe = ts.compile(Twice(), torch.ones(2), threads=1)
    found = exe(torch.ones(2))
    assert isinstance(found, Result) and found.second.tolist() == [2, 2]
    assert [o.name for o in exe.outputs] == ["first", "second"]


def test_results_that_are_arguments():
    class Passes(nn.Module):
        def forward(self, x):
            return x, x, x.t()

    x = torch.randn(2, 3)
    for found, wanted in zip(ts.compile(Passes(), x, threads=1)(x), (x, x, x.t()), strict=True):
        assert_same(found, wanted)


def test_what_is_unsupported_is_listed_with_its_line():
    class Odd(nn.Module):
        def forward(self, x):
            y = torch.special.bessel_j0(x)
            return torch.special.airy_ai(y) + torch.special.bessel_j0(y)

    with pytest.raises(ts.UnsupportedError) as raised:
        ts.compile(Odd(), torch.randn(3))
    text = str(raised.value)
    assert "3 nodes of 2 operators" in text
    assert "aten.special_bessel_j0.default at" in text and "aten.special_airy_ai.default at" in text
    assert "y = torch.special.bessel_j0(x)" in text and "test_torch.py" in text


def test_sums_of_bools_and_ranges_of_integers_are_those_of_eager_mode():
    class Both(torch.nn.Module):
        def forward(self, x, y):
            kept = torch.add(x, y, alpha=False), torch.add(x, y, alpha=True)
            return *kept, torch.arange(0.5, 3.2, dtype=torch.int64), torch.arange(0.5, 3.2)

    x, y = torch.tensor([True, False, False]), torch.tensor([True, True, False])
    exe = ts.compile(Both(), (x, y), threads=1)
    for found, wanted in zip(exe(x, y), Both()(x, y), strict=True):
        assert torch.equal(found, wanted)


class Masked(nn.Module):
    def forward(self, x, *, mask, scale=1.0):
        return torch.where(mask, x * scale, 0)


def test_positional_and_keyword_examples_together():
    x, mask = torch.arange(6.0).reshape(2, 3), torch.tensor([[True], [False]])
    kwargs = {"mask": mask, "scale": 3.0}
    module = Masked()
    wanted = module(x, **kwargs)
    exe = ts.compile(module, (x,), example_kwargs=kwargs)
    assert torch.equal(exe(x, **kwargs), wanted)
    exe = ts.compile(module, example_kwargs={"x": x, **kwargs})
    assert torch.equal(exe(x=x, **kwargs), wanted)
    exe = ts.compile(module, x, example_kwargs=kwargs, dynamic={"x": {1: "n"}})
    longer = torch.ones(2, 7)
    assert torch.equal(exe(longer, **kwargs), module(longer, **kwargs))
    for examples in ({"x": x}, None):
        with pytest.raises(ts.UsageError, match=r"example_kwargs: expected (a mapping|keyword)"):
            ts.compile(module, examples, example_kwargs=(x,) if examples is None else kwargs)
    with pytest.raises(ts.UsageError, match="example_kwargs are for a torch"):
        ts.compile(b"", example_kwargs=kwargs)


def test_bad_requests():
    module = nn.Linear(2, 2)
    with pytest.raises(ts.UsageError, match="needs example inputs"):
        ts.compile(module)
    with pytest.raises(ts.UsageError, match=r"Linear\.forward: missing a required argument"):
        ts.compile(module, {})
    with pytest.raises(ts.UsageError, match=r"no argument of Linear\.forward is called 'x'"):
        ts.compile(module, torch.ones(1, 2), dynamic={"x": {0: 4}})
    with pytest.raises(ts.UsageError, match="example_inputs are for a torch"):
        ts.compile(b"", torch.ones(1, 2))
    with pytest.raises(ts.ModelError, match=r"torch\.export can't export Branches"):
        ts.compile(Branches(), torch.ones(2))


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_torch_is_not_imported():
    script = "import sys, tilesmith, tilesmith.frontend.load; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_modules_are_traced_in_several_threads():
    """PyTorch's tracers keep their state in the process."""
    modules = [nn.Linear(4, 2 + i).eval() for i in range(4)]
    x = torch.ones(1, 4)
    with ThreadPoolExecutor(len(modules)) as pool:
        programs = list(pool.map(lambda m: captured(m, (x,), None), modules))
    for module, program in zip(modules, programs, strict=True):
        assert_same(program.module()(x), module(x))
