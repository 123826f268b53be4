"""Memory for results.  Large blocks are reused once no array refers to them.

The C library returns free blocks of tens of megabytes to the system at once.  Mapping as many fresh
pages takes longer than most kernels take to fill them.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from functools import partial

import numpy as np

from tilesmith.support.errors import ModelError
from tilesmith.support.forks import renew_in_children

from .native import ALIGNMENT

LARGE_BYTES = 16 << 20
"""Least bytes of a result whose block is kept and reused.  Such blocks are aligned to a cache line.
"""

_KEPT = 2
"""Number of kept blocks: two, since a caller still holds the last result while it runs the next
call.
"""


def _references(blocks: list[np.ndarray]) -> list[int]:
    return [sys.getrefcount(b) for b in blocks]


(_IDLE,) = _references([np.empty(1)])
"""The reference count of a block that no array views."""


class Results:
    """Memory for one result of each run.  `fresh()` returns an uninitialised array; no other array
    uses its memory.
    """

    fresh: Callable[[], np.ndarray]

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape = shape
        self.dtype = dtype
        self._bytes = math.prod(shape) * dtype.itemsize
        self._blocks: list[np.ndarray] = []
        self._lock = threading.Lock()
        renew_in_children(self)
        is_small = self._bytes < LARGE_BYTES
        self.fresh = partial(np.empty, shape, dtype) if is_small else self._reused

    def _reused(self) -> np.ndarray:
        with self._lock:
            for i, count in enumerate(_references(self._blocks)):
                if count == _IDLE:
                    return self._array(self._blocks[i])
            try:
                block = np.empty(self._bytes + ALIGNMENT, np.uint8)
            except MemoryError:
                raise ModelError(
                    f"a result of shape {self.shape} has {self._bytes} bytes, more than the system "
                    "gives; run the model with smaller inputs"
                ) from None
            self._blocks = [*self._blocks[1 - _KEPT :], block]
            return self._array(block)

    def trim(self) -> int:
        """Free the blocks that no array uses.  Returns the number of bytes."""
        with self._lock:
            counts = _references(self._blocks)
            idle = sum(b.nbytes for b, n in zip(self._blocks, counts) if n == _IDLE)
            self._blocks = [b for b, n in zip(self._blocks, counts) if n != _IDLE]
            return idle

    def _array(self, block: np.ndarray) -> np.ndarray:
        """A view of `block`.  It and all of its own views keep `block` alive."""
        start = -block.ctypes.data % ALIGNMENT
        return block[start : start + self._bytes].view(self.dtype).reshape(self.shape)
