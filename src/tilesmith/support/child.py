"""Child processes that answer requests: compile workers, builders and runners of candidates.

Requests and answers go through pipes, as bytes preceded by their length.  Nothing is unpickled.  A
child is a new interpreter that runs one module, whose main program calls `serve`.  Forking a
process that has threads (PyTorch's, our own) is not safe, and multiprocessing would run the user's
`__main__` again.

A child may crash, hang, or use up all memory.  `Child.call` then raises `ChildError` with the
cause, and the next call starts a new process.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import queue
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import IO, Literal, NoReturn, Self, TypeAlias

Cause: TypeAlias = Literal["failed", "crash", "timeout", "memory"]
"""Reason for a missing answer.  "failed": the child raised an exception, but still runs."""

OUT_OF_MEMORY = errno.ENOMEM
"""Exit code of a child that ran out of memory during a request."""
LAST_WORDS = 4096
"""Bytes at the end of a dead child's standard error that are searched for its cause of death."""
NO_MEMORY = (b"LLVM ERROR: out of memory", b"std::bad_alloc")
"""Messages of LLVM and the C++ runtime before they abort because an allocation failed."""
_CAUSES: tuple[Cause, ...] = ("failed", "crash", "timeout", "memory")
_SIZE = 8
"""Number of bytes for the length before every message."""


class ChildError(Exception):
    """A child gave no answer: `cause` is the reason, the message describes it."""

    def __init__(self, cause: Cause, text: str) -> None:
        super().__init__(text)
        self.cause: Cause = cause


def encode(call: Callable[[], bytes]) -> bytes:
    """The result of `call`, or the ChildError that it raises, as one message for `decode`."""
    try:
        return b"\0" + call()
    except ChildError as e:
        return bytes([1 + _CAUSES.index(e.cause)]) + str(e).encode(errors="replace")


def decode(message: bytes) -> bytes:
    """The answer in a message of `encode`.  Raises the ChildError in it."""
    if message[0]:
        raise ChildError(_CAUSES[message[0] - 1], message[1:].decode())
    return message[1:]


