"""The frontend for Tengine's models: a `.tmfile`."""

from __future__ import annotations

import struct

from tilesmith.frontend.common.source import Frontend, Source

_HEADER = struct.Struct("<3H2xI")
"""The version of the format, and the offset of the model."""

_VERSION = (2, 0, 0)
_MODEL_BYTES = 16


def recognises(source: Source) -> bool:
    """Whether the source is a .tmfile of version 2: its header leads to a model inside it."""
    content = source.content
    if content is None or len(content) < _HEADER.size + _MODEL_BYTES:
        return False
    *version, model = _HEADER.unpack_from(content)
    is_inside = _HEADER.size <= model <= len(content) - _MODEL_BYTES
    return tuple(version) == _VERSION and is_inside and model % 4 == 0


TENGINE = Frontend(
    "a Tengine model",
    ("a path to a Tengine model (.tmfile)",),
    recognises,
    "tilesmith.frontend.tengine.operators",
)

__all__ = ["TENGINE"]
