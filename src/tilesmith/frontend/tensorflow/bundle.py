"""Reading of tensor bundles, in which TensorFlow keeps the contents of variables: the files
`variables.index` and `variables.data-00000-of-00001`.

The index is a sorted table in LevelDB's format.  It consists of blocks of entries.  An entry's key
is stored as the length of the prefix that it shares with the previous key, and the rest.  The last
block lists the other blocks, and the footer of the file has the position of the last block.  An
entry's value is a BundleEntryProto, which has the tensor's position in the data files.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np

from tilesmith.frontend.common.protobuf import Message, varint
from tilesmith.frontend.tensorflow.schema import SCHEMA
from tilesmith.frontend.tensorflow.tensors import element_type, known_shape, numbers
from tilesmith.ir.dtypes import string
from tilesmith.support.errors import ModelError, UnsupportedError

_FOOTER, _MAGIC = 48, 0xDB4775248B80FB57
"""The size of a table's footer, and the number with which the footer ends."""

_TRAILER = 5
"""Number of bytes after a block: its compression method, and a checksum."""

_STORED, _SNAPPY = 0, 1

_MOST_UNPACKED = 32
"""Upper bound on the ratio of unpacked to packed bytes.  Snappy makes at most 64 bytes of 3."""


class Bundle:
    """The tensors of a bundle by key."""

    def __init__(self, index: memoryview, shard: Callable[[int, int], memoryview]) -> None:
        """index: the index file.

        shard: maps a data file into memory, given its number and the number of data files.
        """
        entries = dict(_entries(index))
        header = SCHEMA.decode(entries.pop(b"", b""), "BundleHeaderProto")
        self._shards, self._shard = header.num_shards, shard
        if header.endianness:
            raise UnsupportedError("variables of a machine with the high byte first")
        self._entries = {key.decode(errors="replace"): value for key, value in entries.items()}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(SCHEMA.decode(e, "BundleEntryProto").size for e in self._entries.values())

    def array(self, key: str) -> np.ndarray:
        """The tensor with this key, in the file's memory.  Raises ModelError if it is damaged."""
        what = f"variable {key!r}"
        entry: Message = SCHEMA.decode(self._entries[key], "BundleEntryProto")
        dtype, shape = element_type(entry.dtype, what), known_shape(entry.shape, what)
        if entry.slices:
            raise UnsupportedError(f"{what}, which is stored in parts")
        if dtype is string:
            raise UnsupportedError(f"{what}, which holds strings")
        if not 0 <= entry.shard_id < self._shards:
            raise ModelError(
                f"{what}: expected a file below {self._shards}, found {entry.shard_id}"
            )
        stored = self._shard(entry.shard_id, self._shards)
        start, size = entry.offset, entry.size
        if start < 0 or size < 0 or start + size > len(stored):
            raise ModelError(
                f"{what}: expected {size} bytes at byte {start}, found a file of {len(stored)}"
            )
        return numbers(stored[start : start + size], dtype, shape, what)


def _entries(table: memoryview) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a sorted table."""
    if len(table) < _FOOTER or struct.unpack("<Q", table[-8:])[0] != _MAGIC:
        raise ModelError("damaged file: expected an index of variables, found other contents")
    footer = table[-_FOOTER:-8]
    _, _, position = _handle(footer, 0)
    offset, size, _ = _handle(footer, position)
    for _, value in _block(table, offset, size):
        handle = memoryview(value)
        start, length, _ = _handle(handle, 0)
        yield from _block(table, start, length)


def _handle(view: memoryview, position: int) -> tuple[int, int, int]:
    """Read two numbers at `position`: the offset of a block and its size.  Returns them and the
    position of what follows.
    """
    offset, position = varint(view, position, len(view))
    size, position = varint(view, position, len(view))
    return offset, size, position


def _block(table: memoryview, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block."""
    if offset + size + _TRAILER > len(table):
        raise ModelError(f"damaged file: a block of the index ends behind byte {len(table)}")
    packing = table[offset + size]
    view = table[offset : offset + size]
    if packing == _SNAPPY:
        view = memoryview(unpacked(view))
    elif packing != _STORED:
        raise UnsupportedError(f"an index of variables that is compressed by method {packing}")
    restarts = struct.unpack("<I", view[-4:])[0] if len(view) >= 4 else -1
    end = len(view) - 4 * (restarts + 1)
    if restarts < 0 or end < 0:
        raise ModelError(f"damaged file: a block of the index at byte {offset} has no end")
    key, position = b"", 0
    while position < end:
        shared, position = varint(view, position, end)
        own, position = varint(view, position, end)
        length, position = varint(view, position, end)
        if shared > len(key) or position + own + length > end:
            raise ModelError(f"damaged file: an entry of the block at byte {offset} is too long")
        key = key[:shared] + bytes(view[position : position + own])
        yield key, bytes(view[position + own : position + own + length])
        position += own + length


def unpacked(packed: memoryview) -> bytes:
    """Unpack bytes that Snappy compressed.  Raises ModelError if they are damaged."""
    size, position = varint(packed, 0, len(packed))
    if size > _MOST_UNPACKED * len(packed):
        raise ModelError(f"damaged file: {len(packed)} packed bytes can't hold {size} bytes")
    out = bytearray()
    while position < len(packed) and len(out) < size:
        tag = packed[position]
        position += 1
        length, kind = (tag >> 2) + 1, tag & 3
        if kind == 0:  # a literal
            if length > 60:
                width = length - 60
                length = int.from_bytes(packed[position : position + width], "little") + 1
                position += width
            out += packed[position : position + length]
            position += length
            continue
        width = (1, 2, 4)[kind - 1]  # a copy of earlier bytes
        back = int.from_bytes(packed[position : position + width], "little")
        position += width
        if kind == 1:
            length, back = (tag >> 2 & 7) + 4, back | tag >> 5 << 8
        if not 0 < back <= len(out) or len(out) + length > size:
            raise ModelError(f"damaged file: packed bytes refer {back} bytes back")
        for _ in range(length):
            out.append(out[-back])
    if len(out) != size:
        raise ModelError(f"damaged file: expected {size} unpacked bytes, found {len(out)}")
    return bytes(out)
