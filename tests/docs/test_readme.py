"""README's blocks run as they are pasted, one after the other, in one folder.

The model has the name and the input of README's, and is small.  Time to tune and to measure is
less than README's, and an extra that is not installed skips the line that needs it.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.cli import VERBS, execute

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
NEEDS = {
    "wasm32": "ziglang",
    **dict.fromkeys(("agent", "keygen", "--sign"), "cryptography"),
}
"""What a word of a line needs installed."""


def block(name: str) -> str:
    """The block of code after the comment `<!-- name -->`."""
    (found,) = re.findall(rf"^<!-- {name} -->\n```\w+\n(.*?)^```$", README, re.M | re.S)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With `resnet50.onnx`: x f32[1,3,224,224] to scores of ten classes."""
    rng = np.random.default_rng(0)
    weights = {"w": (8, 3, 3, 3), "v": (10, 8)}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["input", "w"], ["c"], name="conv", strides=[16, 16]),
            helper.make_node("Relu", ["c"], ["r"], name="relu"),
            helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
            helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
            helper.make_node("Gemm", ["f", "v"], ["output"], name="fc", transB=1),
        ],
        "resnet50",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 224, 224])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 10])],
        [
            numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
            for n, s in weights.items()
        ],
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(
        helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "resnet50.onnx"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def test_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = set()
    for line in block("verbs").splitlines():
        program, *arguments = shlex.split(line.replace("--seconds 60", "--trials 2"), comments=True)
        lacks = [p for word, p in NEEDS.items() if word in arguments]
        if any(importlib.util.find_spec(p) is None for p in lacks):
            continue
        if program == "python":
            subprocess.run([sys.executable, *arguments], check=True, cwd=folder)
            continue
        seen.add(arguments[0])
        assert execute(arguments) == 0, f"{line}\n{capsys.readouterr().err}"
    assert set(VERBS) - seen <= {
        "quantize",
        "train",
        "verify",
        "keygen",
        "agent",
        "migrate",
        "accel",
    }


def test_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune = ts.tune
    monkeypatch.setattr(ts, "tune", lambda model, seconds: tune(model, seconds=1))
    found: dict[str, Any] = {}
    exec(block("python"), found)
    np.testing.assert_allclose(found["y"], found["out"]["output"])


def test_pytorch(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    found: dict[str, Any] = {"ts": ts}
    exec(block("torch"), found)
    x, module = found["x"], found["module"]
    with torch.no_grad():
        for answer in (found["model"](x), found["exe"](x)):
            np.testing.assert_allclose(answer, module(x), rtol=1e-5, atol=1e-6)


def test_tensor_expressions() -> None:
    found: dict[str, Any] = {}
    exec(block("te"), found)
    assert (found["c"] == 640).all()
