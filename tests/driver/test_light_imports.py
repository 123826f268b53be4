"""What must be quick takes no more of the package than it needs: new processes say what they
imported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_models import model, node

import tilesmith as ts

COMPILER = (
    "driver.compiler",
    "graph",
    "te",
    "loop",
    "ops",
    "frontend",
    "search_space",
    "codegen.emit",
    "strategy.cpu",
)
"""Parts of the package that only compiling needs."""


def imported(program: str, *arguments: str) -> set[str]:
    """The modules that a program has imported at its end."""
    program += "\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def small_model() -> bytes:
    weights = {"w": np.ones((8, 8), np.float32)}
    return model([node("MatMul", "x w", "y")], {"x": (4, 8)}, ["y"], weights).SerializeToString()


def compiler_in(modules: set[str]) -> list[str]:
    return [p for p in COMPILER if f"tilesmith.{p}" in modules]


def test_to_load_and_run_takes_no_compiler(tmp_path: Path) -> None:
    saved = tmp_path / "m.tsm"
    ts.compile(small_model()).save(saved)
    program = """
import sys
import numpy as np
import pytest
import tilesmith as ts
print(ts.load(sys.argv[1])(np.ones((4, 8), np.float32)).sum())
"""
    assert not compiler_in(imported(program, str(saved)))


def test_reading_a_model_takes_no_more_of_onnx_than_its_messages(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(small_model())
    program = """
import sys
import tilesmith as ts
ts.compile(sys.argv[1], options=ts.Options(use_cache=False))
{also}
"""
    found = imported(program.format(also=""), str(path))
    assert "onnx.onnx_ml_pb2" in found and "onnx" not in found
    same = "import onnx; assert onnx.ModelProto is sys.modules['onnx.onnx_ml_pb2'].ModelProto"
    assert "onnx.checker" in imported(program.format(also=same), str(path))


def test_compiling_takes_no_parts_that_the_model_does_not_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))  # no records of tuning
    (tmp_path / "m.onnx").write_bytes(small_model())
    program = """
import sys
import tilesmith as ts
ts.compile(sys.argv[1], options=ts.Options(use_cache=False))
{also}
"""
    rare = {f"tilesmith.{m}" for m in ("frontend.onnx.contrib", "frontend.onnx.ml.trees",
            "frontend.onnx.gradient", "strategy.sketch", "search_space.records")}  # fmt: skip
    assert not rare & imported(program.format(also=""), str(tmp_path / "m.onnx"))
    also = "".join(f"\nimport {m}" for m in rare)
    assert rare <= imported(program.format(also=also), str(tmp_path / "m.onnx"))


def test_the_command_line_loads_what_a_verb_needs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "m.onnx").write_bytes(small_model())
    ts.compile(tmp_path / "m.onnx")
    program = """
import sys
from tilesmith.cli import execute as run
assert run(sys.argv[1:]) == 0
"""
    assert not compiler_in(imported(program, "run", str(tmp_path / "m.onnx")))
    modules = imported(program, "--help")
    assert not {"numpy", "llvmlite"} & modules


def test_to_compile_again_takes_no_compiler(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(small_model())
    program = """
import sys
import tilesmith as ts
ts.compile(sys.argv[1], options=ts.Options(cache_dir=sys.argv[2]))
"""
    first, second = (
        compiler_in(imported(program, str(tmp_path / "m.onnx"), str(tmp_path / "cache")))
        for _ in range(2)
    )
    assert first == list(COMPILER)  # the names are right
    assert not second
