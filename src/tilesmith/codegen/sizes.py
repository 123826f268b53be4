"""The sizes of a run, computed by native code from the extents of a program's inputs.

    def tilesmith_sizes(extents: i64[..], values: i64[..]) -> values

`extents` holds a number for each symbol, and `values` receives the results.  These are, in order:
the bytes of the arena, the bytes of scratch memory for each thread, the extents of the outputs
(except those that depend on data), the extents of inputs that are formulas of symbols, known upper
bounds on extents that depend on data, and the values that the main function uses.  The function
returns `Code.SIZES` if an extent is outside its range, or if a derived extent or an operator's
`slack` is negative, and `Code.OVERFLOW` if a result does not fit 64 bits.  No memory is allocated
before the function has returned 0, so no unchecked size is used.

After a run has measured extents (see `program.nodes`), the main function calls a similar function.
This one computes the values that depend on these extents, from all extents known so far.

Both are ordinary functions of loop IR, without workspace and context.
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
"""Upper bound on the conditions that one branch tests."""


@dataclass(frozen=True, slots=True, eq=False)
class SizeProgram:
    """The sizes of a run.

    symbols: the symbols, in the order of the extents.
    values: the expressions to compute, by position in the array of results.
    extents: extents of tensors and slacks of operators, which must not be negative.
    checks: whether the symbols' ranges are checked.
    """

    symbols: tuple[Var, ...]
    values: Mapping[int, Dim]
    extents: tuple[Dim, ...] = ()
    checks: bool = True


def sizes_function(program: SizeProgram, name: str = SIZES) -> Func:
    """The function that computes the sizes.

    Raises InternalError for a size that is not computed from symbols by arithmetic.
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

    statements: the statements so far; each name is defined for the statements after it.
    """

    def __init__(self, symbols: Mapping[Var, Expr]) -> None:
        self.statements: list[Stmt | tuple[Var, Expr]] = []
        self._symbols = symbols
        self._names: dict[Expr, Expr] = {}
        self._overflows: list[Expr] = []

    def value(self, size: Expr) -> Expr:
        """Add statements that compute an expression; return the name of its value, or a literal."""
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
        """Add a return for the case that a result since the last such check exceeds 64 bits."""
        self.leave_if(self._overflows, Code.OVERFLOW)
        self._overflows = []

    def leave_if(self, conditions: Sequence[Expr], code: Code) -> None:
        """Add a return of `code` for the case that any of the conditions holds."""
        for i in range(0, len(conditions), _TOGETHER):
            some = any_of(*conditions[i : i + _TOGETHER])
            self.statements.append(If(some, Return(const(code, i32))))

    def whole(self) -> Stmt:
        """All statements, as one."""
        rest: list[Stmt] = []
        for s in reversed(self.statements):
            if isinstance(s, Stmt):
                rest.append(s)
            else:
                rest = [LetStmt(*s, seq(*reversed(rest)))]
        return seq(*reversed(rest))


def _overflows(e: Expr) -> list[Expr]:
    """The conditions under which the result of one operation does not fit 64 bits."""
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
