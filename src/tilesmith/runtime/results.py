"""Memory for results: large blocks are taken again once nobody looks at what was in them.

The C library gives blocks of tens of megabytes back to the system as soon as they are free, and
mapping as many fresh pages takes longer than most kernels take to fill them.
"""

from __future__ import annotations

import math
import sys
import threading

import numpy as np

from .native import ALIGNMENT

LARGE_BYTES = 16 << 20
"""Results from this size on have memory of their own, which starts a cache line."""

_KEPT = 2
"""Blocks kept: a caller still holds the last result when it asks for the next."""


def _references(blocks: list[np.ndarray]) -> list[int]:
    return [sys.getrefcount(b) for b in blocks]


(_IDLE,) = _references([np.empty(1)])
"""The count for a block that no array looks into."""


class Results:
    """`fresh()` gives an uninitialised array of `shape` and `dtype` that nobody else looks at."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape = shape
        self.dtype = dtype
        self._bytes = math.prod(shape) * dtype.itemsize
        self._blocks: list[np.ndarray] = []
        self._lock = threading.Lock()

    def fresh(self) -> np.ndarray:
        if self._bytes < LARGE_BYTES:
            return np.empty(self.shape, self.dtype)
        with self._lock:
            for i, count in enumerate(_references(self._blocks)):
                if count == _IDLE:
                    return self._array(self._blocks[i])
            block = np.empty(self._bytes + ALIGNMENT, np.uint8)
            self._blocks = [*self._blocks[1 - _KEPT :], block]
            return self._array(block)

    def _array(self, block: np.ndarray) -> np.ndarray:
        """A view, which keeps `block` referenced as all views of it do."""
        start = -block.ctypes.data % ALIGNMENT
        return block[start : start + self._bytes].view(self.dtype).reshape(self.shape)
