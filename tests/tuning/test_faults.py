"""Candidates that crash, hang, take all memory or are wrong cost one candidate, and say so."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from doubling import EXPECTED, a_task, clock, replies

from tilesmith.search_space.space import Candidate
from tilesmith.support.child import Child, ChildError
from tilesmith.support.errors import ScheduleError
from tilesmith.te.knobs import Config
from tilesmith.tuning.jobs import MeasurePlan
from tilesmith.tuning.measure import LocalMeasurer, is_locked, machine_lock
from tilesmith.tuning.runner import in_turns


@pytest.fixture(scope="module")
def kernels() -> Mapping[str, bytes]:
    return replies()


@pytest.fixture
def measurer() -> Iterator[LocalMeasurer]:
    sys.path.insert(0, str(Path(__file__).parent))  # children get our path
    with LocalMeasurer("echo_builder", 1, 2, run_seconds=10.0, build_seconds=10.0) as m:
        yield m
    sys.path.remove(str(Path(__file__).parent))


def test_every_fault_costs_one_candidate(
    measurer: LocalMeasurer, kernels: Mapping[str, bytes]
) -> None:
    kinds = [k for k in kernels if k != "good"]
    order = [k for kind in kinds for k in (kind, "good again")]  # life goes on after each
    trials = list(measurer.measure(a_task(kernels), [{"kind": k} for k in order], 0.02))
    assert [t.candidate["kind"] for t in trials] == order
    assert {t.status for t in trials[1::2]} <= {"ok", "slow"}
    by_kind = dict(zip(kinds, trials[::2], strict=True))
    found = {k: t.status for k, t in by_kind.items()}
    assert found.pop("good again") in ("ok", "slow")
    assert found == EXPECTED
    assert "SIGSEGV" in by_kind["segfault"].cause
    assert "while building" in by_kind["dies"].cause
    assert "off by" in by_kind["wrong"].cause
    assert by_kind["wrong"].ratio == float("inf")


def test_without_a_baseline_nothing_is_measured(
    measurer: LocalMeasurer, kernels: Mapping[str, bytes]
) -> None:
    broken = a_task({**kernels, "good": b"fail"})
    (t,) = measurer.measure(broken, [{"kind": "good again"}], 0.02)
    assert t.status == "failed"
    assert "the analytic schedule: while building: ValueError: no such thing can" in t.cause


def test_steps_that_cannot_be_lowered_together_cost_one_candidate(
    measurer: LocalMeasurer, kernels: Mapping[str, bytes]
) -> None:
    task = a_task(kernels)

    def build(candidate: Candidate) -> bytes:
        if candidate.get("kind") == "dies":
            raise ScheduleError("not in this place")
        return task.build(candidate)

    wanted: list[Candidate] = [{"kind": "dies"}, {"kind": "good again"}]
    bad, good = measurer.measure(replace(task, build=build), wanted, 0.02)
    assert bad.status == "failed" and bad.cause == "not in this place"
    assert good.status in ("ok", "slow")


def test_llvm_without_memory_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)  # children get our path
    with Child("greedy_builder") as child:
        with pytest.raises(ChildError, match="may not take so much memory") as found:
            child.call(b"much", 60)
        assert found.value.cause == "memory"
        assert child.call(b"fine", 60) == b"fine"


def test_a_child_ends_with_its_parent() -> None:
    program = (
        f"import sys, threading, time; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from tilesmith.support.child import Child\n"
        "child = Child('echo_builder'); child.call(b'x', 20)\n"
        "threading.Thread(target=child.call, args=(b'sleep', 60)).start(); time.sleep(0.3)\n"
        "print(child._process.pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = Path(f"/proc/{int(parent.stdout.readline())}/stat")
    parent.kill()
    parent.wait()
    for _ in range(200):
        # it may stay a zombie where nobody collects it
        if not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("the child goes on")


def test_measurements_exclude_each_other(tmp_path: Path) -> None:
    events: list[str] = []

    def hold(name: str) -> None:
        with machine_lock(tmp_path / "lock"):
            events.append(name)
            time.sleep(0.05)
            events.append(name)

    threads = [threading.Thread(target=hold, args=(n,)) for n in "abc"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(a == b for a, b in zip(events[::2], events[1::2], strict=True))


def test_whether_somebody_measures(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    with machine_lock(path):
        assert is_locked(path)
    with machine_lock(path, shared=True):
        assert is_locked(path)
    assert not is_locked(path)


def test_the_wait_for_the_right_to_measure_is_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "lock"
    with machine_lock(path), machine_lock(path, seconds=0.01):
        pass
    assert "another process has measured on this machine for 0.01 s" in caplog.text


def test_the_least_times_count() -> None:
    answer = in_turns(clock(3.0, 1.0, 2.0, 9.0), clock(4.0, 2.0, 8.0), MeasurePlan(1, (), 0.0))
    assert (answer.outcome, answer.seconds, answer.baseline) == ("ok", 1.0, 2.0)


def test_what_is_clearly_slower_is_given_up() -> None:
    calls = 0

    def slow(_: int) -> float:
        nonlocal calls
        calls += 1
        return 5.0

    answer = in_turns(slow, clock(1.0), MeasurePlan(1, ()))
    assert answer.outcome == "slow" and calls == 3


def test_impossible_decisions_are_schedule_errors() -> None:
    space = a_task({"good": b""}).space
    assert space.legal({"kind": "none such"}) == {}
    assert Config({}).choice("kind", ["good"], "good") == "good"
