"""A builder for tests: what it is sent is what it built, unless it is told to misbehave."""

from __future__ import annotations

import os
import signal
import time

from tilesmith.support.workers import serve


def answer(request: bytes) -> bytes:
    if request == b"die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if request == b"sleep":
        time.sleep(60)
    return request


if __name__ == "__main__":
    serve(answer)
