"""Permission to use AMX tiles, which Linux grants on request.

Tile registers take 8 KiB of each thread's state.  Linux kills a process that uses them without
permission.  The permission holds for all threads of the process.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import lru_cache
from typing import Literal

_ARCH_PRCTL = 158
_GET_SUPPORTED, _REQUEST = 0x1021, 0x1023
_TILE_DATA = 18
"""Numbers of arch_prctl(2): the system call, its functions, and the state component of tiles."""


@lru_cache(maxsize=1)
def tile_permission() -> Literal["granted", "refused", "none"]:
    """The system's answer to the request for AMX tiles; "none" if the system does not support them.
    A process makes the request once.

    Even with permission, the CPU may lack tiles.
    """
    if platform.machine() != "x86_64" or not sys.platform.startswith("linux"):
        return "none"
    call = ctypes.CDLL(None, use_errno=True).syscall
    supported = ctypes.c_uint64()
    if call(_ARCH_PRCTL, _GET_SUPPORTED, ctypes.byref(supported)):
        return "none"
    if not supported.value >> _TILE_DATA & 1:
        return "none"
    return "refused" if call(_ARCH_PRCTL, _REQUEST, _TILE_DATA) else "granted"
