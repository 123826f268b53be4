"""The frontend for models of Paddle: `.pdmodel` or `.json`, with `.pdiparams`.

Both files are read without Paddle.
"""

from __future__ import annotations

import re

from tilesmith.frontend.common.source import Frontend, Source

_PIR = (b'"base_code"', b'"pir"')
_PROGRAM = re.compile(rb"\n[\x80-\xff]{0,4}[\x00-\x7f]\x08\x00\x10(\xff{9}\x01|\x00)")
"""The first bytes of a program, where its first block has number 0 and the parent -1 or 0."""


def recognises(source: Source) -> bool:
    """Whether a source is a program of Paddle, in either form."""
    return source.content is not None and (is_pir(source.content) or _is_program(source.content))


def is_pir(content: bytes | memoryview) -> bool:
    """Whether a file is a program of PIR."""
    start = bytes(content[:4096])
    return start.lstrip().startswith(b"{") and all(m in start for m in _PIR)


def _is_program(content: bytes | memoryview) -> bool:
    """Whether a file is a ProgramDesc."""
    return _PROGRAM.match(bytes(content[:32])) is not None


PADDLE = Frontend(
    "a Paddle model",
    ("a path to a Paddle model, or to it and its parameters",),
    recognises,
    "tilesmith.frontend.paddle.operators",
)

__all__ = ["PADDLE"]
