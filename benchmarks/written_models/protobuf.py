"""Writes protobuf messages for tests, from plain objects by a reader's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilesmith.frontend.common.protobuf import Field, Schema

_FIXED = {"f32": "<f4", "f64": "<f8", "fixed32": "<u4", "fixed64": "<u8", "sfixed32": "<i4"}
_FIXED |= {"sfixed64": "<i8"}


def encode(schema: Schema, message: str, values: Mapping[str, Any]) -> bytes:
    """The bytes of a message: fields by name, messages and maps as mappings, enums as names."""
    fields = schema.fields(message)
    unknown = set(values) - set(fields)
    assert not unknown, f"{message} has no fields {unknown}"
    return b"".join(_field(schema, fields[n], v) for n, v in values.items() if v is not None)


def varint(number: int) -> bytes:
    """A number of variable length."""
    out, number = bytearray(), int(number) & (1 << 64) - 1
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _field(schema: Schema, field: Field, value: Any) -> bytes:
    if field.key_type:
        key = Field(1, "key", field.key_type, False, "", None)
        item = Field(2, "value", field.type, False, "", None)
        pairs = (_field(schema, key, k) + _field(schema, item, v) for k, v in value.items())
        return b"".join(_block(field.number, p) for p in pairs)
    if not field.is_repeated:
        return _value(schema, field, value)
    if field.type in _FIXED:
        return _block(field.number, np.asarray(value, _FIXED[field.type]).tobytes())
    if field.number_type is not None:
        return _block(field.number, b"".join(varint(_number(field.type, v)) for v in value))
    return b"".join(_value(schema, field, v) for v in value)


def _value(schema: Schema, field: Field, value: Any) -> bytes:
    enum = schema.enum(field.type)
    if enum is not None:
        number = {name: n for n, name in enum.items()}[value]
        return varint(field.number << 3) + varint(number)
    if schema.is_message(field.type):
        return _block(field.number, encode(schema, field.type, value))
    if field.type in ("string", "bytes"):
        raw = value.encode() if isinstance(value, str) else bytes(value)
        return _block(field.number, raw)
    if field.type in _FIXED:
        raw = np.asarray(value, _FIXED[field.type]).tobytes()
        return varint(field.number << 3 | (5 if len(raw) == 4 else 1)) + raw
    return varint(field.number << 3) + varint(_number(field.type, value))


def _number(type_: str, value: Any) -> int:
    number = int(value)
    if type_ in ("s32", "s64"):
        return number << 1 if number >= 0 else -(number << 1) - 1
    return number


def _block(number: int, raw: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(raw)) + raw
