"""Changes to the symbols of relocatable ELF objects, so that one library can contain several
objects.

Compiled code has the same function names in every program.  In a library, the functions of each
program get names of their own, which are not exported.  Functions that still share a name have
equal definitions.  Source: System V ABI, chapter 4 (object files).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from tilesmith.support.errors import InternalError

_SYMBOL_TABLE = 2
_LOCAL, _WEAK = 0, 2
_HIDDEN = 2
_UNDEFINED = 0


def private(code: bytes, rename: Callable[[str], str]) -> bytes:
    """The object with its functions renamed, hidden and weak.  Of several weak definitions the
    linker keeps one.

    rename: a symbol's new name, for definitions and for references.

    Raises InternalError if the code is not a little-endian ELF object.
    """
    if code[:4] != b"\x7fELF" or code[5] != 1:
        raise InternalError("expected a little-endian ELF object")
    layout = _WIDE if is_wide(code) else _NARROW
    out = bytearray(code)
    offset, count = layout.sections(code)
    headers = [offset + i * layout.header_bytes for i in range(count)]
    for header in headers:
        if struct.unpack_from("<I", code, header + 4)[0] == _SYMBOL_TABLE:
            link = struct.unpack_from("<I", code, header + layout.link)[0]
            _rewrite(out, layout, header, headers[link], rename)
    return bytes(out)


def is_wide(code: bytes) -> bool:
    """Whether an ELF object is for a processor of 64 bits."""
    return code[4] == 2


class _Layout:
    """Offsets and sizes, in bytes, of the fields in ELF objects of one class (32-bit or 64-bit).

    word: the `struct` format of an address.
    """

    def __init__(
        self, word: str, table: int, counts: int, header: tuple[int, int, int, int], symbol: int,
        info: int, part: int,
    ) -> None:  # fmt: skip
        self.word = word
        self._table, self._counts = table, counts
        self.header_bytes, self.offset, self.size, self.link = header
        self.symbol_bytes, self.info, self.section = symbol, info, part

    def sections(self, code: bytes) -> tuple[int, int]:
        """The offset of the section headers, and their number."""
        (offset,) = struct.unpack_from(f"<{self.word}", code, self._table)
        (count,) = struct.unpack_from("<H", code, self._counts)
        return offset, count


_WIDE = _Layout("Q", 0x28, 0x3C, (64, 0x18, 0x20, 0x28), 24, 4, 6)
_NARROW = _Layout("I", 0x20, 0x30, (40, 0x10, 0x14, 0x18), 16, 12, 14)


def _rewrite(
    out: bytearray, layout: _Layout, table: int, texts: int, rename: Callable[[str], str]
) -> None:
    """Change the symbols of one table.  All names are copied to the object's end, with the new
    ones.

    table, texts: offsets of two section headers: the symbol table's, and that of its names.
    """
    word = f"<{layout.word}"

    def place(header: int) -> tuple[int, int]:
        offset, size = (
            struct.unpack_from(word, out, header + layout.offset)[0],
            struct.unpack_from(word, out, header + layout.size)[0],
        )
        return offset, size

    begin, size = place(texts)
    names = bytearray(out[begin : begin + size])
    first, total = place(table)
    for entry in range(first, first + total, layout.symbol_bytes):
        (name_at,) = struct.unpack_from("<I", out, entry)
        info = out[entry + layout.info]
        if info >> 4 == _LOCAL:
            continue
        old = bytes(names[name_at : names.index(b"\0", name_at)]).decode()
        new = rename(old)
        if new != old:
            struct.pack_into("<I", out, entry, len(names))
            names += new.encode() + b"\0"
        if struct.unpack_from("<H", out, entry + layout.section)[0] != _UNDEFINED:
            out[entry + layout.info] = _WEAK << 4 | info & 15
            out[entry + layout.info + 1] = _HIDDEN
    struct.pack_into(word, out, texts + layout.offset, len(out))
    struct.pack_into(word, out, texts + layout.size, len(names))
    out += names
