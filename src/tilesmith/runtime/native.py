"""The C runtime, loaded; and the few ways that Python touches memory for it."""

from __future__ import annotations

import ctypes

import numpy as np

from tilesmith.support.errors import InternalError

try:
    from . import _native
except ImportError as e:
    raise InternalError(
        "the C runtime of tilesmith is not built: expected the extension tilesmith.runtime._native "
        f"({e}); install a wheel, or in a source tree run `pip install -e .`"
    ) from e

ALIGNMENT = 64
"""Alignment of arenas, constants and workspaces, in bytes."""

IMPORTS: dict[str, int] = {"tilesmith_parallel_for": _native.PARALLEL_FOR}
"""What compiled code calls, by name."""

Runner = _native.Runner


class Runtime(ctypes.Structure):
    """`struct tilesmith_rt`."""

    _fields_ = (
        ("threads", ctypes.c_int64),
        ("reserved", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
    )


def aligned_bytes(size: int) -> np.ndarray:
    """An uninitialised byte array of `size` whose address is a multiple of `ALIGNMENT`."""
    return _aligned(np.empty(size + ALIGNMENT, np.uint8), size)


def zeroed_bytes(size: int) -> np.ndarray:
    """`aligned_bytes` that are zero; memory is taken when a page is first written."""
    return _aligned(np.zeros(size + ALIGNMENT, np.uint8), size)


def _aligned(room: np.ndarray, size: int) -> np.ndarray:
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size]


def round_up(size: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT
