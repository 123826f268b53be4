"""The frontend for StableHLO, as JAX and MLIR write it: text, bytecode, `jax.export`'s files."""

from __future__ import annotations

import re

from tilesmith.frontend.common.source import Frontend, Source

from .bytecode import MAGIC
from .exported import exported_module

_START = re.compile(
    rb"(?:\s+|//[^\n]*\n|#loc\d*\s*=[^\n]*\n)*(?:builtin\.)?(?:module\b[^\n]*\{|func\.func\b)"
)
_PEEK = 1 << 16
"""Number of bytes at the start of a file among which the first function must begin."""


def recognises(source: Source) -> bool:
    """Whether a file is MLIR's text with functions, MLIR's bytecode, or holds such bytecode."""
    if source.content is None:
        return False
    if source.content[: len(MAGIC)] == MAGIC or exported_module(source.content) is not None:
        return True
    start = bytes(source.content[:_PEEK])
    return _START.match(start) is not None and b"func.func" in start


STABLEHLO = Frontend(
    "a StableHLO module",
    ("a path to a StableHLO module", "its content as bytes"),
    recognises,
    "tilesmith.frontend.stablehlo.operators",
)

__all__ = ["STABLEHLO"]
