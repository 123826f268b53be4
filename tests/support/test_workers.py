"""Worker processes: answers, failures that are nobody's error, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilesmith.support.workers import Workers

_MODULE = """
import os, sys
from tilesmith.support.workers import serve

def answer(request):
    print("a library says something on standard output")
    if request == b"fail":
        raise ValueError("no")
    if request == b"die":
        os._exit(1)
    return request * 2

if __name__ == "__main__":
    serve(answer)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "doubling.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "doubling"


def test_answers_come_back_to_those_who_asked(module: str) -> None:
    requests = [bytes([n]) * (1 << n) for n in range(1, 20)]
    with Workers(module, 2) as workers, ThreadPoolExecutor(2) as pool:
        assert list(pool.map(workers.call, requests)) == [r * 2 for r in requests]


def test_what_no_process_can_answer_is_none(module: str) -> None:
    with Workers(module, 1) as workers:
        assert workers.call(b"fail") is None
        assert workers.call(b"ab") == b"abab"  # it goes on
        assert workers.call(b"die") is None
        assert workers.call(b"ab") is None  # there is none any more


def test_no_process_is_left(module: str) -> None:
    with Workers(module, 2) as workers:
        workers.call(b"x")
        processes = list(workers._all)
    assert all(p.returncode is not None for p in processes)


@pytest.mark.parametrize("executable", ["", "/nowhere/python"])
def test_without_an_interpreter(module: str, monkeypatch, executable: str) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with Workers(module, 2) as workers:
        assert workers.call(b"x") is None


def test_a_module_that_does_not_start() -> None:
    with Workers("tilesmith.no_such_module", 1) as workers:
        assert workers.call(b"x") is None


def test_the_main_program_is_not_run_again(tmp_path: Path) -> None:
    """As multiprocessing would, for a script without a guard; its threads do no harm either."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import threading, time
            print("once")
            threading.Thread(target=time.sleep, args=(0.5,)).start()
            from tilesmith.support.workers import Workers
            with Workers("tilesmith.driver.worker", 1) as workers:
                assert workers.call(b"not a job") is None
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "once\n"
