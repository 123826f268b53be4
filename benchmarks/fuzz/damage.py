"""Changes of the content of any file that keep its form: values and members of JSON and of ZIP
archives, with sums that are right again, fields of protobuf messages, tokens and lines of texts;
and bytes of everything.
"""

from __future__ import annotations

import io
import json
import random
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilesmith.ir.dtypes import BY_NAME

NUMBERS = (0, 1, -1, 2, 3, 7, 16, 255, 256, 1 << 31, -(1 << 31), 1 << 40, (1 << 63) - 1,
           1 << 63, -(1 << 63), 1 << 64, 1 << 70, -(1 << 70), 0.5, "nan", "inf")  # fmt: skip
_ODD: tuple[Any, ...] = (None, True, 0, -1, 1, 2, 1 << 31, 1 << 63, 1 << 70, 0.5, -1e308, "", "x",
                         "\0", "../x", "é", "a" * 500, [], {}, [[]], [1, 2], {"x": 1},
                         float("nan"), float("inf"))  # fmt: skip
_DEEP = (300, 900, 3000, 100_000)
"""Depths of lists in lists that a value is replaced by, now and then."""


def changed(content: bytes, source: random.Random) -> bytes:
    """The content with one change, mostly one that keeps its form."""
    if source.random() < 0.8:
        if content[:2] == b"PK":
            try:
                return _other_member(content, source)
            except Exception:  # an earlier change damaged it
                pass
        if content[:1] in (b"{", b"["):
            try:
                return _other_value(content, source)
            except (ValueError, RecursionError):
                pass
        if content and (text := _as_text(content)) is not None:
            return other_text(text, source).encode()
        if message := _message(content):
            return _encoded(_other_field(message, source))
    return _other_bytes(content, source)


def _other_bytes(content: bytes, source: random.Random) -> bytes:
    changed = bytearray(content)
    at = source.randrange(len(changed) + 1)
    match source.randrange(5):
        case 0:
            del changed[at:]
        case 1:
            changed[at : at + source.randrange(1, 9)] = source.randbytes(source.randrange(9))
        case 2:
            changed[at:at] = changed[at : at + source.randrange(64)]
        case 3:
            changed[at : at + 8] = source.choice((b"\xff" * 8, bytes(8), b"\x80" + bytes(7)))
        case _:
            if at < len(changed):
                changed[at] ^= 1 << source.randrange(8)
    return bytes(changed)


# ZIP archives


def _other_member(content: bytes, source: random.Random) -> bytes:
    """A ZIP archive with one member changed, left out, renamed or there twice."""
    with zipfile.ZipFile(io.BytesIO(content)) as z:
        members = [(i.filename, z.read(i)) for i in z.infolist()]
    n = source.randrange(len(members))
    name, data = members[n]
    match source.randrange(8):
        case 0:
            del members[n]
        case 1:
            members[n] = source.choice(("x", "../x", "", name + "x", name.upper())), data
        case 2:
            members.append((name, data))
        case _:
            members[n] = name, changed(data, source)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", source.choice((0, 0, 0, zipfile.ZIP_DEFLATED))) as z:
        for member, held in members:
            z.writestr(zipfile.ZipInfo(member or "x"), held)
    return stream.getvalue()


# JSON


def _other_value(content: bytes, source: random.Random) -> bytes:
    """JSON with one value, or one key, that is another."""
    root = json.loads(content)
    holders = list(_holders(root))
    holder = source.choice(holders) if holders else None
    new = source.choice(_ODD)
    if source.random() < 0.02:
        depth = source.choice(_DEEP)
        text = "[" * depth + "]" * depth
        return json.dumps([root]).encode().replace(b"[", b"[" + text.encode() + b",", 1)
    if not holder:
        return json.dumps(new).encode()
    key = source.choice([*holder] if isinstance(holder, dict) else range(len(holder)))
    match source.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[source.choice(("x", "", key + "s"))] = holder.pop(key)
        case 2 if isinstance(holder, list):
            holder.append(holder[key])
        case 3:
            other = source.choice(holders)
            holder[key] = source.choice([*other.values()] if isinstance(other, dict) else other)
            if isinstance(holder[key], (dict, list)):  # which may hold the holder
                holder[key] = json.loads(json.dumps(holder[key]))
        case _:
            holder[key] = new
    return json.dumps(root).encode()


