"""A tuning process that is killed loses the candidate in flight, and leaves nobody behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import killed
import pytest

from tilesmith.driver.request import Request
from tilesmith.search_space.records import Records, Trial
from tilesmith.search_space.space import Candidate, candidate_key
from tilesmith.tuning.measure import LocalMeasurer, Task
from tilesmith.tuning.model import tune_model
from tilesmith.tuning.options import TuneOptions
from tilesmith.tuning.scheduler import TURN

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and those that these have."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    found = {pid}
    while more := {p for p, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def is_alive(pid: int) -> bool:
    """Whether it runs; one that ended may stay a zombie where nobody collects it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_kill_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, killed.__file__, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = [json.loads(process.stdout.readline()) for _ in range(5)]
    children = descendants(process.pid)
    assert len(children) >= 2  # a builder and the runner
    process.send_signal(signal.SIGKILL)
    told += map(json.loads, process.stdout.read().splitlines())
    process.wait()

    finished = {(workload, decisions) for workload, decisions in told}
    with Records(tmp_path / "records.sqlite") as records:
        stored = {(t.key.workload, t.decisions) for t in records.trials()}
        assert finished <= stored
        assert len(stored - finished) <= 1  # stored, and killed before it could tell

    for _ in range(600):
        if not any(map(is_alive, children)):
            break
        time.sleep(0.1)
    assert not [c for c in children if is_alive(c)]

    measured: list[tuple[str, str]] = []
    measure = LocalMeasurer.measure

    def spy(
        self: LocalMeasurer, task: Task, candidates: Sequence[Candidate], seconds: float
    ) -> Iterator[Trial]:
        if seconds == TURN:  # the search; the best ones are measured for longer in the end
            measured.extend((task.key.workload, candidate_key(c)) for c in candidates)
        return measure(self, task, candidates, seconds)

    monkeypatch.setattr(LocalMeasurer, "measure", spy)
    again = tune_model(Request(killed.graph(), killed.options(tmp_path)), TuneOptions(trials=4))
    assert measured and not stored & set(measured)
    tasks = {s.task.key.workload: s.seen for s in again.tasks}
    assert all(d in tasks[w] for w, d in stored if w in tasks)
