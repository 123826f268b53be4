"""Kinds of target: a `Backend` for each (see `backend.base`).

A backend is imported when the first code is made for its kind of target: writers and schedule
rules of the other kinds cost no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tilesmith.ir.target import Target
from tilesmith.support.exports import exports

from .base import Backend, LoopPass

if TYPE_CHECKING:
    from .accel import ACCEL
    from .c import SOURCE, VECTORS, C
    from .cpu import CPU
    from .cuda import CUDA
    from .opencl import OPENCL

__all__ = [
    "ACCEL",
    "CPU",
    "CUDA",
    "OPENCL",
    "SOURCE",
    "VECTORS",
    "Backend",
    "C",
    "LoopPass",
    "backend_of",
]

_HOMES = {
    "accel": "accel",
    "cpu": "cpu",
    "c": "c",
    "source": "c",
    "vectors": "c",
    "opencl": "opencl",
    "cuda": "cuda",
}  # the module of each kind of target, where its backend has the kind's name in capitals

__getattr__, __dir__ = exports(
    __name__,
    {
        f"{__name__}.accel": "ACCEL",
        f"{__name__}.c": "C SOURCE VECTORS",
        f"{__name__}.cpu": "CPU",
        f"{__name__}.cuda": "CUDA",
        f"{__name__}.opencl": "OPENCL",
    },
)


def backend_of(target: Target) -> Backend:
    """The backend that makes code for `target`."""
    home = import_module(f"{__name__}.{_HOMES[target.backend]}")
    return getattr(home, target.backend.upper())
