"""The ways in which a target's code differs from a CPU's, as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilesmith.ir.expr import Expr, Load
from tilesmith.ir.tensor_intrinsics import Operand, TensorIntrinsic
from tilesmith.loop.nodes import Buffer, Stmt

from .builder import Builder
from .context import Code
from .tensor_code import Value


@dataclass(frozen=True, slots=True)
class Hooks:
    """The ways in which a target's code differs from a CPU's.  The defaults describe a CPU.

    statements: writers of statements, by class.  Each is called with the function's `Statements`
        and the statement.  A writer passes a statement that it doesn't handle to
        `Statements.plain`.
    has_threads: whether threads share the iterations of parallel loops; if not, these loops are
        serial.
    stop: the instruction that leaves the kernel after a failed assertion.
    vector_align: alignment in bytes of a vector in memory, given bytes per element and lanes.
    thread_number: function that writes code for the number (i64) of this thread among the threads
        that run an intrinsic's call together; None if a single thread runs each call.
    element: function that writes code to read an element from this thread's registers.  It returns
        None for a buffer in memory.
    part: function that writes code to read the part of an intrinsic's operand that is in this
        thread's registers.  It returns None for an operand in memory.
    check_operand: function that raises ScheduleError for an operand in memory that the threads
        can't load.
    """

    statements: Mapping[type[Stmt], Callable[[Any, Any], None]] = field(default_factory=dict)
    has_threads: bool = True
    stop: str = f"ret i32 {Code.ASSERTION:d}"
    vector_align: Callable[[int, int], int] = lambda size, lanes: size
    thread_number: Callable[[Builder], str] | None = None
    element: Callable[[Builder, Buffer, Expr], str | None] = lambda b, buffer, index: None
    part: Callable[[Builder, Expr], Value | None] = lambda b, e: None
    check_operand: Callable[[TensorIntrinsic, Operand, Load], None] = lambda i, operand, e: None


CPU = Hooks()
