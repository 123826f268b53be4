"""Register buffers: one stack slot per distinct vector accessed, which LLVM turns into registers.

A whole column of a block of row vectors may be read, too: that is how blocks are transposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tilesmith.ir.expr import Const, Expr, Ramp
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer
from tilesmith.support.errors import InternalError

from .emit_expr import ExprEmitter
from .llvm_text import is_narrow, value_type, vector

_LANE_BYTES = 16  # what shuffles without a table of indices stay within, or move as a whole


@dataclass(frozen=True, slots=True)
class Slots:
    """Where a register buffer lives: (first element, lanes) -> pointer, or one `memory`."""

    pointers: dict[tuple[int, int], str]
    memory: str = ""


class RegisterEmitter(ExprEmitter):
    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.slots: dict[Buffer, Slots] = {}

    def make_slots(self, buffer: Buffer, accesses: set[tuple[int, int]]) -> None:
        """Give `buffer` a stack slot for each (first element, lanes) pair that is used."""
        ordered = sorted(accesses)
        clean = all(a + n <= b for (a, n), (b, _) in pairwise(ordered))
        if clean:
            pointers = {}
            for first, lanes in ordered:
                name = self.name("r")
                self.allocas.append(
                    f"  {name} = alloca {value_type(buffer.dtype, lanes)}, align 64"
                )
                pointers[first, lanes] = name
            self.slots[buffer] = Slots(pointers)
            return
        # vectors of several widths overlap: one block of memory, which LLVM takes apart as far as
        # it can
        name, total = self.name("r"), max(a + n for a, n in ordered)
        element = value_type(buffer.dtype)
        if element == "i1":
            raise InternalError(
                f"register buffer {buffer.name} of bools is accessed with overlapping vectors "
                "of several widths"
            )
        self.allocas.append(f"  {name} = alloca [{total} x {element}], align 64")
        self.slots[buffer] = Slots({}, name)

    def _slot(self, buffer: Buffer, index: Expr, lanes: int) -> tuple[str, int]:
        """Pointer to the slot, and its alignment."""
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
        scope = self.scope
        while scope.parent is not None:
            scope = scope.parent
        if key not in scope.values:
            with self.writing_in(scope):
                scope.values[key] = self.emit(
                    f"getelementptr {value_type(buffer.dtype)}, ptr {slots.memory}, i64 {access[0]}"
                )
        return scope.values[key], buffer.dtype.bytes

    def _slot_load(self, buffer: Buffer, index: Expr, lanes: int) -> str:
        rows = column_access(index, lanes)
        if rows is not None:
            return self._slot_column(buffer, *rows)
        pointer, align = self._slot(buffer, index, lanes)
        return self.emit(f"load {value_type(buffer.dtype, lanes)}, ptr {pointer}, align {align}")

    def _slot_column(self, buffer: Buffer, column: int, rows: tuple[tuple[int, int], ...]) -> str:
        """One column of a block of row vectors.

        A square block of 2^n rows is transposed in n rounds; the columns of a block share most of
        the shuffles.  All of them stay within lanes of 16 bytes or move such lanes as a whole:
        those are single instructions that need no table of indices.
        """
        width = rows[0][1]
        row_type, type_ = value_type(buffer.dtype, width), value_type(buffer.dtype, len(rows))
        loaded = [
            self.emit(f"load {row_type}, ptr {pointer}, align {align}")
            for pointer, align in (self._slot_at(buffer, access) for access in rows)
        ]
        if len(rows) != width or width & (width - 1):
            element, result = value_type(buffer.dtype), "poison"
            for lane, row in enumerate(loaded):
                one = self.emit(f"extractelement {row_type} {row}, i64 {column}")
                result = self.emit(f"insertelement {type_} {result}, {element} {one}, i64 {lane}")
            return result
        size = 4 if is_narrow(buffer.dtype) else buffer.dtype.bytes  # of an element in a register
        group = min(width, _LANE_BYTES // size)
        parts = [
            self._joined(row_type, loaded[i::group], column // group, width) for i in range(group)
        ]
        return self._interleaved(row_type, parts, column % group, width)

    def _interleaved(self, type_: str, rows: list[str], column: int, width: int) -> str:
        """For each 16-byte lane, column number `column` of the square block that `rows` have there:
        each round interleaves the rows with those half a block further down.
        """
        group, at = len(rows), column  # `at`: the first of its elements
        while len(rows) > 1:
            half, first = len(rows) // 2, 0 if at < group // 2 else group // 2
            at = 2 * (at - first)
            picks = tuple(
                i
                for lane in range(0, width, group)
                for k in range(lane + first, lane + first + group // 2)
                for i in (k, width + k)
            )
            rows = [self.shuffle(type_, rows[r], rows[r + half], picks) for r in range(half)]
        return rows[0]

    def _joined(self, type_: str, rows: list[str], column: int, width: int) -> str:
        """Number `column` of the 16-byte lanes of all `rows`, side by side: each round takes every
        other lane of two neighbours.
        """
        group = width // len(rows)
        while len(rows) > 1:
            lanes = range(column % 2 * group, 2 * width, 2 * group)
            picks = tuple(lane + k for lane in lanes for k in range(group))
            rows = [self.shuffle(type_, a, b, picks) for a, b in zip(rows[::2], rows[1::2])]
            column //= 2
        return rows[0]

    def _slot_store(self, buffer: Buffer, index: Expr, lanes: int, value: str, active: str) -> None:
        pointer, align = self._slot(buffer, index, lanes)
        type_ = value_type(buffer.dtype, lanes)
        if active:
            old = self.emit(f"load {type_}, ptr {pointer}, align {align}")
            value = self.emit(
                f"select {vector('i1', lanes)} {active}, {type_} {value}, {type_} {old}"
            )
        self.do(f"store {type_} {value}, ptr {pointer}, align {align}")


def constant_access(index: Expr, lanes: int) -> tuple[int, int] | None:
    """(first element, lanes) of an access at a constant index or unit ramp."""
    if isinstance(index, Ramp):
        unit = isinstance(index.stride, Const) and index.stride.value == 1
        return (int(index.base.value), lanes) if unit and isinstance(index.base, Const) else None
    return (int(index.value), 1) if isinstance(index, Const) else None


def column_access(index: Expr, lanes: int) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """An access with constant stride s > 1 from a constant as one column of rows of s elements:
    its number, and each row as (first element, s).
    """
    if not isinstance(index, Ramp) or not isinstance(index.base, Const):
        return None
    if not isinstance(index.stride, Const) or index.stride.value <= 1:
        return None
    width = int(index.stride.value)
    row, column = divmod(int(index.base.value), width)
    return column, tuple(((row + k) * width, width) for k in range(lanes))
