"""Arrays beside memory that can't be touched: an access beyond their ends ends the process."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ..builder import Array

_NONE, _ALL = 0, 3  # PROT_NONE, PROT_READ | PROT_WRITE


def _protect(address: int, size: int, to: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if libc.mprotect(address, size, to):
        raise OSError(ctypes.get_errno(), "mprotect")


@contextmanager
def guarded(arrays: list[Array], at_end: bool) -> Iterator[list[Array]]:
    """Copies of arrays, each between pages that can't be touched.

    at_end: whether the last element of each lies right before such a page, or the first one right
        behind one.  Element types must align.
    """
    page = mmap.PAGESIZE
    maps, copies, edges = [], [], []
    for a in arrays:
        size = (a.nbytes + page - 1) // page * page
        memory = mmap.mmap(-1, size + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        edges += [start, start + page + size]
        maps.append(memory)
        place = page + (size - a.nbytes if at_end else 0)
        copy = np.frombuffer(memory, np.uint8, a.nbytes, place).view(a.dtype).reshape(a.shape)
        copy[...] = a
        copies.append(copy)
    for edge in edges:
        _protect(edge, page, _NONE)
    try:
        yield copies
    finally:
        for edge in edges:
            _protect(edge, page, _ALL)
