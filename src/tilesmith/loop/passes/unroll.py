"""Unroll: a loop of kind "unrolled" becomes copies of its body, one for each value of its variable.

    for i in unrolled(2):              C[io * 8] = A[io * 8]
        C[io * 8 + i * 4] = ...   ->   C[io * 8 + 4] = ...

This pass takes much of the compile time, since a register tile makes dozens of copies.  So nested
unrolled loops copy a statement once, with the values of all their variables.  An affine index is
not rebuilt for each copy: all copies share the expression of its invariant part and only add
another constant.
"""

from __future__ import annotations

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import affine_form, from_affine
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Const, Expr, Var, const, symbols
from tilesmith.ir.simplify import simplify
from tilesmith.support.errors import InternalError, ScheduleError

from .. import nodes as loop
from ..nodes import Buffer, Func, Stmt, seq
from ..visit import left_through, rebuild, walk

_ZERO = const(0)

MOST_COPIES = 1 << 17
"""Upper bound on the number of copies of all loop bodies together.  It is four times
`MOST_OPERATIONS` of `te.lower_size`, the upper bound on the operations that a schedule makes.
"""


def unroll(func: Func) -> Func:
    """`func` without unrolled loops; the same object if it has none.

    Raises InternalError if the extent of an unrolled loop is not constant, even with the values of
    outer unrolled variables.  Raises ScheduleError if there are more copies than `MOST_COPIES`.
    """
    if not any(isinstance(s, loop.For) and s.kind == "unrolled" for s in walk(func.body)):
        return func
    body = _Unroller().stmt(func.body, _Values({}, {}))
    return Func(
        func.name, func.params, func.outputs, loop.Seq(()) if body is None else body, func.attrs
    )


class _Values:
    """The replacements of variables and buffers in the current copy, with a cache of rewritten
    expressions.
    """

    __slots__ = ("buffers", "done", "symbols", "vars")

    def __init__(self, vars_: dict[Var, Expr], buffers: dict[Buffer, Buffer]) -> None:
        self.vars = vars_
        self.buffers = buffers
        self.symbols = frozenset((*vars_, *buffers))
        self.done: dict[Expr, Expr] = {}

    def with_var(self, var: Var, value: Expr) -> _Values:
        return _Values({**self.vars, var: value}, self.buffers)

    def with_buffer(self, old: Buffer, new: Buffer) -> _Values:
        return _Values(self.vars, {**self.buffers, old: new})


