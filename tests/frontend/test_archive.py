"""Archives of `torch.export`: read without PyTorch, and without trusting them."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.load import load, source_nodes
from tilesmith.support.errors import ModelError, UnsupportedError

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Mixed(nn.Module):
    """Parameters, buffers of all kinds, constants, nested arguments and results."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)
        self.register_buffer("bias", torch.randn(5), persistent=False)

    def forward(self, x, more, by: float = 2.0):
        with torch.no_grad():
            bias = more["bias"] * by
        y = self.norm(self.conv(x)).relu_()
        y = y.mean((2, 3)).mul_(2)
        y[:, 0] += 1
        y = self.head(y) + self.bias + torch.tensor([1.0, 2, 3, 4, 5])
        return {"y": y + bias, "count": x.shape[0] * 2, "rest": [None, bias + 1]}


def saved(module, *args, dynamic=None, **kwargs) -> bytes:
    out = io.BytesIO()
    program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic, strict=False)
    torch.export.save(program, out)
    return out.getvalue()


@pytest.fixture(scope="module")
def mixed():
    torch.manual_seed(0)
    module = Mixed().eval()
    args = torch.randn(2, 3, 8, 8), {"bias": torch.randn(5)}
    shapes = {"x": {0: torch.export.Dim("batch", min=1, max=64)}, "more": {"bias": None}}
    return module, args, saved(module, *args, dynamic=shapes)


def changed(content: bytes, name: str, change) -> bytes:
    """The archive with what `change` makes of the JSON that is called so, or of the bytes."""
    given, out = zipfile.ZipFile(io.BytesIO(content)), io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for entry in given.infolist():
            data = given.read(entry)
            if entry.filename.endswith(name):
                if name.endswith(".json"):
                    found = json.loads(data)
                    data = json.dumps(change(found) or found).encode()
                else:
                    data = change(data)
            if data is not None:
                z.writestr(entry.filename, data)
    return out.getvalue()


# Answers


def test_answers_and_open_dimensions(mixed, tmp_path):
    module, args, content = mixed
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    for exe in (ts.compile(path, threads=1), ts.compile(path, threads=1)):  # the second is kept
        for x in (args[0], torch.randn(5, 3, 8, 8)):
            found, wanted = exe(x, args[1]), module(x, args[1])
            torch.testing.assert_close(found["y"], wanted["y"].detach(), rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(found["rest"][1], wanted["rest"][1])
            assert found["count"] == wanted["count"] and found["rest"][0] is None
    (symbol,) = exe.program.symbols
    assert (symbol.sizes.low, symbol.sizes.high, symbol.sizes.expected) == (1, 64, 2)
    assert [o.name for o in exe.outputs] == ["y", "count", "rest.1"]
    with pytest.raises(ModelError, match="expected arguments of the structure"):
        exe(args[0])


def test_the_graph_is_that_of_the_program_in_memory():
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6)), torch.randn(3, 4)
    program = torch.export.export(module, (x,))
    assert str(load(saved(module, x))) == str(load(program))


def test_pytorch_is_not_needed(mixed, tmp_path):
    module, args, content = mixed
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    np.save(tmp_path / "x.npy", args[0].numpy())
    script = (
        "import sys, numpy, tilesmith; sys.modules['torch'] = None\n"
        f"exe = tilesmith.compile({str(path)!r}, threads=1)\n"
        f"x = numpy.load({str(tmp_path / 'x.npy')!r})\n"
        "y = exe(x, {'bias': numpy.zeros(5, 'float32')})['y']\n"
        f"numpy.save({str(tmp_path / 'y.npy')!r}, y)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    wanted = module(args[0], {"bias": torch.zeros(5)})["y"].detach().numpy()
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=1e-5, atol=1e-5)


def test_written_buffers_and_arguments():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x, total):
            self.seen.add_(1)
            total.add_(x.sum(0))
            return self.norm(x) + self.seen

    torch.manual_seed(0)
    module = Counts().train()
    exe = ts.compile(saved(module, torch.randn(4, 3), torch.zeros(3)), threads=1)
    mine, theirs = torch.zeros(3), torch.zeros(3)
    for _ in range(2):
        x = torch.randn(4, 3)
        found, wanted = exe(x, mine), module(x, theirs).detach()
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(mine, theirs)


def test_tied_and_strided_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
            self.second.weight = self.first.weight
            self.register_buffer("turned", torch.randn(8, 8).t())

        def forward(self, x):
            return self.second(self.first(x)) @ self.turned

    torch.manual_seed(0)
    module, x = Tied(), torch.randn(2, 8)
    content = saved(module, x)
    assert len(load(content).constants) == 2
    found = ts.compile(content, threads=1)(x)
    torch.testing.assert_close(found, module(x).detach(), rtol=1e-5, atol=1e-5)


def test_source_nodes(mixed):
    operators = [operator for _, operator in source_nodes(mixed[2])]
    assert "aten.conv2d.default" in operators and "aten.add_.Tensor" in operators


# Archives that are damaged, hostile or of another kind


def refused(content, match, kind=ModelError):
    """Loading raises an error of one line."""
    with pytest.raises(kind, match=match) as found:
        load(content)
    assert "\n" not in str(found.value)


def node(found, *keys):
    for key in keys:
        found = found[key]
    return found


GRAPH = ("graph_module", "graph")


