"""`tilesmith migrate`, and the tables of names in the guide."""

from __future__ import annotations

import importlib
import json
import re
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
        "C = s.cache_write(B, 'stack')",
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
    assert code == f"import tilesmith as ts\n\nf = ts.build(s, [A]{ours}, name='f')\n"


def test_what_stays_is_listed_with_its_line_and_runs_with_the_shim():
    code, left = migrated(
        "import tvm\nfrom tvm import te, autotvm\n\n@autotvm.template('t')\ndef f():\n"
        "    return te.hybrid, tvm.relax\n\ng.time_evaluator('g', tvm.cpu())\n"
        "tvm.build(s, [A], target=chosen)\n"
    )
    assert "from tilesmith.compat.tvm import autotvm" in code
    assert "import tilesmith.compat.tvm as tvm" in code
    found = {(line, text.split(":")[0]) for line, text in left}
    assert found >= {
        (4, "tvm.autotvm.template"), (6, "tvm.te.hybrid"), (6, "tvm.relax"), (8, "tvm.cpu"),
        (8, ".time_evaluator"), (9, "tvm.build"),
    }  # fmt: skip
    (reason,) = (text for _, text in left if text.startswith("tvm.te.hybrid"))
    assert "use tilesmith.te.extern with a LoopBuilder" in reason


@pytest.mark.parametrize(
    "before, after",
    [
        ("def f():\n    import tvm\n    return tvm.te.exp(x)\n",
         "from tilesmith import te\ndef f():\n    return te.exp(x)\n"),
        ("import tvm; print(1)\ny = tvm.te.exp(x)\n",
         "from tilesmith import te\nprint(1)\ny = te.exp(x)\n"),
        ("import os\n# why\nimport tvm\ny = tvm.te.exp(x)\n",
         "from tilesmith import te\nimport os\n# why\ny = te.exp(x)\n"),
        ("import numpy as np\nfrom tvm import (te,\n    relay)\nrelay.build(m)\n",
         "import numpy as np\nfrom tilesmith.compat.tvm import relay\nrelay.build(m)\n"),
        ("from tvm.contrib import graph_executor\ngraph_executor.GraphModule(m)\n",
         "from tilesmith.compat.tvm.contrib import graph_executor\n"
         "graph_executor.GraphModule(m)\n"),
        ("from tvm import relay as rly\nrly.build(m)\n",
         "from tilesmith.compat.tvm import relay as rly\nrly.build(m)\n"),
        ("import tvm.relay as rly, os\nrly.build(m)\n",
         "import tilesmith.compat.tvm.relay as rly, os\nrly.build(m)\n"),
        ("import tvm as t\nc = b.numpy()\nt.cpu()\n",
         "import tilesmith.compat.tvm as t\nimport numpy as np\nc = np.asarray(b)\nt.cpu()\n"),
        ("from tvm import te\nte.min_value('int8')\n",
         "import tilesmith.compat.tvm as tvm\ntvm.te.min_value('int8')\n"),
        ("import tvm\ntvm.tir.Cast('int8', x)\n", "from tilesmith import te\nte.cast(x, 'int8')\n"),
        ("from halide import Func\nf = Func('f')\n",
         "from tilesmith.compat.halide import Func\nf = Func('f')\n"),
        ("import halide\nf = halide.Func('f')\n",
         "import tilesmith.compat.halide as halide\nf = halide.Func('f')\n"),
    ],
)  # fmt: skip
def test_imports_are_those_that_the_new_names_need(before, after):
    code, _ = migrated(before)
    compile(code, "migrated", "exec")
    assert sorted(filter(None, code.splitlines())) == sorted(after.splitlines())


