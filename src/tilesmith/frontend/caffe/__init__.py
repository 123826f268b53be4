"""The frontend for Caffe's nets: a `.prototxt` with its `.caffemodel`.  V1 layers are read, too."""

from __future__ import annotations

import re

from tilesmith.frontend.common.protobuf import BYTES, wire_fields
from tilesmith.frontend.common.source import Frontend, Source
from tilesmith.support.errors import ModelError

_TEXT = re.compile(
    rb"\A(?:\s|#[^\n]*\n)*(?:name|input|input_dim|input_shape|layers?|state|force_backward)\s*[:{]"
)
_HAS_LAYER = re.compile(rb"(?:^|\s|\})layers?\s*:?\s*\{")
_NET_FIELDS = frozenset((*range(1, 9), 100))


def recognises(source: Source) -> bool:
    """Whether the source is a net in text or a net with its blobs in binary form."""
    if source.content is None:
        return False
    view = memoryview(source.content)
    if is_text(view):
        return _HAS_LAYER.search(view) is not None
    try:
        return _is_binary(view)
    except ModelError:
        return False


def is_text(view: memoryview) -> bool:
    """Whether a file begins as a net in text does."""
    return _TEXT.match(view[:4096]) is not None


def _is_binary(view: memoryview) -> bool:
    """Whether a message has the fields of a net, and its first layer has a name and a type."""
    for f in wire_fields(view, 0, len(view)):
        if f.number not in _NET_FIELDS or (f.number in (1, 2, 3, 8, 100) and f.kind != BYTES):
            return False
        if f.number == 1 and not bytes(view[f.body : f.end]).decode(errors="ignore").isprintable():
            return False
        if f.number in (2, 100):
            wanted = {1: BYTES, 2: BYTES} if f.number == 100 else {4: BYTES, 5: 0}
            inner = {i.number: i.kind for i in wire_fields(view, f.body, f.end)}
            return all(inner.get(number) == kind for number, kind in wanted.items())
    return False


CAFFE = Frontend(
    "a Caffe net",
    ("a path to a Caffe net (.prototxt or .caffemodel)", "both paths as a pair"),
    recognises,
    "tilesmith.frontend.caffe.operators",
)

__all__ = ["CAFFE"]
