"""`torch.compile(backend="tilesmith")`: answers, aliases and writes are those of eager mode."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

import tilesmith as ts
import tilesmith.engines.torch as engine

torch = pytest.importorskip("torch")
pieces = importlib.import_module("tilesmith.engines.torch.pieces")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()


def compiled(f, dynamic=None, **options):
    """`f` through the backend; whatever would be left to PyTorch is an error, unless said."""
    options = {"threads": 1, "fallback": "error", **options}
    return torch.compile(f, backend=ts.torch.backend, dynamic=dynamic, options=options)


def assert_same(found, wanted, tolerance=1e-5):
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, check_stride=True)


def network() -> nn.Module:
    layers = (
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 10),
    )  # fmt: skip
    return nn.Sequential(*layers)


def test_the_entry_point_names_the_backend():
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    points = tomllib.loads(text)["project"]["entry-points"]["torch_dynamo_backends"]
    module, name = points["tilesmith"].split(":")
    assert getattr(importlib.import_module(module), name) is ts.torch.backend


def test_no_module_takes_the_place_of_a_public_name():
    for module in pkgutil.iter_modules(engine.__path__, "tilesmith.engines.torch."):
        importlib.import_module(module.name)
    assert callable(ts.torch.backend) and callable(ts.torch.register)


def test_the_package_does_not_import_torch():
    program = "import sys, tilesmith.torch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


@torch.no_grad()
def test_results_of_fixed_shape_where_sizes_are_open():
    f = compiled(lambda x: (x.sum(0), x * 2), dynamic=True)
    for n in (3, 4):
        assert_same(f(torch.ones(n, 5)), (torch.full((5,), float(n)), torch.full((n, 5), 2.0)))


@torch.no_grad()
def test_weights_are_packed_again_when_they_change():
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    f = compiled(model)
    assert_same(f(x), model(x))
    for _ in range(3):  # constants first, then inputs
        model.weight.mul_(2)
        assert_same(f(x), model(x))
    model.weight = nn.Parameter(torch.randn(4, 4))
    assert_same(f(x), model(x))
    model.load_state_dict(nn.Linear(4, 4).state_dict())
    assert_same(f(x), model(x))


@torch.no_grad()
def test_layers_that_share_a_graph_have_constants_of_their_own():
    layers = [nn.Linear(8, 8).eval() for _ in range(3)]
    f = compiled(lambda layer, x: torch.relu(layer(x)))
    x = torch.randn(4, 8)
    for layer in layers * 2:
        assert_same(f(layer, x), torch.relu(layer(x)))


@torch.no_grad()
def test_buffers_that_are_written():
    mine, eager = network(), network()
    eager.load_state_dict(mine.state_dict())
    f = compiled(mine)
    for _ in range(2):
        x = torch.randn(2, 1, 8, 8)
        assert_same(f(x), eager(x))
    for found, wanted in zip(mine.buffers(), eager.buffers(), strict=True):
        assert_same(found, wanted)


def views(x):
    x.add_(1)
    y = x * 2
    return x[1:], x.t(), y.t(), y[:, 1:], x, 3, None, x.shape[0] * 2


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_alias_what_they_alias_in_eager_mode(dynamic):
    f = compiled(views, dynamic)
    for shape in ((3, 4), (5, 6)):
        mine = torch.randn(*shape)
        eager = mine.clone()
        found, wanted = f(mine), views(eager)
        assert_same(mine, eager)
        assert found[4] is mine
        assert found[5:] == wanted[5:]
        for a, b in zip(found[:5], wanted[:5], strict=True):
            assert_same(a, b)
            assert a.storage_offset() == b.storage_offset()
        for results in (found, wanted):
            for t in results[:4]:
                t.mul_(3)
        for a, b in zip((mine, *found[:5]), (eager, *wanted[:5]), strict=True):
            assert_same(a, b)


def test_inputs_of_any_strides():
    def f(x, y):
        return torch.tanh(x) * y, torch.nn.functional.avg_pool2d(x, 2)

    g = compiled(f)
    x = torch.randn(2, 3, 8, 8)
    wide = torch.randn(2, 3, 8, 20)
    for a, b in (
        (x.to(memory_format=torch.channels_last), x),
        (wide[..., 2:18:2], torch.randn(1).expand(8, 8)),
        (x[:1].expand(2, -1, -1, -1), torch.randn(8, 8).t()),
    ):
        for found, wanted in zip(g(a, b), f(a, b), strict=True):
            assert_same(found, wanted)


def test_inputs_that_require_gradients_without_recording():
    x = torch.randn(4, 4, requires_grad=True)
    with torch.no_grad():
        found = compiled(lambda x: torch.exp(x) + 1)(x)
    assert not found.requires_grad
    assert_same(found, torch.exp(x).detach() + 1)
    with torch.inference_mode():
        model = nn.Linear(4, 4)  # nobody counts what is written to its weights
        f = compiled(model)
        for _ in range(2):
            model.weight.mul_(2)
            assert_same(f(x), model(x))


def test_one_program_for_marked_dimensions():
    def f(x):
        n = x.shape[0]
        return torch.cat([x, x + 1]).reshape(2, n, -1).sum(0) * n, x.new_zeros(n * 2, 3) + 1

    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    g, count = compiled(f), torch.compile(f, backend=counter)
    for n in (3, 5, 17):
        x = torch.randn(n, 4)
        torch._dynamo.mark_dynamic(x, 0)
        count(x)
        for found, wanted in zip(g(x), f(x), strict=True):
            assert_same(found, wanted)
    assert counter.frame_count == 1


def test_branches_on_data_and_prints_break_graphs(capsys):
    def f(x):
        y = torch.sin(x)
        if y.sum() > 0:
            print("positive")
            return y * 2
        return y - 1

    g = compiled(f)
    for x in (torch.ones(3), -torch.ones(3)):
        assert_same(g(x), f(x))
    assert capsys.readouterr().out == "positive\n" * 2


def odd(x):
    y = torch.sin(x) * 2
    z = torch.linalg.matrix_exp(y)
    return torch.relu(z @ y) + 1


def test_what_is_not_supported_is_left_to_eager_mode_with_a_warning():
    x = torch.randn(4, 4)
    with pytest.warns(
        ts.torch.FallbackWarning, match=r"linalg_matrix_exp.*: z = torch\.linalg"
    ) as w:
        assert_same(compiled(odd, fallback="warn")(x), odd(x))
    assert len([m for m in w if m.category is ts.torch.FallbackWarning]) == 1
    with pytest.raises(ts.UnsupportedError, match=r"1 node of 1 operator cannot be compiled.*odd"):
        compiled(odd)(x)


def test_random_numbers_are_pytorchs():
    def f(x):
        return torch.nn.functional.dropout(x + 1, 0.5) * 2

    x = torch.randn(8, 8)
    pieces._say_random.cache_clear()  # another test of this process may have been told
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            torch._dynamo.reset()
            torch.manual_seed(3)
            found = compiled(f, fallback="warn")(x)
            torch.manual_seed(3)
            assert_same(found, f(x))
    assert len([w for w in caught if "random numbers are drawn by PyTorch" in str(w.message)]) == 1


def test_options_that_there_are_not():
    for options, mode, message in (
        ({"thread": 1}, None, "there is no option 'thread'"),
        (None, "max-autotune", "mode='max-autotune' is for PyTorch's own compiler"),
    ):
        f = torch.compile(torch.sin, backend=ts.torch.backend, options=options, mode=mode)
        with pytest.raises(Exception, match=message):
            f(torch.randn(3))


def test_tensors_elsewhere_than_on_the_cpu():
    x = torch.randn(4, device="meta")
    with pytest.warns(
        ts.torch.FallbackWarning, match="a tensor on meta; Tilesmith compiles for the"
    ):
        assert compiled(torch.sin, fallback="warn")(x).device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_shifts_of_bits(dtype):
    x = torch.tensor([-7, 5, 100, 1, -1], dtype=torch.int64).to(dtype)
    by = torch.tensor([1, 0, 3, 70, 64]).to(dtype)
    f = compiled(lambda x, by: (x << by, x >> by, x << 2, x >> 1))
    wanted = (x << by, x >> by, x << 2, x >> 1)
    for found, right in zip(f(x, by), wanted, strict=True):
        assert torch.equal(found, right)


def spectrum(x):
    halved = torch.fft.rfft(torch.relu(x)) / 2
    return torch.fft.irfft(halved, n=8) + x


def test_fourier_transforms_are_left_to_pytorch_and_named_with_their_lines():
    x = torch.linspace(-1, 1, 24).reshape(3, 8)
    with pytest.warns(ts.torch.FallbackWarning, match=r"_fft_r2c.*halved = torch\.fft\.rfft"):
        assert_same(compiled(spectrum, fallback="warn")(x), spectrum(x))


def test_later_calls_see_every_change() -> None:
    """The first call takes the long way; later ones compare weights, strides and nothing else."""
    layer = nn.Linear(6, 4)
    compiled = torch.compile(layer, backend="tilesmith", options={"fallback": "error"})
    x, wide = torch.randn(3, 6), torch.randn(6, 3)
    with torch.no_grad():
        first, second = compiled(x), compiled(x)
        assert first.data_ptr() != second.data_ptr()
        torch.testing.assert_close(second, layer(x))
        layer.weight.add_(1)
        torch.testing.assert_close(compiled(x), layer(x))
        layer.weight.data = torch.randn(4, 6)
        torch.testing.assert_close(compiled(x), layer(x))
        layer.load_state_dict({"weight": torch.ones(4, 6), "bias": torch.zeros(4)})
        for _ in range(2):
            torch.testing.assert_close(compiled(x), layer(x))
            torch.testing.assert_close(compiled(wide.t()), layer(wide.t()))


def test_written_arguments_that_share_memory_in_some_calls():
    def f(x, y, z):
        x.mul_(2)
        z.add_(1)
        return x + y * z

    g = compiled(f, dynamic=False)
    apart = slice(0, 4), slice(4, 8), slice(8, 12)
    for parts in (
        apart,
        (slice(0, 4), slice(2, 6), slice(8, 12)),
        (slice(0, 4), slice(8, 12), slice(3, 7)),
        (slice(0, 4), slice(0, 4), slice(0, 4)),
        (slice(0, 8, 2), slice(1, 8, 2), slice(8, 12)),
        apart,
    ):
        bases = torch.arange(24.0), torch.arange(24.0)
        found, wanted = (h(*(b[p] for p in parts)) for h, b in zip((g, f), bases, strict=True))
        assert_same(found, wanted)
        assert_same(*bases)


def test_arguments_that_are_apart_at_first():
    def f(x, y):
        x.mul_(2)
        return x + y

    g = compiled(f)
    assert g(torch.ones(4), torch.ones(4)).tolist() == [3, 3, 3, 3]
    base = torch.ones(8)
    assert g(base[:4], base[2:6]).tolist() == [4, 4, 3, 3]
    assert base.tolist() == [2, 2, 2, 2, 1, 1, 1, 1]
    x = torch.ones(4)
    assert g(x, x).tolist() == [4, 4, 4, 4]


@pytest.mark.filterwarnings("ignore::tilesmith.torch.FallbackWarning")
def test_gradients_of_arguments_that_share_memory_in_some_calls():
    def f(x, y):
        x.mul_(2)
        return x + y

    g = compiled(f, fallback="warn")
    for start in (4, 2, 0):
        weight = torch.ones(8, requires_grad=True)
        base = weight * 1
        g(base[:4], base[start : start + 4]).sum().backward()
        found, weight.grad = weight.grad, None
        base = weight * 1
        f(base[:4], base[start : start + 4]).sum().backward()
        assert torch.equal(found, weight.grad)


def test_a_buffer_whose_sizes_dynamo_leaves_open():
    """Beyond a graph break, a buffer is a tensor like others, whose sizes are arguments."""

    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.randn(1, 5, 4, 5))

        def forward(self, x):
            kept = self.kept
            torch._dynamo.graph_break()
            return torch.nn.functional.linear(kept, x)

    module = Broken()
    compiled = torch.compile(module, backend=ts.torch.backend, dynamic=True)
    for n in (1, 2, 3):
        x = torch.randn(n, 5)
        torch.testing.assert_close(compiled(x), module(x))
