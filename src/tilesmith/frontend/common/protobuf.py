"""Bounded reading of protobuf messages by a declared schema, from a file that is not trusted.

A message is a list of fields, each a number with a value.  A field is decoded when it is read.  So
arrays stay in the file's memory, and unread messages cost nothing.  Every length is first compared
with the end of the enclosing message.  So a damaged file gives a ModelError with the byte's
position.  The encoding is described at protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tilesmith.support.errors import ModelError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""The kinds of values in the bytes of a message."""

_DTYPES = {
    "i32": "<i4",
    "i64": "<i8",
    "u32": "<u4",
    "u64": "<u8",
    "s32": "<i4",
    "s64": "<i8",
    "bool": "?",
    "f32": "<f4",
    "f64": "<f8",
    "fixed32": "<u4",
    "fixed64": "<u8",
    "sfixed32": "<i4",
    "sfixed64": "<i8",
}
_DEFAULTS = {name: np.dtype(d).type(0).item() for name, d in _DTYPES.items()} | {
    "string": "",
    "bytes": memoryview(b""),
}
_KINDS = dict.fromkeys(_DTYPES, VARINT) | {
    **dict.fromkeys(("f32", "fixed32", "sfixed32"), FIXED32),
    **dict.fromkeys(("f64", "fixed64", "sfixed64"), FIXED64),
    **dict.fromkeys(("string", "bytes"), BYTES),
}
_LONGEST_VARINT = 10
"""Upper bound on the bytes of a number of variable length."""


@dataclass(frozen=True, slots=True)
class WireField:
    """One field in the bytes of a message.

    number: its number in the schema.
    kind: the kind of its value.
    start: position of its first byte.
    body: position of its value, after the length that precedes bytes.
    end: position of the end of the value.
    """

    number: int
    kind: int
    start: int
    body: int
    end: int


def wire_fields(view: memoryview, position: int, end: int) -> Iterator[WireField]:
    """The fields between two positions.  Raises ModelError for damaged fields."""
    while position < end:
        start = position
        tag, position = varint(view, position, end)
        number, kind = tag >> 3, tag & 7
        body = position
        if kind == VARINT:
            _, position = varint(view, position, end)
        elif kind == FIXED64:
            position += 8
        elif kind == FIXED32:
            position += 4
        elif kind == BYTES:
            size, body = varint(view, position, end)
            position = body + size
        else:
            raise ModelError(f"damaged file: expected a field at byte {start}, found kind {kind}")
        if position > end or not number:
            raise ModelError(
                f"damaged file: the field at byte {start} needs bytes up to {position}, found a "
                f"message that ends at {end}"
            )
        yield WireField(number, kind, start, body, position)


def varint(view: memoryview, position: int, end: int) -> tuple[int, int]:
    """The unsigned number of variable length at `position`, and the position of its end."""
    value = shift = 0
    start = position
    while position < end and shift < 7 * _LONGEST_VARINT:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ModelError(f"damaged file: expected a number at byte {start}, found no end of it")


