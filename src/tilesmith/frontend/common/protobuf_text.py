"""Protobuf's text format, read by a declared schema: `layer { name: "conv" kernel_size: 3 }`.

The format is described at protobuf.dev/reference/protobuf/textformat-spec.  Extensions and `Any`
are not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.frontend.common.protobuf import Field, Message, Schema
from tilesmith.support.errors import ModelError

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>-?\s*(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?
            |inf(?:inity)?\b|nan\b))
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<mark>[{}<>\[\]:;,])""",
    re.VERBOSE | re.IGNORECASE,
)
_FLAGS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f"}


def parse(schema: Schema, text: str, message: str) -> Message:
    """The message that a text describes.

    Raises ModelError, with line and column, for text that does not follow the schema.
    """
    return _Reader(schema, text).message(message, "", 0)


class _Reader:
    """A parser of messages from the tokens of a text."""

    def __init__(self, schema: Schema, text: str) -> None:
        self._schema, self._text, self._at = schema, text, 0
        self._kind, self._token = "", ""
        self._start = 0
        self._next()

    def message(self, kind: str, close: str, depth: int) -> Message:
        """The fields up to the mark `close`, or to the end of the text."""
        if depth > MAX_DEPTH:
            self._bad(f"messages at most {MAX_DEPTH} deep")
        fields, values = self._schema.fields(kind), {}
        while self._kind and self._token != close:
            field = fields.get(self._token)
            if self._kind != "name" or (field is None and kind not in self._schema.partial):
                self._bad(f"a field of {kind}")
            self._next()
            if field is None:
                self._skip()
            else:
                self._field(field, values, depth)
            if self._token in (",", ";"):
                self._next()
        if self._token != close:
            self._bad(f"{close!r}")
        return Message.of(self._schema, kind, _finished(fields, values))

    def _skip(self) -> None:
        """Skip the value of a field that the schema does not have."""
        opened = 0
        if self._token == ":":
            self._next()
        while self._kind:
            opened += (self._token in ("{", "<", "[")) - (self._token in ("}", ">", "]"))
            was_string = self._kind == "string"
            self._next()
            if opened <= 0 and not (was_string and self._kind == "string"):
                return

    def _field(self, field: Field, values: dict[str, Any], depth: int) -> None:
        has_colon = self._token == ":"
        if has_colon:
            self._next()
        if self._token == "[":
            self._next()
            while self._token != "]":
                self._add(field, values, depth)
                if self._token == ",":
                    self._next()
            self._next()
        elif has_colon or self._token in ("{", "<"):
            self._add(field, values, depth)
        else:
            self._bad("':'")

    def _add(self, field: Field, values: dict[str, Any], depth: int) -> None:
        if field.key_type:
            self._bad("a field that is no map")
        value = self._value(field, depth)
        if field.is_repeated:
            values.setdefault(field.name, []).append(value)
        else:
            values[field.name] = value

    def _value(self, field: Field, depth: int) -> Any:
        if self._schema.is_message(field.type):
            close = {"{": "}", "<": ">"}.get(self._token) or self._bad("'{'")
            self._next()
            inner = self.message(field.type, close, depth + 1)
            self._next()
            return inner
        enum, token = self._schema.enum(field.type), self._token
        if field.type in ("string", "bytes"):
            return self._string(field.type)
        if enum is not None and token in enum.values():
            value: Any = token
        elif enum is not None:
            value = enum.get(self._integer(token)) or self._bad(f"a value of {field.type}")
        elif field.type == "bool":
            value = {
                "true": True,
                "t": True,
                "1": True,
                "false": False,
                "f": False,
                "0": False,
            }.get(token.lower())
            if value is None:
                self._bad("true or false")
        elif field.type in ("f32", "f64"):
            value = self._float(token)
        else:
            value = self._integer(token)
        self._next()
        return value

    def _integer(self, token: str) -> int:
        try:
            return int(token.replace(" ", ""), 0)
        except ValueError:
            return self._bad("an integer")

    def _float(self, token: str) -> float:
        plain = token.replace(" ", "").lower()
        try:
            return float(int(plain, 16)) if "0x" in plain else float(plain.rstrip("f") or "f")
        except ValueError:
            pass
        try:
            return float(plain)  # such as "inf"
        except ValueError:
            return self._bad("a number")

    def _string(self, type_: str) -> Any:
        """Adjacent strings, joined."""
        parts = []
        while self._kind == "string":
            parts.append(_ESCAPE.sub(_unescaped, self._token[1:-1].encode()))
            self._next()
        if not parts:
            self._bad("a string")
        joined = b"".join(parts)
        if type_ == "bytes":
            return memoryview(joined)
        try:
            return joined.decode()
        except UnicodeDecodeError:
            return self._bad("UTF-8 text")

    def _next(self) -> None:
        while True:
            self._start = self._at
            match = _TOKEN.match(self._text, self._at)
            if match is None:
                self._kind = self._token = ""
                if self._at < len(self._text):
                    self._token = self._text[self._at]
                    self._bad("a name, a number, a string or a mark")
                return
            self._at = match.end()
            if match.lastgroup != "space":
                self._kind, self._token = match.lastgroup or "", match[0]
                return

    def _bad(self, expected: str) -> NoReturn:
        line = self._text.count("\n", 0, self._start) + 1
        column = self._start - self._text.rfind("\n", 0, self._start)
        shown = repr(self._token) if self._token else "the end of the text"
        raise ModelError(f"line {line}, column {column}: expected {expected}, found {shown}")


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1] in b"01234567":
        return bytes([int(code, 8) & 0xFF])
    if code[:1] in b"xX" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    return _ESCAPED.get(code, code)


def _finished(fields: Mapping[str, Field], values: dict[str, Any]) -> dict[str, Any]:
    """The fields' values in the form that `Message` has: lists of numbers become arrays."""
    done: dict[str, Any] = {}
    for name, value in values.items():
        dtype = fields[name].number_type
        try:
            if dtype is None:
                done[name] = tuple(value) if fields[name].is_repeated else value
            else:
                array = np.array(value, dtype)
                done[name] = array if fields[name].is_repeated else array.item()
        except (OverflowError, ValueError):
            raise ModelError(
                f"field {name!r}: expected numbers of {dtype}, found {value}"
            ) from None
    return done
