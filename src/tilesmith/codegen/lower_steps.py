"""Steps of the main function as statements of loop IR, which the emitters of kernels write.

Lowered so far are kernel calls, branches, copies, stores and measurements (decision 118).  The
other steps stay steps, each in a statement `Unlowered`, for which both writers of the main function
have a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tilesmith.ir.dtypes import i32, i64, u8
from tilesmith.ir.expr import Binary, Compare, Expr, Load, Var, const
from tilesmith.ir.grammar import Label
from tilesmith.loop.nodes import (
    Buffer,
    CallFunction,
    CopyBytes,
    If,
    LetStmt,
    Reinterpret,
    Return,
    Stmt,
    Store,
    seq,
)
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
    memory: the beginning of each of its buffers of bytes.
    """

    stmt: Stmt
    memory: dict[Buffer, Arg]


VALUES = Buffer("values", i64, (Var("value_count"),))
"""The sizes that functions for sizes compute."""
MEASURED = Buffer("measured", i64, (Var("measured_count"),))
"""The extents that a run has found so far."""
CONTEXT = Buffer("context", u8, (Var("context_bytes"),))
"""The context of the run (`codegen.context`)."""
FAILURE = Buffer("failure", i32, (4,))
"""The numbers of a failure in the context: code, call, assertion, number of values."""


def lower_step(step: Step, number: int = 0) -> Lowered:
    """A step as a statement, which may contain other steps that are not lowered.

    number: its number among the measurements or calls.
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
        case program.KernelCall():
            stmt = lowering.call(step, number)
        case _:
            raise InternalError(f"a {type(step).__name__} is no statement of loop IR yet")
    return Lowered(stmt, lowering.memory)


def _inner(steps: Sequence[Step]) -> Stmt:
    return seq(*map(Unlowered, steps))


@dataclass(slots=True)
class _Lowering:
    """The memory of one step.

    memory: the beginning of each buffer of bytes.
    """

    memory: dict[Buffer, Arg] = field(default_factory=dict)
    _buffers: dict[Arg, Buffer] = field(default_factory=dict)

    def place(self, arg: Arg) -> Load:
        """The byte where an argument begins.  Another step may place its buffer elsewhere."""
        index: Expr = const(arg.offset)
        if arg.kind in ("arena", "constant"):
            index, base = const(arg.index), replace(arg, index=0)
        elif arg.kind == "place":
            value = VALUES[const(arg.index)]
            index = value + arg.offset if arg.offset else value
            base = Arg("arena", 0, slot=arg.slot)
        else:
            base = replace(arg, offset=0)
        if base not in self._buffers:
            name = base.kind if base.slot is None else f"slot{base.slot}"
            self._buffers[base] = Buffer(name, u8, (Var(f"{name}_bytes"),))
            self.memory[self._buffers[base]] = base
        return self._buffers[base][index]

    def call(self, step: program.KernelCall, number: int) -> Stmt:
        """A call of a kernel, which records a failure itself, except for the number of the call."""
        named: list[tuple[Var, Expr]] = []
        arguments: list[Expr] = []
        for a in (*step.args, step.workspace):
            if a.kind == "extent":
                named.append((Var("n"), VALUES[const(a.index)]))
                arguments.append(named[-1][0])
            else:
                arguments.append(const(a.index) if a.kind == "scalar" else self.place(a))
        label = ", ".join(step.sources) or step.label
        failed = seq(_noted("call", number), Return(_CODE))
        then = _unless_fine(failed) if step.messages else seq()
        stmt: Stmt = CallFunction(_CODE, step.symbol, (*arguments, CONTEXT[const(0)]), label, then)
        for var, value in reversed(named):
            stmt = LetStmt(var, value, stmt)
        return stmt


_CODE = Var("code", i32)
"""The error code of called code."""


def _unless_fine(failed: Stmt) -> Stmt:
    """The statements for a failure, if called code returned an error code."""
    return If(Compare("ne", _CODE, const(0, i32)), failed)


def _number(size: int | Arg) -> Expr:
    return VALUES[const(size.index)] if isinstance(size, Arg) else const(size)


def _stored(to: Load, numbers: Sequence[int | Arg]) -> Stmt:
    """Numbers stored as consecutive i64."""
    words = Buffer("words", i64, (len(numbers),), "heap")
    stores = (Store(words, (const(i),), _number(n)) for i, n in enumerate(numbers))
    return Reinterpret(words, to, seq(*stores))


def _checked(source: Load, step: program.Measurement, number: int) -> Stmt:
    """The extents of a measurement, checked and stored."""
    extents = Buffer("extents", i64, (len(step.extents),), "heap")
    stmts: list[Stmt] = []
    for i, e in enumerate(step.extents):
        extent, low, high = extents[const(i)], const(e.low), _number(e.high)
        wrong = Binary("or", extent < low, extent > high)
        stmts.append(If(wrong, failure(Code.EXTENT, number, (const(i), extent, low, high))))
        stmts.append(Store(MEASURED, (const(step.first + i),), extent))
    then = _unless_fine(failure(Code.EXTENT, number, ()))
    places = MEASURED[const(0)], VALUES[const(0)]
    sizes = CallFunction(_CODE, step.sizes, places, "", then)
    return seq(Reinterpret(extents, source, seq(*stmts)), sizes)


def failure(code: Code, call: int, values: Sequence[Expr]) -> Stmt:
    """A failure recorded in the context, and the end of the function."""
    stmts = [_noted("code", code), _noted("call", call), _noted("count", len(values))]
    if values:
        words = Buffer("failure_values", i64, (len(values),), "heap")
        stores = (Store(words, (const(i),), v) for i, v in enumerate(values))
        stmts.append(Reinterpret(words, CONTEXT[_offset("failure_values")], seq(*stores)))
    return seq(*stmts, Return(const(code, i32)))


def _noted(name: str, value: int) -> Stmt:
    """The store of one number of a failure in the context."""
    word = (BY_NAME[f"failure_{name}"].offset - BY_NAME["failure_code"].offset) // i32.bytes
    return Store(FAILURE, (const(word),), const(value, i32))


def _offset(name: str) -> Expr:
    """The offset of a field in the context."""
    return const(BY_NAME[name].offset)
