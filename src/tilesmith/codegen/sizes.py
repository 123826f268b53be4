"""The sizes of a run: numbers that a program computes from the extents that only the run knows.

    def tilesmith_sizes(extents: i64[..], values: i64[..]) -> values

`extents` holds a number for each symbol, `values` takes the results: the bytes of the arena, the
bytes of scratch memory for each thread, the extents of the outputs, those of inputs that are
formulas of symbols, then what the main function uses itself.  Extents of outputs that only data
say are left out; behind the inputs' stands what they do not exceed, where that is known.  It
returns `Code.SIZES` if an extent is outside its range, or one that follows from it is negative, and
`Code.OVERFLOW` if a result does not fit 64 bits.  Nothing is allocated before it has returned 0, so
no size, however hostile, reaches memory unchecked.

Where a run measures extents (see `program.nodes`), the main function calls a function of the same
kind, which computes the dependent values from all extents known by then.

It is a function of loop IR like any other, which has neither a workspace nor a context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilesmith.ir.dtypes import i32, i64
from tilesmith.ir.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Unary,
    Var,
    any_of,
    as_expr,
    const,
    post_order,
    rebuilt,
)
from tilesmith.ir.intrinsics import call
from tilesmith.ir.types import Dim
from tilesmith.loop.nodes import Buffer, Func, If, LetStmt, Return, Stmt, Store, seq
from tilesmith.program.functions import SIZES
from tilesmith.support.errors import InternalError

from .context import Code

_TOGETHER = 16
"""Number of conditions that one branch tests."""


@dataclass(frozen=True, slots=True, eq=False)
class SizeProgram:
    """The sizes of a run.

    symbols: in the order of the extents.
    values: the expressions to compute, by position.
    extents: extents of tensors of the program, which must not be negative.
    checks: whether the symbols' ranges are checked.
    """

    symbols: tuple[Var, ...]
    values: Mapping[int, Dim]
    extents: tuple[Dim, ...] = ()
    checks: bool = True


def sizes_function(program: SizeProgram, name: str = SIZES) -> Func:
    """The function that computes the sizes.

    Raises InternalError for a size that is no arithmetic of symbols.
    """
    extents = Buffer("extents", i64, (len(program.symbols),))
    values = Buffer("values", i64, (max(program.values, default=-1) + 1,))
    body = _Body({v: extents[const(i)] for i, v in enumerate(program.symbols)})
    outside: list[Expr] = []
    for v in program.symbols:
        if program.checks and v.sizes is not None:
            outside += [body.value(v) < v.sizes.low, v > v.sizes.high]
    outside += [body.value(as_expr(extent)) < 0 for extent in program.extents]
    body.leave_if_overflow()
    body.leave_if(outside, Code.SIZES)
    for i, size in program.values.items():
        body.statements.append(Store(values, (const(i),), body.value(as_expr(size))))
    body.leave_if_overflow()
    return Func(name, (extents, values), (values,), body.whole())


class _Body:
    """Statements that compute expressions of symbols; each operation is done once.

    statements: those so far, and names for the rest of them with their values.
    """

    def __init__(self, symbols: Mapping[Var, Expr]) -> None:
        self.statements: list[Stmt | tuple[Var, Expr]] = []
        self._symbols = symbols
        self._names: dict[Expr, Expr] = {}
        self._overflows: list[Expr] = []

    def value(self, size: Expr) -> Expr:
        """The name of an expression's value, or a literal."""
        for e in post_order(size, self._names):
            self._names[e] = e
            if isinstance(e, Var):
                self.statements.append((e, self._symbols[e]))
            elif not isinstance(e, Const):
                operation = rebuilt(e, self._names)
                if len(self._overflows) >= _TOGETHER:
                    self.leave_if_overflow()
                self._overflows += _overflows(operation)
                self._names[e] = name = Var("t")
                self.statements.append((name, operation))
        return self._names[size]

    def leave_if_overflow(self) -> None:
        """Leave if a result since the last time does not fit."""
        self.leave_if(self._overflows, Code.OVERFLOW)
        self._overflows = []

    def leave_if(self, conditions: Sequence[Expr], code: Code) -> None:
        """Leave if any of the conditions holds."""
        for i in range(0, len(conditions), _TOGETHER):
            some = any_of(*conditions[i : i + _TOGETHER])
            self.statements.append(If(some, Return(const(code, i32))))

    def whole(self) -> Stmt:
        """All statements."""
        rest: list[Stmt] = []
        for s in reversed(self.statements):
            if isinstance(s, Stmt):
                rest.append(s)
            else:
                rest = [LetStmt(*s, seq(*reversed(rest)))]
        return seq(*reversed(rest))


def _overflows(e: Expr) -> list[Expr]:
    """The conditions under which the result of one operation does not fit."""
    if isinstance(e, Unary) and e.op == "neg":
        return [call("sub_overflows", const(0), e.a)]
    if isinstance(e, Binary):
        if e.op in ("min", "max"):
            return []
        if e.op in ("add", "sub", "mul"):
            return [call(f"{e.op}_overflows", e.a, e.b)]
        if e.op in ("floordiv", "floormod", "truncdiv", "truncmod"):
            if isinstance(e.b, Const) and e.b.value not in (0, -1):
                return []
            is_least = Compare("eq", e.a, const(i64.min))
            both = Binary("and", is_least, Compare("eq", e.b, const(-1)))
            return [Compare("eq", e.b, const(0)), both]
    raise InternalError(f"the extent {e} is no arithmetic of symbols")
