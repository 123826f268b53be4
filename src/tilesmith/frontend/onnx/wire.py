"""The weights in a model file, located without reading them.

Decoding a model as one protobuf message copies its weights several times.  So the encoded message
is walked first, down to the graph's initializers (protobuf's wire format:
protobuf.dev/programming-guides/encoding).  Every large `raw_data` is left out of the bytes to
decode; its place in the file is returned instead.  A message with a repeated field or broken
encoding is left to the decoder: `split` then leaves nothing out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tilesmith.frontend.common.protobuf import BYTES, WireField, wire_fields
from tilesmith.support.errors import ModelError

Buffer: TypeAlias = "bytes | memoryview"

LARGE = 4096
"""`raw_data` of at least this many bytes stays in the file."""

# Field numbers of onnx.proto.
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9


@dataclass(frozen=True, slots=True)
class Split:
    """A model apart from its large weights.

    message: the encoded model without large weights.
    weights: number of the initializer -> offset and length of its `raw_data` in the original.
    """

    message: Buffer
    weights: dict[int, tuple[int, int]]


class _UnusualError(ModelError):
    """Bytes that no exporter writes."""


def split(content: Buffer) -> Split:
    """`content`, an encoded ModelProto, apart from its large weights."""
    weights: dict[int, tuple[int, int]] = {}
    try:
        view = memoryview(content)
        parts = _without_weights(view, weights)
    except ModelError:
        return Split(content, {})
    return Split(b"".join(parts), weights) if weights else Split(content, {})


def _without_weights(view: memoryview, weights: dict[int, tuple[int, int]]) -> list[Buffer]:
    """The pieces of the model without its large weights.  Adds their places to `weights`."""
    model = list(wire_fields(view, 0, len(view)))
    (graph,) = _only([f for f in model if f.number == _MODEL_GRAPH], 1)
    inner: list[Buffer] = []
    position = 0
    for f in wire_fields(view, graph.body, graph.end):
        if f.number != _GRAPH_INITIALIZER:
            inner.append(view[f.start : f.end])
            continue
        inner += _tensor(view, f, position, weights)
        position += 1
    parts: list[Buffer] = []
    for f in model:
        if f is graph:
            parts += [_head(_MODEL_GRAPH, sum(map(len, inner))), *inner]
        else:
            parts.append(view[f.start : f.end])
    return parts


def _tensor(
    view: memoryview, field: WireField, position: int, weights: dict[int, tuple[int, int]]
) -> list[Buffer]:
    """The pieces of an initializer, without its `raw_data` if that is large."""
    if field.kind != BYTES:
        raise _UnusualError
    if field.end - field.body < LARGE:
        return [view[field.start : field.end]]
    parts = list(wire_fields(view, field.body, field.end))
    raw = [f for f in parts if f.number == _TENSOR_RAW_DATA]
    if not raw or raw[0].end - raw[0].body < LARGE:
        return [view[field.start : field.end]]
    (data,) = _only(raw, 1)
    weights[position] = (data.body, data.end - data.body)
    rest: list[Buffer] = [view[f.start : f.end] for f in parts if f is not data]
    return [_head(_GRAPH_INITIALIZER, sum(map(len, rest))), *rest]


def _only(fields: list[WireField], count: int) -> list[WireField]:
    if len(fields) != count or any(f.kind != BYTES for f in fields):
        raise _UnusualError
    return fields


def _head(number: int, size: int) -> bytes:
    """Tag and length of a field of bytes."""
    encoded = bytearray([number << 3 | BYTES])  # field numbers below 16 need one byte
    while size >= 0x80:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)
