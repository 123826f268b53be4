"""Writes small GGUF files for tests."""

from __future__ import annotations

import struct


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(tensors, entries=b"", count=0, version=3, alignment=32):
    """A file; `tensors` has (number of the type, shape, bytes) by name."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), count) + entries
    body = b""
    for name, (kind, shape, stored) in tensors.items():
        body += b"\0" * (-len(body) % alignment)
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += text(name) + dims + struct.pack("<IQ", kind, len(body))
        body += stored
    return head + b"\0" * (-len(head) % alignment) + body
