"""Other processes of this interpreter that answer requests, for work that Python's lock serialises.

A request and its answer are bytes, never a pickle.  The processes are new ones that run one module:
forking a process that has threads (PyTorch's, our own) is not safe, and multiprocessing would run
the user's `__main__` again.  Whatever goes wrong with them, from a missing interpreter to a crash,
`call` says with None, and the caller does the work itself.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO

_log = logging.getLogger("tilesmith")
OUT_OF_MEMORY = errno.ENOMEM
"""Exit code of a process that may not take the memory that a request needs."""
_SIZE = 8
"""Bytes of the length in front of every message."""


class Workers:
    """`count` processes that run `module`, whose main program is to `serve`; they end with the
    `with` statement.
    """

    def __init__(self, module: str, count: int) -> None:
        self._module = module
        self._count = count if sys.executable and not getattr(sys, "frozen", False) else 0
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._all: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Workers:
        # What this process can import they must find too; the current folder (-P) is no such place.
        path = os.pathsep.join(p for p in sys.path if p)
        environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
        for _ in range(self._count):
            try:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", self._module],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environment,
                    process_group=0,  # an interrupt from the terminal is for this process
                )
            except OSError as e:
                _log.warning("compiling without worker processes: %s", e)
                break
            self._all.append(process)
            self._idle.put(process)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._all:
            process.kill()  # they hold nothing
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    assert pipe is not None
                    pipe.close()
        for process in self._all:
            process.wait()

    def call(self, request: bytes) -> bytes | None:
        """The answer of a process that is idle; None when there is none or it can't answer."""
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            return None
        assert process.stdin is not None and process.stdout is not None
        try:
            _write(process.stdin, request)
            answer = _read(process.stdout)
        except OSError:
            answer = None
        if answer is None:
            _log.info("a worker process ended; its work is done in this process")
            return None
        self._idle.put(process)
        return answer or None


def serve(answer: Callable[[bytes], bytes]) -> None:
    """Answer the requests on standard input until it ends.  No bytes say: the request failed.

    The process ends with the one that started it, even in the middle of an endless answer.
    """
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what something prints must not come between
    while (request := _read(sys.stdin.buffer)) is not None:
        try:
            found = answer(request)
        except MemoryError:  # what is left of it is no place to go on
            os._exit(OUT_OF_MEMORY)
        except Exception:  # it will happen again where it is wanted, with its traceback
            found = b""
        _write(replies, found)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _write(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(_SIZE, "little") + message)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes | None:
    """The next message; None at the end."""
    head = stream.read(_SIZE)
    if len(head) < _SIZE:
        return None
    size = int.from_bytes(head, "little")
    message = stream.read(size)
    return message if len(message) == size else None
