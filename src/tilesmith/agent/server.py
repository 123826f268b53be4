"""The server of an agent: connections, who may ask, and what each request may use.

One thread serves a connection.  Nothing of a caller is interpreted in this process, except frames:
code, arrays and descriptions go to a worker, a confined child process that may crash or hang.  One
request runs at a time, in the order of arrival, so that measurements are not disturbed.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import socket
import ssl
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilesmith.codegen import targets
from tilesmith.runtime.rates import machine
from tilesmith.runtime.remote.address import LOOPBACK
from tilesmith.runtime.remote.frames import (
    NONCE_BYTES,
    SLOWEST,
    Frame,
    FrameError,
    Kind,
    head_bytes,
    read_frame,
    read_head,
)
from tilesmith.runtime.remote.keys import Key
from tilesmith.runtime.remote.link import received
from tilesmith.runtime.threads import physical_cores
from tilesmith.support.child import Child, ChildError
from tilesmith.support.confine import layers, system_paths
from tilesmith.support.errors import DeviceError, TilesmithError, UnavailableError, UsageError
from tilesmith.support.logs import logger
from tilesmith.support.version import VERSION
from tilesmith.tuning.jobs import Answer, answer_bytes
from tilesmith.tuning.measure import candidate_memory, machine_lock

from .settings import Limits, Secrets
from .store import Store
from .worker import refusal

HANDSHAKE_SECONDS = 10.0
IDLE_SECONDS = 3600.0
"""Seconds without a request after which a connection ends."""
PIECE_SECONDS = 60.0
"""Seconds that the rest of a frame may take, besides a second for each `SLOWEST` bytes."""
LOGGED = 1000
"""Messages that are kept."""
WORKER = "tilesmith.agent.worker"
WORKER_VARIABLES = (
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME",
    "PYTHONNOUSERSITE", "TMPDIR",
)  # fmt: skip
"""Environment variables that workers inherit; others may hold secrets."""
RETRY_SECONDS = 0.1
"""Seconds until the agent tries again to accept a connection, after it lacked descriptors."""

_log = logger("device")


class Turns:
    """A lock that is given in the order of asking."""

    def __init__(self) -> None:
        self._waiting: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[None]:
        own = threading.Lock()
        own.acquire()
        with self._lock:
            self._waiting.append(own)
            if self._waiting[0] is own:
                own.release()
        own.acquire()
        try:
            yield
        finally:
            with self._lock:
                self._waiting.popleft()
                if self._waiting:
                    self._waiting[0].release()


class Agent:
    """An agent that listens.  A context manager: it ends the connections and the workers.

    place: the host and the port where it listens.
    counters: counts since its start.
    """

    def __init__(
        self,
        secrets: Secrets,
        folder: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: Limits | None = None,
        plain: bool = False,
    ) -> None:
        """folder: where objects are kept.
        host, port: where to listen; port 0 is a free one.
        plain: whether to work without TLS, which is possible on this machine only.

        Raises UsageError if it can't listen there, or if what callers send could read the secrets.
        """
        if plain and host not in LOOPBACK:
            raise UsageError(
                f"--plain: expected the host 127.0.0.1, found {host!r}; without TLS others could "
                "read and change everything"
            )
        for readable in (*system_paths(), folder.resolve()):
            if secrets.folder.is_relative_to(readable):
                raise UsageError(
                    f"the agent's secrets are in {str(secrets.folder)!r}: expected a folder "
                    f"outside of {str(readable)!r}, which the code of callers may read; name "
                    "another --folder, or take it out of PYTHONPATH"
                )
        self._key = Key(secrets.token, secrets.certificate)
        self.limits = limits or Limits()
        try:
            self._store = Store(folder, self.limits.store_bytes)
            self._context = None if plain else secrets.context(folder)
            self._listening = socket.create_server((host, port))
        except OSError as e:
            raise UsageError(
                f"the agent can't listen at {host}:{port}: {e.strerror or e}"
            ) from None
        self.place: tuple[str, int] = self._listening.getsockname()[:2]
        memory = self.limits.memory_bytes or candidate_memory()
        arguments = [str(folder.resolve())]
        # Candidates may overwrite the memory of their process: deployed programs have another one.
        self._programs, self._candidates = (
            Child(WORKER, memory_bytes=memory, arguments=arguments, environment=WORKER_VARIABLES)
            for _ in range(2)
        )
        self._turns = Turns()
        self.counters: defaultdict[str, float] = defaultdict(float)
        self._counting = threading.Lock()
        self._logged: deque[str] = deque(maxlen=LOGGED)
        self._open: set[socket.socket] = set()
        self._ended = False

    def __enter__(self) -> Agent:
        threading.Thread(target=self.serve, name="tilesmith-agent", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def serve(self) -> None:
        """Accept connections until `end`."""
        while not self._ended:
            try:
                connection, peer = self._listening.accept()
            except OSError as e:  # `end` has closed it, or there are too few descriptors
                if not self._ended:
                    _log.warning("a connection can't be accepted: %s", e)
                    time.sleep(RETRY_SECONDS)
                continue
            with self._counting:
                is_full = len(self._open) >= self.limits.callers
                if not is_full:
                    self._open.add(connection)
            self._count("connections")
            if is_full:
                self._count("refused")
                connection.close()
                continue
            name = f"{peer[0]}:{peer[1]}"
            threading.Thread(target=self._serve, args=(connection, name), daemon=True).start()

    def end(self) -> None:
        """Stop listening, and end all connections and workers.  A request in progress is not
        answered.
        """
        self._ended = True
        with contextlib.suppress(OSError):  # wakes `accept`
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._counting:
            held = list(self._open)
        for connection in held:  # before the workers end: nobody gets a crash as an answer
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for worker in (self._programs, self._candidates):
            worker.kill()
        with self._turns.one():
            self._programs.end()
            self._candidates.end()

    # --- connections

    def _serve(self, plain: socket.socket, peer: str) -> None:
        connection = plain
        try:
            connection.settimeout(HANDSHAKE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                connection = self._context.wrap_socket(plain, server_side=True)
                with self._counting:
                    self._open = (self._open - {plain}) | {connection}
            self._greet(connection, peer)
            pace = Pace(self.limits.rate)
            while not self._ended:
                pace.wait()
                self._one(connection, peer)
        except EOFError:
            pass
        except FrameError as e:
            self._count("malformed")
            self._note(peer, "-", f"closed: {e}")
            with contextlib.suppress(OSError):
                _send(connection, refusal(e))
        except (OSError, ValueError) as e:  # ValueError: `end` has closed the socket
            self._note(peer, "-", f"closed: {e}")
        finally:
            with self._counting:
                self._open -= {plain, connection}
            connection.close()

    def _greet(self, connection: socket.socket, peer: str) -> None:
        """The handshake.  Raises FrameError unless the caller has the token."""
        deadline = time.monotonic() + HANDSHAKE_SECONDS

        def asked(kind: Kind) -> Frame:
            frame = read_frame(lambda size: received(connection, size, deadline), 0)
            if frame.kind is not kind:
                raise FrameError(f"expected {kind.name}, found {frame.kind.name}")
            return frame

        theirs = bytes.fromhex(asked(Kind.HELLO).digest("nonce"))
        ours = os.urandom(NONCE_BYTES)
        told = {"nonce": ours.hex(), "proof": self._key.proof("agent", theirs, ours)}
        _send(connection, Frame(Kind.DONE, told))
        found = asked(Kind.PROVE).digest("proof")
        if not hmac.compare_digest(found, self._key.proof("caller", ours, theirs)):
            self._count("denied")
            time.sleep(self.limits.penalty)
            raise FrameError("the caller does not have the token of this agent")
        _send(connection, Frame(Kind.DONE))
        self._note(peer, "PROVE", "admitted")

    def _one(self, connection: socket.socket, peer: str) -> None:
        """Answer one request."""
        deadline = time.monotonic() + IDLE_SECONDS

        def receive(size: int) -> bytes:
            return received(connection, size, deadline)

        largest = max(self.limits.object_bytes, self.limits.request_bytes)
        kind, fields, size = read_head(receive, largest)
        deadline = time.monotonic() + PIECE_SECONDS + size / SLOWEST
        start = time.monotonic()
        self._count("requests")
        self._count("bytes_received", size)
        try:
            if kind is Kind.PUT:
                answer = self._put(Frame(kind, fields), size, receive)
            else:
                if size > self.limits.request_bytes:
                    raise FrameError(
                        f"expected at most {self.limits.request_bytes} bytes, found {size}"
                    )
                body = receive(size) if size else b""
                if len(body) < size:
                    raise EOFError
                answer = self._answer(Frame(kind, fields, body))
        except FrameError:  # the rest of the connection can't be understood
            raise
        except TilesmithError as e:
            word = "unavailable" if isinstance(e, UnavailableError) else ""
            answer = refusal(e, "absent" if isinstance(e, _Absent) else word)
        is_refused = answer.kind is Kind.REFUSED
        self._count("refused", int(is_refused))
        outcome = answer.fields.get("text", "refused") if is_refused else "done"
        self._note(peer, kind.name, f"{outcome} in {time.monotonic() - start:.3f} s")
        connection.settimeout(PIECE_SECONDS + len(answer.body) / SLOWEST)
        _send(connection, answer)

    # --- requests

    def _answer(self, request: Frame) -> Frame:
        if request.kind in _BARE and (request.fields or request.body):
            raise FrameError(f"{request.kind.name}: expected no fields and no body")
        match request.kind:
            case Kind.ABOUT:
                return _json(self._about())
            case Kind.HAS:
                has = self._store.path(request.digest("digest")) is not None
                return Frame(Kind.DONE, {"has": str(int(has))})
            case Kind.RATES:
                with self._turns.one(), machine_lock():
                    return _json(machine().to_json())
            case Kind.COUNTERS:
                with self._counting:
                    return _json(dict(self.counters))
            case Kind.LOGS:
                with self._counting:
                    return Frame(Kind.DONE, body="\n".join(self._logged).encode())
            case Kind.RUN | Kind.TIME | Kind.PROFILE:
                return self._ran(self._programs, request)
            case Kind.MEASURE:
                return self._ran(self._candidates, request)
        raise FrameError(f"expected a request, found {request.kind.name}")

    def _put(self, request: Frame, size: int, receive: Any) -> Frame:
        digest = request.digest("digest")
        if size > self.limits.object_bytes:
            raise FrameError(
                f"object {digest[:12]}: expected at most {self.limits.object_bytes} bytes, found "
                f"{size}"
            )
        taken = 0

        def counted(wanted: int) -> bytes:
            nonlocal taken
            piece = receive(wanted)
            taken += len(piece)
            return piece

        try:
            self._store.put(digest, size, counted)
        except TilesmithError:
            while taken < size and (piece := receive(min(size - taken, 1 << 20))):
                taken += len(piece)  # the next frame begins after the body
            raise
        except OSError as e:
            if e.errno is None or isinstance(e, (TimeoutError, ConnectionError, ssl.SSLError)):
                raise
            raise UnavailableError(f"object {digest[:12]} can't be kept: {e.strerror}") from None
        return Frame(Kind.DONE)

    def _ran(self, worker: Child, request: Frame) -> Frame:
        """The answer of a worker.  Raises _Absent, DeviceError, UnavailableError."""
        names = [n for n in request.fields if n.rstrip("0123456789") in _OBJECTS]
        digests = [request.digest(name) for name in names]
        most = self.limits.run_seconds
        seconds = request.number("seconds", 0, most, most)
        message = request.to_bytes()
        with self._turns.one(), machine_lock():
            if self._ended:
                raise UnavailableError("the agent ends")
            for digest in digests:  # uploads of others may have removed it during the wait
                if self._store.path(digest) is None:
                    raise _Absent(f"object {digest[:12]} is not here; send it first")
            self._count("runs")
            try:
                answer = Frame.of_bytes(worker.call(message, seconds))
            except ChildError as e:
                if self._ended:
                    raise UnavailableError("the agent ends") from None
                self._count(f"ended_{e.cause}")
                if request.kind is Kind.MEASURE:  # it says something about the candidate
                    return Frame(Kind.DONE, body=answer_bytes(Answer(e.cause, text=str(e))))
                raise DeviceError(f"the run gave no result: {e}") from None
        used = {k: v for k, v in answer.fields.items() if k in _USED}
        with self._counting:
            for name in ("cpu_seconds", "page_faults", "switches"):
                self.counters[name] += float(used[name])
            peak = int(used["peak_bytes"])
            self.counters["peak_bytes"] = max(self.counters["peak_bytes"], peak)
        return answer

    def _about(self) -> dict[str, Any]:
        return {
            "name": socket.gethostname(),
            "version": VERSION,
            "target": targets.host().to_json(),
            "cores": physical_cores(),
            "confined": layers(),
        }

    def _count(self, name: str, by: int = 1) -> None:
        with self._counting:
            self.counters[name] += by

    def _note(self, peer: str, what: str, text: str) -> None:
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {peer} {what} {text}"
        with self._counting:
            self._logged.append(line)
        _log.info("%s", line)


class Pace:
    """Keeps a caller to a rate of requests, after a burst of one second's."""

    def __init__(self, rate: float) -> None:
        self._rate, self._left, self._last = rate, max(rate, 1.0), time.monotonic()

    def wait(self) -> None:
        """Wait until one more request is allowed."""
        now = time.monotonic()
        self._left = min(self._left + (now - self._last) * self._rate, max(self._rate, 1.0)) - 1
        self._last = now
        if self._left < 0:
            time.sleep(-self._left / self._rate)


class _Absent(DeviceError):
    """An object that a request names is not here."""


_BARE = (Kind.ABOUT, Kind.RATES, Kind.COUNTERS, Kind.LOGS)
"""Requests without fields and body."""
_OBJECTS = ("model", "weights", "arrays", "baseline", "candidate")
"""Names of fields that name objects; a number may follow."""
_USED = ("cpu_seconds", "page_faults", "switches", "peak_bytes")


def _json(value: dict[str, Any]) -> Frame:
    return Frame(Kind.DONE, body=json.dumps(value).encode())


def _send(connection: socket.socket, answer: Frame) -> None:
    connection.sendall(head_bytes(answer.kind, answer.fields, len(answer.body)))
    connection.sendall(answer.body)
