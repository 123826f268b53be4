"""What PyTorch says of an archive is kept: a second reading does without it."""

from __future__ import annotations

import io
import math
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import tilesmith as ts  # noqa: E402
from tilesmith.frontend.archive import composites, kept  # noqa: E402
from tilesmith.frontend.archive.reader import exported  # noqa: E402
from tilesmith.frontend.aten.program import Call, Ref  # noqa: E402
from tilesmith.frontend.common.source import Source  # noqa: E402
from tilesmith.ir.dtypes import bf16  # noqa: E402
from tilesmith.support.cache import Cache  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
OPEN = torch.export.Dim.DYNAMIC


class Module(torch.nn.Module):
    def forward(self, a, b):
        chosen = a[a[:, 0, 0] > 0][:, 0, 0]
        a.swapaxes(0, 1)[1].fill_(3)
        return torch.einsum("bij,bkj->bik", a, b), F.glu(a), torch.outer(chosen, b[0, 0])


@pytest.fixture(scope="module")
def archive() -> bytes:
    args = torch.randn(3, 5, 4), torch.randn(3, 3, 4)
    out = io.BytesIO()
    program = torch.export.export(
        Module(), args, dynamic_shapes=({0: OPEN, 1: OPEN}, {0: OPEN}), strict=False
    )
    torch.export.save(program, out)
    return out.getvalue()


class Refused:
    def __init__(self, *_):
        raise AssertionError("PyTorch was asked")


def test_a_second_reading_gives_the_same_calls(archive, tmp_path, monkeypatch):
    cache, source = Cache(tmp_path), Source.of(archive, "an archive")
    first = exported(source, cache)
    monkeypatch.setattr(composites, "Expansion", Refused)
    again = exported(source, cache)
    assert [*again.calls()] == [*first.calls()]
    assert again.guards == first.guards and again.signature == first.signature
    with pytest.raises(AssertionError, match="asked"):
        exported(source)


def test_an_operator_that_is_unknown_since_is_asked_for(archive, tmp_path, monkeypatch):
    cache, source = Cache(tmp_path), Source.of(archive, "an archive")
    wanted = [*exported(source, cache).calls()]
    key = next(tmp_path.glob("kernels/*/*")).name
    found = kept.Kept(cache, key)
    monkeypatch.setattr(kept, "cache_key", lambda *_: key)
    whole = kept.Kept.of(cache, b"")
    assert whole is not None and whole.is_whole
    name = next(iter(whole.calls))
    found.save(whole.guards, {k: c for k, c in whole.calls.items() if k != name})
    assert [*exported(source, cache).calls()] == wanted


def test_arguments_keep_their_types(tmp_path):
    args = [Ref("x"), [1, True, None], 2.5, math.inf, "nearest", bf16, ["a", Ref("y")]]
    calls = {
        ("op", "a"): [Call("op", args, {"k": bf16}, ("b", ""), "line", 3)],
        ("op", "c"): None,
    }
    kept.Kept(Cache(tmp_path), "0123456789").save(["x > 1"], calls)
    strange = {("op", "a"): [Call("op", [1j], {}, "b")]}
    kept.Kept(Cache(tmp_path), "abcdef0123").save([], strange)
    assert Cache(tmp_path).get("abcdef0123") is None
    monkey = pytest.MonkeyPatch()
    with monkey.context() as m:
        m.setattr(kept, "cache_key", lambda *_: "0123456789")
        found = kept.Kept.of(Cache(tmp_path), b"")
    assert found is not None and found.guards == ["x > 1"] and found.calls == calls
    assert isinstance(found.calls["op", "a"][0].args[1][1], bool)


def test_a_second_process_does_not_import_pytorch(archive, tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(archive)
    options = ts.Options(cache_dir=str(tmp_path / "cache"), threads=1)
    a, b = torch.ones(3, 5, 4), torch.ones(3, 3, 4)
    wanted = Module()(a.clone(), b)[0]
    torch.testing.assert_close(ts.compile(path, options=options)(a.clone(), b)[0], wanted)
    script = (
        "import sys, numpy, tilesmith as ts\n"
        f"options = ts.Options(cache_dir={str(options.cache_dir)!r}, threads=1)\n"
        f"exe = ts.compile({str(path)!r}, options=options)\n"
        "found = exe(numpy.ones((3, 5, 4), 'f4'), numpy.ones((3, 3, 4), 'f4'))\n"
        "print('torch' in sys.modules, found[0].sum())"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout.startswith("False"), run.stderr
    assert float(run.stdout.split()[1]) == float(wanted.sum())
