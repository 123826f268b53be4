"""The thread pool, tested from C: bodies that wait for each other show who runs with whom."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from c_compiler import CSRC, compile_c


@pytest.fixture(scope="module")
def pool_test(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("pool") / "pool_test"
    compile_c(program, Path(__file__).with_name("pool_test.c"), CSRC / "pool.c")
    return program


def run(program: Path, *arguments: object) -> str:
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("callers,cores", ((1, 2), (16, 2), (16, 4), (6, 8), (100, 2)))
def test_every_iteration_runs_once(pool_test: Path, callers: int, cores: int) -> None:
    """16 callers, different numbers of threads, nested loops; 100: more callers than slots."""
    run(pool_test, "stress", callers, cores, 20000 // callers)


@pytest.mark.parametrize("callers,threads", ((1, 4), (2, 2), (2, 3), (4, 2), (3, 5)))
def test_callers_share_the_workers(pool_test: Path, callers: int, threads: int) -> None:
    """With cores for all, all chunks of all callers run at the same time."""
    run(pool_test, "share", callers, callers * threads, threads)


@pytest.mark.parametrize("callers,cores,threads", ((2, 2, 2), (2, 4, 4), (3, 4, 2), (8, 2, 4)))
def test_callers_and_workers_are_not_too_many(
    pool_test: Path, callers: int, cores: int, threads: int
) -> None:
    """At most as many as there are cores, or as a loop has threads, or as there are callers."""
    assert int(run(pool_test, "limit", callers, cores, threads)) <= max(callers, cores, threads)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
@pytest.mark.parametrize("callers,threads", ((1, 4), (3, 3), (8, 4), (5, 1)))
def test_an_own_pool_helps_one_caller_and_ends_with_it(
    pool_test: Path, callers: int, threads: int
) -> None:
    """All chunks of all callers run at once, though the number of cores is smaller."""
    run(pool_test, "own", callers, 1, threads)


AFFINITY = """
import os, time, numpy as np
from models import ROWS, COLS, program
from tilesmith.runtime.executable import Executable

def places():
    return {tuple(sorted(os.sched_getaffinity(int(t)))) for t in os.listdir("/proc/self/task")
            if t not in before}

before = set(os.listdir("/proc/self/task"))
whole = tuple(sorted(os.sched_getaffinity(0)))
exe, x = Executable(program()[0], threads=4), np.zeros((ROWS, COLS), np.float32)
for _ in range(20):
    exe(x)
    time.sleep(0.002)  # the workers fall asleep, and are woken again
time.sleep(0.05)
assert places() == {whole}, (places(), whole)
os.sched_setaffinity(0, whole[:1])
for _ in range(20):
    time.sleep(0.002)
    exe(x)
time.sleep(0.05)
assert places() == {whole[:1]}, (places(), whole)
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="affinity is Linux's")
def test_workers_have_the_affinity_of_their_caller() -> None:
    """Nothing binds them for longer than it takes to wake one, and they follow a narrower one."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", AFFINITY],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
