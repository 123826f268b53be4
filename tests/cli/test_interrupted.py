"""SIGINT while `tilesmith tune` works: the first asks to stop, a second one ends it, and nothing is
left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilesmith.search_space.records import Records

SECONDS = 60


def _children(process: int) -> list[int]:
    """The processes below one that run, zombies not."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if int(parent) == process and state != "Z":
            found += [int(entry.name), *_children(int(entry.name))]
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs Linux")
@pytest.mark.parametrize(
    ("stage", "pause"), [("compiling", 0.05), ("searching", 0.05), ("searching", 0.3)]
)
def test_a_second_signal(tmp_path: Path, model: Path, stage: str, pause: float) -> None:
    records = tmp_path / "r.sqlite"
    process = subprocess.Popen(
        [sys.executable, "-m", "tilesmith", "tune", model, "--seconds", str(SECONDS),
         "--records", records, "--threads", "1"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TILESMITH_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip
    assert process.stderr is not None
    said = ""
    while not said.startswith(stage):
        said = process.stderr.readline()
        assert said, "tune ended too early"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    time.sleep(pause)
    below = _children(process.pid)
    end = time.monotonic() + SECONDS / 2
    while process.poll() is None and time.monotonic() < end:
        # again and again: two signals that come before the program looks are one for it
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
    said = process.stderr.read()
    assert process.wait(1) == 130, said
    assert "Traceback" not in said and "Exception" not in said
    end = time.monotonic() + 5  # a process that was just being started sees that its parent ended
    while any(Path(f"/proc/{p}").exists() and not _is_zombie(p) for p in below):
        assert time.monotonic() < end, "processes are left"
        time.sleep(0.1)
    if records.exists():
        with Records(records) as kept:
            kept.trials()


def _is_zombie(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
