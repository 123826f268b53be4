"""Assertions and checks of indices: the reports of a kernel to its context."""

from __future__ import annotations

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import i64
from tilesmith.loop.nodes import Assert

from .assertions import INDEX, compared
from .context import VALUES
from .llvm_text import literal, value_type, vector
from .module import Module
from .values import Mask, Values


class Checks:
    """Writer of checks, and of calls of the function that records a failure.

    stop: the instruction that leaves the function after a failed assertion.
    """

    def __init__(self, values: Values, module: Module, stop: str) -> None:
        self.b = values.b
        self.emit = values.b.emit
        self.env = values.env
        self.values = values
        self.value = values.value
        self.module = module
        self.stop = stop

    def index(self, e: ir.Call, mask: Mask | None) -> str:
        """Check an index, and count a negative one from the end.  A bad index is replaced by 0.  It
        is reported in a branch that valid programs never take.
        """
        index, extent, position = e.args
        lanes, type_ = e.lanes, value_type(e.type, e.lanes)
        value, limit = self.value(index, mask), self.value(extent)
        zero, one = (literal(n, e.type, lanes) for n in (0, 1))
        # The index is in range if neither `above` nor `below` is negative.  The bitwise or of both
        # is negative if one of them is.
        above = self.emit(f"add {type_} {value}, {limit}")
        last = self.emit(f"sub {type_} {limit}, {one}")
        below = self.emit(f"sub {type_} {last}, {value}")
        signs = self.emit(f"or {type_} {above}, {below}")
        wrong = self.emit(f"icmp slt {type_} {signs}, {zero}")
        bools = vector("i1", lanes)
        negative = self.emit(f"icmp slt {type_} {value}, {zero}")
        wrapped = self.emit(f"select {bools} {negative}, {type_} {above}, {type_} {value}")
        result = self.emit(f"select {bools} {wrong}, {type_} {zero}, {type_} {wrapped}")
        if lanes == 1:
            self.b.guarded(wrong, lambda: self.fail(INDEX, [value, self.value(position), limit]))
            return result
        if mask is not None:
            wrong = self.emit(f"and {bools} {wrong}, {mask.text}")
        bits = self.emit(f"bitcast {bools} {wrong} to i{lanes}")

        def report() -> None:
            lane = self.emit(f"call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {bits}, i1 true)")
            parts = (value, self.value(position), limit)
            self.fail(
                INDEX, [self.emit(f"extractelement {type_} {v}, i{lanes} {lane}") for v in parts]
            )

        self.b.guarded(self.emit(f"icmp ne i{lanes} {bits}, 0"), report)
        return result

    def fail(self, message: str, values: list[str]) -> None:
        """Record a failure with up to `VALUES` values of type i64."""
        messages = self.module.messages
        if message not in messages:
            messages.append(message)
        head = f"ptr {self.env.context()}, i32 {messages.index(message)}, i32 {len(values)}"
        args = [f"i64 {v}" for v in [*values, *["0"] * (VALUES - len(values))]]
        self.b.do(f"call void @{self.module.symbol}.fail({head}, {', '.join(args)})")

    def assertion(self, s: Assert) -> None:
        """Write a branch that records a failure and leaves the function if a condition does not
        hold.
        """
        integers = compared(s.cond)[:VALUES]
        values = [self.value(e) for e in integers]
        fine, fail = self.b.label("ok"), self.b.label("fail")
        self.b.branch(self.value(s.cond), fine, fail)
        self.b.start_block(fail)
        cast = self.values.ops.cast
        wide = [cast(e.dtype, i64, 1, v) for e, v in zip(integers, values, strict=True)]
        self.fail(s.message, wide)
        self.b.do(self.stop)
        self.b.start_block(fine)
