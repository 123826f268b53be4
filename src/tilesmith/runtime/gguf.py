"""GGUF files: metadata and tensors, of which most are quantised in blocks.

The format is described in ggml's docs/gguf.md: a header, entries of metadata, descriptions of
tensors, and the tensors' bytes at aligned offsets.  Each offset and count is checked before use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.ir import dtypes
from tilesmith.support.cursor import Cursor
from tilesmith.support.errors import ModelError, UnsupportedError

from .blocks import BLOCKS

MAGIC = b"GGUF"

_PLAIN = {
    0: dtypes.f32,
    1: dtypes.f16,
    24: dtypes.i8,
    25: dtypes.i16,
    26: dtypes.i32,
    27: dtypes.i64,
    28: dtypes.f64,
    30: dtypes.bf16,
}
"""Element types that are not quantised, by their numbers."""

_SCALARS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")
_TEXT, _ARRAY = 8, 9
_MOST_AXES, _MOST_NESTED = 8, 4
_ALIGNMENT = "general.alignment"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a file.

    kind: the name of its element type.
    shape: its shape, the outermost axis first.
    stored: its bytes.
    read: gives its elements.
    """

    kind: str
    shape: tuple[int, ...]
    stored: memoryview
    read: Callable[[], np.ndarray]


@dataclass(frozen=True, slots=True)
class Gguf:
    """A file.

    version: version of the format.
    metadata: entries by name: numbers, bools, texts, and lists of these.
    tensors: tensors by name.
    """

    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


class _Reader(Cursor):
    """Reads a file from front to back."""

    def count(self, what: str) -> int:
        """The next number, which counts things of at least one byte each.  Raises ModelError if the
        file has fewer bytes left.
        """
        count = self.number("Q", what)
        if count > self.left:
            self.bad(f"at most {self.left} {what}", count)
        return count

    def text(self, what: str) -> str:
        """The next text."""
        return str(bytes(self.bytes(self.count(what), what)), "utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """The next value of metadata.

        kind: the number of the value's type.
        depth: number of lists around the value.
        """
        if kind == _TEXT:
            return self.text("bytes of a text")
        if kind == _ARRAY and depth < _MOST_NESTED:
            of, count = self.number("I", "the type of a list"), self.count("elements of a list")
            if of < len(_SCALARS) and _SCALARS[of]:
                return self.array(np.dtype(f"<{_SCALARS[of]}"), (count,), "a list").tolist()
            return [self.value(of, depth + 1) for _ in range(count)]
        if not 0 <= kind < len(_SCALARS) or not _SCALARS[kind]:
            self.bad(f"the number of a type below {len(_SCALARS)}", kind)
        return self.number(_SCALARS[kind], "a number")


def read_gguf(content: bytes | memoryview) -> Gguf:
    """The contents of a file; tensors are decoded when they are read.

    Raises ModelError for a damaged file.  Raises UnsupportedError for version 1 of the format, and
    for big-endian files.
    """
    reader = _Reader(content, "GGUF file")
    if bytes(reader.bytes(4, "a signature")) != MAGIC:
        raise ModelError("expected a GGUF file, found another signature")
    version = reader.number("I", "a version")
    if version not in (2, 3):
        raise UnsupportedError(f"GGUF file: expected version 2 or 3, found {version}")
    tensors, entries = reader.count("tensors"), reader.count("entries of metadata")
    metadata = {}
    for _ in range(entries):
        name = reader.text("bytes of a name")
        metadata[name] = reader.value(reader.number("I", "a type"))
    described = [_described(reader) for _ in range(tensors)]
    alignment = metadata.get(_ALIGNMENT, 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
        raise ModelError(f"GGUF file: {_ALIGNMENT}: expected 1 to 2^20, found {alignment!r}")
    start = -(-reader.at // alignment) * alignment
    made = {}
    for name, shape, kind, offset in described:
        made[name] = _tensor(reader.content, name, shape, kind, start + offset)
    return Gguf(version, metadata, made)


def _described(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    """The name, shape, type and offset of the next tensor."""
    name, rank = reader.text("bytes of a tensor's name"), reader.number("I", "a rank")
    if rank > _MOST_AXES:
        raise ModelError(f"GGUF file: tensor {name!r}: expected at most 8 axes, found {rank}")
    dims = [reader.number("Q", "an extent") for _ in range(rank)]
    kind, offset = reader.number("I", "a tensor's type"), reader.number("Q", "an offset")
    return name, tuple(reversed(dims)), kind, offset


def _tensor(
    content: memoryview, name: str, shape: tuple[int, ...], kind: int, start: int
) -> Tensor:
    elements = math.prod(shape)
    plain, block = _PLAIN.get(kind), BLOCKS.get(kind)
    if plain is None and block is None:
        raise UnsupportedError(f"GGUF file: tensor {name!r}: element type number {kind}")
    per = 1 if block is None else block.elements
    if shape and shape[-1] % per:
        raise ModelError(
            f"GGUF file: tensor {name!r}: expected rows of blocks of {per} elements, found "
            f"{list(shape)}"
        )
    if not elements:
        raise ModelError(f"GGUF file: tensor {name!r}: expected extents above 0, found {shape}")
    size = elements // per * (block.stored.itemsize if block else plain.bytes if plain else 0)
    if start + size > len(content):
        raise ModelError(
            f"GGUF file: tensor {name!r}: expected {size} bytes at offset {start}, found "
            f"{max(len(content) - start, 0)}"
        )
    stored = content[start : start + size]

    def read() -> np.ndarray:
        if plain is not None:
            return np.frombuffer(stored, np.uint8).view(plain.numpy).reshape(shape)
        assert block is not None
        return block.decode(np.frombuffer(stored, block.stored)).reshape(shape)

    return Tensor(block.name if block else str(plain), shape, stored, read)
