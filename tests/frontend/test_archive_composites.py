"""Operators that PyTorch composes of others, in archives that were saved before anything was taken
apart: what a module can hold, its archive can.
"""

from __future__ import annotations

import copy
import io
import json
import operator
import os
import subprocess
import sys
import zipfile

import pytest

import tilesmith as ts
from tilesmith.support.errors import ModelError, UnsupportedError

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
OPEN = torch.export.Dim.DYNAMIC


class Module(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def saved(module, *args, dynamic=None) -> bytes:
    out = io.BytesIO()
    torch.export.save(torch.export.export(module, args, dynamic_shapes=dynamic), out)
    return out.getvalue()


def assert_same(found, wanted):
    leaves = torch.utils._pytree.tree_leaves
    assert len(leaves(found)) == len(leaves(wanted))
    for f, w in zip(leaves(found), leaves(wanted), strict=True):
        torch.testing.assert_close(torch.as_tensor(f), w.detach(), rtol=1e-4, atol=1e-5)


def changed(content: bytes, change) -> bytes:
    """The archive with what `change` makes of the text of its program."""
    given, out = zipfile.ZipFile(io.BytesIO(content)), io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for entry in given.infolist():
            data = given.read(entry)
            if entry.filename.endswith("models/model.json"):
                data = change(data.decode()).encode()
            z.writestr(entry.filename, data)
    return out.getvalue()


def products(a, b):
    return (
        torch.einsum("ij,kj->ik", a, b),
        torch.kron(a, b),
        torch.tensordot(a, b, ([1], [1])),
        torch.linalg.multi_dot([a, b.mT, a]),
        torch.linalg.matrix_power(a @ b.mT, 3),
        torch.cdist(a, b),
        torch.outer(a[0], b[1]) + torch.eye(4),
    )


def losses(a, b):
    return (
        F.cross_entropy(a, torch.tensor([0, 1, 2])),
        F.binary_cross_entropy_with_logits(a, b.sigmoid()),
        F.smooth_l1_loss(a, b),
        F.kl_div(a, b.softmax(1), reduction="batchmean"),
        F.triplet_margin_loss(a, b, b + 1),
        F.cosine_similarity(a, b),
    )


def places(a, b):
    return (
        a.swapaxes(0, 1),
        a.rot90(),
        a.tile(2, 2),
        a.tensor_split(3, 1),
        torch.meshgrid(a[0], b[0], indexing="xy"),
        torch.block_diag(a, b),
        torch.dstack([a, b]),
        a.repeat_interleave(2, 1),
        F.one_hot(a.argmax(1), 4),
        a.diag_embed(),
    )


def numbers(a, b):
    return (
        F.glu(a),
        torch.var_mean(a, 1),
        torch.linalg.norm(a),
        torch.quantile(a, 0.3, 1),
        torch.isin(a.round(), torch.tensor([0.0, 1.0])),
        torch.lerp(a, b, 0.3),
        torch.special.entr(a.abs()),
        torch.heaviside(a, b),
        F.logsigmoid(a) + F.selu(b) + F.tanhshrink(a),
        torch.trapezoid(a),
    )


def images(a, b):
    x = (a[:, :, None, None] * b[None, :3, :, None].transpose(1, 2)).repeat(1, 1, 2, 2)
    return (
        F.pixel_shuffle(x, 2),
        F.pixel_unshuffle(x, 2),
        F.pad(x, (1, 1, 1, 1), "circular"),
        F.fold(F.unfold(x, 2, stride=2), (6, 2), 2, stride=2),
        F.interpolate(x, (3, 3), mode="area"),
        F.instance_norm(x),
        F.lp_pool2d(x, 2, 2),
        F.dropout2d(F.alpha_dropout(x, training=False), training=False),
    )


@pytest.mark.parametrize("function", [products, losses, places, numbers, images])
def test_an_archive_holds_what_a_module_holds(function):
    torch.manual_seed(0)
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    assert_same(ts.compile(saved(Module(function), a, b), threads=1)(a, b), function(a, b))


def test_writes_through_composed_views_are_seen():
    def function(x, y):
        x = x.clone()
        left, _ = x.hsplit(2)
        left.add_(1)
        turned = torch.einsum("ij->ji", x)  # a view
        turned.mul_(2)
        x.swapaxes(0, 1)[1].fill_(3)
        y.lerp_(x, 0.3)
        again = x.addcmul_(y, y)
        again.mul_(1.5)
        return x, left, turned

    torch.manual_seed(0)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    exe = ts.compile(saved(Module(function), x, y.clone()), threads=1)
    mine, theirs = y.clone(), y.clone()
    assert_same(exe(x, mine), function(x, theirs))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_statistics_are_written():
    torch.manual_seed(0)
    module, x = nn.InstanceNorm2d(3, track_running_stats=True), torch.randn(2, 3, 4, 4)
    exe = ts.compile(saved(copy.deepcopy(module), x), threads=1)
    for _ in range(2):
        assert_same(exe(x), module(x))
    state = exe.state_dict()
    assert_same([state["running_mean"], state["running_var"]], [*module.buffers()][:2])


def test_open_sizes():
    def function(a, b):
        chosen = a[a[:, 0, 0] > 0][:, 0, 0]  # as many as data say
        return (
            torch.einsum("bij,bkj->bik", a, b),
            F.glu(a),
            F.pixel_shuffle(a[:, :, :, None], 1),
            torch.outer(chosen, b[0, 0]),
            a[::2].rot90(),
            F.cosine_similarity(a, a + 1),
        )

    torch.manual_seed(0)
    dynamic = (({0: OPEN, 1: OPEN}, {0: OPEN}),)
    cases = [(torch.randn(n, m, 4), torch.randn(n, 3, 4)) for n, m in ((3, 5), (8, 2))]
    exe = ts.compile(saved(Module(function), *cases[0], dynamic=dynamic), threads=1)
    for a, b in cases:
        assert_same(exe(a, b), function(a, b))


def test_branches_and_loops():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            y = torch.cond(
                x.sum() > 0,
                lambda x: (self.linear(x),),
                lambda x: (x.clone().add_(1).swapaxes(0, 1).rot90(),),
                (x,),
            )[0]
            return torch._higher_order_ops.while_loop(
                lambda i, a: i < 3,
                lambda i, a: (i + 1, torch.einsum("ij,jk->ik", a, a)),
                (torch.tensor(0), y),
            )

    torch.manual_seed(0)
    module, x = Branches().eval(), torch.rand(4, 4)
    exe = ts.compile(saved(module, x), threads=1)
    for given in (x, -x):
        assert_same(exe(given), module(given))


# Files that lie


@pytest.fixture(scope="module")
def split():
    return saved(Module(lambda x: x.tensor_split(3, 1)), torch.randn(2, 6))


def test_wrong_types_are_found():
    content = saved(Module(lambda x: (x + 0).tensor_split(3, 1)), torch.randn(2, 6))

    def lie(text):
        program = json.loads(text)
        sizes = program["graph_module"]["graph"]["tensor_values"]["add"]["sizes"]
        sizes[1] = {"as_int": 9}
        return json.dumps(program)

    with pytest.raises(ModelError, match=r"expected a tensor of \[2, 9\], found f32\[2,6\]"):
        ts.compile(changed(content, lie), threads=1)


def test_calls_without_end_are_refused(split):
    content = changed(split, lambda text: text.replace('{"as_int": 3}', '{"as_int": 1000000000}'))
    assert content != split
    with pytest.raises((ModelError, UnsupportedError)):
        ts.compile(content, threads=1)


@pytest.mark.parametrize("target", ["aten.from_file.default", "aten.save.default", "os.system"])
def test_other_operators_are_not_called(split, target, tmp_path):
    content = changed(split, lambda t: t.replace("torch.ops.aten.tensor_split.sections", target))
    assert content != split
    with pytest.raises((ModelError, UnsupportedError), match="not supported"):
        ts.compile(content, threads=1)


def test_sizes_are_not_run_as_code(tmp_path):
    content = saved(Module(lambda x: F.glu(x + 1)), torch.randn(2, 6), dynamic=(({0: OPEN},),))
    code = f"__import__('os').mkdir({str(tmp_path / 'made')!r})"

    def change(text):
        program = json.loads(text)
        values = program["graph_module"]["graph"]["tensor_values"]
        values["add"]["sizes"][0]["as_expr"]["expr_str"] = code
        return json.dumps(program)

    with pytest.raises((ModelError, UnsupportedError), match="not supported"):
        ts.compile(changed(content, change), threads=1)
    assert not os.listdir(tmp_path)


def test_without_pytorch_the_error_says_what_to_do(split, tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(split)
    script = (
        "import sys, tilesmith; sys.modules['torch'] = None\n"
        f"try: tilesmith.compile({str(path)!r}, threads=1)\n"
        "except tilesmith.UnsupportedError as e: print(e)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "aten.tensor_split.sections" in found.stdout, found.stderr
    assert "install tilesmith[torch]" in found.stdout
    assert "run_decompositions()" in found.stdout


@pytest.mark.parametrize("name", ["ior", "iand", "ixor", "ilshift", "irshift"])
def test_operators_of_python_that_write(name):
    class Written(torch.nn.Module):
        def forward(self, x):
            y = getattr(operator, name)(x, 3)
            return y + x

    x = torch.tensor([-7, 5])
    content = io.BytesIO()
    torch.export.save(torch.export.export(Written(), (x.clone(),)), content)
    wanted = x.clone()
    result = Written()(wanted)
    found = x.clone()
    assert torch.equal(ts.compile(content.getvalue())(found), result)
    assert torch.equal(found, wanted)


def test_statistics_of_an_empty_batch_stay():
    class Normed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(2)

        def forward(self, x):
            return torch.nn.functional.batch_norm(
                x, self.norm.running_mean, self.norm.running_var, training=True
            )

    for shape in ((0, 2, 3), (4, 2, 3)):
        x = torch.randn(shape)
        module = Normed()
        content = io.BytesIO()
        torch.export.save(torch.export.export(module, (x,)), content)
        exe = ts.compile(content.getvalue())
        torch.testing.assert_close(torch.as_tensor(exe(x)), module(x))
        for n, wanted in module.state_dict().items():
            torch.testing.assert_close(torch.as_tensor(exe.state_dict()[n]), wanted)


class Contracted(torch.nn.Module):
    def forward(self, x, y):
        return torch.einsum("...ij,...jk", x, y).narrow(-1, 0, 2) + F.pairwise_distance(x, x).sum()


def test_programs_that_keep_composites_are_compiled():
    """`run_decompositions({})` takes nothing apart."""
    given = torch.rand(2, 3, 4), torch.rand(2, 4, 5)
    program = torch.export.export(Contracted(), given).run_decompositions({})
    assert any("einsum" in str(n.target) for n in program.graph.nodes)
    found = ts.compile(program, threads=1)(*given)
    torch.testing.assert_close(found, Contracted()(*given))
