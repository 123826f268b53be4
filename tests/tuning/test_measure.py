"""How candidates are measured: who builds while who runs, on which processors, and what counts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubling import a_task, clock, kernel
from echo_builder import LOG

from tilesmith.codegen.kernel import with_head
from tilesmith.runtime.threads import cores
from tilesmith.search_space.space import Candidate
from tilesmith.support.child import Child
from tilesmith.tuning import measure, runner
from tilesmith.tuning.jobs import Answer, Argument, MeasureJob, MeasurePlan, Runnable, save_arrays
from tilesmith.tuning.measure import LocalMeasurer
from tilesmith.tuning.processors import Shares, divided, shares
from tilesmith.tuning.runner import Bench, in_turns


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv(LOG, str(path))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # children get our path
    yield path


@pytest.fixture(scope="module")
def good() -> bytes:
    return with_head([], kernel().to_bytes())


def test_builders_work_while_the_runner_measures(
    log: Path, good: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere = frozenset(p for c in cores() for p in c)
    monkeypatch.setattr(measure, "shares", lambda _: Shares(everywhere, everywhere or {0}))
    task = a_task({"good": good, "late": good})

    def build(c: Candidate) -> bytes:
        return b"after run" + good if c.get("kind") == "late" else good

    with LocalMeasurer("echo_builder", 1, 2, runner="logging_runner") as m:
        wanted: list[Candidate] = [{}, {"kind": "late"}]
        trials = list(m.measure(replace(task, build=build), wanted, 0.0))
    assert [t.status for t in trials] == ["ok", "ok"]
    assert log.read_text().split() == ["built", "built", "run", "built", "run"]  # baseline first


def test_nothing_is_built_meanwhile_without_processors_to_spare(
    log: Path, good: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "shares", lambda _: Shares())
    kinds = ["good", "b", "c", "d"]
    with LocalMeasurer("echo_builder", 1, 2, runner="logging_runner") as m:
        list(m.measure(a_task(dict.fromkeys(kinds, good)), [{"kind": k} for k in kinds], 0.0))
    assert log.read_text().split() == ["built"] * 5 + ["run"] * 4


def test_processors_are_shared() -> None:
    four = [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert divided(four, 4, 2) == Shares(frozenset({2, 3}), frozenset({0, 4, 1, 5}))
    assert divided(four, 4, 4) == Shares(frozenset({0, 1, 2, 3}))
    assert divided(four, 3, 2) == Shares(frozenset({2, 3}), frozenset({1, 5}))  # a quota of 3
    assert divided(four, 2, 2) == Shares(frozenset({2, 3}))
    assert divided(four, 4, 5) == divided([], 4, 1) == Shares()
    found = shares(1)
    assert not found.runner & found.builders


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux")
def test_a_child_stays_on_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    chosen = {max(os.sched_getaffinity(0))}
    with Child("echo_builder", processors=chosen) as child:
        assert child.call(b"processors", 60) == repr(sorted(chosen)).encode()
    with Child("echo_builder") as child:
        allowed = sorted(os.sched_getaffinity(0))
        assert child.call(b"processors", 60) == repr(allowed).encode()


def test_the_candidate_counts_where_nothing_disturbed_the_baseline() -> None:
    # the clock rate falls after two turns; in the third the candidate has the old one still
    candidate, baseline = clock(9.0, 8.0, 6.0, 9.0), clock(10.0, 10.0, 12.0)
    answer = in_turns(candidate, baseline, MeasurePlan(1, (), 1.0))
    assert (answer.outcome, answer.seconds, answer.baseline) == ("ok", 8.0, 10.0)


def test_it_goes_on_until_there_are_enough_quiet_turns() -> None:
    calls: list[float] = []

    def baseline(_: int) -> float:
        calls.append(1.0 if len(calls) in (0, 9, 12) else 2.0)
        return calls[-1]

    answer = in_turns(lambda _: 1.0, baseline, MeasurePlan(1, (), 10.0))
    assert answer.outcome == "ok" and answer.baseline == 1.0
    assert len(calls) >= 13  # the third quiet one


class TestBench:
    """In this process."""

    args = (Argument("f32", (1024,)),), (Argument("f32", (1024,)),)

    def job(
        self, tmp_path: Path, text: str | None = None, plan: MeasurePlan | None = None
    ) -> MeasureJob:
        x = np.linspace(-1, 1, 1024, dtype=np.float32)
        path = tmp_path / "arrays.npz"
        save_arrays(path, [x], [[x * 2]])
        base = Runnable.of(kernel(), *self.args)
        candidate = Runnable.of(kernel(text), *self.args) if text is not None else base
        return MeasureJob(path, base, candidate, plan or MeasurePlan(1, (1e-6,), 0.0))

    @pytest.mark.parametrize(("low", "outcome"), [(0.0, "ok"), (0.5, "wrong")])
    def test_a_result_may_lie_where_steps_may_put_it(
        self, tmp_path: Path, low: float, outcome: str
    ) -> None:
        """The kernel doubles; the reference is three times x, but may be less."""
        x = np.linspace(0, 1, 1024, dtype=np.float32)
        path = tmp_path / "arrays.npz"
        save_arrays(path, [x], [[3 * x], [3 * x - x * (1 - low)], [4 * x]])
        runnable = Runnable.of(kernel(), *self.args)
        job = MeasureJob(path, runnable, runnable, MeasurePlan(1, (1e-6,), 0.0))
        assert Bench().measure(job).outcome in (outcome, {"ok": "slow"}.get(outcome))

    def test_each_output_has_a_bound_of_its_own(self, tmp_path: Path) -> None:
        bench = Bench()
        assert bench.measure(self.job(tmp_path)).outcome in ("ok", "slow")
        loaded = bench._baseline[1]  # type: ignore[index]  # it was measured
        references = [[y + np.float32(1e-3)] for y in loaded.outputs]
        assert loaded.fault(references, (1e-2,)) == ""
        assert loaded.fault(references, (1e-4,)).startswith("off by 5")
        loaded.outputs.extend(loaded.outputs)
        loaded.kernel = replace(loaded.kernel, outputs=loaded.kernel.outputs * 2)
        text = loaded.fault(references * 2, (1e-2, 1e-4))
        assert text.startswith("output 1 is off by 5") and text.endswith("(allowed: 1e-04)")

    def test_flushed_caches(self, tmp_path: Path) -> None:
        bench = Bench()
        flushed = self.job(tmp_path, plan=MeasurePlan(1, (1e-6,), 0.0, flush_bytes=1 << 16))
        answer = bench.measure(flushed)
        assert answer.outcome in ("ok", "slow") and answer.seconds > 0
        assert bench._other.min() > 0  # it was written to
        assert len(bench._other) == 1 << 16

    def test_what_is_not_written_is_wrong(self, tmp_path: Path) -> None:
        text = """
