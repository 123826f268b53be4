"""What becomes of output that nobody takes: a closed or full stdout, a reader that went away."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from common.command_lines import strict_json
from tilesmith import cli
from tilesmith.cli.console import compiling, print_json
from tilesmith.support import signals
from tilesmith.support.errors import InternalError
from tilesmith.support.logs import log_progress
from tilesmith.tuning.interrupt import Interrupt

PROGRAM = f"'{sys.executable}' -m tilesmith"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, timeout=120
    )


def test_the_package_is_a_program():
    done = shell(f"{PROGRAM} --version")
    assert done.returncode == 0 and done.stdout.startswith("tilesmith ")


@pytest.mark.parametrize(
    ("to", "why"), [("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_a_stdout_that_takes_nothing_is_one_line_and_exit_code_1(to, why):
    done = shell(f"{PROGRAM} ops {to}")
    assert done.returncode == 1
    assert done.stderr == f"tilesmith: error: the output can't be written: {why}\n"


def test_a_reader_that_went_away_is_no_error():
    done = shell(f"{PROGRAM} ops | head -1")
    assert done.returncode == 0 and "error" not in done.stderr


@pytest.mark.parametrize("to", ["2> /dev/full", "2>&-"])
def test_without_stderr_the_result_is_the_same(to, model, tmp_path):
    cache = f"TILESMITH_CACHE_DIR='{tmp_path}'"
    done = shell(f"{cache} {PROGRAM} run '{model}' --json {to}")
    assert done.returncode == 0 and strict_json(done.stdout)["outputs"][0]["name"] == "y"


def test_an_error_without_stderr_still_has_its_exit_code(tmp_path):
    done = shell(f"{PROGRAM} run '{tmp_path}/absent.onnx' 2>&-")
    assert (done.returncode, done.stdout) == (1, "")


def test_a_file_does_not_get_the_number_of_a_closed_stream(model, tmp_path):
    """What LLVM or a child process writes to descriptor 1 must not reach the file."""
    out = tmp_path / "m.tsm"
    done = shell(f"TILESMITH_CACHE_DIR='{tmp_path}' {PROGRAM} compile '{model}' -o '{out}' >&-")
    assert done.returncode == 1 and "the output can't be written" in done.stderr
    assert shell(f"{PROGRAM} run '{out}'").returncode == 0


def test_numbers_that_json_lacks_are_strings(capsys):
    nan, inf = float("nan"), float("inf")
    print_json({"a": [nan, inf, -inf, 1.5], "b": {1: (Path("x"), True, None)}})
    found = strict_json(capsys.readouterr().out)
    assert found == {"a": ["NaN", "Infinity", "-Infinity", 1.5], "b": {"1": ["x", True, None]}}


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGTERM, 143, "ended by SIGTERM"), (signal.SIGINT, 130, "interrupted")],
)
@pytest.mark.parametrize("error", [ImportError, InternalError])
def test_a_signal_that_an_import_turned_into_an_error(
    monkeypatch, capsys, tmp_path, number, code, said, error
):
    """NumPy's modules in C put an error of their own in the place of whatever was raised."""
    handler = cli._end if number == signal.SIGTERM else signals.interrupt_once

    def app(*_: object, **__: object) -> None:
        try:
            handler(number, None)
        except BaseException:
            raise error("numpy._core.umath failed to import") from None

    usual = signal.getsignal(number)
    monkeypatch.setattr(cli, "app", app)
    try:
        assert cli.execute(["doctor"]) == code
    finally:
        signal.signal(number, usual)
    assert capsys.readouterr().err == f"tilesmith: error: {said}\n"
    monkeypatch.setattr(cli, "app", lambda *_, **__: 1 // 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.execute(["doctor"]) == 3  # the next command line has bugs of its own


def _report() -> None:
    with compiling("model.onnx", "x86-64-v4"):
        log_progress("compile", "kernels", 1, 2)


def _search() -> None:
    with Interrupt().on_signal():
        pass


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
@pytest.mark.parametrize("work", [_report, _search])
def test_a_signal_that_was_swallowed_ends_the_program_at_the_next_report(
    monkeypatch, number, code, work
):
    """As some modules in C do while they are imported."""
    handler = cli._end if number == signal.SIGTERM else signals.interrupt_once

    def app(*_: object, **__: object) -> None:
        with suppress(BaseException):
            handler(number, None)
        work()
        raise AssertionError("the work went on")

    usual = signal.getsignal(number)
    monkeypatch.setattr(cli, "app", app)
    try:
        assert cli.execute(["doctor"]) == code
    finally:
        signal.signal(number, usual)
    work()  # the signal is forgotten
