"""Files of arrays.

Sizes in a file are not trusted.  An array that is larger than its file is refused, and so is a
compressed file that would grow out of proportion.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import IO, BinaryIO

import numpy as np
from numpy.lib import format as npy

from .errors import UsageError
from .folders import open_regular

_ZIP = b"PK\x03\x04"
_ENDING = ".npy"
_EMPTY_ZIP = b"PK\x05\x06"

_MOST_BYTES, _MOST_GROWTH = 1 << 30, 100
"""A compressed file is refused if it exceeds both limits: uncompressed bytes, and growth factor.
Deflate compresses a thousand zeros to one byte.
"""

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
"""Format version -> the reader of the header.  Later versions are only for structured types."""

_DAMAGED = (
    OSError, ValueError, TypeError, EOFError, KeyError, OverflowError, SyntaxError, RecursionError,
    NotImplementedError, RuntimeError, TokenError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""Exceptions of NumPy and `zipfile` for damaged files."""


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` file, or of an `.npy` file under the name "".

    Raises UsageError if it can't be read.  Never unpickles.
    """
    try:
        with open_regular(path) as f:
            start = f.read(len(_ZIP))
            size = f.seek(0, os.SEEK_END)
            f.seek(0)
            if start in (_ZIP, _EMPTY_ZIP):
                return _archive(f, size)
            return {"": _array(f, size)}
    except FileNotFoundError:
        raise UsageError(f"there is no file {str(path)!r}") from None
    except MemoryError:
        raise UsageError(f"{str(path)!r} holds an array too large for this machine") from None
    except _DAMAGED as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else e
        raise UsageError(
            f"{str(path)!r} can't be read as an .npz or .npy file of plain arrays: {reason}"
        ) from None


def read_array(path: Path) -> np.ndarray:
    """The array of an `.npy` file.  Raises UsageError as `read_arrays` does."""
    arrays = read_arrays(path)
    if "" not in arrays:
        raise UsageError(f"{str(path)!r}: expected an .npy file of one array, found an .npz file")
    return arrays[""]


def _archive(f: BinaryIO, size: int) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(f) as z:
        entries = z.infolist()
        total = sum(i.file_size for i in entries)
        if total > _MOST_BYTES and total > _MOST_GROWTH * size:
            raise ValueError(
                f"its {size} bytes would become {total}; save such arrays with numpy.savez, which "
                "does not compress"
            )
        for info in entries:
            if not info.filename.endswith(_ENDING):
                raise ValueError(f"it holds {info.filename!r}, which is no array")
            with z.open(info) as entry:
                arrays[info.filename.removesuffix(_ENDING)] = _array(entry, info.file_size)
    return arrays


def _array(f: IO[bytes], size: int) -> np.ndarray:
    """The array in `f`, a file of `size` bytes."""
    version = npy.read_magic(f)
    if version not in _HEADERS:
        raise ValueError(f"arrays of version {'.'.join(map(str, version))} are not read")
    shape, is_column_major, dtype = _HEADERS[version](f)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"its shape is {shape}")
    count = math.prod(shape)
    wanted = count * dtype.itemsize
    if wanted > size:
        raise ValueError(f"its array of {wanted} bytes is longer than the file's {size}")
    memory = np.empty(wanted, np.uint8)
    view = memoryview(memory)  # type: ignore[arg-type]  # an array has a buffer
    filled = 0
    while filled < wanted:
        read = f.readinto(view[filled:])  # type: ignore[attr-defined]  # of files and zip entries
        if not read:
            raise EOFError(f"its array ends after {filled} of {wanted} bytes")
        filled += read
    array = memory.view(dtype) if dtype.itemsize else np.empty(count, dtype)
    return array.reshape(shape, order="F" if is_column_major else "C")
