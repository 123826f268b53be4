"""The container of MLIR's bytecode: sections, strings, names of operations, and the places of
attributes and types.

Source: MLIR's document "MLIR Bytecode Format", versions 0 to 6.  Every count, index and length is
compared with what the file has before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.support.cursor import Cursor
from tilesmith.support.errors import ModelError, UnsupportedError

MAGIC = b"ML\xefR"
_NEWEST = 6
_LARGEST_ALIGNMENT = 1 << 16

# Numbers of sections

_STRINGS, _DIALECTS, _VALUES, _OFFSETS, IR = 0, 1, 2, 3, 4
_DIALECT_VERSIONS, _PROPERTIES = 7, 8
_NAMES = {_STRINGS: "strings", _DIALECTS: "dialects", _VALUES: "attributes and types",
          _OFFSETS: "their offsets", IR: "operations"}  # fmt: skip

# The first version of the format that has a feature

_VERSIONED_DIALECTS = 1
LAZY_REGIONS = 2
USE_LISTS = 3
_ELIDED_LOCATIONS = 4
_NATIVE_PROPERTIES = 5


class Stream(Cursor):
    """A part of the file, which is read from front to back."""

    def varint(self, what: str) -> int:
        """An unsigned number of up to 64 bits.  The number of zero bits at the low end of its first
        byte is the number of bytes that follow.
        """
        first = self.bytes(1, what)[0]
        more = (first & -first).bit_length() - 1 if first else 8
        whole = first | int.from_bytes(self.bytes(more, what), "little") << 8
        return whole >> min(more + 1, 8)

    def signed(self, what: str) -> int:
        """A signed number, with its sign in the lowest bit."""
        number = self.varint(what)
        return number >> 1 ^ -(number & 1)

    def flagged(self, what: str) -> tuple[int, bool]:
        """A number, and the flag in its lowest bit."""
        number = self.varint(what)
        return number >> 1, bool(number & 1)

    def count(self, what: str) -> int:
        """The number of items that follow, each of which takes a byte or more."""
        return self.bounded(self.varint(what), self.left + 1, f"at most {self.left} {what}")

    def bounded(self, number: int, end: int, expected: str) -> int:
        """The number itself, which must be less than `end`."""
        if not 0 <= number < end:
            self.bad(expected, number)
        return number

    def index(self, end: int, what: str) -> int:
        """A number less than `end`."""
        return self.bounded(self.varint(what), end, f"{what} less than {end}")

    def section(self) -> tuple[int, Stream]:
        """The number and the content of a section."""
        number = self.bytes(1, "a section")[0]
        length = self.varint("a section's length")
        if number & 0x80:
            alignment = self.varint("a section's alignment")
            if alignment.bit_count() != 1 or alignment > _LARGEST_ALIGNMENT:
                self.bad(f"an alignment, a power of two up to {_LARGEST_ALIGNMENT}", alignment)
            self.bytes(-self.at % alignment, "a section's padding")
        start = self.at
        self.bytes(length, "a section")
        return number & 0x7F, Stream(self.content[: self.at], self.file, start)


@dataclass(frozen=True, slots=True)
class Entry:
    """The place of an attribute or a type.

    dialect: the dialect that defines its encoding.
    start, end: its bytes.
    is_text: whether it is a text instead of the dialect's encoding.
    """

    dialect: str
    start: int
    end: int
    is_text: bool


class Bytecode:
    """The tables of a file.

    version: of the format.
    producer: the program that wrote the file.
    operators: names of operations, with their dialects.
    attributes, types: where each one stands.
    operations: the section with the operations.
    """

    def __init__(self, content: bytes | memoryview) -> None:
        """Raises ModelError for a damaged file, UnsupportedError for a newer version."""
        file = Stream(content, "the bytecode")
        if file.bytes(len(MAGIC), "the magic number") != MAGIC:
            file.bad("the magic number of MLIR's bytecode", bytes(file.content[: len(MAGIC)]))
        self.version = file.varint("the version")
        if self.version > _NEWEST:
            raise UnsupportedError(
                f"version {self.version} of MLIR's bytecode; the newest known is {_NEWEST}"
            )
        self.producer = _text_before_zero(file, "the producer")
        self._content = file.content
        sections: dict[int, Stream] = {}
        while file.left:
            number, content_ = file.section()
            if number in sections:
                file.bad("each section once", f"a second section {number}")
            sections[number] = content_
        missing = [name for number, name in _NAMES.items() if number not in sections]
        if missing:
            raise ModelError(f"the bytecode: expected a section of {missing[0]}, found none")
        self._strings = _strings(sections[_STRINGS])
        self._dialects: list[str] = []
        self.operators: list[str] = []
        self._read_dialects(sections[_DIALECTS])
        self.attributes: list[Entry] = []
        self.types: list[Entry] = []
        self._read_offsets(sections[_OFFSETS], sections[_VALUES])
        self._properties: list[Stream] = []
        if _PROPERTIES in sections:
            self._read_properties(sections[_PROPERTIES])
        self.operations = sections[IR]

    def string(self, stream: Stream) -> str:
        """The text whose number is next."""
        return self._text(stream, stream.varint("a string's number"))

    def _text(self, stream: Stream, number: int) -> str:
        end = len(self._strings)
        text = self._strings[stream.bounded(number, end, f"a string's number less than {end}")]
        try:
            return str(text, "utf-8")
        except UnicodeDecodeError as e:
            raise ModelError(f"the bytecode: string {number} is no text: {e}") from None

    def properties(self, stream: Stream) -> Stream:
        """The bytes of the properties whose number is next."""
        held = self._properties[stream.index(len(self._properties), "a number of properties")]
        return Stream(held.content, held.file, held.at)

    def entry(self, entry: Entry) -> Stream:
        """The bytes of an attribute or a type."""
        return Stream(self._content[: entry.end], "the bytecode", entry.start)

    def text(self, entry: Entry) -> str:
        """An attribute or a type that is a text."""
        return _text_before_zero(self.entry(entry), "a text")

    def has_location(self, stream: Stream) -> tuple[int, bool]:
        """The number of a block argument's type, and whether a location follows."""
        if self.version < _ELIDED_LOCATIONS:
            return stream.varint("a type's number"), True
        return stream.flagged("a type's number")

    def _read_dialects(self, stream: Stream) -> None:
        for _ in range(stream.count("dialects")):
            if self.version < _VERSIONED_DIALECTS:
                self._dialects.append(self.string(stream))
                continue
            number, is_versioned = stream.flagged("a dialect's name")
            self._dialects.append(self._text(stream, number))
            if is_versioned and stream.section()[0] != _DIALECT_VERSIONS:
                stream.bad("a dialect's version", "another section")
        if self.version >= _ELIDED_LOCATIONS:
            stream.varint("the number of operators")
        while stream.left:
            dialect = self._dialect(stream)
            for _ in range(stream.count("operators")):
                number = stream.varint("an operator's name")
                number = number >> 1 if self.version >= _NATIVE_PROPERTIES else number
                self.operators.append(f"{dialect}.{self._text(stream, number)}")

    def _dialect(self, stream: Stream) -> str:
        return self._dialects[stream.index(len(self._dialects), "a dialect's number")]

    def _read_offsets(self, stream: Stream, values: Stream) -> None:
        counts = stream.count("attributes"), stream.count("types")
        for entries, count in zip((self.attributes, self.types), counts, strict=True):
            while len(entries) < count:
                dialect = self._dialect(stream)
                for _ in range(stream.count("attributes and types")):
                    size, is_custom = stream.flagged("a size")
                    start = values.at
                    values.bytes(size, "an attribute or a type")
                    entries.append(Entry(dialect, start, values.at, not is_custom))
            if len(entries) > count:
                stream.bad(f"{count} attributes or types", len(entries))

    def _read_properties(self, stream: Stream) -> None:
        for _ in range(stream.count("properties")):
            size = stream.varint("a size")
            start = stream.at
            stream.bytes(size, "properties")
            self._properties.append(Stream(stream.content[: stream.at], stream.file, start))


def _text_before_zero(stream: Stream, what: str) -> str:
    """A text that ends with a zero byte."""
    rest = bytes(stream.content[stream.at :])
    end = rest.find(0)
    if end < 0:
        stream.bad(f"the end of {what}", "the end of the file")
    stream.at += end + 1
    return rest[:end].decode(errors="replace")


def _strings(stream: Stream) -> list[memoryview]:
    """The strings: their lengths from the last to the first, then their characters.  A zero byte
    ends each string.
    """
    lengths = [stream.varint("a string's length") for _ in range(stream.count("strings"))]
    if sum(lengths) != stream.left or 0 in lengths:
        stream.bad(f"strings of {stream.left} bytes", f"{sum(lengths)} bytes")
    return [stream.bytes(n, "a string")[:-1] for n in reversed(lengths)]
