"""LLVM text for calls of other code, and for tables of addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.ir.expr import Expr, Load
from tilesmith.loop import nodes
from tilesmith.loop.nodes import Stmt

from .context import BY_NAME
from .llvm_text import value_type
from .memory import Memory


def call_function(m: Memory, s: nodes.CallFunction) -> str:
    """A call of a function; the result is its error code."""
    passed = [_passed(m, e) for e in s.arguments]
    m.module.called[s.function] = ", ".join(t for t, _ in passed)
    return m.emit(f"call i32 @{s.function}({', '.join(f'{t} {v}' for t, v in passed)})")


def call_host(m: Memory, s: nodes.CallHost) -> str:
    """A call of a host function; the result is its error code.  An array holds the arguments."""
    passed = [_passed(m, e) for e in s.arguments]
    array = m.b.alloca("host", f"[{len(passed)} x ptr]", 8) if passed else "null"
    for i, (type_, value) in enumerate(passed):
        pointer = value if type_ == "ptr" else m.emit(f"inttoptr {type_} {value} to ptr")
        m.b.do(f"store ptr {pointer}, ptr {m.emit(f'getelementptr ptr, ptr {array}, i64 {i}')}")
    function, own = _field(m, s.context, "host"), _field(m, s.context, "host_data")
    operands = f"ptr {own}, i64 {s.number}, ptr {array}, i64 {len(passed)}"
    return m.emit(f"call i32 {function}({operands})")


def grow(m: Memory, s: nodes.Grow) -> str:
    """Request memory for a slot from the context and store its address in a table.  The result is a
    bool: whether there was memory.
    """
    slot, size, keep = (m.value(e) for e in (s.slot, s.bytes, s.keep))
    function, own = _field(m, s.context, "grow"), _field(m, s.context, "memory")
    call = f"call ptr {function}(ptr {own}, i64 {slot}, i64 {size}, i64 {keep})"
    memory = m.emit(call)
    m.b.do(f"store ptr {memory}, ptr {_cell(m, s.table, s.number)}")
    return m.emit(f"icmp ne ptr {memory}, null")


def has(m: Memory, s: nodes.Has) -> str:
    """A bool: whether an entry of a table holds an address."""
    return m.emit(f"icmp ne ptr {address(m, s.table, s.number)}, null")


def point(m: Memory, s: nodes.Point) -> None:
    """Store the address of an element in a table."""
    place = m.place(s.place)
    m.b.do(f"store ptr {place}, ptr {_cell(m, s.table, s.number)}")


def address(m: Memory, table: Expr, number: int) -> str:
    """Load an address from a table."""
    return m.emit(f"load ptr, ptr {_cell(m, table, number)}")


RESULTS: dict[type[Stmt], Callable[[Memory, Any], str]] = {
    nodes.CallFunction: call_function, nodes.CallHost: call_host, nodes.Grow: grow, nodes.Has: has,
}  # fmt: skip
"""Writers of the statements that bind a variable to a result, by class."""


def _passed(m: Memory, e: Expr) -> tuple[str, str]:
    """Type and operand of an argument: the address of an element, or a number."""
    return ("ptr", m.place(e)) if isinstance(e, Load) else (value_type(e.dtype), m.value(e))


def _cell(m: Memory, table: Expr, number: int) -> str:
    """A pointer to an entry of a table."""
    start = m.place(table)
    return m.emit(f"getelementptr ptr, ptr {start}, i64 {number}") if number else start


def _field(m: Memory, context: Expr, name: str) -> str:
    """An address that the context holds."""
    pointer = m.emit(f"getelementptr i8, ptr {m.place(context)}, i64 {BY_NAME[name].offset}")
    return m.emit(f"load ptr, ptr {pointer}")
