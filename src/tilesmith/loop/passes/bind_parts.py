"""Divides very deep expressions: parts of them are bound to variables.

    y[i] = (((x[i] + 1) + 2) + ... )   ->   let part = ((x[i] + 1) + ... )
                                            y[i] = ((part + 100) + ... )

People and programs write sums of a thousand terms.  The passes after lowering walk expressions
recursively.  That is the fastest way in Python, but limited to a thousand levels.

A part inside a branch of a select is then evaluated before the select.  So its loads are guarded by
the conditions under which the select would take the branch.  Loads that the statement makes in any
case need no guard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Expr, Var, const, free_vars, post_order, rebuilt
from tilesmith.ir.intrinsics import needs_guard
from tilesmith.support.errors import ExpressionError

from ..nodes import Allocate, Evaluate, Func, LetStmt, Stmt
from ..visit import map_stmt, own_exprs, rebuild

MOST_DEPTH = 100
"""Upper bound on the levels of an expression: a tenth of the depth of Python's stack."""

_ALWAYS = const(True)
_NEVER = const(False)


def bind_parts(func: Func) -> Func:
    """`func` without expressions deeper than `MOST_DEPTH`; the same object if it has none."""
    body = map_stmt(func.body, f_stmt=_bound)
    return func if body is func.body else replace(func, body=body)


def _bound(stmt: Stmt) -> Stmt:
    if isinstance(stmt, (Allocate, Evaluate)):
        return stmt  # extents are small; a prefetch must keep its load
    parts = _parts(own_exprs(stmt))
    if not parts:
        return stmt
    names = {part: Var("part", part.dtype, part.lanes) for part in parts}
    bindings, whole = _Bindings(parts, names).of(own_exprs(stmt))
    result = rebuild(stmt, lambda s: s, whole)
    for name, value in reversed(bindings):
        result = LetStmt(name, value, result)
    return result


def _parts(roots: tuple[Expr, ...]) -> list[Expr]:
    """The subexpressions to bind to variables, inner ones first."""
    depth: dict[Expr, int] = {}
    order: list[Expr] = []
    for root in roots:
        for node in post_order(root, depth):
            depth[node] = 1 + max([depth[c] for c in node.children], default=0)
            order.append(node)
    if max(depth.values(), default=0) <= MOST_DEPTH:
        return []
    parts: list[Expr] = []
    bound: set[Var] = set()
    for node in order:
        levels = 1 + max([depth[c] for c in node.children], default=0)
        if isinstance(node, ir.Let):
            bound.add(node.var)
        if levels > MOST_DEPTH and not (bound and free_vars(node) & bound):
            parts.append(node)
            levels = 0
        depth[node] = levels
    return parts


