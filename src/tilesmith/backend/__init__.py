"""Kinds of target: a `Backend` for each (see `backend.base`)."""

from __future__ import annotations

from tilesmith.ir.target import Target

from .base import Backend, LoopPass
from .c import SOURCE, VECTORS, C
from .cpu import CPU
from .cuda import CUDA
from .opencl import OPENCL

__all__ = [
    "BACKENDS",
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

BACKENDS: dict[str, Backend] = {b.name: b for b in (CPU, C, SOURCE, VECTORS, OPENCL, CUDA)}


def backend_of(target: Target) -> Backend:
    """The backend that makes code for `target`."""
    return BACKENDS[target.backend]
