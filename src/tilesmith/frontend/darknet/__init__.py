"""The frontend for Darknet's networks: a `.cfg` with its `.weights`."""

from __future__ import annotations

import re

from tilesmith.frontend.common.source import Frontend, Source

_START = re.compile(rb"\A(?:\s|[#;][^\n]*\n)*\[(?:net|network)\]")


def recognises(source: Source) -> bool:
    """Whether the source is a configuration: its first section is [net]."""
    content = source.content
    return content is not None and _START.match(memoryview(content)[:65536]) is not None


DARKNET = Frontend(
    "a Darknet network",
    ("a path to a Darknet network (.cfg)", "the paths of its .cfg and .weights as a pair"),
    recognises,
    "tilesmith.frontend.darknet.operators",
)

__all__ = ["DARKNET"]
