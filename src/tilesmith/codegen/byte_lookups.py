"""Vector loads of bytes from a list of at most 256 bytes, as permutations of registers.

The list is loaded as whole registers.  Each step looks all indices up in the part of the list that
an instruction reaches.  Entries of other parts become 0, or are replaced by the next step.
"""

from __future__ import annotations

from tilesmith.ir.byte_lookups import ByteLookup

from .builder import Builder

_ROW = 16  # bytes of a row of a shuffle, and of a register of AArch64
_PAIR = 64  # bytes of each of the two registers of a permute

_SHUFFLES = {16: "ssse3.pshuf.b.128", 32: "avx2.pshuf.b", 64: "avx512.pshuf.b.512"}


def lookup(b: Builder, how: ByteLookup, pointer: str, entries: int, lanes: int, index: str) -> str:
    """The bytes `<lanes x i8>` at the indices `<lanes x i8>`, which are less than `entries`.

    pointer: the list's address.
    """
    copies = how.copies(lanes)
    width = how.lanes // copies
    write = {"permute": _permuted, "shuffle": _shuffled, "table": _tabled}[how.form]
    parts = []
    for start in range(0, lanes, width):
        count = min(width, lanes - start)
        picks = tuple(start + i if i < count else -1 for i in range(width)) * copies
        whole = picks == tuple(range(lanes))
        part = index if whole else b.shuffle(f"<{lanes} x i8>", index, "poison", picks)
        parts.append((write(b, _List(b, pointer, entries), part, how.lanes, copies), count))
    result, taken = parts[0]
    result = _resized(b, result, width, lanes)
    for part, count in parts[1:]:
        wide = _resized(b, part, width, lanes)
        picks = tuple(
            i if i < taken else lanes + i - taken if i < taken + count else -1 for i in range(lanes)
        )
        result = b.shuffle(f"<{lanes} x i8>", result, wide, picks)
        taken += count
    return result


def _resized(b: Builder, value: str, lanes: int, to: int) -> str:
    picks = tuple(i if i < lanes else -1 for i in range(to))
    return value if lanes == to else b.shuffle(f"<{lanes} x i8>", value, "poison", picks)


class _List:
    """Loads of parts of the list.  Nothing behind the list is read."""

    def __init__(self, b: Builder, pointer: str, entries: int) -> None:
        self.b, self.pointer, self.entries = b, pointer, entries

    def part(self, first: int, size: int) -> str:
        """The entries from `first` on as `<size x i8>`; those behind the list are poison."""
        count = min(size, self.entries - first)
        if count <= 0:
            return "poison"
        where = self.b.emit(f"getelementptr i8, ptr {self.pointer}, i64 {first}")
        loaded = self.b.emit(f"load <{count} x i8>, ptr {where}, align 1")
        return _resized(self.b, loaded, count, size)


def _permuted(b: Builder, entries: _List, index: str, lanes: int, copies: int) -> str:
    """The lookup by permutes of two registers.  Two registers hold 128 entries, and the instruction
    reads 7 bits of an index.
    """
    type_ = f"<{lanes} x i8>"
    halves = [
        b.emit(
            f"call {type_} @llvm.x86.avx512.vpermi2var.qi.512({type_} "
            f"{entries.part(first, _PAIR)}, {type_} {index}, {type_} "
            f"{entries.part(first + _PAIR, _PAIR)})"
        )
        for first in range(0, entries.entries, 2 * _PAIR)
    ]
    if len(halves) == 1:
        return halves[0]
    above = b.emit(f"icmp slt {type_} {index}, zeroinitializer")
    return b.emit(f"select <{lanes} x i1> {above}, {type_} {halves[1]}, {type_} {halves[0]}")


def _shuffled(b: Builder, entries: _List, index: str, lanes: int, copies: int) -> str:
    """The lookup by shuffles.  A shuffle gives 0 if the highest bit of an index is set; else it
    reads the lowest 4 bits.

    For row r of the list, index ^ 16 r is less than 16 exactly for indices in the row.  A
    saturating addition of 0x70 sets the highest bit of all other indices.  If a register has
    several copies of the indices, one shuffle looks each copy up in another row of the list.
    """
    type_, rows = f"<{lanes} x i8>", lanes // _ROW
    result = ""
    for first in range(0, entries.entries, _ROW * copies):
        part = entries.part(first, _ROW * copies)
        picks = tuple(r * copies // rows * _ROW + i for r in range(rows) for i in range(_ROW))
        part = b.shuffle(f"<{_ROW * copies} x i8>", part, "poison", picks)
        own = ", ".join(
            f"i8 {(first + r * copies // rows * _ROW) & 0xFF}"
            for r in range(rows)
            for _ in range(_ROW)
        )
        place = b.emit(f"xor {type_} {index}, <{own}>")
        place = b.emit(f"call {type_} @llvm.uadd.sat({type_} {place}, {type_} splat (i8 112))")
        bytes_of_rows = b.emit(
            f"call {type_} @llvm.x86.{_SHUFFLES[lanes]}({type_} {part}, {type_} {place})"
        )
        result = b.emit(f"or {type_} {result}, {bytes_of_rows}") if result else bytes_of_rows
    while copies > 1:
        half = lanes // 2
        low, high = (
            b.shuffle(f"<{lanes} x i8>", result, "poison", tuple(range(start, start + half)))
            for start in (0, half)
        )
        result = b.emit(f"or <{half} x i8> {low}, {high}")
        lanes, copies = half, copies // 2
    return result


def _tabled(b: Builder, entries: _List, index: str, lanes: int, copies: int) -> str:
    """The lookup by tables of up to four registers.  For an index outside its table, an instruction
    keeps the result of the instruction before it.
    """
    type_, result = f"<{lanes} x i8>", ""
    for first in range(0, entries.entries, 4 * _ROW):
        count = -(-min(entries.entries - first, 4 * _ROW) // _ROW)
        rows = [f"{type_} {entries.part(first + _ROW * i, _ROW)}" for i in range(count)]
        place = b.emit(f"sub {type_} {index}, splat (i8 {first})") if first else index
        old = [f"{type_} {result}"] if result else []
        operands = ", ".join([*old, *rows, f"{type_} {place}"])
        name = f"{'tbx' if result else 'tbl'}{count}"
        result = b.emit(f"call {type_} @llvm.aarch64.neon.{name}.v16i8({operands})")
    return result
