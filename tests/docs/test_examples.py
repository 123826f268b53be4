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


@pytest.fixture
def tables():
    return runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))


def latency(name: str, threads: int, ratio: float) -> dict[str, Any]:
    times = {"median_ms": 20.0, "min_ms": 19.0, "p90_ms": 22.0, "runs": 50, "difference": 1e-6}
    engines = {"tilesmith": {**times, "ratio": 1.0}, "onnxruntime": {**times, "ratio": ratio},
               "openvino": {**times, "ratio": 9.0}}  # fmt: skip
    return {"model": name, "threads": threads, "engines": engines, "failed": {}}


def test_benchmark_tables_say_which_bars_are_met(tables):
    speeds = {"tilesmith": 150.0, "numpy": 200.0, "torch": 180.0}
    gemm = {"what": "640^3 GEMM, model", "gflops": speeds, "share": 0.75}
    timed_out = {"what": "gemm.py", "failed": "took more than 600 s"}
    features = {"what": "f", "rate": 1e5, "pretrained_rate": None, "dictionary_rate": 1e3,
                "make_seconds": 0.1}  # fmt: skip
    us = {"call": 3.5, "kernel": 0.1, "onnxruntime": 5.0}
    kernel = {"model": "resnet50", "error": -0.3}
    text = tables["markdown"](
        {
            "machine": {"cpu": "a CPU", "cores": 2, "python": "3.11", "versions": {"torch": "2"}},
            "parts": {
                "latency resnet50 1": latency("resnet50", 1, 1.2),
                "latency slow 1": latency("slow", 1, 0.5),
                "latency x 2": {"model": "x", "threads": 2, "what": "latency.py", "failed": "no"},
                "kernels 1": [kernel, {**kernel, "error": 0.1}],
                "call": [{"what": "one operator", "us": us}],
                "gemm": [gemm, timed_out],
                "features": [features],
                "compile_time": [{"what": "import tilesmith", "seconds": 0.25}],
            },
        }
    )
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines()}
    assert "1.20" in lines["resnet50"] and "missed" not in lines["resnet50"]
    assert "0.50 **missed**" in lines["slow"] and "missed" in lines["x"]
    assert "0.77 (>= 1 **missed**)" in lines["geometric mean"]
    assert "missed" in lines["one operator"] and "missed" in lines["640^3 GEMM, model"]
    assert "150 | 200 | 180 | 75%" in text and "more than 600 s" in text
    assert "<= 0.3 s met" in lines["import tilesmith"] and "missed" in lines["f"]
    assert "20.0% | <= 25% met" in text and "torch 2" in text


def test_regressions_list_what_is_furthest_off():
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "regressions.py"))
    row = {"model": "m", "kernel": 0, "operators": ["conv", "relu"], "signature": "a -> b",
           "bound": "memory", "measured_ms": 1.0, "predicted_ms": 1.1, "error": 0.1}  # fmt: skip
    worse = {**row, "kernel": 7, "predicted_ms": 0.5, "error": -0.5}
    text = benchmark["report"]([row, worse], 1)
    assert "median error 30.0%" in text and "missed" in text
    assert "m #7 conv+relu" in text and "m #0" not in text


def test_readme_has_the_two_commands_that_ci_runs():
    readme = (ROOT / "README.md").read_text()
    commands = dict(re.findall(r"<!-- (run|test) -->\n```sh\n(.*?)\n```", readme, re.DOTALL))
    assert commands["run"].startswith("pip install .") and "tilesmith run" in commands["run"]
    assert "pytest" in commands["test"]
    for path in re.findall(r"\]\(([^)#]+)\)", readme):
        assert (ROOT / path).exists(), path


def test_the_table_of_odd_operators_takes_the_best_other_way(tables):
    engines = {"tilesmith": {"min_ms": 1.0, "ratio": 1.0},
               "tilesmith, untuned": {"min_ms": 1.5, "ratio": 1.5},
               "torch": {"min_ms": 9.0, "ratio": 9.0},
               "onnxruntime": {"min_ms": 3.0, "ratio": 3.0}}  # fmt: skip
    row = {"name": "an operator", "threads": 2, "engines": engines, "ours": "tilesmith"}
    slow = {**row, "engines": {**engines, "onnxruntime": {"min_ms": 1.0, "ratio": 1.0}}}
    parts = {"odd 2 an operator": [row], "odd 2 another one": [slow],
             "odd 2 the third": {"what": "odd_operators.py", "failed": "no time"}}  # fmt: skip
    text = tables["odd_tables"]({"parts": parts})
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines()}
    assert "3.000 (onnxruntime)" in lines["an operator"] and "3.00 |" in lines["an operator"]
    assert "1.73 (>= 2 **missed**)" in lines["geometric mean"]
    assert "no time: **missed**" in lines["the third"]


@pytest.mark.parametrize("shape", [(8, 32, 6), (7, 40, 2)])
def test_the_example_of_tensor_intrinsics(shape):
    example = runpy.run_path(str(ROOT / "examples" / "tensor_intrinsic.py"))
    m, n, k = shape
    schedule, args = example["product"](m, n, k)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(2**15), 2**15, s, np.int16) for s in ((m, k), (k, n)))
    c = np.empty((m, n), np.int32)
    ts.build(schedule, args)(a, example["packed"](b), c)
    np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32))
