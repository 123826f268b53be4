"""The example, the model maker and the benchmark tables; nothing here depends on a time."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tilesmith as ts

ROOT = Path(__file__).resolve().parents[2]
GEMM = runpy.run_path(str(ROOT / "examples" / "gemm_schedule.py"))


@pytest.mark.parametrize("stage", GEMM["STAGES"][1:], ids=lambda f: f.__name__)
def test_every_stage_of_the_gemm_example_is_right(stage):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((640, 640), dtype=np.float32) for _ in range(2))
    c = GEMM["_build"](stage(), a, b, 2)()
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(c - expected).max() / np.abs(expected).max() < 1e-5


def test_resnet_of_the_readme(tmp_path):
    maker = runpy.run_path(str(ROOT / "benchmarks" / "make_resnet.py"))
    model = maker["ResNet"](seed=1).model(size=64)
    assert model == maker["ResNet"](seed=1).model(size=64), "the file must be the same everywhere"
    x = np.random.default_rng(0).standard_normal((1, 3, 64, 64)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"input": x})
    found = ts.compile(model)(x)
    assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-4
    assert found.argmax() == expected.argmax()


def test_benchmark_tables_say_which_bars_are_met():
    markdown = runpy.run_path(str(ROOT / "benchmarks" / "run.py"))["markdown"]
    times = {"median_ms": 20.0, "min_ms": 19.0, "p90_ms": 22.0, "runs": 50}

    def model(name: str, ratio: float) -> dict[str, Any]:
        return {
            "model": name,
            "tilesmith": times,
            "onnxruntime": times,
            "ratio": ratio,
            "difference": 1e-6,
        }

    gemm = {"what": "640^3 GEMM, model", "gflops": 150, "numpy_gflops": 200, "share": 0.75}
    text = markdown(
        {
            "machine": {"cpu": "a CPU", "threads": 2, "python": "3.11"},
            "models": [model("resnet50", 1.2), model("other", 9.0), {"what": "x", "failed": 1}],
            "gemm": [gemm],
            "compile_time": [{"what": "import tilesmith", "seconds": 0.25}],
        }
    )
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines()}
    assert "1.20" in lines["resnet50"] and "<= 2 met" in lines["resnet50"]
    assert "met" not in lines["other"] and "missed" not in lines["other"]
    assert "missed" in lines["x"] and "missed" in lines["640^3 GEMM, model"]
    assert "<= 0.3 s met" in lines["import tilesmith"]


def test_readme_has_the_two_commands_that_ci_runs():
    readme = (ROOT / "README.md").read_text()
    commands = dict(re.findall(r"<!-- (run|test) -->\n```sh\n(.*?)\n```", readme, re.DOTALL))
    assert commands["run"].startswith("pip install .") and "tilesmith run" in commands["run"]
    assert "pytest" in commands["test"]
    for path in re.findall(r"\]\(([^)#]+)\)", readme):
        assert (ROOT / path).exists(), path
