"""Frames: messages between the agent of a device and its callers (docs/devices.md).

A frame is a head of 20 bytes, fields and a body:

    4 bytes   "TSA" and the version of the protocol
    1 byte    kind
    3 bytes   zero
    4 bytes   size of the fields, little-endian
    8 bytes   size of the body, little-endian

Fields are lines of the form NAME=VALUE in UTF-8.  Whoever reads a frame checks each part before it
reads the next one, so a bad sender can't make it allocate or wait without limit.  Nothing is
pickled.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

import numpy as np

from tilesmith.ir.dtypes import BY_NAME
from tilesmith.runtime.arrays import stored_dtype
from tilesmith.support.errors import DeviceError

VERSION = 1
MAGIC = b"TSA%d" % VERSION
HEAD_BYTES = 20
FIELDS_BYTES, MOST_FIELDS = 64 << 10, 64
"""Upper bounds on the size and the number of the fields."""
NONCE_BYTES = 32
"""Bytes of the random numbers in a handshake."""
SLOWEST = 100_000
"""Bytes per second of the slowest connection that works."""

_HEAD = struct.Struct("<4sB3sIQ")
_FIELD = re.compile(r"([a-z][a-z0-9_]{0,31})=([^\x00-\x1f\x7f]*)")
_ARRAY = re.compile(r"([a-z][a-z0-9_]{0,31})\[((?:\d{1,18}(?:,\d{1,18})*)?)\]")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Kind(IntEnum):
    """The kinds of frames: requests, and from 128 on the two kinds of answers."""

    HELLO = 1
    PROVE = 2
    ABOUT = 3
    HAS = 4
    PUT = 5
    RUN = 6
    TIME = 7
    PROFILE = 8
    MEASURE = 9
    RATES = 10
    COUNTERS = 11
    LOGS = 12
    EXEC = 13
    DONE = 128
    REFUSED = 129


class FrameError(DeviceError):
    """The received bytes are no frame of this protocol, or the frame exceeds a limit."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message.

    kind: what is asked or answered.
    fields: texts by name.
    body: bytes.
    """

    kind: Kind
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""

    def to_bytes(self) -> bytes:
        """Raises FrameError for fields that can't be sent."""
        return head_bytes(self.kind, self.fields, len(self.body)) + bytes(self.body)

    @staticmethod
    def of_bytes(content: bytes) -> Frame:
        """The frame that `content` is.  Raises FrameError."""
        offset = 0

        def receive(size: int) -> bytes:
            nonlocal offset
            offset += size
            return content[offset - size : offset]

        return read_frame(receive, len(content))

    def digest(self, name: str) -> str:
        """The SHA-256 digest in a field, in hexadecimal digits.  Raises FrameError."""
        value = self.fields.get(name, "")
        if not _DIGEST.fullmatch(value):
            raise FrameError(
                f"field {name!r}: expected 64 hexadecimal digits, found {value[:80]!r}"
            )
        return value

    def number(self, name: str, least: float, most: float, default: float | None = None) -> float:
        """The number in a field.  Raises FrameError if it is missing or out of bounds."""
        text = self.fields.get(name)
        if text is None and default is not None:
            return default
        try:
            value = float(text or "")
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise FrameError(f"field {name!r}: expected {least:g} to {most:g}, found {text!r}")
        return value


Receive: TypeAlias = Callable[[int], bytes]
"""A function that returns the given number of bytes, or fewer if no more will come."""


def head_bytes(kind: Kind, fields: Mapping[str, str], size: int) -> bytes:
    """The head and the fields of a frame whose body has `size` bytes.  Raises FrameError."""
    lines = [f"{name}={value}" for name, value in fields.items()]
    for line in lines:
        if not _FIELD.fullmatch(line):
            raise FrameError(f"expected a field NAME=VALUE of one line, found {line[:80]!r}")
    text = "".join(f"{line}\n" for line in lines).encode()
    if len(text) > FIELDS_BYTES:
        raise FrameError(f"expected at most {FIELDS_BYTES} bytes of fields, found {len(text)}")
    return _HEAD.pack(MAGIC, kind, bytes(3), len(text), size) + text


