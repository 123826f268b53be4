"""Writes StableHLO's portable bytecode, for tests and campaigns, from a module that was read."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import numpy as np

from tflite_models import flatbuffer
from tilesmith.frontend.stablehlo.attributes import ATTRIBUTES
from tilesmith.frontend.stablehlo.bytecode import MAGIC
from tilesmith.frontend.stablehlo.exported import EXPORTED
from tilesmith.frontend.stablehlo.parse import parse
from tilesmith.frontend.stablehlo.syntax import (
    OPEN,
    Function,
    Operation,
    Region,
    Tensor,
    Type,
    operations,
)
from tilesmith.frontend.stablehlo.types import ELEMENTS
from tilesmith.frontend.stablehlo.vhlo import ENUMS, PLAIN_TYPES, Signature

_TYPES = {name: code for code, name in PLAIN_TYPES.items()}
_ELEMENTS = {dtype: name for name, dtype in ELEMENTS.items() if not name.startswith("si")}
_CHOICES = {"comparison_direction": 3, "compare_type": 4}


def varint(number: int) -> bytes:
    size = (max(number.bit_length(), 1) + 6) // 7
    if size > 8:
        return b"\0" + number.to_bytes(8, "little")
    return ((number << 1 | 1) << (size - 1)).to_bytes(size, "little")


def signed(number: int) -> bytes:
    return varint((number << 1 ^ number >> 63) & (1 << 64) - 1)


def flagged(number: int, flag: bool) -> bytes:
    return varint(number << 1 | flag)


def listed(items: Iterable[bytes]) -> bytes:
    """Items behind their number."""
    items = list(items)
    return varint(len(items)) + b"".join(items)


def section(number: int, content: bytes) -> bytes:
    return bytes([number]) + varint(len(content)) + content


def bytecode(text: bytes, version: int = 6) -> bytes:
    """The bytecode of a module's text, in a version of MLIR's format."""
    return Writer(version).module(parse(text.decode()).functions.values())


def exported(content: bytes) -> bytes:
    """A file of `jax.export` that holds this bytecode."""
    return flatbuffer("Exported", {"version": 11, "module": list(content)}, EXPORTED, bytes(4))


class Writer:
    def __init__(self, version: int) -> None:
        self.version = version
        self.strings: dict[str, int] = {}
        self.operators: dict[str, int] = {}
        self.attributes: dict[tuple[str, bytes], int] = {}
        self.types: dict[tuple[str, bytes], int] = {}
        self.properties: list[bytes] = []

    @staticmethod
    def _number(table: dict[Any, int], key: Any) -> int:
        return table.setdefault(key, len(table))

    def string(self, text: str) -> int:
        return self._number(self.strings, text)

    def attribute(self, content: bytes, dialect: str = "vhlo") -> int:
        return self._number(self.attributes, (dialect, content))

    def module(self, functions: Iterable[Function]) -> bytes:
        made = [self.function(f) for f in functions]
        body = varint(1) + varint(0) + flagged(len(made), False) + b"".join(made)
        operation = self.operation_head("builtin.module", 16) + flagged(1, True)
        return self.file(flagged(1, False) + operation + self.isolated(body))

    def file(self, content: bytes) -> bytes:
        """The file with these operations."""
        dialects = {"builtin": 0, "vhlo": 1}
        flag = (lambda n: varint(n)) if self.version < 1 else (lambda n: flagged(n, False))
        heads = listed(flag(self.string(d)) for d in dialects)
        if self.version >= 4:
            heads += varint(len(self.operators))
        flag = (lambda n: varint(n)) if self.version < 5 else (lambda n: flagged(n, True))
        for dialect, names in groupby(self.operators, lambda n: n.partition(".")[0]):
            inner = (flag(self.string(n.partition(".")[2])) for n in names)
            heads += varint(dialects[dialect]) + listed(inner)
        offsets = varint(len(self.attributes)) + varint(len(self.types))
        for table in (self.attributes, self.types):
            for dialect, keys in groupby(table, lambda key: key[0]):
                sizes = (flagged(len(content), True) for _, content in keys)
                offsets += varint(dialects[dialect]) + listed(sizes)
        values = b"".join(
            content for table in (self.attributes, self.types) for _, content in table
        )
        texts = [t.encode() + b"\0" for t in self.strings]
        strings = listed(varint(len(t)) for t in reversed(texts)) + b"".join(texts)
        parts = {1: heads, 2: values, 3: offsets, 4: content, 0: strings}
        if self.version >= 5:
            parts[8] = listed(varint(len(p)) + p for p in self.properties)
        head = MAGIC + varint(self.version) + b"StableHLO_v1.0.0\0"
        return head + b"".join(section(number, part) for number, part in parts.items())

    # Types and attributes

    def type(self, type_: Type | Signature) -> int:
        if isinstance(type_, Signature):
            inner = (type_.inputs, type_.results)
            content = varint(8) + b"".join(listed(varint(self.type(t)) for t in ts) for ts in inner)
        elif isinstance(type_, Tensor):
            element = varint(self.type(_ELEMENTS[type_.dtype]))
            dims = [-(1 << 63) if d == OPEN else d for d in type_.dims or ()]
            content = varint(20) + listed(map(signed, dims)) + element
            if type_.dims is None:
                content = varint(25) + element
        else:
            content = varint(_TYPES[type_])
        return self._number(self.types, ("vhlo", content))

    def value(self, value: Any, type_: Type = "i64") -> int:
        """The number of an attribute, of a type if it is a number or an array."""
        match value:
            case bool():
                return self.attribute(varint(2) + varint(value))
            case int():
                return self.attribute(varint(9) + varint(self.type("i64")) + signed(value))
            case float():
                bits = int(np.float64(value).view(np.int64))
                return self.attribute(varint(8) + varint(self.type("f64")) + signed(bits))
            case str():
                return self.attribute(varint(14) + varint(self.string(value)))
            case Signature():
                return self.attribute(varint(17) + varint(self.type(value)))
            case dict():
                inner = (varint(self.value(k)) + varint(self.value(v)) for k, v in value.items())
                return self.attribute(varint(6) + listed(inner))
            case np.ndarray():
                packed = np.packbits(value, bitorder="little") if value.dtype == bool else value
                if value.dtype == bool and value.size == 1:
                    packed = value * np.uint8(255)
                raw = packed.tobytes()
                return self.attribute(
                    varint(15) + varint(self.type(type_)) + varint(len(raw)) + raw
                )
        return self.attribute(varint(1) + listed(varint(self.value(v)) for v in value))

    def chosen(self, name: str, value: Any, type_: Type) -> int:
        """The number of the attribute `name` of an operation."""
        if name not in _CHOICES:
            return self.value(value, type_)
        code = _CHOICES[name]
        choices = {word: number for number, word in ENUMS[code].items()}
        return self.attribute(varint(code) + varint(choices[value]))

    # Operations

    def function(self, function: Function) -> bytes:
        inputs = tuple(t for _, t in function.body.arguments)
        held = {"sym_name": function.name, "function_type": Signature(inputs, function.types)}
        body = self.region(function.body, {})
        return (
            self.operation_head("vhlo.func_v1", 16, held) + flagged(1, True) + self.isolated(body)
        )

    def isolated(self, body: bytes) -> bytes:
        """Regions that read nothing from around them."""
        return section(4, body) if self.version >= 2 else body

    def operation_head(
        self, name: str, has: int, attributes: dict[str, Any] | None = None, type_: Type = "i64"
    ) -> bytes:
        """An operation up to its attributes."""
        names = ATTRIBUTES.get(name, ())
        number = varint(self._number(self.operators, name))
        made = [self.chosen(n, (attributes or {}).get(n, 0), type_) for n in names]
        if not made:
            return number + bytes([has]) + varint(0)
        if self.version >= 5:
            self.properties.append(b"".join(map(varint, made)))
            return number + bytes([has | 64]) + varint(0) + varint(len(self.properties) - 1)
        keys = (self.attribute(varint(2) + varint(self.string(n)), "builtin") for n in names)
        inner = listed(varint(k) + varint(v) for k, v in zip(keys, made, strict=True))
        dictionary = self.attribute(varint(1) + inner, "builtin")
        return number + bytes([has | 1]) + varint(0) + varint(dictionary)

    def region(self, region: Region, around: dict[str, int]) -> bytes:
        """A region; `around` has the numbers of the values before it."""
        names = dict(around)
        made = [n for n, _ in region.arguments]
        made += [r for o in region.operations for r in o.results]
        first = max(around.values(), default=-1) + 1
        names |= {name: first + i for i, name in enumerate(made)}
        content = varint(1) + varint(len(made))
        content += flagged(len(region.operations), bool(region.arguments))
        if region.arguments:
            types = [self.type(t) for _, t in region.arguments]
            is_short = self.version >= 4
            content += listed(
                flagged(t, False) if is_short else varint(t) + varint(0) for t in types
            )
            content += b"\0" if self.version >= 3 else b""
        return content + b"".join(self.operation(o, names) for o in region.operations)

    def operation(self, operation: Operation, names: dict[str, int]) -> bytes:
        plain = operation.name.removeprefix("func.")
        name = next((n for v in (2, 1) if (n := f"vhlo.{plain}_v{v}") in ATTRIBUTES),
                    f"vhlo.{plain}_v1")  # fmt: skip
        parts = (operation.types, operation.operands, operation.regions)
        has = sum(bit for bit, part in zip((2, 4, 16), parts, strict=True) if part)
        type_ = operation.types[0] if operation.types else "i64"
        content = self.operation_head(name, has, dict(operation.attributes), type_)
        if operation.types:
            content += listed(varint(self.type(t)) for t in operation.types)
        if operation.operands:
            content += listed(varint(names[v]) for v in operation.operands)
        if not operation.regions:
            return content
        is_isolated = not any(map(_reads_around, operation.regions))
        inner = {} if is_isolated else names
        regions = b"".join(self.region(r, inner) for r in operation.regions)
        content += flagged(len(operation.regions), is_isolated)
        return content + (self.isolated(regions) if is_isolated else regions)


def _reads_around(region: Region) -> bool:
    """Whether a region reads values that are defined around it."""
    inside = {name for name, _ in region.arguments}
    for o in operations(region):
        inside.update(o.results, *({name for name, _ in r.arguments} for r in o.regions))
    return any(v not in inside for o in operations(region) for v in o.operands)