@pytest.mark.parametrize(
    "call, reason",
    [
        ("te.compute(s, f, tag='t')", "tag"),
        ("te.compute(s, f, 'B', 't')", "no argument tag"),
        ("te.var('n', 'int32')", "te.var"),
        ("te.sum(x, axis=k, where=c)", "where"),
        ("te.exp(*x)", r"write out the arguments that \* stands for"),
        ("te.exp(**x)", r"write out the arguments that \* stands for"),
        ("tvm.build(s, args, 'llvm', 'llvm')", "no argument target_host"),
        ("tvm.build(s, args, runtime=r)", "no argument runtime"),
        ("tvm.nd.array()", "missing a required argument"),
        ("tvm.nd.array(a, dev)", "no argument device"),
        ("tvm.lower(1, 2, 3, 4, 5, 6, 7)", "too many positional arguments"),
        ("tvm.lower(s, args, binds=b)", "no argument binds"),
        ("te.thread_axis(0)", "write the name of the index"),
    ],
)
def test_a_call_with_an_argument_that_ours_lacks_stays(call, reason):
    code, left = migrated(f"import tvm\nfrom tvm import te\n{call}\n")
    name = call.partition("(")[0]
    name = name if name.startswith("tvm") else f"tvm.{name}"
    assert f"{name}({call.partition('(')[2]}" in code
    assert "import tilesmith.compat.tvm as tvm" in code
    ((line, text),) = left
    assert line == 3
    assert re.search(reason, text), text


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
    for path in shim_table.REFUSING:
        module = importlib.import_module(f"tilesmith.compat.{path}")
        for name, use in module.ELSEWHERE.items():
            with pytest.raises(UsageError) as e:
                getattr(module, name)
            assert str(e.value).endswith(f"has no counterpart: use {use}")


@pytest.mark.parametrize(
    "code, reason",
    [
        ("ts = [1]\nf = tvm.build(s, ts)\n", "its own 'ts'"),
        ("def f(te):\n    return tvm.te.exp(te)\n", "its own 'te'"),
        ("import torch as np\na = tvm.nd.array(b)\n", "its own 'np'"),
        ("from numpy import array as np\na = b.asnumpy()\n", "use numpy.asarray"),
        ("from tvm import relay as te\nb = tvm.te.exp(x)\n", "its own 'te'"),
        ("s.cache_write(C, scope)\n", "write one of Tilesmith's names"),
    ],
)
def test_a_line_whose_new_form_would_mean_something_else_stays(code, reason):
    after, left = migrated(f"import tvm\n{code}")
    assert after.splitlines()[-1] == code.splitlines()[-1]
    ((_, text),) = left
    assert reason in text


def test_names_that_the_program_imports_alike_are_ours_to_use():
    code, left = migrated(
        "import numpy as np\nimport tvm\nfrom tvm import te\na = tvm.nd.array(te.exp(b)).numpy()\n"
    )
    assert code.splitlines()[-1] == "a = np.asarray(np.array(te.exp(b)))" and not left


def test_what_a_method_is_called_on_stays():
    code, left = migrated("import tvm\nfrom tvm import te\nte.create_schedule(C.op).bind(i, j)\n")
    assert code.splitlines()[-1] == "te.create_schedule(C.op).bind(i, j)" and not left
    code, _ = migrated("import tvm\nd = tvm.cpu(0).sync(tvm.te.exp(x))\n")
    assert code.splitlines()[-1] == "d = tvm.cpu(0).sync(te.exp(x))"


def test_only_the_scope_of_a_stage_is_renamed():
    code, left = migrated(
        "import tvm\ns.cache_read(bufs['local'], 'local', [C])\n"
        "s[bufs['local']].set_scope('local')\n"
        "s.cache_write(C, scope='local')\ns.cache_write(C, 'shared')\n"
    )
    assert not left
    assert [line for line in code.splitlines() if line.startswith("s")] == [
        "s.cache_read(bufs['local'], 'stack', [C])",
        "s[bufs['local']].set_scope('stack')",
        "s.cache_write(C, scope='stack')",
        "s.cache_write(C, 'shared')",
    ]