class _Unroller:
    def __init__(self) -> None:
        self._sums: dict[Expr, tuple[dict[Expr, int], Expr]] = {}
        """Affine sum -> its terms without unrolled variables, and their sum."""
        self._copies = 0

    # --- expressions

    def expr(self, e: Expr, values: _Values) -> Expr:
        done = values.done.get(e)
        if done is None:
            done = e if symbols(e).isdisjoint(values.symbols) else self._expr(e, values)
            values.done[e] = done
        return done

    def _expr(self, e: Expr, values: _Values) -> Expr:
        if isinstance(e, Var):
            return values.vars[e]
        if e.lanes == 1 and e.dtype is i64 and isinstance(e, (ir.Binary, ir.Unary)):
            return self.index(e, values)
        if isinstance(e, ir.Let):
            var = Var(e.var.name, e.var.type, e.var.size)  # each copy has its own variable
            value = self.expr(e.value, values)
            return ir.Let(var, value, self.expr(e.body, values.with_var(e.var, var)))
        new = tuple([self.expr(c, values) for c in e.children])
        if isinstance(e, ir.Load):
            assert isinstance(e.buffer, Buffer)
            n = len(e.indices)
            buffer = values.buffers.get(e.buffer, e.buffer)
            return ir.Load(buffer, new[:n], new[n] if len(new) > n else None)
        result = e.with_children(new)
        if isinstance(e, (ir.Compare, ir.Select, ir.Broadcast, ir.Ramp)) or (
            e.dtype.is_bool or e.dtype.is_int
        ):
            return simplify(result)
        return result

    def index(self, e: Expr, values: _Values) -> Expr:
        """An integer expression.  In an affine sum, terms with unrolled variables become a
        constant, and the copies share the sum of the others.
        """
        terms, constant = affine_form(e)
        if not terms or e in terms:  # `e` is no sum, but a quotient or a minimum
            assert isinstance(e, (ir.Binary, ir.Unary))
            return simplify(e.with_children(tuple(self.expr(c, values) for c in e.children)))
        kept: dict[Expr, int] = {}
        moved = False
        for atom, k in terms.items():
            new = self.expr(atom, values)
            if isinstance(new, Const):
                constant += k * int(new.value)
                continue
            if new is not atom:
                moved = True
            kept[new] = kept.get(new, 0) + k
        if not kept:
            return const(constant)
        if moved:
            return simplify(from_affine(kept, constant))
        if not any(k > 0 for k in kept.values()):
            return from_affine(kept, constant)  # without a positive term, the constant comes first
        rest = self._rest(e, kept)
        if constant == 0:
            return rest
        op, size = ("add", constant) if constant > 0 else ("sub", -constant)
        return ir.Binary(op, rest, const(size))

    def _rest(self, e: Expr, kept: dict[Expr, int]) -> Expr:
        """The sum of the terms `kept`, made once for all copies of `e`."""
        known = self._sums.get(e)
        if known is None or known[0] != kept:
            known = (kept, from_affine(kept))
            self._sums[e] = known
        return known[1]

    # --- statements

    def stmt(self, stmt: Stmt, values: _Values) -> Stmt | None:
        kind = type(stmt)
        if kind is loop.Store:
            return self.store(stmt, values)  # type: ignore[arg-type]
        if kind is loop.Seq:
            return left_through(
                stmt,
                lambda s: self.stmt(s, values),
                lambda s: type(s) is loop.Seq or not values.vars,
            )
        return _STATEMENTS.get(kind, _Unroller.other)(self, stmt, values)

    def store(self, stmt: loop.Store, values: _Values) -> Stmt:
        indices = tuple([self.expr(i, values) for i in stmt.indices])
        value = self.expr(stmt.value, values)
        mask = None if stmt.mask is None else self.expr(stmt.mask, values)
        return loop.Store(values.buffers.get(stmt.buffer, stmt.buffer), indices, value, mask)

    def loop(self, stmt: loop.For, values: _Values) -> Stmt | None:
        start, extent = self.expr(stmt.start, values), self.expr(stmt.extent, values)
        if stmt.kind != "unrolled":
            return self.kept_loop(stmt, start, extent, values)
        if not isinstance(extent, Const):
            raise InternalError(
                f"unroll: expected a constant extent of the unrolled loop over {stmt.var.name}, "
                f"found {extent}; unroll only axes of constant extent"
            )
        self._copies += int(extent.value)
        if self._copies > MOST_COPIES:
            raise ScheduleError(
                f"unroll: the unrolled loop over {stmt.var.name} has {extent} iterations; all "
                f"unrolled loops of a kernel may make {MOST_COPIES} copies"
            )
        parts: list[Stmt] = []
        for i in range(int(extent.value)):
            value = const(i) if start is _ZERO else simplify(start + const(i))
            copy = self.stmt(stmt.body, values.with_var(stmt.var, value))
            if copy is not None:
                parts.append(copy)
        return seq(*parts) if parts else None

    def kept_loop(self, stmt: loop.For, start: Expr, extent: Expr, values: _Values) -> Stmt | None:
        var = stmt.var
        if values.vars:  # copies of a loop have separate variables
            var = Var(var.name, var.type, var.size)
            values = values.with_var(stmt.var, var)
        body = self.stmt(stmt.body, values)
        return None if body is None else loop.For(var, start, extent, stmt.kind, body)

    def branch(self, stmt: loop.If, values: _Values) -> Stmt | None:
        cond = self.expr(stmt.cond, values)
        if cond is const(True):
            return self.stmt(stmt.then, values)
        if cond is const(False):
            return None if stmt.otherwise is None else self.stmt(stmt.otherwise, values)
        then = self.stmt(stmt.then, values)
        otherwise = None if stmt.otherwise is None else self.stmt(stmt.otherwise, values)
        if then is None and otherwise is None:
            return None
        return loop.If(cond, loop.Seq(()) if then is None else then, otherwise, stmt.likely)

    def allocate(self, stmt: loop.Allocate, values: _Values) -> Stmt | None:
        if not values.vars:
            return left_through(stmt, lambda s: self.stmt(s, values), lambda s: True)
        old = stmt.buffer
        shape = tuple(d if isinstance(d, int) else self.expr(d, values) for d in old.shape)
        new = Buffer(old.name, old.dtype, shape, old.scope)
        body = self.stmt(stmt.body, values.with_buffer(old, new))
        return None if body is None else loop.Allocate(new, body)

    def let(self, stmt: loop.LetStmt, values: _Values) -> Stmt | None:
        value = self.expr(stmt.value, values)
        if isinstance(value, Const):
            return self.stmt(stmt.body, values.with_var(stmt.var, value))
        var = stmt.var
        if values.vars:
            var = Var(var.name, var.type, var.size)
            values = values.with_var(stmt.var, var)
        body = self.stmt(stmt.body, values)
        return None if body is None else loop.LetStmt(var, value, body)

    def other(self, stmt: Stmt, values: _Values) -> Stmt:
        """A statement of any other kind.  It is kept even if nothing is left inside it."""
        inner = values

        def bind(item: Var) -> Var:
            nonlocal inner
            if not values.vars:
                return item
            copy = Var(item.name, item.type, item.size)  # each copy has its own variable
            inner = inner.with_var(item, copy)
            return copy

        return rebuild(
            stmt,
            lambda s: self.stmt(s, inner) or loop.Seq(()),
            lambda e: self.expr(e, values),
            bind,
        )

    def check(self, stmt: loop.Assert, values: _Values) -> Stmt | None:
        cond = self.expr(stmt.cond, values)
        return None if cond is const(True) else loop.Assert(cond, stmt.message)


_STATEMENTS = {
    loop.For: _Unroller.loop, loop.If: _Unroller.branch, loop.Allocate: _Unroller.allocate,
    loop.LetStmt: _Unroller.let, loop.Assert: _Unroller.check,
}  # fmt: skip
