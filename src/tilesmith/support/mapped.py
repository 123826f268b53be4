"""Mapped files: models, and arrays that lie in them."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

import numpy as np

from tilesmith.support.errors import ModelError

_LARGEST_FILE = (1 << 31) - 1
"""Protobuf's own limit on one message, in bytes; larger models keep their weights in external data
files.
"""


def map_model(path: Path) -> memoryview:
    """The contents of a model's file, mapped: weights are read when they are packed.  Raises
    ModelError when it is not a regular file that can be read.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else str(e)
        raise ModelError(f"cannot read the model {str(path)!r}: {reason}") from None
    info = os.fstat(fd)
    if stat.S_ISDIR(info.st_mode):
        os.close(fd)
        raise ModelError(f"expected an ONNX file at {str(path)!r}, found a folder")
    with os.fdopen(fd, "rb") as f:
        if not stat.S_ISREG(info.st_mode):
            raise ModelError(
                f"expected an ONNX file at {str(path)!r}, found something that is not a "
                "regular file"
            )
        if info.st_size == 0:
            raise ModelError(f"expected an ONNX file at {str(path)!r}, found an empty file")
        if info.st_size > _LARGEST_FILE:
            raise ModelError(
                f"{str(path)!r} has {info.st_size} bytes; an ONNX file holds at most "
                f"{_LARGEST_FILE}: "
                "save the model with its weights as external data"
            )
        try:
            return memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as e:  # ValueError: it became empty
            raise ModelError(f"cannot read the model {str(path)!r}: {e}") from None


def release(array: np.ndarray) -> None:
    """Give back the memory of an array that lies in a mapped file: its pages are read again when
    they are needed.  Nothing happens to other arrays.
    """
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    base = owner.base
    file = base.obj if isinstance(base, memoryview) else base
    if not isinstance(file, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    if not array.flags.forc or not array.size:
        return
    begin = array.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data
    first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE  # pages shared with neighbours stay
    size = (begin + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0:
        file.madvise(mmap.MADV_DONTNEED, first, size)
