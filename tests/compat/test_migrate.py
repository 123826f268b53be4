"""`tilesmith migrate`, and the tables of names in the guide."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import shim_table
import tilesmith as ts
from tilesmith.cli import execute

pytest.importorskip("libcst")

from tilesmith.compat.migrate import OURS, migrated, why
from tilesmith.support.errors import UsageError

VECTORS = """\
import numpy as np
import tvm
import tvm.testing
from tvm import te

n = te.var("n")
A = te.placeholder((n,), name="A", dtype="float32")
def element(i):
    return tvm.tir.if_then_else(A[i] > 0, tvm.tir.max(A[i], 0.5), te.exp(A[i]))

B = te.compute(A.shape, element)
s = te.create_schedule(B.op)
outer, inner = s[B].split(B.op.axis[0], factor=8)
s[B].parallel(outer)
text = str(tvm.lower(s, [A, B], simple_mode=True))
f = tvm.build(s, [A, B], target="llvm", name="f")
a = tvm.nd.array(np.linspace(-1, 1, 20).astype("float32"), tvm.cpu())
b = tvm.nd.empty((20,), device=tvm.cpu())
f(a, b)
tvm.testing.assert_allclose(b.asnumpy(), b.asnumpy(), rtol=1e-5)
"""


def test_a_program_for_tvm_runs_with_our_names_alone():
    code, left = migrated(VECTORS)
    assert left == []
    assert "tvm" not in code
    names: dict[str, object] = {}
    exec(compile(code, "migrated", "exec"), names)
    a = np.linspace(-1, 1, 20).astype(np.float32)
    wanted = np.where(a > 0, np.maximum(a, 0.5), np.exp(a))
    np.testing.assert_allclose(names["b"], wanted, rtol=1e-5)  # type: ignore[arg-type]
    assert "parallel" in str(names["text"])


def test_memories_and_indices_of_threads_have_our_names():
    code, left = migrated(
        "from tvm import te\nC = s.cache_write(B, \"local\")\nD = s.cache_read(A, 'global', [B])\n"
        's[B].bind(i, te.thread_axis("threadIdx.x"))\n'
    )
    assert left == []
    assert code.splitlines() == [
        "C = s.cache_write(B, 'register')",
        "D = s.cache_read(A, 'heap', [B])",
        's[B].bind(i, "threadIdx.x")',
    ]


@pytest.mark.parametrize(
    "target, ours",
    [
        ("llvm", ""),
        ("llvm -mcpu=skylake-avx512", ", target='x86-64-v4'"),
        ("cuda", ", target='cuda'"),
    ],
)
def test_a_target_has_our_name(target, ours):
    code, _ = migrated(f"import tvm\nf = tvm.build(s, [A], {target!r}, name='f')\n")
    assert code == f"import tilesmith as ts\nf = ts.build(s, [A]{ours}, name='f')\n"


def test_what_stays_is_listed_with_its_line_and_runs_with_the_shim():
    code, left = migrated(
        "import tvm\nfrom tvm import te, autotvm\n\n@autotvm.template('t')\ndef f():\n"
        "    return te.hybrid, tvm.rpc\n\ng.time_evaluator('g', tvm.cpu())\n"
        "tvm.build(s, [A], target=chosen)\n"
    )
    assert "from tilesmith.compat.tvm import autotvm" in code
    assert "import tilesmith.compat.tvm as tvm" in code
    found = {(line, text.split(":")[0]) for line, text in left}
    assert found >= {
        (4, "tvm.autotvm.template"), (6, "tvm.te.hybrid"), (6, "tvm.rpc"), (8, "tvm.cpu"),
        (8, ".time_evaluator"), (9, "tvm.build"),
    }  # fmt: skip
    (reason,) = (text for _, text in left if text.startswith("tvm.te.hybrid"))
    assert "use tilesmith.te.extern with a LoopBuilder" in reason


def test_a_program_for_halide_imports_the_shim_and_lists_what_it_refuses():
    code, left = migrated(
        "import halide as hl\nx = hl.Var('x')\nf = hl.Func('f')\nf[x] = hl.print_when(x > 2, x)\n"
        "f.gpu_tile(x, x, 8)\n"
    )
    assert code.startswith("import tilesmith.compat.halide as hl\nx = hl.Var('x')\n")
    assert [line for line, _ in left] == [4, 5]
    assert "blockIdx.x" in left[1][1]


def test_the_verb_prints_a_diff_and_changes_the_file_on_request(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    script = tmp_path / "vectors.py"
    script.write_text(VECTORS, encoding="utf-8")
    assert execute(["migrate", str(script)]) == 0
    diff = capfd.readouterr().out
    assert "-import tvm\n" in diff
    assert "+import tilesmith as ts\n" in diff
    assert script.read_text(encoding="utf-8") == VECTORS
    assert execute(["migrate", str(script), "--write", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["left"] == []
    assert "tvm" not in script.read_text(encoding="utf-8")


def test_a_file_that_is_no_python_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    script = tmp_path / "broken.py"
    script.write_text("def (:\n", encoding="utf-8")
    assert execute(["migrate", str(script)]) == 1
    assert "expected a program in Python" in capfd.readouterr().err
    with pytest.raises(UsageError, match="line 1"):
        migrated("def (:\n")


@pytest.mark.parametrize("name", sorted(OURS))
def test_each_name_is_in_the_shim_and_ours_is_in_tilesmith(name):
    assert "no counterpart" not in why(name)
    root, *parts = OURS[name].split(".")
    value: object = {"te": ts.te, "np": np}[root]
    for part in parts:
        value = getattr(value, part)
    assert callable(value)


def test_the_tables_of_the_guide_are_those_of_the_shim():
    old = shim_table.PAGE.read_text(encoding="utf-8")
    hint = "run python -m benchmarks.shim_table --write"
    assert shim_table.page(old) == old, hint


def test_each_name_without_a_counterpart_raises_what_the_table_says():
    for path in ("tvm", "tvm.te", "tvm.tir", "tvm.relay.transform", "halide"):
        module = importlib.import_module(f"tilesmith.compat.{path}")
        for name, use in module.ELSEWHERE.items():
            with pytest.raises(UsageError) as e:
                getattr(module, name)
            assert str(e.value).endswith(f"has no counterpart: use {use}")
