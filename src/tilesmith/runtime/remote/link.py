"""A connection to an agent, which is made again when it breaks."""

from __future__ import annotations

import hmac
import os
import socket
import ssl
import time
from collections.abc import Mapping
from threading import Lock
from typing import Literal, TypeAlias, get_args

from tilesmith.support.errors import (
    DeadlineError,
    DeviceError,
    ModelError,
    TilesmithError,
    UnavailableError,
    UsageError,
)

from .address import Address
from .frames import NONCE_BYTES, Frame, FrameError, Kind, head_bytes, read_frame
from .keys import Key

CONNECT_SECONDS = 10.0
ANSWER_BYTES = 1 << 34
"""Upper bound on the body of an answer."""
_PIECE = 1 << 20

ERRORS: Mapping[str, type[TilesmithError]] = {
    "model": ModelError,
    "usage": UsageError,
    "device": DeviceError,
    "unavailable": UnavailableError,
    "deadline": DeadlineError,
}
"""Word in a refusal -> the error that a caller gets."""


Cause: TypeAlias = Literal["timeout", "crash", "failed"]
_CAUSES: Mapping[str, Cause] = {c: c for c in get_args(Cause)}


class AbsentError(DeviceError):
    """The agent does not have an object that a request names: it was removed, or never sent."""


class EndedError(DeviceError):
    """A program that the agent started gave no result.

    cause: why it ended.
    """

    def __init__(self, text: str, cause: Cause) -> None:
        super().__init__(text)
        self.cause: Cause = cause


class LostError(DeviceError):
    """The agent can't be reached, or the connection broke before the answer."""


class Link:
    """A connection to the agent at an address.  Several threads may use it, one after the other."""

    def __init__(self, address: Address, key: Key) -> None:
        self.address, self._key = address, key
        self._socket: socket.socket | None = None
        self._lock = Lock()
        self._process = os.getpid()

    def ask(
        self, kind: Kind, fields: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"", seconds: float = 600.0,
    ) -> Frame:  # fmt: skip
        """The answer to a request, within `seconds`.

        A connection that broke since the last request is made again.  Raises LostError, AbsentError
        and the error in a refusal.
        """
        with self._lock:
            if self._process != os.getpid():  # a fork must not write to its parent's connection
                self._process, self._socket = os.getpid(), None
            is_new = self._socket is None
            try:
                answer = self._asked(kind, fields, body, seconds)
            except (OSError, EOFError, FrameError) as e:
                self._drop()
                if is_new or isinstance(e, TimeoutError):
                    raise self._lost(e) from None
                try:  # the agent may have closed an idle connection, or was started again
                    answer = self._asked(kind, fields, body, seconds)
                except (OSError, EOFError, FrameError) as again:
                    self._drop()
                    raise self._lost(again) from None
            except BaseException:  # an interrupt: nobody will read the answer
                self._drop()
                raise
        return checked_answer(answer, str(self.address))

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        held, self._socket = self._socket, None
        if held is not None:
            held.close()

    def _asked(
        self, kind: Kind, fields: Mapping[str, str] | None, body: bytes | memoryview,
        seconds: float,
    ) -> Frame:  # fmt: skip
        if self._socket is None:
            self._socket = self._connected()
        return _exchanged(self._socket, Frame(kind, fields or {}, body), seconds)

    def _connected(self) -> socket.socket:
        """A connection after the handshake."""
        place = (self.address.host, self.address.port)
        made = socket.create_connection(place, CONNECT_SECONDS)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.address.scheme == "tls":
                made = self._key.context().wrap_socket(made, server_hostname=self.address.host)
                own = ssl.PEM_cert_to_DER_cert(self._key.certificate)
                if made.getpeercert(binary_form=True) != own:
                    raise ssl.SSLError("the agent has another certificate")
            nonce = os.urandom(NONCE_BYTES)
            hello = Frame(Kind.HELLO, {"nonce": nonce.hex()})
            told = checked_answer(_exchanged(made, hello, CONNECT_SECONDS), str(self.address))
            theirs = bytes.fromhex(told.digest("nonce"))
            proof = self._key.proof("agent", nonce, theirs)
            if not hmac.compare_digest(proof, told.digest("proof")):
                raise UsageError(f"device {self.address}: it does not have the token of the key")
            prove = Frame(Kind.PROVE, {"proof": self._key.proof("caller", theirs, nonce)})
            checked_answer(_exchanged(made, prove, CONNECT_SECONDS), str(self.address))
        except BaseException:
            made.close()
            raise
        return made

    def _lost(self, e: Exception) -> LostError:
        why = "it closed the connection" if isinstance(e, EOFError) else str(e) or "no answer"
        return LostError(
            f"device {self.address}: {why}; is `tilesmith agent serve` running there, with the key "
            "of this caller?"
        )


def checked_answer(answer: Frame, place: str) -> Frame:
    """The answer, if it is no refusal.  Raises the error in a refusal."""
    if answer.kind is Kind.DONE:
        return answer
    if answer.kind is not Kind.REFUSED:
        raise FrameError(f"device {place}: expected an answer, found {answer.kind.name}")
    text = f"device {place}: {answer.fields.get('text', 'the request is refused')}"
    word, cause = answer.fields.get("error", ""), answer.fields.get("cause", "")
    if cause in _CAUSES:
        raise EndedError(text, _CAUSES[cause])
    raise (AbsentError if word == "absent" else ERRORS.get(word, DeviceError))(text)


def _exchanged(connection: socket.socket, request: Frame, seconds: float) -> Frame:
    """The answer to a frame.  Raises OSError, EOFError, FrameError."""
    deadline = time.monotonic() + seconds
    connection.settimeout(seconds)
    connection.sendall(head_bytes(request.kind, request.fields, len(request.body)))
    connection.sendall(request.body)
    return read_frame(lambda size: received(connection, size, deadline), ANSWER_BYTES)


def received(connection: socket.socket, size: int, deadline: float) -> bytes:
    """The next `size` bytes of a connection; fewer if the connection ends.  Raises TimeoutError at
    `deadline`, in seconds of the monotonic clock.
    """
    parts: list[bytes] = []
    while size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is over")
        connection.settimeout(left)
        part = connection.recv(min(size, _PIECE))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