class Child:
    """A process that runs `module` and answers one request at a time.

    processors: the processors to which the process is bound (default: all).
    memory_bytes: upper bound on the process's address space.
    arguments: `sys.argv[1:]` of the process.
    environment: names of the environment variables that the process inherits (default: all).

    Systems other than Linux ignore processors and memory_bytes.
    """

    def __init__(
        self,
        module: str,
        *,
        processors: Collection[int] = (),
        memory_bytes: int | None = None,
        arguments: Sequence[str] = (),
        environment: Collection[str] | None = None,
    ) -> None:
        self._module, self._arguments = module, arguments
        self._environment = environment
        self._processors = processors
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None
        self._has_answered = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def call(self, request: bytes, seconds: float = math.inf) -> bytes:
        """The answer, within `seconds`.  Raises ChildError."""
        process = self.start()
        assert process.stdin is not None and process.stdout is not None
        assert self._words is not None
        deadline = time.monotonic() + seconds
        try:
            self._words.truncate(0)
            _send(process.stdin.fileno(), len(request).to_bytes(_SIZE, "little"), deadline)
            _send(process.stdin.fileno(), request, deadline)
            head = _receive(process.stdout.fileno(), _SIZE, deadline)
            size = int.from_bytes(head, "little")
            message = _receive(process.stdout.fileno(), size, deadline)
        except (BrokenPipeError, EOFError):
            error = self._death(process)
            self.end()
            raise error from None
        except TimeoutError:
            self.end()
            raise ChildError("timeout", f"no result within {seconds:g} s") from None
        except BaseException:  # an interrupt: nobody will read the process's answer
            self.end()
            raise
        self._has_answered = True
        return decode(message)

    def start(self) -> subprocess.Popen[bytes]:
        """The process, started if necessary.  Raises ChildError."""
        if self._process is not None:
            if self._process.poll() is None or not self._has_answered:
                return self._process
            self.end()  # the process died between two requests, so no request is to blame
        if not sys.executable or getattr(sys, "frozen", False):
            raise ChildError("crash", "there is no Python interpreter to start a process with")
        # the child must be able to import the same modules as this process
        path = os.pathsep.join(p for p in sys.path if p)
        named = os.environ if self._environment is None else self._environment
        inherited = {name: os.environ[name] for name in named if name in os.environ}
        words = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115  # until `end`
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", self._module, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                env={**inherited, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
                process_group=0,  # a terminal's interrupt goes only to this process
                bufsize=0,
            )
        except OSError as e:
            words.close()
            raise ChildError("crash", f"the process can't be started: {e}") from e
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        # Ignore errors: the process ended at once, or the system is not Linux.
        with contextlib.suppress(OSError, AttributeError):
            if self._processors:
                os.sched_setaffinity(process.pid, self._processors)
            if self._memory_bytes is not None:
                limit = (self._memory_bytes, self._memory_bytes)
                resource.prlimit(process.pid, resource.RLIMIT_AS, limit)
        self._process, self._words, self._has_answered = process, words, False
        return process

    def kill(self) -> None:
        """End the process while another thread waits in `call`."""
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """End the process.  The next call starts a new one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout, self._words):
            assert pipe is not None
            pipe.close()
        process.wait()
        self._words = None

    def _death(self, process: subprocess.Popen[bytes]) -> ChildError:
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return ChildError("crash", "the process closed its output")
        aborted = code == -signal.SIGABRT and any(w in self._last_words() for w in NO_MEMORY)
        if code == OUT_OF_MEMORY or aborted:
            return ChildError("memory", "the process may not take so much memory")
        if code < 0:
            with contextlib.suppress(ValueError):  # a signal without a name
                return ChildError("crash", f"the process died of {signal.Signals(-code).name}")
        return ChildError("crash", f"the process ended with exit code {code}")

    def _last_words(self) -> bytes:
        assert self._words is not None
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(size - LAST_WORDS, 0))
        return self._words.read()


class Children:
    """A pool of `count` processes that run `module` (see `Child`).  `grow` adds more.

    The processes end with the `with` statement.
    """

    def __init__(
        self,
        module: str,
        count: int,
        *,
        processors: Collection[int] = (),
        memory_bytes: int | None = None,
    ) -> None:
        self._new = partial(Child, module, processors=processors, memory_bytes=memory_bytes)
        self._count = count
        self._all: list[Child] = []
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self.grow(self._count)
        return self

    def grow(self, count: int) -> None:
        """Start processes until there are `count` of them.  They initialise while the caller
        continues.
        """
        for _ in range(count - len(self._all)):
            child = self._new()
            with contextlib.suppress(ChildError):  # `call` will raise the error again
                child.start()
            self._all.append(child)
            self._idle.put(child)

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End all processes; no thread may be in a call."""
        self.kill()
        for child in self._all:
            child.end()

    def kill(self) -> None:
        """End all processes, even while other threads wait in `call`."""
        for child in self._all:
            child.kill()

    def call(self, request: bytes, seconds: float = math.inf) -> bytes:
        """The answer of the first process that becomes idle.  The time limit `seconds` begins when
        this process gets the request.

        Raises ChildError.
        """
        child = self._idle.get()
        try:
            return child.call(request, seconds)
        finally:
            self._idle.put(child)

    def call_if_idle(self, request: bytes) -> bytes | None:
        """The answer of an idle process; None if there is none.

        Raises ChildError.  A process that died is not replaced, since the next one might die in
        the same way.
        """
        try:
            child = self._idle.get_nowait()
        except queue.Empty:
            return None
        try:
            answer = child.call(request)
        except ChildError as e:
            if e.cause == "failed":
                self._idle.put(child)
            raise
        self._idle.put(child)
        return answer


def serve(answer: Callable[[bytes], bytes]) -> None:
    """Answer the requests of the parent process until it closes standard input.

    This process ends silently when its parent ends, even while `answer` runs.
    """
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library's output must not mix with the answers

    def answered() -> bytes:
        try:
            return answer(request)
        except MemoryError:  # too little memory is left to go on
            os._exit(OUT_OF_MEMORY)
        except Exception as e:  # the caller gets the error
            raise ChildError("failed", f"{type(e).__name__}: {e}") from e

    source = sys.stdin.buffer
    while len(head := source.read(_SIZE)) == _SIZE:
        size = int.from_bytes(head, "little")
        if len(request := source.read(size)) < size:
            return
        message = encode(answered)
        try:
            replies.write(len(message).to_bytes(_SIZE, "little") + message)
            replies.flush()
        except BrokenPipeError:  # the parent has ended
            os._exit(1)


def _end_with(parent: int) -> NoReturn:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _send(pipe: int, message: bytes, deadline: float) -> None:
    """Send a message through `pipe`.  Raises TimeoutError at `deadline`, and BrokenPipeError."""
    left = memoryview(message)
    while left:
        _wait(pipe, selectors.EVENT_WRITE, deadline)
        with contextlib.suppress(BlockingIOError):
            left = left[os.write(pipe, left) :]


def _receive(pipe: int, size: int, deadline: float) -> bytes:
    """Receive `size` bytes from `pipe`.  Raises TimeoutError at `deadline`, and EOFError."""
    parts: list[bytes] = []
    while size:
        _wait(pipe, selectors.EVENT_READ, deadline)
        part = os.read(pipe, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _wait(pipe: int, event: int, deadline: float) -> None:
    """Wait until `pipe` can be read or written, as `event` says.  Raises TimeoutError at
    `deadline`.
    """
    left = deadline - time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, event)
        if left <= 0 or not selector.select(None if left == math.inf else left):
            raise TimeoutError
