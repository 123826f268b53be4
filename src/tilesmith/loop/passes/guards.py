"""Guards: the conditions that loops are split along (`peel`, `trim`)."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir.affine import Affine, affine_form, combined, scaled
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Compare, Const, Expr, Let, Load, Select, Unary, Var, post_order

from ..nodes import For, If, LetStmt, Stmt, Store
from ..visit import children, own_exprs, rebuild
from .simplify import conjuncts


def unrolled_size(stmt: Stmt) -> int:
    """Stores in `stmt` when unrolled loops have been copied."""
    if isinstance(stmt, Store):
        return 1
    inner = sum(map(unrolled_size, children(stmt)))
    if isinstance(stmt, For) and stmt.kind == "unrolled" and isinstance(stmt.extent, Const):
        return inner * max(int(stmt.extent.value), 1)
    return inner


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition that loops may be split along: `form >= 0`."""

    cond: Expr
    form: Affine
    likely: bool


def guard_form(cond: Expr) -> Affine | None:
    """d with `cond` equal to d >= 0."""
    negated = isinstance(cond, Unary) and cond.op == "not"
    compare = cond.a if isinstance(cond, Unary) and negated else cond
    if not isinstance(compare, Compare) or compare.op not in ("lt", "le"):
        return None
    if compare.a.dtype is not i64 or compare.lanes != 1:
        return None
    d = combined(affine_form(compare.b), affine_form(compare.a), -1)
    if compare.op == "lt":
        d = combined(d, ({}, -1))
    return scaled(combined(d, ({}, 1)), -1) if negated else d


class Guards:
    """The guards of a statement and what is bound in it; memoised: peeling goes outside in."""

    def __init__(self) -> None:
        self._done: dict[Stmt, tuple[tuple[Guard, ...], frozenset[Stmt]]] = {}
        self._selects: dict[Expr, tuple[Guard, ...]] = {}

    def collect(self, stmt: Stmt) -> tuple[Guard, ...]:
        return self._visit(stmt)[0]

    def loops(self, stmt: Stmt) -> list[For]:
        return [s for s in self._visit(stmt)[1] if isinstance(s, For)]

    def bound(self, stmt: Stmt) -> frozenset[Var]:
        """Variables that statements inside bind."""
        return frozenset(s.var for s in self._visit(stmt)[1] if isinstance(s, (For, LetStmt)))

    def _visit(self, stmt: Stmt) -> tuple[tuple[Guard, ...], frozenset[Stmt]]:
        """Guards, and the loops and lets."""
        found = self._done.get(stmt)
        if found is not None:
            return found
        guards: dict[Expr, Guard] = {}
        loops: frozenset[Stmt] = frozenset((stmt,) if isinstance(stmt, (For, LetStmt)) else ())
        if isinstance(stmt, If) and stmt.likely:
            for c in conjuncts(stmt.cond):
                form = guard_form(c)
                if form is not None:
                    guards[c] = Guard(c, form, True)
        for e in own_exprs(stmt):
            for g in self._of_selects(e):
                guards.setdefault(g.cond, g)
        for child in children(stmt):
            inner, below = self._visit(child)
            loops |= below
            for g in inner:
                guards.setdefault(g.cond, g)
        self._done[stmt] = result = (tuple(guards.values()), loops)
        return result

    def _of_selects(self, root: Expr) -> tuple[Guard, ...]:
        found = self._selects.get(root)
        if found is None:
            guards: list[Guard] = []
            for node in post_order(root):
                if isinstance(node, Select) and _reads(node):
                    for c in conjuncts(node.cond):
                        form = guard_form(c)
                        if form is not None:
                            guards.append(Guard(c, form, False))
            found = self._selects[root] = tuple(guards)
        return found


def _reads(node: Select) -> bool:
    return any(isinstance(n, Load) for b in (node.if_true, node.if_false) for n in post_order(b))


def renamed(stmt: Stmt, values: dict[Expr, Expr]) -> Stmt:
    """`stmt` with expressions replaced throughout."""
    done: dict[Expr, Expr] = dict(values)

    def expr(root: Expr) -> Expr:
        for node in post_order(root, done):
            kids = node.children
            new = tuple(done[c] for c in kids)
            same = all(a is b for a, b in zip(new, kids, strict=True))
            done[node] = node if same else node.with_children(new)
        return done[root]

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.var in values:
            s = For(values[s.var], s.start, s.extent, s.kind, s.body)  # type: ignore[arg-type]
        return rebuild(s, visit, expr)

    return visit(stmt)


def is_fixed(atom: Expr) -> bool:
    """True for an expression that no statement can change."""
    return not any(isinstance(n, (Load, Let)) for n in post_order(atom))
