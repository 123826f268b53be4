"""What tuning shows while it goes, and Ctrl-C, on a terminal and elsewhere."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tilesmith.cli.live import TuningDisplay, task_table, totals
from tilesmith.search_space.records import Key
from tilesmith.search_space.space import Space
from tilesmith.tuning.interrupt import Interrupt
from tilesmith.tuning.measure import Task
from tilesmith.tuning.options import TuneOptions
from tilesmith.tuning.scheduler import Progress
from tilesmith.tuning.search import search

UP = "\x1b[1A\x1b[2K"
"""What goes to the line above and clears it."""


def progress(name: str, seconds: float, best: float = 1.0, trials: int = 0) -> Progress:
    unused: Callable[..., object] = lambda *_: None  # noqa: E731
    space = Space(lambda cfg: None)
    task = Task(Key.of(name, "t", 1), name, space, unused, unused, unused, (), seconds)  # type: ignore[arg-type]
    return Progress(task, search("grid", space), best, trials, trials // 2)


STATES = [progress(f"kernel[{i}]", 1e-3 * (i + 1), 0.5, 2) for i in range(40)]


def shown(states: list[Progress], room: int) -> list[str]:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(task_table(states, room))
    return captured.get().splitlines()


def test_the_table_has_room_for_the_greatest() -> None:
    lines = shown(STATES, 5)
    assert len(lines) == 7
    assert lines[0].split() == [
        "task", "ms", "share", "best", "may", "gain", "ms", "trials", "errors",
    ]  # fmt: skip

    assert lines[1].split() == ["kernel[39]", "40.0", "4.9%", "0.500", "6.00", "2", "1"]
    assert lines[-1].split()[:4] == ["35", "more", "630.0", "76.8%"]
    assert lines[-1].split()[-2:] == ["70", "35"]
    assert len(shown(STATES[:5], 5)) == 6


def test_totals() -> None:
    assert totals([]) == ""
    assert totals(STATES) == (
        "80 trials, 40 errors; these kernels took 820.0 ms in the model, now 410.0 ms"
    )


def test_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    interrupt = Interrupt()
    with TuningDisplay(1000, None, interrupt) as display:
        display.show("first", ())
        display.show("second", STATES)
        display.show("second", STATES)  # too soon for another
        interrupt.requested = True
        display.show("third", STATES)
    first, second, third = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"first: \d+ s, about \d+ s left", first)
    assert re.fullmatch(r"second: \d+ s, about \d+ s left, 80 trials, .*", second)
    assert "third: stopping" in third


@pytest.fixture
def command(model: Path, tmp_path: Path) -> list[str]:
    arguments = ["tune", str(model), "--seconds", "600", "--threads", "1", "--search", "random"]
    records = ["--records", str(tmp_path / "records.sqlite"), "--cache-dir", str(tmp_path)]
    return [sys.executable, "-m", "tilesmith.cli", *arguments, *records]


def terminal_output(
    command: list[str], rows: int, **more: str
) -> tuple[subprocess.Popen[bytes], Generator[str]]:
    """A process on a new terminal with that many rows of 100 columns, and what it writes."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 100, 0, 0))
    unset = ("LINES", "COLUMNS", "NO_COLOR", "CI")
    environment = {k: v for k, v in os.environ.items() if k not in unset} | {"TERM": "xterm"} | more
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # nohup ignores it
    )  # fmt: skip
    os.close(slave)

    def read() -> Generator[str]:
        try:
            while part := os.read(master, 1 << 16):
                yield part.decode(errors="replace")
        except OSError:  # how a terminal says that nobody writes any more
            pass
        finally:
            os.close(master)

    return process, read()


def test_ctrl_c_on_a_terminal(command: list[str]) -> None:
    process, output = terminal_output(command, 8)
    text, is_sent = "", False
    for part in output:
        text += part
        if not is_sent and re.search(r"\b[1-9]\d* trials?, ", text):
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            is_sent = True
    assert is_sent and process.wait() == 0, text
    assert "Traceback" not in text
    assert "candidates measured" in text and "done:" in text
    redrawn = [len(ups) // len(UP) for ups in re.findall(f"(?:{re.escape(UP)})+", text)]
    assert 0 < max(redrawn) < 8  # lines of which a frame consists: less than the terminal has


def test_a_second_ctrl_c_gives_up(
    tilesmith: Callable[..., Any], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tune_model(_request: object, tuning: TuneOptions) -> None:
        assert tuning.interrupt is not None
        with tuning.interrupt.on_signal():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("tilesmith.cli.tune.tune_model", tune_model)
    done = tilesmith("tune", model)
    assert done.code == 130 and done.err.endswith("tilesmith: error: interrupted\n")


def test_ctrl_c_elsewhere(command: list[str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None and process.stdout is not None
    for line in process.stderr:
        if re.search(r"\b[1-9]\d* trials?, ", line):
            process.send_signal(signal.SIGINT)
            break
    rest = process.stderr.read()
    found = json.loads(process.stdout.read())
    assert process.wait() == 0
    assert "comparing with untuned: stopping" in rest
    assert found["interrupted"] and found["speedup"] >= 1
    assert sum(t["trials"] for t in found["tasks"]) >= 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_quietly(
    command: list[str], tmp_path: Path, number: signal.Signals
) -> None:
    """SIGHUP with its terminal gone, as when a window is closed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process, output = terminal_output(command, 8, TMPDIR=str(temporary))
    text = ""
    for part in output:
        text += part
        if list(temporary.glob("tilesmith-tune-*")):
            break
    if number == signal.SIGHUP:
        output.close()
    process.send_signal(number)
    if number == signal.SIGTERM:
        text += "".join(output)
        assert "ended by SIGTERM" in text and "Traceback" not in text
    assert process.wait(timeout=60) == 128 + number
    assert {p.name for p in temporary.iterdir()} <= {"tilesmith-measuring.lock"}
