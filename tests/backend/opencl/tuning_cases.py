"""Tuning on an OpenCL device: candidates run in child processes of this one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from common.part_models import detector
from tilesmith import driver
from tilesmith.driver.request import Request
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.matmul import MatMul
from tilesmith.search_space.records import Records, trial
from tilesmith.support.errors import UsageError
from tilesmith.tuning.measure import LocalMeasurer
from tilesmith.tuning.model import tune_model
from tilesmith.tuning.options import TuneOptions
from tilesmith.tuning.tasks import Compiled, tasks_of

SIDE = 96


def product() -> tuple[Graph, np.ndarray, np.ndarray]:
    """A product with constant weights, an input, and the result."""
    rng = np.random.default_rng(0)
    weights, given = (rng.standard_normal((SIDE, SIDE), np.float32) for _ in range(2))
    b = Builder("g")
    x = b.input("x", TensorType(f32, (SIDE, SIDE)))
    return b.finish([b.add(MatMul(), x, b.constant(weights, "w"))]), given, given @ weights


def options(folder: str) -> ts.Options:
    return ts.Options(target="opencl", cache_dir=Path(folder), threads=1, jobs=1)


def tune() -> None:
    """A product is tuned: trials go to the records, and the result is right."""
    graph, given, wanted = product()
    with tempfile.TemporaryDirectory() as folder:
        result = tune_model(Request(graph, options(folder)), TuneOptions(trials=3, seconds=120))
        np.testing.assert_allclose(result.executable(given), wanted, rtol=1e-4, atol=1e-4)
        (task,) = result.tasks
        assert task.trials == 3 and not task.errors
        with Records(Path(folder) / "records.sqlite") as records:
            tried = [t for t in records.trials() if t.candidate]
        assert {t.key for t in tried} == {task.task.key}
        assert {k for t in tried for k in t.candidate} <= {"block", "tile", "step"}


def records_are_used() -> None:
    """`compile` takes the decisions that records have for this device."""
    graph, given, wanted = product()
    with tempfile.TemporaryDirectory() as folder:
        session = driver.Session.of(options(folder))
        (task,) = tasks_of(Compiled.of(graph, session), session)
        assert set(task.space.knobs({})) >= {"block", "tile", "step"}
        plain = ts.compile(graph, options=options(folder))
        with Records(Path(folder) / "records.sqlite") as records:
            chosen = {"tile": 2, "step": 16}
            records.add(trial(task.key, chosen, "ok", task.label, "", 1.0, 2.0))
        tuned = ts.compile(graph, options=options(folder))
        (before,), (after,) = (e.program.kernels.values() for e in (plain, tuned))
        assert before.loops != after.loops
        np.testing.assert_allclose(tuned(given), wanted, rtol=1e-4, atol=1e-4)


def hung_and_crashing_kernels() -> None:
    """Each costs one candidate; the next one runs."""
    graph, _, _ = product()
    with tempfile.TemporaryDirectory() as folder:
        session = driver.Session.of(options(folder))
        (task,) = tasks_of(Compiled.of(graph, session), session)
        candidates = [{"tile": 2}, {"tile": 8}, {"step": 16}]
        sys.path.insert(0, str(Path(__file__).parent))
        with LocalMeasurer(
            "treacherous_builder", 1, 1, run_seconds=10.0, device=session.target
        ) as measurer:
            found = list(measurer.measure(task, candidates, 0.0))
    assert [t.status for t in found[:2]] == ["timeout", "crash"], found
    assert found[2].status in ("ok", "slow") and found[2].baseline > 0


def what_is_not_tuned() -> None:
    with pytest.raises(UsageError, match="expected a model that the device runs alone, found"):
        tune_model(Request(detector(), ts.Options(target="opencl")), TuneOptions(trials=1))
    graph, _, _ = product()
    for choice in ({"flush": True}, {"search": "model"}, {"workers": "ray"}):
        with pytest.raises(UsageError, match=r"expected the target of tuning to be a CPU, found"):
            tune_model(Request(graph, ts.Options(target="opencl")), TuneOptions(trials=1, **choice))


def tuning() -> dict[str, Callable[[], None]]:
    """The cases by name."""
    cases = (tune, records_are_used, hung_and_crashing_kernels, what_is_not_tuned)
    return {f.__name__: f for f in cases}