def varints(encoded: memoryview) -> np.ndarray:
    """The u64 numbers of variable length that fill `encoded`."""
    data = np.frombuffer(encoded, np.uint8)
    ends = np.flatnonzero(data < 0x80)
    if not data.size:
        return np.zeros(0, np.uint64)
    if not ends.size or ends[-1] != data.size - 1:
        raise ModelError("damaged file: a list of numbers ends inside a number")
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > _LONGEST_VARINT:
        raise ModelError("damaged file: a list of numbers has one of more than 64 bits")
    if data.size == ends.size:  # each number has one byte
        return data.astype(np.uint64)
    shifts = (7 * (np.arange(data.size) - np.repeat(starts, lengths))).astype(np.uint64)
    return np.add.reduceat((data & 0x7F).astype(np.uint64) << shifts, starts)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message.

    number: its number in the bytes.
    name: its name.
    type: a scalar's type, or the name of an enum or a message; for a map, the type of its values.
    is_repeated: whether it holds a list.
    key_type: type of a map's keys; empty if the field is no map.
    default: value of a scalar if the field is left out.
    """

    number: int
    name: str
    type: str
    is_repeated: bool
    key_type: str
    default: Any

    @property
    def number_type(self) -> np.dtype | None:
        """NumPy's type for arrays of the field's values; None if they are not numbers."""
        return np.dtype(_DTYPES[self.type]) if self.type in _DTYPES else None


class Schema:
    """The messages of a format."""

    def __init__(
        self,
        messages: Mapping[str, str],
        enums: Mapping[str, Sequence[str] | Mapping[int, str]] | None = None,
        partial: Collection[str] = (),
    ) -> None:
        """messages: for each name its fields, separated by spaces: `number:name:type`,
            `number:name:[type]` for a list, `number:name:{key:type}` for a map, and
            `number:name:type=value` for a default other than 0, the empty text or the first name.
        enums: for each name the names of the values, by number.
        partial: messages that have further fields, which a text may name.
        """
        self.partial = frozenset(partial)
        self._messages = messages
        self._enums = {
            name: dict(enumerate(values)) if not isinstance(values, Mapping) else dict(values)
            for name, values in (enums or {}).items()
        }
        self.fields = cache(self._fields)

    def decode(self, content: bytes | memoryview, message: str) -> Message:
        """The message that fills `content`.  Raises ModelError for damaged bytes."""
        view = memoryview(content).cast("B")
        return Message(self, message, view, 0, len(view))

    def enum(self, name: str) -> Mapping[int, str] | None:
        """The names of an enum's values; None if there is no such enum."""
        return self._enums.get(name)

    def is_message(self, type: str) -> bool:
        return type in self._messages

    def _fields(self, message: str) -> dict[str, Field]:
        return {f.name: f for f in map(self._field, self._messages[message].split())}

    def _field(self, text: str) -> Field:
        number, name, declared = text.split(":", 2)
        declared, _, value = declared.partition("=")
        key, type_ = "", declared.strip("[]{}")
        if declared.startswith("{"):
            key, _, type_ = type_.partition(":")
        enum = self._enums.get(type_)
        default = _DEFAULTS.get(type_) if enum is None else next(iter(enum.values()))
        if value:
            is_text = enum is not None or type_ == "string"
            default = value if is_text else _literal(type_, value)
        return Field(int(number), name, type_, declared.startswith("["), key, default)


def _literal(type_: str, value: str) -> Any:
    return value == "true" if type_ == "bool" else np.dtype(_DTYPES[type_]).type(value).item()


