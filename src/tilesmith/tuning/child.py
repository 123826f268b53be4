"""Another process that answers requests and may die of them: in time, or it is ended.

What runs there may crash, never return, or take all memory; `Child.call` then raises `ChildError`,
which says what happened, and the next call starts a new process.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from types import TracebackType
from typing import IO, Literal, TypeAlias

from tilesmith.support.workers import OUT_OF_MEMORY

Cause: TypeAlias = Literal["crash", "timeout", "memory"]
_SIZE = 8
LAST_WORDS = 4096
"""Bytes of what a process said before it died that are looked at."""
NO_MEMORY = (b"LLVM ERROR: out of memory", b"std::bad_alloc")
"""What LLVM and the C++ runtime say before they abort because memory is refused."""


class ChildError(Exception):
    """A process did not answer: `cause`, and in words."""

    def __init__(self, cause: Cause, text: str) -> None:
        super().__init__(text)
        self.cause: Cause = cause


class Child:
    """A process that runs `module`, whose main program is to `support.workers.serve`; `arguments`
    are its command line.  `processors`: those that it is bound to, all by default; `memory_bytes`:
    of address space that it may have; both where the system can (Linux).  One call at a time.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        processors: Collection[int] = (),
        memory_bytes: int | None = None,
    ) -> None:
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._processors = processors
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def call(self, request: bytes, seconds: float) -> bytes:
        """The answer, within `seconds`.  Raises ChildError."""
        process = self._process or self._start()
        self._process = process
        assert process.stdin is not None
        deadline = time.monotonic() + seconds
        if self._words is not None:
            self._words.truncate(0)
        try:
            process.stdin.write(len(request).to_bytes(_SIZE, "little") + request)
            process.stdin.flush()
            size = int.from_bytes(self._read(process, _SIZE, deadline), "little")
            return self._read(process, size, deadline)
        except (BrokenPipeError, EOFError):
            raise self._death(process) from None
        except TimeoutError:
            raise ChildError("timeout", f"no result within {seconds:g} s") from None
        except BaseException:  # an interrupt: what the process does now nobody will read
            self.end()
            raise
        finally:
            if process.poll() is not None or time.monotonic() >= deadline:
                self.end()

    def kill(self) -> None:
        """End the process in the middle of a call that another thread waits for."""
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """End the process; the next call starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        process.wait()
        if self._words is not None:
            self._words.close()
            self._words = None

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(p for p in sys.path if p)  # what we can import it must find
        environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
        self._words = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115  # until `end`
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env=environment,
            process_group=0,  # an interrupt from the terminal is for this process
            bufsize=0,
        )
        with contextlib.suppress(OSError, AttributeError):  # it ended at once, or this is no Linux
            if self._processors:
                os.sched_setaffinity(process.pid, self._processors)
            if self._memory_bytes is not None:
                limit = (self._memory_bytes, self._memory_bytes)
                resource.prlimit(process.pid, resource.RLIMIT_AS, limit)
        return process

    @staticmethod
    def _read(process: subprocess.Popen[bytes], size: int, deadline: float) -> bytes:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        parts: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while size:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise TimeoutError
                part = os.read(pipe, min(size, 1 << 20))
                if not part:
                    raise EOFError
                parts.append(part)
                size -= len(part)
        return b"".join(parts)

    def _last_words(self) -> bytes:
        if self._words is None:
            return b""
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(size - LAST_WORDS, 0))
        return self._words.read()

    def _death(self, process: subprocess.Popen[bytes]) -> ChildError:
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return ChildError("crash", "the process closed its output")
        if code == OUT_OF_MEMORY:
            return ChildError("memory", "the process may not take so much memory")
        if code == -signal.SIGABRT and any(w in self._last_words() for w in NO_MEMORY):
            return ChildError("memory", "the process may not take so much memory")
        if code < 0:
            with contextlib.suppress(ValueError):
                return ChildError("crash", f"the process died of {signal.Signals(-code).name}")
        return ChildError("crash", f"the process ended with exit code {code}")
