"""The frontend for Core ML: `.mlpackage` folders and `.mlmodel` files.

The files are read without coremltools, so that models for Apple's systems run elsewhere.
"""

from __future__ import annotations

from tilesmith.frontend.common.protobuf import wire_fields
from tilesmith.frontend.common.source import Frontend, Source
from tilesmith.support.errors import ModelError

MANIFEST = "Manifest.json"
_NEWEST = 99
"""The largest specification version with which a file is recognised."""


def recognises(source: Source) -> bool:
    """Whether the source is a package with a manifest, or the bytes of a model.

    A model begins with a version and a description of features.
    """
    if source.content is None:
        return source.folder is not None and (source.folder / MANIFEST).is_file()
    view = memoryview(source.content).cast("B")
    try:
        fields = wire_fields(view, 0, len(view))
        version, description = next(fields), next(fields)
    except (ModelError, StopIteration):
        return False
    if (version.number, version.kind, description.number, description.kind) != (1, 0, 2, 2):
        return False
    if version.end - version.body != 1 or not 0 < view[version.body] <= _NEWEST:
        return False
    return _is_description(view, description.body, description.end)


def _is_description(view: memoryview, start: int, end: int) -> bool:
    """Whether these bytes have the fields of a model's description and of its features."""
    try:
        fields = list(wire_fields(view, start, end))
        known = {1, 10, 11, 12, 13, 20, 21, 50, 100}
        if not fields or any(f.number not in known or f.kind != 2 for f in fields):
            return False
        features = (f for f in fields if f.number in (1, 10, 13, 50))
        return all(
            inner.number in (1, 2, 3) and inner.kind == 2
            for f in features
            for inner in wire_fields(view, f.body, f.end)
        )
    except ModelError:
        return False


COREML = Frontend(
    "a Core ML model",
    ("a path to a Core ML model or package", "its bytes"),
    recognises,
    "tilesmith.frontend.coreml.operators",
)

__all__ = ["COREML"]
