"""Arrays that lie in a mapped file."""

from __future__ import annotations

import mmap

import numpy as np


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
