"""The frontend for StableHLO's text, as JAX and MLIR write it."""

from __future__ import annotations

import re

from tilesmith.frontend.common.source import Frontend, Source

_START = re.compile(
    rb"(?:\s+|//[^\n]*\n|#loc\d*\s*=[^\n]*\n)*(?:builtin\.)?(?:module\b[^\n]*\{|func\.func\b)"
)
_PEEK = 1 << 16
"""Number of bytes at the start of a file among which the first function must begin."""


def recognises(source: Source) -> bool:
    """Whether a file is MLIR's text with functions."""
    if source.content is None:
        return False
    start = bytes(source.content[:_PEEK])
    return _START.match(start) is not None and b"func.func" in start


STABLEHLO = Frontend(
    "a StableHLO module",
    ("a path to a StableHLO module", "its text as bytes"),
    recognises,
    "tilesmith.frontend.stablehlo.operators",
)

__all__ = ["STABLEHLO"]
