"""Child processes: answers, failures that say what happened, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilesmith.support.child import Child, ChildError, Children, decode, encode

_MODULE = """
import os, signal, sys, time
from tilesmith.support.child import serve

def answer(request):
    print("a library says something on standard output")
    if request == b"fail":
        raise ValueError("no")
    if request == b"die":
        os._exit(1)
    if request == b"abort":
        os.kill(os.getpid(), signal.SIGABRT)
    if request == b"memory":
        raise MemoryError
    if request == b"sleep":
        time.sleep(60)
    if request == b"pid":
        return str(os.getpid()).encode()
    return request * 2

if __name__ == "__main__":
    serve(answer)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "doubles_requests.py").write_text(_MODULE)
    (tmp_path / "reads_nothing.py").write_text("import time; time.sleep(60)")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "doubles_requests"


def test_answers_come_back_to_those_who_asked(module: str) -> None:
    requests = [bytes([n]) * (1 << n) for n in range(1, 21)]
    with Children(module, 2) as children, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(children.call, requests)) == [r * 2 for r in requests]


@pytest.mark.parametrize(
    ("request_", "cause", "text"),
    [
        (b"fail", "failed", "ValueError: no"),
        (b"die", "crash", "the process ended with exit code 1"),
        (b"abort", "crash", "the process died of SIGABRT"),
        (b"memory", "memory", "may not take so much memory"),
        (b"sleep", "timeout", "no result within 0.5 s"),
    ],
)
def test_an_error_says_what_happened(module: str, request_: bytes, cause: str, text: str) -> None:
    with Child(module) as child:
        before = child.call(b"pid", 30)
        with pytest.raises(ChildError, match=text) as found:
            child.call(request_, 0.5)
        assert found.value.cause == cause
        assert child.call(b"ab", 30) == b"abab"  # life goes on
        assert (child.call(b"pid", 30) == before) == (cause == "failed")


def test_a_request_that_is_not_read_ends_in_time(module: str) -> None:
    with Child("reads_nothing") as child, pytest.raises(ChildError) as found:
        child.call(bytes(1 << 20), 1.0)
    assert found.value.cause == "timeout" and str(found.value) == "no result within 1 s"


def test_a_process_that_dies_between_requests_costs_none(module: str) -> None:
    with Child(module) as child:
        child.call(b"x", 30)
        process = child.start()
        process.kill()
        process.wait()
        assert child.call(b"ab", 30) == b"abab"


def test_builders_that_die_are_replaced(module: str) -> None:
    with Children(module, 1) as children:
        with pytest.raises(ChildError, match="exit code 1"):
            children.call(b"die")
        assert children.call(b"ab") == b"abab"


def test_nobody_waits_for_an_idle_process(module: str) -> None:
    with Children(module, 1) as children, ThreadPoolExecutor(1) as pool:
        busy = pool.submit(children.call, b"sleep", 5)
        time.sleep(0.2)
        assert children.call_if_idle(b"x") is None
        with pytest.raises(ChildError):
            busy.result()


def test_what_died_is_not_replaced_for_who_can_do_without(module: str) -> None:
    with Children(module, 1) as children:
        with pytest.raises(ChildError, match="no"):
            children.call_if_idle(b"fail")
        assert children.call_if_idle(b"ab") == b"abab"  # it goes on
        with pytest.raises(ChildError, match="exit code 1"):
            children.call_if_idle(b"die")
        assert children.call_if_idle(b"ab") is None


def test_more_processes_are_added(module: str) -> None:
    with Children(module, 0) as children:
        assert children.call_if_idle(b"x") is None
        for count in (1, 3, 2):
            children.grow(count)
        assert len({child.start().pid for child in children._all}) == 3
        assert children.call_if_idle(b"ab") == b"abab"


def test_no_process_is_left(module: str) -> None:
    with Children(module, 2) as children:
        children.call(b"x")
        processes = [child.start() for child in children._all]
    assert all(p.returncode is not None for p in processes)


@pytest.mark.parametrize("executable", ["", "/nowhere/python"])
def test_without_an_interpreter(module: str, monkeypatch, executable: str) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with Children(module, 1) as children:
        with pytest.raises(ChildError, match=r"no Python interpreter|can't be started"):
            children.call_if_idle(b"x")
        assert children.call_if_idle(b"x") is None


def test_a_module_that_is_not_there() -> None:
    with Child("no_such_module") as child, pytest.raises(ChildError, match="exit code 1"):
        child.call(b"x", 20)


def test_messages_carry_answers_and_errors() -> None:
    def refuse() -> bytes:
        raise ChildError("memory", "täglich")

    assert decode(encode(lambda: b"")) == b""
    with pytest.raises(ChildError, match="täglich") as found:
        decode(encode(refuse))
    assert found.value.cause == "memory"


def test_the_main_program_is_not_run_again(tmp_path: Path) -> None:
    """As multiprocessing would, for a script without a guard; its threads do no harm either."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import threading, time
            print("once")
            threading.Thread(target=time.sleep, args=(0.5,)).start()
            from tilesmith.support.child import ChildError, Children
            with Children("tilesmith.driver.worker", 1) as workers:
                try:
                    workers.call(b"not a job")
                except ChildError as e:
                    assert e.cause == "failed" and "JSONDecodeError" in str(e)
                else:
                    raise AssertionError("there is an answer")
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "once\n"
