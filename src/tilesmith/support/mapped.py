"""Mapped files: model files, and arrays inside them.

A mapping shows the file's *current* contents: overwriting the file changes arrays that were already
checked.  So results computed from a model's arrays are valid only after `check_unchanged`.  An
executable keeps no mapping of a model's file.
"""

from __future__ import annotations

import io
import mmap
import os
import stat
import weakref
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tilesmith.support.errors import ModelError


class MappedFile(mmap.mmap):
    """A mapped file that detects writes to the file since it was mapped."""

    _path: Path
    _fd: int
    _stamp: tuple[int, int]

    def __new__(cls, fd: int, path: Path) -> MappedFile:
        """Map the open file `fd`, which is not empty.  The mapping closes the file."""
        self = super().__new__(cls, fd, 0, access=mmap.ACCESS_READ)
        self._path, self._fd, self._stamp = path, fd, write_stamp(fd)
        weakref.finalize(self, os.close, fd)
        return self

    def check(self) -> None:
        """Raises ModelError if the file was written to."""
        if write_stamp(self._fd) != self._stamp:
            raise ModelError(
                f"{str(self._path)!r} changed while it was compiled; compile it again when nothing "
                "writes to it"
            )


def write_stamp(fd: int) -> tuple[int, int]:
    """Size and modification time of an open file.  They change when the file is written to."""
    info = os.fstat(fd)
    return info.st_size, info.st_mtime_ns


def map_model(path: Path, expected: str = "a model's file") -> memoryview:
    """The mapped contents of a model's file.  Weights are read from disk only when they are packed.

    expected: the allowed kinds of files, for messages.

    Raises ModelError if `path` is not a regular file that can be read.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else str(e)
        raise ModelError(f"cannot read the model {str(path)!r}: {reason}") from None
    try:
        _check_model(path, os.fstat(fd), expected)
        return memoryview(MappedFile(fd, path))
    except BaseException as e:
        os.close(fd)
        if isinstance(e, (OSError, ValueError)):  # a ValueError means that the file became empty
            raise ModelError(f"cannot read the model {str(path)!r}: {e}") from None
        raise


def _check_model(path: Path, info: os.stat_result, expected: str) -> None:
    """Raises ModelError for a file that can't be a model."""
    if stat.S_ISDIR(info.st_mode):
        raise ModelError(f"expected {expected} at {str(path)!r}, found a folder")
    if not stat.S_ISREG(info.st_mode):
        raise ModelError(
            f"expected {expected} at {str(path)!r}, found a pipe or device: its size is not "
            "known; write the model to a file, or give compile its bytes"
        )
    if info.st_size == 0:
        raise ModelError(f"expected {expected} at {str(path)!r}, found an empty file")


def release(array: np.ndarray) -> None:
    """Release the memory of an array in a mapped file.  Its pages are read again when they are
    needed.  Other arrays are not affected.
    """
    file = _file(array)
    if file is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    if not array.flags.forc or not array.size:
        return
    begin = array.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data
    # Keep the pages that are shared with neighbouring tensors.
    first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (begin + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0:
        file.madvise(mmap.MADV_DONTNEED, first, size)


def check_unchanged(arrays: Iterable[np.ndarray]) -> None:
    """Raises ModelError if a mapped file that contains one of the arrays was written to."""
    for file in {f for f in map(_file, arrays) if f is not None}:
        file.check()


def _file(array: np.ndarray) -> MappedFile | None:
    """The mapped file that contains an array; None if there is none."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    base = owner.base
    file = base.obj if isinstance(base, memoryview) else base
    return file if isinstance(file, MappedFile) else None


class ByteStream(io.RawIOBase):
    """A byte array as a read-only file, without the copy that `BytesIO` makes."""

    def __init__(self, content: memoryview) -> None:
        self._content, self._at = content, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._content)}[whence]
        if begin + offset < 0:
            raise ValueError("a place before the file's beginning")
        self._at = begin + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any buffer
        part = self._content[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)
