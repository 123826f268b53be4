"""Kernels come out the same whoever compiles them, and the cache gives back what was put in."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import model, node

from tilesmith import driver
from tilesmith.codegen.kernel import KernelCode, KernelJob, without_head
from tilesmith.support.options import Options


def chain(lengths: Sequence[int]) -> onnx.ModelProto:
    """Matrix products of different sizes, one after the other: as many different kernels."""
    rng = np.random.default_rng(0)
    weights = {
        f"w{i}": rng.standard_normal(pair).astype(np.float32)
        for i, pair in enumerate(itertools.pairwise(lengths))
    }
    last = len(lengths) - 1
    nodes = [node("MatMul", f"v{i} w{i}", f"v{i + 1}") for i in range(last)]
    return model(nodes, {"v0": (3, lengths[0])}, [f"v{last}"], weights)


def kernels(proto: onnx.ModelProto, **options: object) -> dict[str, KernelCode]:
    """The kernels of a model by symbol."""
    session = driver.Session.of(Options().with_(**{"use_cache": False, **options}))
    fused = driver.optimise(
        driver.load_graph(driver.Request(proto, session.options), session), session
    )
    found = driver.compile_kernels(fused, session)
    assert {"lower", "compile"} <= {r.name for r in session.timings.rows()}
    return {k.symbol: k for k in found.values()}


def test_worker_processes_make_the_same_code(monkeypatch, caplog) -> None:
    proto = chain(range(5, 13))
    monkeypatch.setattr("tilesmith.driver.kernels.WORTH_A_WORKER", 1)
    with caplog.at_level(logging.INFO, "tilesmith"):
        alone, together = kernels(proto, jobs=1), kernels(proto, jobs=3)
    assert len(alone) >= 7
    assert alone == together
    assert not any("in a worker:" in m for m in caplog.messages)


def test_without_worker_processes(monkeypatch) -> None:
    proto = chain(range(5, 9))
    monkeypatch.setattr("tilesmith.driver.kernels.WORTH_A_WORKER", 1)
    alone = kernels(proto, jobs=1)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert kernels(proto, jobs=3) == alone


def test_the_cache_gives_back_the_same_code(tmp_path: Path, monkeypatch) -> None:
    proto = chain((4, 6, 4))
    options = {"use_cache": True, "cache_dir": tmp_path}
    first = kernels(proto, **options)

    def refuse(*_: object) -> None:
        pytest.fail("a cached kernel was compiled again")

    monkeypatch.setattr("tilesmith.search_space.groups.lower_group", refuse)
    session = driver.Session.of(Options(cache_dir=tmp_path))
    fused = driver.optimise(
        driver.load_graph(driver.Request(proto, session.options), session), session
    )
    again = driver.compile_kernels(fused, session)
    assert {k.symbol: k for k in again.values()} == first


def test_jobs_survive_the_way_to_another_process() -> None:
    session = driver.Session.of(Options(target="x86-64-v3", opt_level=1))
    job = KernelJob("graph k() {}", session.options, session.target)
    found = KernelJob.from_bytes(job.to_bytes())
    assert (found.text, found.target) == (job.text, job.target)
    assert found.options.key() == job.options.key()


def test_a_worker_sends_its_messages_along() -> None:
    text = "def k(x: f32[4], y: f32[4]) -> y:\n    for i in range(4):\n        y[i] = x[i]\n"
    job = KernelJob(text, Options(), driver.Session.of(Options()).target, nest=True)
    (times, messages), code = without_head(driver.answer(job.to_bytes()))
    assert ["compile", logging.DEBUG, "compiling k"] in messages
    assert "emit" in [name for name, _ in times] and KernelCode.from_bytes(code).symbol == "k"


_COMPILES = """
import sys
import numpy as np
import tilesmith as ts
exe = ts.compile(sys.argv[1], options=ts.Options(cache_dir=sys.argv[2], jobs=2))
print(exe(np.ones((3, 5), np.float32)).tobytes().hex())
"""


def test_two_processes_share_an_empty_cache(tmp_path: Path) -> None:
    onnx.save(chain(range(5, 13)), tmp_path / "m.onnx")
    command = [sys.executable, "-c", _COMPILES, str(tmp_path / "m.onnx"), str(tmp_path / "cache")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {p.communicate(timeout=120)[0] for p in both}
    assert [p.returncode for p in both] == [0, 0]
    assert len(answers) == 1
