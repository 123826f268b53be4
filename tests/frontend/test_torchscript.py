"""TorchScript: traced and scripted modules, and files of them."""

from __future__ import annotations

import io
import runpy
import zipfile
from pathlib import Path

import pytest

import tilesmith as ts

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet18.py"


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(144, 2),
    ).eval()
    return module, torch.randn(2, 3, 8, 8)


def test_traced_modules_and_their_files(made, tmp_path):
    module, x = made
    traced = torch.jit.trace(module, x)
    path = tmp_path / "model.pt"
    traced.save(path)
    content = io.BytesIO()
    torch.jit.save(traced, content)
    for source in (traced, path, content.getvalue()):
        found = ts.compile(source, (x,), threads=1)(x)
        torch.testing.assert_close(found, module(x).detach(), rtol=1e-5, atol=1e-5)
    with pytest.raises(ts.UnsupportedError, match="is TorchScript, whose arguments have no types"):
        ts.compile(path)


def test_scripted_functions_and_open_dimensions():
    @torch.jit.script
    def both(a, b):
        return torch.relu(a @ b), a.sum()

    a, b = torch.ones(3, 4), torch.ones(4, 5)
    exe = ts.compile(both, {"a": a, "b": b}, dynamic={"a": {0: (1, 8)}}, threads=1)
    for rows in (3, 6):
        a = torch.full((rows, 4), 2.0)
        for found, wanted in zip(exe(a, b), both(a, b), strict=True):
            torch.testing.assert_close(found, wanted)
    with pytest.raises(ts.UsageError, match="the script takes a, b; found 0 positional"):
        ts.compile(both, {"a": a, "c": b})


class Branching(nn.Module):
    """A condition that a run knows, one that sizes say, one of an attribute, and nested ones."""

    def __init__(self):
        super().__init__()
        self.adds, self.layer = True, nn.Linear(4, 4)

    def forward(self, x):
        if bool(x.sum() > 0):
            y = self.layer(x)
            if bool(y[0, 0] > 0):
                y = y * 2
        else:
            y = x - 1
        if x.dim() == 2 and self.adds:
            y = y + 1
        for i in range(3):
            y = y * 2 + i
        return y


@torch.no_grad()
def test_branches_of_scripts_are_those_of_the_run():
    script = torch.jit.script(Branching().eval())
    x = torch.ones(2, 4)
    exe = ts.compile(script, (x,), threads=1)
    results = [exe(v) for v in (x, -x, 3 * x, -2 * x)]
    for found, v in zip(results, (x, -x, 3 * x, -2 * x), strict=True):
        torch.testing.assert_close(found, script(v))


class Counted(nn.Module):
    """A count that data say, in it a branch and a loop that a constant counts."""

    def forward(self, x):
        total = torch.zeros_like(x)
        for i in range(int(x.sum())):
            if bool(total.sum() > 3):
                total = total - x
            else:
                total = total + i * x
            for k in range(2):
                total = total + k
        return total