def _holders(value: Any) -> Iterator[Any]:
    """The lists and mappings in a JSON value that hold something."""
    if isinstance(value, (list, dict)) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _holders(item)


# Texts

_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|//|<<|>>|[A-Za-z_][A-Za-z0-9_.]*|\$?\d+(?:\.\d*)?(?:e[+-]?\d+)?|\s+|:=|->|\S'
)
_AROUND = (("(", ")"), ("[", "]"), ("{", "}"), ("-", ""), ("~", ""), ("not ", ""))
_DEPTHS = (3, 100, 10_000)

Alike: TypeAlias = Sequence[tuple[str, Sequence[object]]]
"""Tokens that are replaced by each other: their kind, or what they are."""

_ALIKE: Alike = (("type", tuple(BY_NAME)), ("number", NUMBERS), ("number", ()), ("word", ()),
                 ("text", ()))  # fmt: skip
_VALUES = ("", "x", '"x"', "0", "-1", "1.5", "nan", "()", "{}", "[]", "=", ",", ":", "1,2", "<a/>",
           "9" * 400, "a" * 400, "\u00e9")  # fmt: skip


def _as_text(content: bytes) -> str | None:
    """The characters of a text; None for other content."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or not re.search(r"[^\S\t\n\r ]|[\0-\x08]", text) else None


def other_text(
    text: str, source: random.Random, alike: Alike = _ALIKE, values: Sequence[str] = _VALUES
) -> str:
    """A text with other tokens or lines.

    alike: tokens that take each other's places.
    values: what may stand for any token.
    """
    if source.random() < 0.15:
        return _other_lines(text, source)
    tokens = _TOKEN.findall(text)
    places = [i for i, t in enumerate(tokens) if not t.isspace()]
    if not places:
        return text
    if source.random() < 0.5:
        _change_alike(tokens, places, source, alike)
    else:
        _change_one(tokens, places, source, values)
    return "".join(tokens)


def _change_alike(
    tokens: list[str], places: Sequence[int], source: random.Random, alike: Alike
) -> None:
    """Replace a token by one of its kind: at one place, or wherever it stands."""
    kind, others = source.choice(alike)
    found = [i for i in places if tokens[i] in others or _kind(tokens[i]) == kind]
    if not found:
        return
    at = source.choice(found)
    new, old = str(source.choice(others or [tokens[i] for i in found])), tokens[at]
    for i in found if source.random() < 0.5 else [at]:
        if tokens[i] == old:
            tokens[i] = new


def _change_one(
    tokens: list[str], places: Sequence[int], source: random.Random, values: Sequence[str]
) -> None:
    """Replace a token by anything, leave it out, say it twice or nest it."""
    at = source.choice(places)
    match source.randrange(5):
        case 0:
            tokens[at] = ""
        case 1:
            tokens[at] += " " + tokens[at]
        case 2:
            other = source.choice(places)
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case 3:
            tokens[at] = source.choice(values)
        case _:
            depth = source.choice(_DEPTHS)
            before, after = source.choice(_AROUND)
            tokens[at] = before * depth + tokens[at] + after * depth


def _kind(token: str) -> str:
    if token in BY_NAME:
        return "type"
    if token[0] == '"':
        return "text"
    return "word" if token[0].isalpha() else "number" if token[0].isdigit() else "symbol"


def _other_lines(text: str, source: random.Random) -> str:
    lines = text.splitlines()
    if not lines:
        return text
    a, b = (source.randrange(len(lines)) for _ in range(2))
    match source.randrange(4):
        case 0:
            del lines[a]
        case 1:
            lines.insert(a, lines[b])
        case 2:
            lines[a], lines[b] = lines[b], lines[a]
        case _:
            lines[a] = source.choice(("", " ", "    ")) + lines[a].lstrip()
    return "\n".join(lines) + "\n"


# Protobuf messages, of which only the bytes are known

_VARINT, _EIGHT, _BLOCK, _FOUR = 0, 1, 2, 5
_LARGEST_NUMBER = (1 << 29) - 1


@dataclass(slots=True)
class _Field:
    """A field: its number, its wire type, and its number, bytes or fields."""

    number: int
    wire: int
    value: int | bytes | list[_Field]


def _message(content: bytes, depth: int = 0) -> list[_Field] | None:
    """The fields of a message; None for bytes that are none."""
    fields, at = [], 0
    while at < len(content):
        tag, at = _number(content, at)
        wire, number = tag & 7, tag >> 3
        if at < 0 or not 0 < number <= _LARGEST_NUMBER:
            return None
        if wire == _VARINT:
            value, at = _number(content, at)
            if at < 0:
                return None
            fields.append(_Field(number, wire, value))
            continue
        size = {_EIGHT: 8, _FOUR: 4}.get(wire)
        if wire == _BLOCK:
            size, at = _number(content, at)
        if size is None or at < 0 or at + size > len(content):
            return None
        held = content[at : at + size]
        at += size
        is_inner = wire == _BLOCK and size > 1 and depth < 50 and not _is_line(held)
        inner = _message(held, depth + 1) if is_inner else None
        fields.append(_Field(number, wire, inner or held))
    return fields


def _is_line(held: bytes) -> bool:
    return held.isascii() and held.decode().isprintable()


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and the place behind it; -1 if it has no end."""
    value = 0
    for i in range(10):
        if at + i >= len(content):
            break
        value |= (content[at + i] & 0x7F) << 7 * i
        if content[at + i] < 0x80:
            return value, at + i + 1
    return 0, -1


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _encoded(fields: Sequence[_Field]) -> bytes:
    out = []
    for f in fields:
        out.append(_varint(f.number << 3 | f.wire))
        if isinstance(f.value, int):
            out.append(_varint(f.value))
            continue
        held = _encoded(f.value) if isinstance(f.value, list) else f.value
        out += [_varint(len(held)) if f.wire == _BLOCK else b"", held]
    return b"".join(out)


