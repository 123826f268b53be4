"""Register buffers: a stack slot for each vector that is accessed.  LLVM turns slots into
registers.

A load may also read a column of a block of row vectors.  Such loads transpose the block.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tilesmith.ir.expr import Expr
from tilesmith.loop.nodes import Buffer
from tilesmith.support.errors import InternalError

from .builder import Builder
from .indices import column_access, constant_access
from .llvm_text import is_narrow, memory_type, value_type, vector

# Bytes of a lane of x86's vectors.  Shuffles within lanes or of whole lanes need no index table.
_LANE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Slots:
    """The storage of a register buffer.

    pointers: the stack slot of each vector, by (first element, lanes).
    memory: pointer to one block of memory that replaces the slots; "" if there are slots.
    as_stored: whether elements have their memory type, not their value type.
    windows: whether reads of columns begin at different rows.
    """

    pointers: dict[tuple[int, int], str]
    memory: str = ""
    as_stored: bool = False
    windows: bool = False


class Registers:
    """The slots of register buffers, and their loads and stores."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.emit = b.emit
        self.slots: dict[Buffer, Slots] = {}

    def slot_type(self, buffer: Buffer, lanes: int = 1) -> str:
        as_stored = self.slots[buffer].as_stored
        return memory_type(buffer.dtype, lanes) if as_stored else value_type(buffer.dtype, lanes)

    def make_slots(
        self,
        buffer: Buffer,
        accesses: set[tuple[int, int]],
        as_stored: bool = False,
        windows: bool = False,
    ) -> None:
        """Allocate the storage of `buffer`: a stack slot for each access, a (first element, lanes)
        pair.
        """
        self.slots[buffer] = Slots({}, as_stored=as_stored)
        ordered = sorted(accesses)
        clean = all(a + n <= b for (a, n), (b, _) in pairwise(ordered))
        if clean:
            pointers = {}
            for first, lanes in ordered:
                pointers[first, lanes] = self.b.alloca("r", self.slot_type(buffer, lanes))
            self.slots[buffer] = Slots(pointers, "", as_stored, windows)
            return
        # Overlapping vectors are in one block of memory, which LLVM splits into registers if it
        # can.
        as_stored = as_stored or buffer.dtype.is_bool  # elements need addresses, and an i1 has none
        type_ = memory_type(buffer.dtype) if as_stored else value_type(buffer.dtype)
        name = self.b.alloca("r", f"[{max(a + n for a, n in ordered)} x {type_}]")
        self.slots[buffer] = Slots({}, name, as_stored)

    def _slot(self, buffer: Buffer, index: Expr, lanes: int) -> tuple[str, int]:
        """Pointer to the slot of an access, and the slot's alignment in bytes."""
        access = constant_access(index, lanes)
        if access is None:
            raise InternalError(
                f"register buffer {buffer.name} is indexed with {type(index).__name__}, "
                "expected a constant"
            )
        return self._slot_at(buffer, access)

    def _slot_at(self, buffer: Buffer, access: tuple[int, int]) -> tuple[str, int]:
        slots = self.slots[buffer]
        if not slots.memory:
            return slots.pointers[access], 64
        key = (slots.memory, access[0])
        top = self.b.top()
        if key not in top.values:
            with self.b.writing_in(top):
                top.values[key] = self.emit(
                    f"getelementptr {self.slot_type(buffer)}, ptr {slots.memory}, i64 {access[0]}"
                )
        return top.values[key], buffer.dtype.bytes

    def load(self, buffer: Buffer, index: Expr, lanes: int) -> str:
        rows = column_access(index, lanes)
        if rows is not None:
            return self._window(buffer, *rows)
        pointer, align = self._slot(buffer, index, lanes)
        return self.emit(f"load {self.slot_type(buffer, lanes)}, ptr {pointer}, align {align}")

    def _window(self, buffer: Buffer, column: int, rows: tuple[tuple[int, int], ...]) -> str:
        """One column of a block of row vectors.  The block may begin at any row.

        If the columns of the buffer begin at different rows, each is composed from columns of
        aligned square blocks.  All columns share the transposed blocks.
        """
        width = rows[0][1]
        offset = rows[0][0] // width % width
        squares, rest = divmod(len(rows), width)
        is_even = not rest and all(n & (n - 1) == 0 for n in (squares, width))
        if not self.slots[buffer].windows or not is_even or not offset:
            return self._column(buffer, column, rows)
        first = rows[0][0] - offset * width
        columns = [
            self._column(buffer, column, tuple((start + k * width, width) for k in range(width)))
            for start in range(first, first + (len(rows) + width) * width, width * width)
        ]
        type_, picks = self.slot_type(buffer, width), tuple(range(offset, offset + width))
        parts = [self.b.shuffle(type_, a, b, picks) for a, b in pairwise(columns)]
        return self._concatenated(buffer, parts, width)

    def _column(self, buffer: Buffer, column: int, rows: tuple[tuple[int, int], ...]) -> str:
        """One column of a block of row vectors.

        The block is divided into square blocks of 2^n rows, one below the other.  All squares are
        transposed at once, in n rounds, so that the columns share most of the shuffles.  Each
        shuffle stays within 16-byte lanes or moves whole lanes, so it takes one instruction without
        an index table.  Elements missing from a square may have any value.
        """
        wide = is_narrow(buffer.dtype) and not self.slots[buffer].as_stored
        width = _power_of_two(rows[0][1])
        blocks = _power_of_two(-(-len(rows) // width))
        group = min(width, _LANE_BYTES // (4 if wide else buffer.dtype.bytes))
        count = width // group  # number of 16-byte lanes in a row
        slots = self.slots[buffer]
        loaded = [
            self._row(buffer, access, width)
            if slots.memory or access in slots.pointers
            else "poison"
            for access in rows
        ]
        loaded += ["poison"] * (blocks * width - len(rows))
        total = width * blocks
        type_ = self.slot_type(buffer, total)
        parts = []
        for i in range(group):
            joined = [
                self._concatenated(buffer, loaded[first + i :: group][:blocks], width)
                for first in range(0, count * blocks * group, blocks * group)
            ]
            parts.append(self._joined(type_, joined, column // group, group))
        result = self._interleaved(type_, parts, column % group, total)
        if total == len(rows):
            return result
        return self.b.shuffle(type_, result, "poison", tuple(range(len(rows))))

    def _row(self, buffer: Buffer, access: tuple[int, int], width: int) -> str:
        """A row of a block, extended to `width` elements."""
        pointer, align = self._slot_at(buffer, access)
        type_ = self.slot_type(buffer, access[1])
        row = self.emit(f"load {type_}, ptr {pointer}, align {align}")
        if access[1] == width:
            return row
        rest = (-1,) * (width - access[1])
        return self.b.shuffle(type_, row, "poison", (*range(access[1]), *rest))

    def _concatenated(self, buffer: Buffer, rows: list[str], width: int) -> str:
        """One vector: the concatenation of 2^n vectors of `width` elements."""
        while len(rows) > 1:
            type_, both = self.slot_type(buffer, width), tuple(range(2 * width))
            rows = [self.b.shuffle(type_, a, b, both) for a, b in zip(rows[::2], rows[1::2])]
            width *= 2
        return rows[0]

    def _interleaved(self, type_: str, rows: list[str], column: int, width: int) -> str:
        """Column number `column` of each square block that `rows` form in one 16-byte lane.

        Each round interleaves every row of the upper half of the block with its counterpart in the
        lower half.
        """
        group, first_element = len(rows), column
        while len(rows) > 1:
            half, first = len(rows) // 2, 0 if first_element < group // 2 else group // 2
            first_element = 2 * (first_element - first)
            picks = tuple(
                i
                for lane in range(0, width, group)
                for k in range(lane + first, lane + first + group // 2)
                for i in (k, width + k)
            )
            rows = [self.b.shuffle(type_, rows[r], rows[r + half], picks) for r in range(half)]
        return rows[0]

    def _joined(self, type_: str, rows: list[str], column: int, group: int) -> str:
        """Select lane number `column` (of `group` elements) from every row in the vectors `rows`,
        and put these lanes side by side.  Each round takes every second lane of two adjacent
        vectors.
        """
        width = int(type_[1:].split(" ", 1)[0])
        while len(rows) > 1:
            lanes = range(column % 2 * group, 2 * width, 2 * group)
            picks = tuple(lane + k for lane in lanes for k in range(group))
            rows = [self.b.shuffle(type_, a, b, picks) for a, b in zip(rows[::2], rows[1::2])]
            column //= 2
        return rows[0]

    def store(self, buffer: Buffer, index: Expr, lanes: int, value: str, active: str) -> None:
        pointer, align = self._slot(buffer, index, lanes)
        type_ = self.slot_type(buffer, lanes)
        if active:
            old = self.emit(f"load {type_}, ptr {pointer}, align {align}")
            value = self.emit(
                f"select {vector('i1', lanes)} {active}, {type_} {value}, {type_} {old}"
            )
        self.b.do(f"store {type_} {value}, ptr {pointer}, align {align}")


def _power_of_two(n: int) -> int:
    """The least power of two that is at least `n`."""
    return 1 << (n - 1).bit_length()
