"""Guards: predicates and clamps of indices along which loops are split.  `peel` uses both, `trim`
only predicates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import Affine, affine_form, combined, scaled
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, Var, const, post_order, reads_memory, rebuilt, symbols

from ..facts import conjuncts
from ..nodes import For, If, Stmt, Store
from ..visit import bound_vars, children, exprs, own_exprs, rebuild_through, walk
from .simplify import guard_form


def unrolled_size(stmt: Stmt) -> int:
    """Number of stores in `stmt` after unrolling."""
    size: dict[Stmt, int] = {}
    for s in reversed([*walk(stmt)]):  # inner statements first
        own = 1 if isinstance(s, Store) else sum(size[c] for c in children(s))
        if isinstance(s, For) and s.kind == "unrolled" and isinstance(s.extent, ir.Const):
            own *= max(int(s.extent.value), 1)
        size[s] = own
    return size[stmt]


@dataclass(frozen=True, slots=True)
class SplitGuard:
    """A condition `form >= 0` along which loops may be split.

    node: the expression that is replaced where the condition is decided: a predicate or a clamp.
    form: the sum that is at least 0 where the condition is true.
    held: replacement of `node` where the condition is true.
    failed: replacement of `node` where the condition is false.
    likely: whether the condition guards a loop tail.
    """

    node: Expr
    form: Affine
    held: Expr
    failed: Expr
    likely: bool = False


def _of_condition(cond: Expr, likely: bool) -> list[SplitGuard]:
    forms = ((c, guard_form(c)) for c in conjuncts(cond))
    return [
        SplitGuard(c, form, const(True), const(False), likely)
        for c, form in forms
        if form is not None
    ]


def _clamps(loop: For) -> Iterator[SplitGuard]:
    """The minima and maxima, in indices of loads, that differ between the lanes of a vectorized
    loop.
    """
    for root in exprs(loop.body):
        for load in post_order(root) if loop.var in symbols(root) else ():
            if not isinstance(load, ir.Load):
                continue
            for node in (n for i in load.indices for n in post_order(i)):
                if not isinstance(node, ir.Binary) or node.op not in ("min", "max"):
                    continue
                if node.dtype is i64 and loop.var in symbols(node):
                    sign = 1 if node.op == "max" else -1
                    inside, border = node.a, node.b
                    if loop.var not in symbols(inside):
                        inside, border = border, inside
                    form = combined(affine_form(inside), affine_form(border), -1)
                    yield SplitGuard(node, scaled(form, sign), inside, border)


class Guards:
    """Finds the guards in statements and the variables bound there.  Results are cached, since
    peeling asks for outer statements first.
    """

    def __init__(self) -> None:
        self._done: dict[Stmt, tuple[tuple[SplitGuard, ...], frozenset[Stmt]]] = {}
        self._selects: dict[Expr, tuple[SplitGuard, ...]] = {}

    def collect(self, stmt: Stmt) -> tuple[SplitGuard, ...]:
        return self._visit(stmt)[0]

    def loops(self, stmt: Stmt) -> list[For]:
        return [s for s in self._visit(stmt)[1] if isinstance(s, For)]

    def bound(self, stmt: Stmt) -> frozenset[Var]:
        """Variables that `stmt` and statements inside it bind."""
        return frozenset(v for s in self._visit(stmt)[1] for v in bound_vars(s))

    def _visit(self, stmt: Stmt) -> tuple[tuple[SplitGuard, ...], frozenset[Stmt]]:
        """The guards in `stmt`, and its statements that bind variables (loops and lets)."""
        if stmt not in self._done:
            for s in reversed([*walk(stmt)]):  # inner statements first
                if s not in self._done:
                    self._done[s] = self._of_statement(s)
        return self._done[stmt]

    def _of_statement(self, stmt: Stmt) -> tuple[tuple[SplitGuard, ...], frozenset[Stmt]]:
        """The result of `_visit` for a statement, from the results of the statements inside it."""
        guards: dict[Expr, SplitGuard] = {}
        loops: frozenset[Stmt] = frozenset((stmt,) if bound_vars(stmt) else ())
        own: list[SplitGuard] = []
        if isinstance(stmt, If) and stmt.likely:
            own += _of_condition(stmt.cond, likely=True)
        for e in own_exprs(stmt):
            own += self._of_selects(e)
        if isinstance(stmt, For) and stmt.kind == "vectorized":
            own += _clamps(stmt)
        for child in children(stmt):
            inner, below = self._done[child]
            loops |= below
            own += inner
        for g in own:
            guards.setdefault(g.node, g)
        return tuple(guards.values()), loops

    def _of_selects(self, root: Expr) -> tuple[SplitGuard, ...]:
        known = self._selects.get(root)
        if known is None:
            guards: list[SplitGuard] = []
            for node in post_order(root):
                if isinstance(node, ir.Select) and _reads(node):
                    guards += _of_condition(node.cond, likely=False)
            known = self._selects[root] = tuple(guards)
        return known


def _reads(node: ir.Select) -> bool:
    return reads_memory(node.if_true) or reads_memory(node.if_false)


def renamed(stmt: Stmt, values: dict[Expr, Expr]) -> Stmt:
    """`stmt` with expressions replaced everywhere except inside the replacements."""
    if not values:
        return stmt
    done: dict[Expr, Expr] = dict(values)
    only_vars = all(type(v) is Var for v in values)

    def expr(root: Expr) -> Expr:
        if only_vars and symbols(root).isdisjoint(values):
            return root
        for node in post_order(root, done):
            done[node] = rebuilt(node, done)
        return done[root]

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.var in values:
            s = For(values[s.var], s.start, s.extent, s.kind, s.body)  # type: ignore[arg-type]
        return rebuild_through(s, visit, expr)

    return visit(stmt)


def is_fixed(atom: Expr) -> bool:
    """Whether no statement can change the value of an expression."""
    return not any(isinstance(n, (ir.Load, ir.Let)) for n in post_order(atom))