@pytest.mark.parametrize(
    ("file", "change", "match"),
    [
        ("model.json", lambda m: node(m, "schema_version").update(major=9), "expected version 8"),
        (
            "model.json",
            lambda m: node(m, *GRAPH).update(nodes={}),
            r"graph\.nodes: expected a list",
        ),
        (
            "model.json",
            lambda m: node(m, *GRAPH, "nodes", 0).update(inputs=[{"arg": {"as_foo": 1}}]),
            r"nodes\[0\]\.inputs\[0\]\.arg: expected an argument of the schema",
        ),
        (
            "model.json",
            lambda m: node(m, *GRAPH, "tensor_values").update(x={"dtype": 7, "sizes": [3]}),
            r"tensor_values\.x\.sizes\[0\]: expected an object with one key, found 3",
        ),
        (
            "model.json",
            lambda m: node(m, "range_constraints").update(s0={"min_val": 9, "max_val": 3}),
            r"range_constraints\.s0\.max_val: expected an integer from 9",
        ),
        (
            "model.json",
            lambda m: node(m, "graph_module").update(module_call_graph=[]),
            "the call of",
        ),
        ("model.json", lambda m: [m], "expected an object with 'schema_version'"),
        ("weights_config.json", lambda m: {"config": {}}, "no weights called conv.bias"),
        (
            "weights_config.json",
            lambda m: node(m, "config", "head.weight").update(path_name="../../etc/passwd"),
            r"no entry 'data/weights/\.\./\.\./etc/passwd'",
        ),
        (
            "weights_config.json",
            lambda m: node(m, "config", "head.weight").update(use_pickle=True),
            "'head.weight' is pickled",
        ),
        (
            "weights_config.json",
            lambda m: node(m, "config", "head.weight", "tensor_meta").update(
                storage_offset={"as_int": 1}
            ),
            "inside of its 20 elements of f32.*ends at element 20",
        ),
        (
            "weights_config.json",
            lambda m: node(m, "config", "head.weight", "tensor_meta").update(
                sizes=[{"as_int": 1 << 20}] * 2, strides=[{"as_int": 0}] * 2
            ),
            "more than|at most 20 elements",
        ),
        (
            "weights_config.json",
            lambda m: node(m, "config", "head.weight", "tensor_meta").update(
                strides=[{"as_int": -4}, {"as_int": 1}]
            ),
            r"strides\[0\]\.as_int: expected an integer from 0",
        ),
        ("weight_0", lambda data: data[:-4], "inside of its 107 elements"),
        ("weight_0", lambda data: None, "no entry 'data/weights/weight_0'"),
        ("model.json", lambda m: "x" * 10, "expected an object"),
    ],
)
def test_archives_that_are_wrong(mixed, file, change, match):
    refused(changed(mixed[2], file, change), match)


def test_zip_files_that_are_wrong(mixed, tmp_path):
    content = mixed[2]
    for cut in (10, len(content) // 2, len(content) - 1):
        refused(content[:cut], "found a damaged ZIP file")
    refused(b"PK\x03\x04" + bytes(60), "found a damaged ZIP file")
    bomb = zipped("m/models/model.json", b" " * (64 << 20), zipfile.ZIP_DEFLATED)
    refused(bomb, "is compressed or encrypted")
    refused(zipped("m/models/m.json", b"[" * 100_000), r"models/m\.json is not JSON")
    other = zipped("m/data.pkl", b"")
    refused(other, r"a ZIP file without models/\*\.json: data\.pkl", UnsupportedError)


def zipped(name: str, data: bytes, how: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as z:
        z.writestr(name, data)
    return out.getvalue()


def test_weights_that_changed_are_seen_by_their_checksum(mixed):
    module, _, content = mixed
    at = content.find(module.head.weight.detach().numpy().tobytes())
    assert at > 0
    for place in (at, at + 33):
        wrong = bytearray(content)
        wrong[place] ^= 1
        refused(bytes(wrong), "the checksum of entry '.*' is not that of its contents")


def test_random_damage_never_escapes(mixed):
    content = mixed[2]
    refusals = 0
    for seed in range(300):
        try:
            load(damaged(content, random.Random(seed)))
        except ModelError as e:
            assert "\n" not in str(e)
            refusals += 1
        except BaseException as e:
            raise AssertionError(f"seed {seed}") from e
    assert 150 < refusals < 300


ODD = (None, -1, 0, 1 << 70, "", "x", [], {}, True, 1.5, [1], {"as_int": 3}, {"as_none": True})


def damaged(content: bytes, source: random.Random) -> bytes:
    """The archive with some bytes changed, or with some of its JSON replaced or left out."""
    if source.random() < 0.3:
        found = bytearray(content)
        for _ in range(source.choice((1, 2, 5))):
            at = source.randrange(len(found))
            found[at : at + source.randrange(3)] = source.randbytes(source.randrange(3))
        return bytes(found)

    def change(found):
        here = found
        while True:
            key = source.choice([*here] if isinstance(here, dict) else range(len(here)))
            below = here[key]
            if not isinstance(below, (dict, list)) or not below or source.random() < 0.05:
                break
            here = below
        if source.random() < 0.2:
            del here[key]
        else:
            here[key] = source.choice(ODD)

    return changed(content, source.choice(("model.json", "config.json")), change)