def k(x: f32[1024], y: f32[1024]) -> y:
    for i in range(1023):
        y[i] = x[i] * 2.0
"""
        answer = Bench().measure(self.job(tmp_path, text))
        assert answer.outcome == "wrong"

    def test_results_that_change_are_wrong(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[runner.Loaded] = []
        prepare, turns = runner.Loaded.__init__, runner.in_turns

        def note(self: runner.Loaded, *args: Any) -> None:
            prepare(self, *args)
            made.append(self)

        def spoil(*args: Any) -> Answer:
            found = turns(*args)
            made[0].outputs[0][3] = 9.0  # as if a thread had come too late
            return found

        monkeypatch.setattr(runner.Loaded, "__init__", note)
        monkeypatch.setattr(runner, "in_turns", spoil)
        answer = Bench().measure(self.job(tmp_path))
        assert answer.outcome == "wrong" and "not always" in answer.text


def test_candidates_may_take_a_share_of_this_machines_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for usable, share in ((6 << 30, 3 << 30), (256 << 30, 128 << 30), (1 << 30, 2 << 30)):
        monkeypatch.setattr(measure, "usable_memory", lambda n=usable: n)
        assert LocalMeasurer("echo_builder", 1, 1).memory_bytes == share


def test_a_builder_that_takes_all_memory(monkeypatch: pytest.MonkeyPatch, good: bytes) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with LocalMeasurer("echo_builder", 1, 1, memory_bytes=4 << 30) as m:
        task = a_task({"good": good, "huge": b"memory", "good again": good})
        wanted: list[Candidate] = [{"kind": "huge"}, {"kind": "good again"}]
        bad, fine = m.measure(task, wanted, 0.0)
    assert bad.status == "memory" and "while building" in bad.cause
    assert fine.status in ("ok", "slow")
