"""Bounded reading of FlatBuffers: tables by a declared schema, from a file that is not trusted.

A table is a block of fields; its vtable gives the place of each field by number.  Strings, vectors
and tables inside a table are reached by offsets.  Fields are decoded when they are read.  Every
offset and count is compared with the file's size first, so that a damaged file gives a ModelError
with the byte's position.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tilesmith.support.errors import ModelError

_SCALARS = {
    "bool": "<?",
    "i8": "<b",
    "u8": "<B",
    "i16": "<h",
    "u16": "<H",
    "i32": "<i",
    "u32": "<I",
    "i64": "<q",
    "u64": "<Q",
    "f32": "<f",
}
_ARRAYS = {
    name: np.dtype(np.bool_ if name == "bool" else f"<{name[0]}{int(name[1:]) // 8}")
    for name in _SCALARS
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a table.

    slot: its number in the vtable.
    type: a scalar's type, "string", "union", or a table's name.
    is_vector: whether it holds a vector of this type.
    default: the value of a scalar that the file leaves out.
    """

    slot: int
    type: str
    is_vector: bool
    default: Any


class Schema:
    """The tables of a format."""

    def __init__(self, tables: Mapping[str, str], unions: Mapping[str, tuple[str, ...]]) -> None:
        """tables: for each name its fields in the order of their numbers, separated by spaces:
            `name:type`, `name:[type]` for a vector, `name:type=number` for a default other than 0.
        unions: for each field NAME of type "union" the names of its possible tables.  The field
            before it, `NAME_type`, holds the index into these names.
        """
        self._tables, self.unions = tables, unions
        self.fields = cache(self._fields)

    def __contains__(self, table: object) -> bool:
        return table in self._tables

    def _fields(self, table: str) -> dict[str, Field]:
        fields: dict[str, Field] = {}
        for slot, text in enumerate(self._tables[table].split()):
            name, _, type_ = text.partition(":")
            type_, _, number = type_.partition("=")
            is_vector = type_.startswith("[")
            default = None
            if type_ in _SCALARS:
                default = struct.unpack(_SCALARS[type_], bytes(8)[: _ARRAYS[type_].itemsize])[0]
                default = type(default)(int(number)) if number else default
            fields[name] = Field(slot, type_.strip("[]"), is_vector, default)
        return fields


class Buffer:
    """The bytes of a file, and checked reads of them."""

    def __init__(self, content: bytes | memoryview, schema: Schema) -> None:
        self.content, self.schema = memoryview(content), schema

    def root(self, table: str) -> Table:
        """The table that the file begins with."""
        return Table(self, table, self.offset(0, "the root table"))

    def scalar(self, at: int, type_: str, what: str) -> Any:
        size = _ARRAYS[type_].itemsize
        self.check(at, size, what)
        if type_ == "bool":
            return bool(self.content[at])
        return struct.unpack_from(_SCALARS[type_], self.content, at)[0]

    def check(self, at: int, size: int, what: str) -> None:
        """Raises ModelError unless `size` bytes at position `at` are in the file."""
        if at < 0 or size < 0 or at + size > len(self.content):
            raise ModelError(
                f"damaged file: {what} needs bytes {at} to {at + size}, found a file of "
                f"{len(self.content)} bytes"
            )

    def offset(self, at: int, what: str) -> int:
        """The position to which the offset at position `at` points."""
        return at + self.scalar(at, "u32", what)

    def vector(self, at: int, size: int, what: str) -> tuple[int, int]:
        """The position and the number of the elements, `size` bytes each, of the vector at `at`."""
        count = self.scalar(at, "u32", what)
        self.check(at + 4, count * size, what)
        return at + 4, count

    def array(self, at: int, type_: str, what: str) -> np.ndarray:
        """A vector of scalars, which stays in the file's memory."""
        dtype = _ARRAYS[type_]
        first, count = self.vector(at, dtype.itemsize, what)
        if type_ == "bool":
            return np.frombuffer(self.content, np.uint8, count, first) != 0
        return np.frombuffer(self.content, dtype, count, first)

    def string(self, at: int, what: str) -> str:
        first, count = self.vector(at, 1, what)
        try:
            return str(self.content[first : first + count], "utf-8")
        except UnicodeDecodeError as e:
            raise ModelError(f"damaged file: {what} at byte {at} is not UTF-8 text: {e}") from None


class Table:
    """A table in a file, whose fields are attributes.

    A vector of scalars is an array, other vectors are tuples; a string, vector, table or union that
    the file leaves out is None.
    """

    __slots__ = ("_at", "_buffer", "_ends", "_name", "_vtable")

    def __init__(self, buffer: Buffer, name: str, at: int) -> None:
        what = f"the vtable of table {name}"
        self._buffer, self._name, self._at = buffer, name, at
        self._vtable = at - buffer.scalar(at, "i32", what)
        self._ends = self._vtable + buffer.scalar(self._vtable, "u16", what)
        buffer.check(self._vtable, self._ends - self._vtable, what)

    @property
    def table_name(self) -> str:
        """The name of the table's kind in the schema."""
        return self._name

    def has_field(self, name: str) -> bool:
        """Whether tables of this kind have a field `name`."""
        return name in self._buffer.schema.fields(self._name)

    def __getattr__(self, name: str) -> Any:
        try:
            field = self._buffer.schema.fields(self._name)[name]
        except KeyError:
            raise AttributeError(f"table {self._name} has no field {name!r}") from None
        return self._read(name, field)

    def _read(self, name: str, field: Field) -> Any:
        buffer, what = self._buffer, f"field {name!r} of table {self._name}"
        entry = self._vtable + 4 + 2 * field.slot
        place = buffer.scalar(entry, "u16", what) if entry + 2 <= self._ends else 0
        if place == 0:
            return field.default
        position = self._at + place
        if field.type in _SCALARS and not field.is_vector:
            return buffer.scalar(position, field.type, what)
        position = buffer.offset(position, what)
        if field.is_vector:
            return self._vector(position, field.type, what)
        if field.type == "string":
            return buffer.string(position, what)
        if field.type != "union":
            return Table(buffer, field.type, position)
        kinds, number = buffer.schema.unions[name], getattr(self, f"{name}_type")
        if not 0 < number < len(kinds):
            return None  # the union is empty, or its table is of a newer format
        return Table(buffer, kinds[number], position)

    def _vector(self, at: int, type_: str, what: str) -> Any:
        buffer = self._buffer
        if type_ in _SCALARS:
            return buffer.array(at, type_, what)
        first, count = buffer.vector(at, 4, what)
        places = [buffer.offset(first + 4 * i, what) for i in range(count)]
        if type_ == "string":
            return tuple(buffer.string(p, what) for p in places)
        return tuple(Table(buffer, type_, p) for p in places)