def read_head(receive: Receive, most: int) -> tuple[Kind, dict[str, str], int]:
    """The kind and the fields of the next frame, and the size of its body.

    most: the largest body that is accepted, in bytes.

    Raises FrameError, and EOFError if nothing comes.
    """
    head = receive(HEAD_BYTES)
    if not head:
        raise EOFError
    if len(head) < HEAD_BYTES:
        raise FrameError(f"expected a head of {HEAD_BYTES} bytes, found {len(head)}")
    magic, number, zero, count, size = _HEAD.unpack(head)
    if magic != MAGIC:
        raise FrameError(f"expected a frame that begins with {MAGIC!r}, found {magic!r}")
    try:
        kind = Kind(number)
    except ValueError:
        raise FrameError(f"expected a kind of frame, found {number}") from None
    if any(zero) or count > FIELDS_BYTES or size > most:
        raise FrameError(
            f"expected at most {FIELDS_BYTES} bytes of fields and {most} of a body, found {count} "
            f"and {size}"
        )
    return kind, _fields(_all(receive, count)), size


def read_frame(receive: Receive, most: int) -> Frame:
    """The next frame.  Raises as `read_head` does."""
    kind, fields, size = read_head(receive, most)
    return Frame(kind, fields, _all(receive, size))


def _all(receive: Receive, size: int) -> bytes:
    content = receive(size) if size else b""
    if len(content) < size:
        raise FrameError(f"expected {size} more bytes of the frame, found {len(content)}")
    return content


def _fields(content: bytes) -> dict[str, str]:
    if content and not content.endswith(b"\n"):
        raise FrameError("expected fields that end with a newline")
    try:
        lines = content.decode().split("\n")[:-1]
    except UnicodeDecodeError as e:
        raise FrameError(f"expected fields in UTF-8: {e}") from None
    if len(lines) > MOST_FIELDS:
        raise FrameError(f"expected at most {MOST_FIELDS} fields, found {len(lines)}")
    fields: dict[str, str] = {}
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None or match[1] in fields:
            raise FrameError(f"expected fields NAME=VALUE, each once, found {line[:80]!r}")
        fields[match[1]] = match[2]
    return fields


def array_fields(arrays: Sequence[tuple[str, np.ndarray]]) -> tuple[dict[str, str], bytes]:
    """The fields and the body of a frame that carries arrays.  Each array is given with the name of
    its element type.
    """
    fields = {
        f"array{i}": f"{dtype}[{','.join(map(str, a.shape))}]"
        for i, (dtype, a) in enumerate(arrays)
    }
    return fields, b"".join(np.ascontiguousarray(a).tobytes() for _, a in arrays)


def arrays_of(frame: Frame) -> list[np.ndarray]:
    """The arrays of `array_fields`, with the element types of native memory.

    Raises FrameError if the body does not have the size that the fields say.
    """
    arrays: list[np.ndarray] = []
    offset = 0
    while (text := frame.fields.get(f"array{len(arrays)}")) is not None:
        match = _ARRAY.fullmatch(text)
        dtype = BY_NAME.get(match[1]) if match is not None else None
        if match is None or dtype is None or dtype.is_host:
            raise FrameError(f"expected an array such as f32[2,3], found {text[:80]!r}")
        shape = tuple(int(n) for n in match[2].split(",") if n)
        size = dtype.bytes
        for extent in shape:
            size *= extent
        if size > len(frame.body) - offset:
            raise FrameError(
                f"array {text}: expected {size} bytes, found {len(frame.body) - offset}"
            )
        flat = np.frombuffer(frame.body, np.uint8, size, offset)
        # A copy, since native code needs aligned memory.
        arrays.append(flat.copy().view(stored_dtype(dtype)).reshape(shape))
        offset += size
    if offset != len(frame.body):
        raise FrameError(f"expected {offset} bytes of arrays, found {len(frame.body)}")
    return arrays
