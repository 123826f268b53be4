"""The frontend for TFLite files: `.tflite`, as TensorFlow Lite and LiteRT run them.

The file is read without TensorFlow and without a FlatBuffers library.  Quantised operators compute
the same integers as TFLite's reference kernels.
"""

from __future__ import annotations

from tilesmith.frontend.common.source import Frontend, Source

IDENTIFIER = b"TFL3"
"""Bytes 4 to 7 of every file."""


def recognises(source: Source) -> bool:
    """Whether a file is a TFLite model, by its identifier."""
    return source.content is not None and bytes(source.content[4:8]) == IDENTIFIER


TFLITE = Frontend(
    "a TFLite file",
    ("a path to a TFLite model", "its bytes"),
    recognises,
    "tilesmith.frontend.tflite.operators",
)

__all__ = ["TFLITE"]
