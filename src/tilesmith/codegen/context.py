"""The context in which compiled code runs: the offsets of its fields.

This table is `struct tilesmith_context` of `runtime/csrc/tilesmith.h`, which defines the fields.
Offsets are declared nowhere else in Python.  Code generation and the ctypes structure of
`runtime.native` are derived from it, and a test compares it with the C compiler's layout.
Fields are only appended, so that code compiled earlier still runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, TypeAlias

ABI = 2
"""Version of the interface; it changes only if a field changes its meaning."""

VALUES = 4
"""Upper bound on the values in the report of a failure."""

FieldType: TypeAlias = Literal["u32", "i32", "i64", "ptr"]

SIZES: dict[FieldType, int] = {"u32": 4, "i32": 4, "i64": 8, "ptr": 8}
"""The size of each type in bytes, which is also its alignment."""


class Code(IntEnum):
    """The result of a run: `enum tilesmith_code`."""

    OK = 0
    ASSERTION = 1
    VERSION = 2
    MEMORY = 3
    SIZES = 4
    OVERFLOW = 5
    EXTENT = 6
    GROWTH = 7
    HOST = 8


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the context.

    name: the field's name in C.
    type: type of an element.
    offset: bytes from the start of the context.
    count: number of elements.
    """

    name: str
    type: FieldType
    offset: int
    count: int = 1

    @property
    def bytes(self) -> int:
        return SIZES[self.type] * self.count


def _laid_out(*declared: tuple[FieldType, str]) -> tuple[Field, ...]:
    """Lay out the declared fields, each at its natural alignment.  `name[n]` declares an array."""
    fields: list[Field] = []
    end = 0
    for type_, text in declared:
        name, _, count = text.removesuffix("]").partition("[")
        field = Field(name, type_, -(-end // SIZES[type_]) * SIZES[type_], int(count or 1))
        fields.append(field)
        end = field.offset + field.bytes
    return tuple(fields)


FIELDS = _laid_out(
    ("u32", "abi"),
    ("u32", "size"),
    ("ptr", "inputs"),
    ("ptr", "outputs"),
    ("ptr", "constants"),
    ("ptr", "arena"),
    ("ptr", "scratch"),
    ("i64", "scratch_bytes"),
    ("i64", "threads"),
    ("ptr", "parallel_for"),
    ("ptr", "pool"),
    ("ptr", "extents"),
    ("i64", "arena_bytes"),
    ("ptr", "grow"),
    ("ptr", "memory"),
    ("ptr", "host"),
    ("ptr", "host_data"),
    ("i32", "failure_code"),
    ("i32", "failure_call"),
    ("i32", "failure_assertion"),
    ("i32", "failure_count"),
    ("i64", f"failure_values[{VALUES}]"),
)

BY_NAME = {f.name: f for f in FIELDS}

SIZE = FIELDS[-1].offset + FIELDS[-1].bytes
"""Bytes of the whole context."""


def address(name: str, element: int = 0) -> str:
    """The LLVM instruction that computes the address of a field of `%context`."""
    field = BY_NAME[name]
    offset = field.offset + element * SIZES[field.type]
    return f"getelementptr i8, ptr %context, i64 {offset}"
