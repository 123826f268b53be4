"""Reports of failed assertions and of failed checks of indices and divisors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tilesmith.ir.expr import Binary, Compare, Const, Expr, Unary, reached
from tilesmith.ir.intrinsics import BY_ZERO, FROM_FRONT

from .context import VALUES, Code, address

INDEX = "an index is outside its axis"
"""The message of a failed `check_index`.  Its values are the index, its position and the axis's
extent.
"""


def explained(message: str, values: Sequence[int]) -> str:
    """The report for users: the message of a failure, with the recorded values."""
    if message == INDEX:
        index, position, extent = values
        if index == BY_ZERO:
            return (
                f"expected divisors other than 0, found 0 at position {position} of the result "
                "(counted in row-major order)"
            )
        low = -extent
        if position < 0:  # undo `checked_place`, whose arithmetic wraps
            index = ctypes.c_int64(index + FROM_FRONT).value
            low, position = 0, -1 - position
        return (
            f"expected indices from {low} to {extent - 1}, found {index} at position "
            f"{position} of the indices (counted in row-major order)"
        )
    shown = ", ".join(map(str, values))
    return message + (f" (found {shown})" if shown else "")


def compared(cond: Expr) -> list[Expr]:
    """The integers that a condition compares, except constants.  Reports show their values."""
    integers: dict[Expr, None] = {}
    connectives = (Binary, Unary)
    for e in reached([cond], lambda e: e.children[::-1] if isinstance(e, connectives) else ()):
        if isinstance(e, Compare) and e.a.dtype.is_int:
            operands = (e.a, e.b)
            integers |= {x: None for x in operands if x.lanes == 1 and not isinstance(x, Const)}
    return list(integers)


def fail_function(symbol: str) -> str:
    """The LLVM function that records the first failure in the context; several threads may fail at
    once.
    """
    values = [f"%v{i}" for i in range(VALUES)]
    params = ["ptr %context", "i32 %assertion", "i32 %count", *(f"i64 {v}" for v in values)]
    lines = [
        f"define internal void @{symbol}.fail({', '.join(params)}) noinline cold #0 {{",
        "entry:",
        f"  %code = {address('failure_code')}",
        f"  %old = cmpxchg ptr %code, i32 {Code.OK:d}, i32 {Code.ASSERTION:d} monotonic monotonic",
        "  %first = extractvalue { i32, i1 } %old, 1",
        "  br i1 %first, label %note, label %done",
        "note:",
    ]
    notes = [("failure_assertion", 0, "i32 %assertion"), ("failure_count", 0, "i32 %count")]
    notes += [("failure_values", i, f"i64 {v}") for i, v in enumerate(values)]
    for n, (name, element, value) in enumerate(notes):
        lines += [f"  %p{n} = {address(name, element)}", f"  store {value}, ptr %p{n}"]
    return "\n".join([*lines, "  br label %done", "done:", "  ret void", "}"])