class Growing(nn.Module):
    """A condition, weights, and numbers of each kind that the loop carries."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        y, factor, count = x, 1.5, 0
        while bool(y.norm() < 10.0):
            y = y * factor + self.layer(x).abs()
            factor = factor * 1.25
            count += 2
        return y, count


class Ending(nn.Module):
    """A loop that is left early."""

    def forward(self, x):
        for _ in range(10):
            x = x * 2
            if bool(x.sum() > 20):
                break
        return x


@torch.no_grad()
@pytest.mark.parametrize("make", [Counted, Growing, Ending])
def test_a_run_says_when_loops_of_scripts_end(make):
    torch.manual_seed(0)
    script = torch.jit.script(make().eval())
    x = torch.ones(2)
    exe = ts.compile(script, (x,), threads=1, fallback="error")
    given = (x, -x, 0 * x + 3, 99 * x)
    results = [exe(v) for v in given]
    for found, v in zip(results, given, strict=True):
        torch.testing.assert_close(_as_tensors(found), _as_tensors(script(v)))


def _as_tensors(found):
    return tuple(map(torch.as_tensor, found)) if isinstance(found, (tuple, list)) else found


def test_loops_that_write_to_a_tensor_around_them_are_refused():
    class Writing(nn.Module):
        def forward(self, x):
            y = x.clone()
            for _ in range(int(x.sum())):
                y.add_(1)
            return y

    with pytest.raises(ts.ModelError, match=r"write to no tensor: .*not functional"):
        ts.compile(torch.jit.script(Writing()), torch.ones(2))


def test_files_that_are_no_torchscript(made, tmp_path):
    torch.save(made[1], tmp_path / "x.pt")
    with pytest.raises(ts.ModelError, match=r"torch\.jit\.load can't load .*x\.pt"):
        ts.compile(tmp_path / "x.pt", (made[1],))


def test_the_example_compares_the_best_class(made, monkeypatch):
    example = runpy.run_path(str(EXAMPLE))
    example["seconds"].__globals__.update(ROUNDS=1, CALLS=1)
    module, x = made
    theirs, ours, times = example["compared"](module, x[:1], torch.get_num_threads())
    assert theirs == ours and set(times) == {"PyTorch", "Tilesmith"}


@pytest.mark.parametrize("part", ["m/data/1", "m/constants/0"])
def test_files_with_fewer_numbers_than_tensors_need_are_refused(part, tmp_path):
    """PyTorch reads behind their end."""

    class Scaled(nn.Linear):
        def forward(self, x):
            return super().forward(x) * torch.tensor([2.0, 3.0])

    path, damaged = tmp_path / "m.pt", tmp_path / "damaged.pt"
    torch.jit.trace(Scaled(3, 2), torch.ones(1, 3)).save(path)
    with zipfile.ZipFile(path) as z, zipfile.ZipFile(damaged, "w") as to:
        assert part in z.namelist()
        for name in z.namelist():
            to.writestr(name, b"" if name == part else z.read(name))
    for source in (damaged, damaged.read_bytes()):
        with pytest.raises(ts.ModelError, match=rf"expected 8 bytes in its part {part}, found 0"):
            ts.compile(source, torch.ones(1, 3))
    assert ts.compile(path, torch.ones(1, 3))(torch.ones(1, 3)).shape == (1, 2)


def test_a_tensor_is_copied_into_one_of_another_shape():
    """PyTorch's functional form is the other tensor, with its shape."""

    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(1, 1))

        def forward(self, x):
            self.kept.copy_(x)
            return self.kept, self.kept[0]

    x = torch.tensor(1.5)
    for source in (Kept(), torch.jit.trace(Kept(), x, check_trace=False)):
        whole, first = ts.compile(source, x)(x)
        assert (whole.tolist(), first.tolist()) == ([[1.5]], [1.5])


def test_a_write_to_an_expansion_that_adds_no_elements_does_not_round():
    """PyTorch's functional form is x + (y - x)."""

    class Written(nn.Module):
        def forward(self, x, y):
            part = x.expand_as(x)
            part.copy_(y)
            other = (x * 2).expand(3)
            other.copy_(y)
            return part, other

    x, y = torch.full((3,), -4e7), torch.tensor([0.1, 0.2, 0.3])
    for source in (Written(), torch.jit.trace(Written(), (x.clone(), y), check_trace=False)):
        for result in ts.compile(source, (x.clone(), y))(x.clone(), y):
            assert torch.equal(torch.as_tensor(result), y)


@pytest.mark.parametrize("is_inner", [False, True])
def test_what_is_detached_is_turned_alone(is_inner):
    class Turned(nn.Module):
        def forward(self, x):
            y = x + 1
            y.detach().unsqueeze_(0)
            z = y.detach()
            z.transpose_(0, 1)
            z += 1
            return y, z

    module = nn.Sequential(Turned()) if is_inner else Turned()
    x = torch.randn(2, 3)
    traced = torch.jit.trace(module, x, check_trace=False)
    before = str(traced.inlined_graph)
    for found, wanted in zip(ts.compile(traced, x)(x), module(x), strict=True):
        torch.testing.assert_close(found, wanted)
    assert str(traced.inlined_graph).count("aten::detach") == before.count("aten::detach") == 2


def test_parts_that_are_never_called_themselves():
    """Lists and dicts of modules, and the projection of an attention, have no code in a trace."""

    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
            self.named = nn.ModuleDict({"last": nn.Linear(4, 4)})
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            x = self.named["last"](x)
            return self.attention(x, x, x, need_weights=False)[0]

    module, x = Parts().eval(), torch.randn(2, 3, 4)
    with torch.no_grad():
        traced = torch.jit.trace(module, x)
        found = ts.compile(traced, x, threads=1)(x)
        torch.testing.assert_close(torch.as_tensor(found), module(x), rtol=1e-4, atol=1e-5)
