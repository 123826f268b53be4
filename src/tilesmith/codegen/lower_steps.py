"""Steps of the main function as statements of loop IR, which the emitters of kernels write.

Lowered so far are branches, copies, stores and the checks of extents that a run measures (decision
118).  The other steps stay steps, each in a statement `Unlowered`, for which both writers of the
main function have a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tilesmith.ir.dtypes import DType, i32, i64, u8
from tilesmith.ir.expr import Binary, Compare, Expr, Load, Var, const
from tilesmith.ir.grammar import Label
from tilesmith.loop.nodes import Buffer, CopyBytes, If, Reinterpret, Return, Stmt, Store, seq
from tilesmith.program import nodes as program
from tilesmith.program.nodes import Arg, Step
from tilesmith.support.errors import InternalError

from .context import BY_NAME, Code


@dataclass(frozen=True, slots=True, eq=False)
class Unlowered(Stmt):
    """A step that is no statement of loop IR yet.

    step: the step.
    """

    syntax = "pass"
    step: Label[Step]


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A step as a statement.

    stmt: the statement.
    memory: its buffers of bytes, and where each of them begins.
    """

    stmt: Stmt
    memory: dict[Buffer, Arg]


VALUES = Buffer("values", i64, (Var("value_count"),))
"""The sizes that functions for sizes compute."""
MEASURED = Buffer("measured", i64, (Var("measured_count"),))
"""The extents that a run found so far."""
CONTEXT = Buffer("context", u8, (Var("context_bytes"),))
"""The context of the run (`codegen.context`)."""


def lower_step(step: Step, number: int = 0) -> Lowered:
    """A step as a statement, which may hold others that stay steps.

    number: that of a measurement among its kind.
    """
    lowering = _Lowering()
    stmt: Stmt
    match step:
        case program.Branch():
            condition = Compare("ne", lowering.place(step.condition), const(0, u8))
            stmt = If(condition, _inner(step.then), _inner(step.otherwise))
        case program.Copy():
            to, source = lowering.place(step.to), lowering.place(step.source)
            stmt = CopyBytes(to, source, _number(step.bytes))
        case program.Store():
            stmt = _stored(lowering.place(step.to), step.numbers)
        case program.Report():
            extents = [d for _, shape in step.shapes for d in shape]
            stmt = _stored(lowering.place(Arg("output", step.to)), extents)
        case program.Measurement():
            stmt = _checked(lowering.place(step.source), step, number)
        case _:
            raise InternalError(f"a {type(step).__name__} is no statement of loop IR yet")
    return Lowered(stmt, lowering.memory)


def _inner(steps: Sequence[Step]) -> Stmt:
    return seq(*map(Unlowered, steps))


@dataclass(slots=True)
class _Lowering:
    """The memory of one step.

    memory: buffers of bytes, and where each of them begins.
    """

    memory: dict[Buffer, Arg] = field(default_factory=dict)
    _buffers: dict[Arg, Buffer] = field(default_factory=dict)

    def place(self, arg: Arg) -> Load:
        """The byte where an argument begins.  Another step may find its buffer elsewhere."""
        index: Expr = const(arg.offset)
        if arg.kind in ("arena", "constant"):
            index, base = const(arg.index), replace(arg, index=0)
        elif arg.kind == "place":
            at = VALUES[const(arg.index)]
            index, base = (at + arg.offset if arg.offset else at), Arg("arena", 0, slot=arg.slot)
        else:
            base = replace(arg, offset=0)
        if base not in self._buffers:
            name = base.kind if base.slot is None else f"slot{base.slot}"
            self._buffers[base] = Buffer(name, u8, (Var(f"{name}_bytes"),))
            self.memory[self._buffers[base]] = base
        return self._buffers[base][index]


def _number(size: int | Arg) -> Expr:
    return VALUES[const(size.index)] if isinstance(size, Arg) else const(size)


def _stored(to: Load, numbers: Sequence[int | Arg]) -> Stmt:
    """Numbers stored as i64, one after the other."""
    words = Buffer("words", i64, (len(numbers),), "heap")
    stores = (Store(words, (const(i),), _number(n)) for i, n in enumerate(numbers))
    return Reinterpret(words, to, seq(*stores))


def _checked(source: Load, step: program.Measurement, number: int) -> Stmt:
    """The extents of a measurement checked and kept."""
    found = Buffer("extents", i64, (len(step.extents),), "heap")
    stmts: list[Stmt] = []
    for i, e in enumerate(step.extents):
        extent, low, high = found[const(i)], const(e.low), _number(e.high)
        wrong = Binary("or", extent < low, extent > high)
        stmts.append(If(wrong, failure(Code.EXTENT, number, (const(i), extent, low, high))))
        stmts.append(Store(MEASURED, (const(step.first + i),), extent))
    return Reinterpret(found, source, seq(*stmts))


def failure(code: Code, call: int, values: Sequence[Expr]) -> Stmt:
    """A failure recorded in the context, and the end of the function."""
    words = {"failure_code": code.value, "failure_call": call, "failure_count": len(values)}
    stmts = [_recorded(name, i32, [const(n, i32)]) for name, n in words.items()]
    if values:
        stmts.append(_recorded("failure_values", i64, values))
    return seq(*stmts, Return(code.value))


def _recorded(name: str, dtype: DType, values: Sequence[Expr]) -> Stmt:
    """Values stored to a field of the context."""
    words = Buffer(name, dtype, (len(values),), "heap")
    stores = (Store(words, (const(i),), v) for i, v in enumerate(values))
    return Reinterpret(words, CONTEXT[const(BY_NAME[name].offset)], seq(*stores))
