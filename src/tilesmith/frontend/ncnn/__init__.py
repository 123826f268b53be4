"""The frontend for ncnn's models: a `.param` or `.param.bin` with its `.bin`."""

from __future__ import annotations

import re

from tilesmith.frontend.common.source import Frontend, Source

_MAGIC = re.compile(rb"\A(\s*7767517\s+\d+\s+\d+\s|\xdd\x85\x76\0)")
"""A number, in text or as 32 bits."""


def recognises(source: Source) -> bool:
    """Whether the source is a .param or .param.bin file."""
    return source.content is not None and bool(_MAGIC.match(memoryview(source.content)[:256]))


NCNN = Frontend(
    "an ncnn model",
    (
        "a path to an ncnn model (.param, .param.bin)",
        "the paths of its .param and .bin as a pair",
    ),
    recognises,
    "tilesmith.frontend.ncnn.operators",
)

__all__ = ["NCNN"]
