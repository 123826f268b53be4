"""A builder for tests: what it is sent is what it built, unless it is told to misbehave."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tilesmith.support.child import serve

LOG = "TILESMITH_TEST_LOG"
"""Environment variable: a file to which builders and runners add a line when they begin or end."""


def log(line: str) -> None:
    with Path(os.environ[LOG]).open("a") as file:
        file.write(line + "\n")


def answer(request: bytes) -> bytes:
    if request == b"fail":
        raise ValueError("no such thing can be built")
    if request == b"die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if request == b"sleep":
        time.sleep(60)
    if request == b"memory":
        bytearray(100 << 30)
    if request == b"processors":
        return repr(sorted(os.sched_getaffinity(0))).encode()
    if request.startswith(b"after run"):  # only then it goes on
        request = request.removeprefix(b"after run")
        while "run" not in Path(os.environ[LOG]).read_text().split():
            time.sleep(0.01)
    if LOG in os.environ:
        log("built")
    return request


if __name__ == "__main__":
    serve(answer)