class _Bindings:
    """Finds the conditions under which parts are needed, and the values of their variables."""

    def __init__(self, parts: list[Expr], names: dict[Expr, Var]) -> None:
        self.parts = parts
        self.names = names
        self.reached: dict[Expr, Expr] = {}
        """Part -> the condition under which the expressions around the part evaluate it."""
        self.risky: set[Expr] = set()
        """Loads and checks that the statement makes only under a condition, and expressions that
        contain such a load or check.
        """

    def of(self, roots: tuple[Expr, ...]) -> tuple[list[tuple[Var, Expr]], Callable[[Expr], Expr]]:
        """The variables with their values, each of which uses only earlier variables, and a
        function that rewrites a root to use them.
        """
        self.risky = _risky(roots)
        for root in roots:
            if root in self.names:
                self.reached[root] = _ALWAYS
            else:
                self._reach(root, _ALWAYS)
        values: dict[Var, Expr] = {}
        for part in reversed(self.parts):  # outer ones first
            cond = self.reached[part]
            if part not in self.risky:
                cond = _ALWAYS
            elif cond is not _ALWAYS:
                needed = Var("is_needed", cond.dtype)
                values[needed] = self._rebuilt(cond)
                cond = needed
            self._reach(part, cond)
            values[self.names[part]] = self._rebuilt(part, part, cond)
        return _in_order(values), self._whole

    def _whole(self, root: Expr) -> Expr:
        return self._rebuilt(root)

    def _reach(self, top: Expr, cond: Expr) -> None:
        """Record the conditions under which the evaluation of `top` evaluates the parts inside it.
        `top` itself is evaluated if `cond` is true.
        """
        stop = {p: p for p in self.names if p is not top}
        conds = {top: cond}
        for node in reversed([*post_order(top, stop)]):
            here = conds[node]
            for child, when in _children(node, here):
                known = self.reached if child in stop else conds
                before = known.get(child)
                known[child] = when if before is None else _either(before, when)

    def _rebuilt(self, root: Expr, top: Expr | None = None, guard: Expr = _ALWAYS) -> Expr:
        """`root` with variables in place of the parts inside it.  Its loads are guarded by
        `guard`.
        """
        done: dict[Expr, Expr] = {p: v for p, v in self.names.items() if p is not top}
        for node in post_order(root, done):
            new = rebuilt(node, done)
            if guard is not _ALWAYS and needs_guard(new) and node in self.risky:
                new = ir.Select(guard, new, const(0, new.dtype))
            done[node] = new
        return done[root]


def _risky(roots: tuple[Expr, ...]) -> set[Expr]:
    """Loads and checks that `roots` make only under a condition, and expressions that contain such
    a load or check.
    """
    bits: dict[Expr, int] = {}
    happen: dict[Expr, int] = {}
    """Expression -> the loads and checks that its evaluation always makes, as a set of bits."""
    for root in roots:
        for node in post_order(root, happen):
            if isinstance(node, ir.Select) and node.cond.lanes == 1:
                mask = happen[node.cond] | (happen[node.if_true] & happen[node.if_false])
            else:
                mask = 0
                for child in node.children:
                    mask |= happen[child]
            if needs_guard(node):
                mask |= bits.setdefault(node, 1 << len(bits))
            happen[node] = mask
    always = 0
    for root in roots:
        always |= happen[root]
    risky: set[Expr] = set()
    for node in happen:  # children first
        is_own = node in bits and not always & bits[node]
        if is_own or any(c in risky for c in node.children):
            risky.add(node)
    return risky


def _children(node: Expr, here: Expr) -> list[tuple[Expr, Expr]]:
    """The children of `node`, each with the condition under which it is evaluated."""
    if not isinstance(node, ir.Select) or node.cond.lanes > 1:
        return [(c, here) for c in node.children]
    yes, no = node.cond, ir.Unary("not", node.cond)
    if here is not _ALWAYS:
        yes, no = ir.Select(here, yes, _NEVER), ir.Select(here, no, _NEVER)
    return [(node.cond, here), (node.if_true, yes), (node.if_false, no)]


def _either(a: Expr, b: Expr) -> Expr:
    if a is b or a is _ALWAYS or b is _ALWAYS:
        return a if a is b else _ALWAYS
    return ir.Select(a, _ALWAYS, b)


def _in_order(values: dict[Var, Expr]) -> list[tuple[Var, Expr]]:
    """`values` sorted such that each value uses only earlier variables."""
    done: dict[Var, Expr] = {}
    begun: set[Var] = set()
    stack = list(reversed(values))
    while stack:
        var = stack[-1]
        waiting = [v for v in free_vars(values[var]) if v in values and v not in done]
        if not waiting or var in done:
            done.setdefault(stack.pop(), values[var])
            continue
        begun.add(var)
        if not begun.isdisjoint(waiting):
            raise ExpressionError(
                f"an expression of more than {MOST_DEPTH} levels reads memory under conditions "
                "that depend on one another, so it cannot be divided; compute parts of it in "
                "te.compute stages of their own"
            )
        stack += waiting
    return list(done.items())