class Message:
    """A message, whose fields are attributes.

    A list of numbers is an array, other lists are tuples, a map is a dict.  A value of an enum is
    its name, or its number as text if the schema has no name for it.  A field that is left out is
    None if it holds a message, otherwise the schema's default.
    """

    __slots__ = ("_kind", "_places", "_schema", "_values", "_view")

    def __init__(self, schema: Schema, kind: str, view: memoryview, at: int, end: int) -> None:
        self._schema, self._kind, self._view = schema, kind, view
        self._places: dict[int, list[WireField]] = {}
        self._values: dict[str, Any] = {}
        for f in wire_fields(view, at, end):
            self._places.setdefault(f.number, []).append(f)

    @staticmethod
    def of(schema: Schema, kind: str, values: Mapping[str, Any]) -> Message:
        """A message whose fields have these decoded values."""
        message = Message(schema, kind, memoryview(b""), 0, 0)
        message._values = dict(values)
        return message

    @property
    def message_name(self) -> str:
        """The name of the message's kind in the schema."""
        return self._kind

    def has(self, name: str) -> bool:
        """Whether the field is in the file."""
        return name in self._values or self._schema.fields(self._kind)[name].number in self._places

    def which(self, *names: str) -> str | None:
        """The first of these fields that is in the file."""
        return next((n for n in names if self.has(n)), None)

    def __getattr__(self, name: str) -> Any:
        if name not in self._values:
            try:
                field = self._schema.fields(self._kind)[name]
            except KeyError:
                raise AttributeError(f"message {self._kind} has no field {name!r}") from None
            value = self._decoded(field)
            if field.number not in self._places:
                return value  # the default is not stored, so that `has` stays False
            self._values[name] = value
        return self._values[name]

    def _decoded(self, field: Field) -> Any:
        places = self._places.get(field.number, [])
        if field.key_type:
            return dict(self._entry(field, p) for p in places)
        if field.is_repeated:
            enum = self._schema.enum(field.type)
            if enum is not None:
                return tuple(enum.get(n, str(n)) for n in self._numbers(field, places).tolist())
            if field.type in _DTYPES:
                return self._numbers(field, places)
            return tuple(self._value(field.type, field.name, p) for p in places)
        return self._value(field.type, field.name, places[-1]) if places else field.default

    def _entry(self, field: Field, place: WireField) -> tuple[Any, Any]:
        self._check(BYTES, field.name, place)
        pair: list[Any] = [_DEFAULTS[field.key_type], _DEFAULTS.get(field.type)]
        if self._schema.is_message(field.type):
            pair[1] = Message(self._schema, field.type, self._view, place.end, place.end)
        for f in wire_fields(self._view, place.body, place.end):
            if f.number in (1, 2):
                type_ = field.key_type if f.number == 1 else field.type
                pair[f.number - 1] = self._value(type_, field.name, f)
        return pair[0], pair[1]

    def _check(self, kind: int, name: str, place: WireField) -> None:
        if place.kind != kind:
            raise ModelError(
                f"damaged file: field {name!r} of {self._kind} at byte {place.start} has values of "
                f"kind {place.kind}, expected {kind}"
            )

    def _value(self, type_: str, name: str, place: WireField) -> Any:
        schema = self._schema
        enum = schema.enum(type_)
        kind = VARINT if enum is not None else _KINDS.get(type_, BYTES)
        self._check(kind, name, place)
        body = self._view[place.body : place.end]
        if enum is not None:
            number = _integers("i32", varints(body))[0].item()
            return enum.get(number, str(number))
        if schema.is_message(type_):
            return Message(schema, type_, self._view, place.body, place.end)
        if type_ == "bytes":
            return body
        if type_ == "string":
            try:
                return str(body, "utf-8")
            except UnicodeDecodeError as e:
                raise ModelError(
                    f"damaged file: field {name!r} of {self._kind} at byte {place.start} is not "
                    f"UTF-8 text: {e}"
                ) from None
        return self._array(type_, body)[0].item()

    def _numbers(self, field: Field, places: Sequence[WireField]) -> np.ndarray:
        """A list of numbers: each in a field of its own, or many packed in the bytes of one."""
        type_ = field.type if field.type in _DTYPES else "i32"  # enum values are i32
        kind = _KINDS[type_]
        for p in places:
            if p.kind != BYTES:
                self._check(kind, field.name, p)
        if len(places) == 1:
            return self._array(type_, self._view[places[0].body : places[0].end])
        joined = b"".join(self._view[p.body : p.end] for p in places)
        return self._array(type_, memoryview(joined))

    def _array(self, type_: str, body: memoryview) -> np.ndarray:
        if _KINDS[type_] == VARINT:
            return _integers(type_, varints(body))
        dtype = np.dtype(_DTYPES[type_])
        if len(body) % dtype.itemsize:
            raise ModelError(
                f"damaged file: expected a multiple of {dtype.itemsize} bytes as numbers of "
                f"{self._kind}, found {len(body)}"
            )
        return np.frombuffer(body, dtype)


def _integers(type_: str, numbers: np.ndarray) -> np.ndarray:
    """Unsigned numbers of 64 bits, converted to the integer type `type_`."""
    if type_ in ("s32", "s64"):  # zigzag: the sign is the lowest bit
        half = (numbers >> np.uint64(1)).astype(np.int64)
        numbers = np.where(numbers & np.uint64(1), ~half, half)
    if type_ == "bool":
        return numbers != 0
    return numbers.astype(np.dtype(_DTYPES[type_]))