def _messages(fields: list[_Field]) -> Iterator[list[_Field]]:
    yield fields
    for f in fields:
        if isinstance(f.value, list):
            yield from _messages(f.value)


def _other_field(root: list[_Field], source: random.Random) -> list[_Field]:
    """A message with one field, of it or of a message inside it, that is another."""
    fields = source.choice([m for m in _messages(root) if m])
    at, other = (source.randrange(len(fields)) for _ in range(2))
    field = fields[at]
    match source.randrange(9):
        case 0:
            del fields[at]
        case 1:
            fields.insert(other, field)
        case 2:
            fields[at], fields[other] = fields[other], fields[at]
        case 3:
            fields[at] = _Field(source.choice((1, 2, 3, field.number + 1)), field.wire, field.value)
        case 4:
            whole, depth = _encoded(fields), source.choice((3, 60, 300, 3000))
            for _ in range(depth if len(whole) < 1000 else 3):  # a message inside itself
                tag = _varint(field.number << 3 | _BLOCK)
                whole = tag + _varint(len(whole)) + whole
            fields[at] = _Field(field.number, _BLOCK, whole)
        case _ if isinstance(field.value, int):
            field.value = int(source.choice(NUMBERS[:15])) & (1 << 64) - 1
        case _ if isinstance(field.value, bytes) and field.wire == _BLOCK:
            text = _as_text(field.value)
            tried = (b"", b"x", b"\xff\xfe", b"a" * 300, field.value[:-1], field.value * 2)
            field.value = source.choice(tried)
            if text and source.random() < 0.5:
                field.value = other_text(text, source).encode()
        case _ if isinstance(field.value, bytes):
            field.value = source.choice((bytes(8), b"\xff" * 8, b"\x7f" * 8))[: len(field.value)]
        case _:
            fields.insert(at, field)
    return root
