"""The parts of the main function's steps: values, places, copies, failures, slots."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.program.nodes import Arg

from .context import Code, address
from .entry_checks import load
from .statements import Statements


class Writer:
    """Appends instructions by the builder of `statements`.

    clock: number of the clock to read after each call; None for no times.
    targets: numbers of the pointers to memory that grows, which are variables.
    """

    def __init__(self, statements: Statements, clock: int | None, targets: frozenset[int]) -> None:
        self.statements = statements
        self.b = statements.b
        self.new = statements.emit
        self.clock = clock
        self.targets = targets

    def write(self, *lines: str) -> None:
        """Instructions; labels end in a colon."""
        for line in lines:
            if line.endswith(":"):
                self.b.start_block(line[:-1])
            else:
                self.b.do(line)

    def value(self, number: int) -> str:
        """A value of the function for sizes."""
        address = self.new(f"getelementptr i64, ptr %values, i64 {number}")
        return self.new(f"load i64, ptr {address}, align 8")

    def number(self, size: int | Arg) -> str:
        return self.value(size.index) if isinstance(size, Arg) else str(size)

    def base(self, arg: Arg) -> str:
        """The address of the memory that holds an argument."""
        if arg.kind == "pointer" and arg.index in self.targets:
            return self.new(f"load ptr, ptr %target{arg.index}, align 8")
        if arg.kind in ("input", "output", "pointer"):
            return f"%{arg.kind}{arg.index}"
        if arg.slot is not None:
            return self.new(f"load ptr, ptr {self.slot(arg.slot)}, align 8")
        return "%constants" if arg.kind == "constant" else "%arena"

    def place(self, arg: Arg) -> str:
        """The address of an argument that is memory."""
        base = self.base(arg)
        if arg.kind in ("constant", "arena"):
            return self.new(f"getelementptr i8, ptr {base}, i64 {arg.index}")
        if arg.kind == "place":
            base = self.new(f"getelementptr i8, ptr {base}, i64 {self.value(arg.index)}")
        if not arg.offset:
            return base
        return self.new(f"getelementptr i8, ptr {base}, i64 {arg.offset}")

    def operand(self, arg: Arg) -> str:
        if arg.kind == "scalar":
            return f"i64 {arg.index}"
        if arg.kind == "extent":
            return f"i64 {self.value(arg.index)}"
        return f"ptr {self.place(arg)}"

    def truth(self, condition: Arg) -> str:
        byte = self.new(f"load i8, ptr {self.place(condition)}")
        return self.new(f"icmp ne i8 {byte}, 0")

    def begin_slots(self) -> None:
        """Return if the context can't give memory."""
        self.write(*load("grow"), *load("memory"))
        self.leave_if(self.new("icmp eq ptr %grow, null"), Code.GROWTH, 0, ("0", "0"))

    def slot(self, number: int) -> str:
        return self.new(f"getelementptr ptr, ptr %slots, i64 {number}")

    def leave_if(self, wrong: str, code: Code, call: int, values: Sequence[str]) -> None:
        """Return with a failure."""
        label = self.b.label("b")
        self.write(f"br i1 {wrong}, label %{label}.fail, label %{label}.ok", f"{label}.fail:")
        fields = {"failure_code": f"{code:d}", "failure_call": str(call)}
        for name, value in {**fields, "failure_count": str(len(values))}.items():
            self.write(f"store i32 {value}, ptr {self.new(address(name))}")
        for i, value in enumerate(values):
            self.write(f"store i64 {value}, ptr {self.new(address('failure_values', i))}")
        self.write(f"ret i32 {code:d}", f"{label}.ok:")

    def take(self, slot: str, size: str, keep: str = "0") -> str:
        """The memory of a slot from this point on."""
        memory = self.taken(slot, size, keep)
        self.write(f"store ptr {memory}, ptr {self.slot(int(slot))}, align 8")
        return memory

    def taken(self, slot: str, size: str, keep: str = "0") -> str:
        """The memory that the context gives to a slot."""
        memory = self.new(f"call ptr %grow(ptr %memory, i64 {slot}, i64 {size}, i64 {keep})")
        self.leave_if(self.new(f"icmp eq ptr {memory}, null"), Code.GROWTH, 0, (size, slot))
        return memory

    def stamp(self, call: int | None) -> None:
        """Add the time since the last stamp to that of a call, if any."""
        if self.clock is None:
            return
        self.write(f"call i32 @clock_gettime(i32 {self.clock}, ptr %now)")
        seconds = self.new("load i64, ptr %now, align 8")
        rest = self.new("getelementptr i8, ptr %now, i64 8")
        nanoseconds = self.new(f"load i64, ptr {rest}, align 8")
        scaled = self.new(f"mul i64 {seconds}, 1000000000")
        now = self.new(f"add i64 {scaled}, {nanoseconds}")
        if call is not None:
            last = self.new("load i64, ptr %last, align 8")
            passed = self.new(f"sub i64 {now}, {last}")
            for word, more in ((2 * call, passed), (2 * call + 1, "1")):
                address = self.new(f"getelementptr i64, ptr %times, i64 {word}")
                before = self.new(f"load i64, ptr {address}, align 8")
                total = self.new(f"add i64 {before}, {more}")
                self.write(f"store i64 {total}, ptr {address}, align 8")
        self.write(f"store i64 {now}, ptr %last, align 8")
