"""Versions of the tails of symbolic extents: for the expected number of rows, for one row, and for
a quarter, a half or all of a tile.

If the number of rows in the tail of a register tile is known at run time only, a guard around each
row would be a branch in the innermost loop.  So the tail gets versions.  The first is for the
number of rows that remain at the expected size.  The second is for a single row: a language model
generates one token at a time.  The others compute all rows of a quarter of a tile, of half a tile
or of a tile.  The shortest of them that is long enough runs.  Its rows past the last row compute
the last row again.

    for i in unrolled(4):                ->   if n - o * 4 == 3:
        if likely(o * 4 + i < n):                 for i in unrolled(3):
            acc[i] = acc[i] + x[o * 4 + i]            acc[i] = acc[i] + x[o * 4 + i]
                                              elif n - o * 4 == 1:
                                                  acc[0] = acc[0] + x[o * 4]
                                              elif n - o * 4 <= 2:
                                                  for i in unrolled(2):
                                                      j = min(i, n - o * 4 - 1)
                                                      acc[i] = acc[i] + x[o * 4 + j]
                                              else:
                                                  the same for 4 rows

Only stores to registers lose their guards.  Stores from registers to memory keep them, so that rows
past the last row are never visible.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import Affine, from_affine
from tilesmith.ir.context import Context
from tilesmith.ir.expr import Expr, Var, const, minimum, post_order, rebuilt
from tilesmith.ir.expr import symbols as symbols_in
from tilesmith.ir.symbols import expected

from ..nodes import For, If, Seq, Stmt, Store
from ..visit import children, rebuild_through, walk
from .guards import unrolled_size
from .simplify import guard_form

PARTS = (2, 4)
"""Divisors of the number of rows of a tile.  A tail has a version for each quotient.  Versions for
fewer rows would leave the FMA units idle.
"""


def tail_versions(stmt: Stmt, ctx: Context, extents: frozenset[Var], budget: int) -> Stmt:
    """A statement that chooses between versions of the tail `stmt` at run time.

    extents: the symbolic extents.
    budget: size of `stmt` (stores after unrolling) up to which there are several versions.
    """
    whole = _whole(stmt, ctx)
    if whole is stmt:
        return stmt
    for loop in _loops(stmt):
        last = _last_row(loop, ctx)
        rows = () if last is None else _likely_rows(last, loop, extents)
        if last is not None and rows and unrolled_size(stmt) <= budget:
            versions = _shorter(stmt, last, loop, whole, ctx)
            for n in rows:
                exact = _whole(_of_rows(stmt, last, n, True), ctx)
                versions = If(ir.Compare("eq", from_affine(*last), const(n - 1)), exact, versions)
            return versions
    return whole


def _loops(stmt: Stmt) -> Iterator[For]:
    """The unrolled loops in a statement."""
    for s in walk(stmt):
        if isinstance(s, For) and s.kind == "unrolled":
            yield s


def _likely_rows(last: Affine, loop: For, extents: frozenset[Var]) -> tuple[int, ...]:
    """The numbers of rows for which the partial last tile gets a version of its own: 1, and the
    number at the expected sizes.  Empty if the tail depends on anything but the symbolic extents.

    Also empty if a term of an outer loop is not a multiple of the tile.
    """
    if not isinstance(loop.extent, ir.Const):
        return ()
    tile, left = int(loop.extent.value), last[1]
    for atom, k in last[0].items():
        if symbols_in(atom) <= extents:
            left += k * expected(atom)
        elif k % tile:
            return ()
    return tuple(n for n in {1: None, left % tile + 1: None} if n < tile)


def _of_rows(stmt: Stmt, last: Affine, rows: int, is_whole: bool) -> Stmt:
    """`stmt` with register tiles of `rows` rows.

    is_whole: whether all these rows are in the tail.  Then the rows have no guards.
    """
    if isinstance(stmt, For) and _guard(stmt) == last:
        assert isinstance(stmt.body, If)
        body = stmt.body.then if is_whole else stmt.body
        return For(stmt.var, stmt.start, const(rows), stmt.kind, body)
    return rebuild_through(stmt, lambda s: _of_rows(s, last, rows, is_whole), lambda e: e)


def _shorter(stmt: Stmt, last: Affine, loop: For, whole: Stmt, ctx: Context) -> Stmt:
    """`whole`, preceded by versions for parts of a tile.  A version runs if its part has at least
    as many rows as the tail.
    """
    assert isinstance(loop.extent, ir.Const)
    shortest = whole
    for part in PARTS:
        rows = -(-int(loop.extent.value) // part)
        if rows > 1:
            short = _whole(_of_rows(stmt, last, rows, False), ctx)
            shortest = If(ir.Compare("lt", from_affine(*last), const(rows)), short, shortest)
    return shortest


def _whole(stmt: Stmt, ctx: Context) -> Stmt:
    """`stmt` without the guards of rows, for register tiles with at least one row.  Rows past the
    last row compute the last row again.
    """
    if isinstance(stmt, For) and stmt.kind == "unrolled":
        last = _last_row(stmt, ctx)
        if last is not None:
            assert isinstance(stmt.body, If)
            body = _of_row(stmt.body.then, stmt.var, minimum(stmt.var, from_affine(*last)))
            return For(stmt.var, stmt.start, stmt.extent, stmt.kind, body)
    return rebuild_through(stmt, lambda s: _whole(s, ctx), lambda e: e)


def _guard(loop: For) -> Affine | None:
    """The last value of a loop's variable for which the guard of the body is true; None without a
    guard.
    """
    body = loop.body
    if not isinstance(body, If) or not body.likely or body.otherwise is not None:
        return None
    form = guard_form(body.cond)
    if form is None or form[0].get(loop.var) != -1:
        return None
    rest = {atom: k for atom, k in form[0].items() if atom is not loop.var}
    return None if any(loop.var in symbols_in(atom) for atom in rest) else (rest, form[1])


def _last_row(loop: For, ctx: Context) -> Affine | None:
    """The result of `_guard`, if `loop` surely computes at least one row and an iteration stores
    only to registers of its row; else None.
    """
    last = _guard(loop)
    if last is None or not ctx.nonnegative(last):
        return None
    assert isinstance(loop.body, If)
    stores = [*_innermost(loop.body.then)]
    return last if stores and all(_is_own(s, loop.var) for s in stores) else None


def _innermost(stmt: Stmt) -> Iterator[Stmt]:
    """The statements that contain no others."""
    for s in walk(stmt):
        if not children(s) and not isinstance(s, Seq):
            yield s


def _is_own(stmt: Stmt, row: Var) -> bool:
    """Whether `stmt` stores only to registers of row `row`.  In such a store, an index depends on
    `row`.  In a sum over rows, no index depends on `row`.
    """
    if not isinstance(stmt, Store) or stmt.buffer.scope != "register":
        return False
    return any(row in symbols_in(i) for i in stmt.indices)


def _of_row(stmt: Stmt, var: Var, row: Expr) -> Stmt:
    """`stmt` computed from row `row` of memory instead of row `var`.  Registers are still indexed
    by `var`.
    """
    if not isinstance(stmt, Store):
        return rebuild_through(stmt, lambda s: _of_row(s, var, row), lambda e: _read(e, var, row))
    value = _read(stmt.value, var, row)
    return stmt if value is stmt.value else Store(stmt.buffer, stmt.indices, value, stmt.mask)


def _read(root: Expr, var: Var, row: Expr) -> Expr:
    if var not in symbols_in(root):
        return root
    done: dict[Expr, Expr] = {n: n for n in post_order(root) if _reads_register(n)}
    done[var] = row
    for node in post_order(root, done):
        done[node] = rebuilt(node, done)
    return done[root]


def _reads_register(e: Expr) -> bool:
    return isinstance(e, ir.Load) and getattr(e.buffer, "scope", "") == "register"
