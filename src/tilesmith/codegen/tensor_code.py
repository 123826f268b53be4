"""The instructions from which a tensor intrinsic's `emit` composes its code.

Values are vectors in LLVM's types; a tile is a vector of its elements in row-major order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tilesmith.support.errors import ScheduleError

from .builder import Builder
from .llvm_text import shuffle_mask

_VECTOR = re.compile(r"<(\d+) x (\w+)>")


@dataclass(frozen=True, slots=True)
class Value:
    """An operand or a result of an instruction.

    type: LLVM's type, such as `<8 x i32>` or `float`.
    text: LLVM's name for it, or a literal.
    """

    type: str
    text: str

    @property
    def lanes(self) -> int:
        """Number of elements."""
        match = _VECTOR.fullmatch(self.type)
        return int(match[1]) if match else 1

    @property
    def element(self) -> str:
        """LLVM's type of an element."""
        match = _VECTOR.fullmatch(self.type)
        return match[2] if match else self.type


class TensorCode:
    """Writer of the instructions for one call of an intrinsic.  Each method writes one and returns
    its value.
    """

    def __init__(self, builder: Builder, thread: Callable[[], Value]) -> None:
        self._builder = builder
        self._thread = thread

    def call(self, function: str, type_: str, *args: Value) -> Value:
        """A call of an LLVM intrinsic, by its full name without @ and the type of its result.

        If LLVM does not know the name, compiling the kernel fails.
        """
        operands = ", ".join(f"{a.type} {a.text}" for a in args)
        return Value(type_, self._builder.emit(f"call {type_} @{function}({operands})"))

    def run(self, function: str, *args: Value) -> None:
        """A call of an LLVM intrinsic without a result."""
        operands = ", ".join(f"{a.type} {a.text}" for a in args)
        self._builder.do(f"call void @{function}({operands})")

    def in_space(self, pointer: Value, number: int) -> Value:
        """A pointer cast to an address space of LLVM."""
        type_ = f"ptr addrspace({number})"
        made = self._builder.emit(f"addrspacecast ptr {pointer.text} to {type_}")
        return Value(type_, made)

    def thread(self) -> Value:
        """The number of this thread among those that run the call together, an i64.

        Raises ScheduleError where one thread runs a call alone.
        """
        return self._thread()

    def load(self, pointer: Value, type_: str, offset: int = 0, align: int = 1) -> Value:
        """Load the value `offset` bytes after a pointer, from an address that is a multiple of
        `align`.
        """
        address = pointer.text
        if offset:
            address = self._builder.emit(f"getelementptr i8, ptr {address}, i64 {offset}")
        return Value(type_, self._builder.emit(f"load {type_}, ptr {address}, align {align}"))

    def scratch(self, size: int) -> Value:
        """A pointer to `size` bytes on the stack."""
        return Value("ptr", self._builder.alloca("spare", f"[{size} x i8]"))

    def behind(self, pointer: Value, offset: Value) -> Value:
        """A pointer moved by a number of bytes, an i64."""
        return Value("ptr", self._builder.emit(
            f"getelementptr i8, ptr {pointer.text}, i64 {offset.text}"
        ))  # fmt: skip

    def integer(self, word: str, a: Value, b: Value | int) -> Value:
        """An integer instruction of LLVM, such as `mul` or `lshr`."""
        right = b.text if isinstance(b, Value) else str(b)
        return Value(a.type, self._builder.emit(f"{word} {a.type} {a.text}, {right}"))

    def element(self, x: Value, number: int) -> Value:
        """One element of a vector."""
        return Value(
            x.element, self._builder.emit(f"extractelement {x.type} {x.text}, i32 {number}")
        )

    def member(self, x: Value, number: int, type_: str) -> Value:
        """One member of a structure."""
        return Value(type_, self._builder.emit(f"extractvalue {x.type} {x.text}, {number}"))

    def vector(self, *elements: Value) -> Value:
        """A vector of scalars of one type."""
        type_, made = f"<{len(elements)} x {elements[0].type}>", "poison"
        for n, x in enumerate(elements):
            made = self._builder.emit(f"insertelement {type_} {made}, {x.type} {x.text}, i32 {n}")
        return Value(type_, made)

    def joined(self, a: Value, b: Value) -> Value:
        """The lanes of two vectors of one type, one after the other."""
        picks = tuple(range(2 * a.lanes))
        made = self._builder.shuffle(a.type, a.text, b.text, picks)
        return Value(f"<{2 * a.lanes} x {a.element}>", made)

    def bitcast(self, x: Value, type_: str) -> Value:
        """The same bits in another type."""
        if x.type == type_:
            return x
        return Value(type_, self._builder.emit(f"bitcast {x.type} {x.text} to {type_}"))

    def repeated(self, x: Value, times: int) -> Value:
        """The lanes of `x`, repeated `times` times: a row that all rows of a tile share."""
        if x.type == x.element:
            return Value(f"<{times} x {x.type}>", self._builder.splat(x.type, x.text, times))
        # LLVM generates better code for the broadcast of a 32-bit word than for one of its parts.
        if (x.element, x.lanes) in (("i16", 2), ("i8", 4)):
            word = self._builder.splat("i32", self.bitcast(x, "i32").text, times)
            type_ = f"<{x.lanes * times} x {x.element}>"
            return self.bitcast(Value(f"<{times} x i32>", word), type_)
        picks = tuple(range(x.lanes)) * times
        made = self._builder.emit(
            f"shufflevector {x.type} {x.text}, {x.type} poison, {shuffle_mask(picks)}"
        )
        return Value(f"<{len(picks)} x {x.element}>", made)

    def widened(self, x: Value, element: str, is_signed: bool) -> Value:
        """Integers in a wider type."""
        type_ = f"<{x.lanes} x {element}>" if x.type != x.element else element
        word = "sext" if is_signed else "zext"
        return Value(type_, self._builder.emit(f"{word} {x.type} {x.text} to {type_}"))

    def add(self, a: Value, b: Value) -> Value:
        """The sum of integers or floats, lane by lane."""
        return self._binary("fadd" if a.element in ("float", "double") else "add", a, b)

    def constant(self, type_: str, value: int) -> Value:
        """A vector of integers with `value` in each lane."""
        lanes = Value(type_, "").lanes
        element = Value(type_, "").element
        inside = ", ".join(f"{element} {value}" for _ in range(lanes))
        return Value(type_, f"<{inside}>" if lanes > 1 else str(value))

    def _binary(self, word: str, a: Value, b: Value) -> Value:
        if a.type != b.type:
            raise ScheduleError(f"{word} of {a.type} and {b.type}: expected one type")
        return Value(a.type, self._builder.emit(f"{word} {a.type} {a.text}, {b.text}"))
