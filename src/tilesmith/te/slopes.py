"""Growth of integer expressions as a loop advances: the bounds analysis of sliding windows."""

from __future__ import annotations

from collections.abc import Iterable

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import affine_form
from tilesmith.ir.expr import Expr, Var, const, free_vars
from tilesmith.ir.expr import substitute as substituted
from tilesmith.ir.simplify import simplify

Slope = tuple[int, int]
"""Lower and upper bound of the growth of an expression when a variable grows by 1."""


def slope(e: Expr, v: Var) -> Slope | None:
    """Bounds on the growth of the integer `e` when `v` grows by 1; None if they are not known."""
    if e is v:
        return 1, 1
    if v not in free_vars(e):
        return 0, 0
    if isinstance(e, ir.Select):
        return _slope_of_select(e, v)
    if isinstance(e, ir.Unary) and e.op == "neg":
        a = slope(e.a, v)
        return None if a is None else (-a[1], -a[0])
    if not isinstance(e, ir.Binary):
        return None
    a, b = slope(e.a, v), slope(e.b, v)
    if a is None or b is None:
        return None
    if e.op == "add":
        return a[0] + b[0], a[1] + b[1]
    if e.op == "sub":
        return a[0] - b[1], a[1] - b[0]
    if e.op in ("min", "max"):
        return min(a[0], b[0]), max(a[1], b[1])
    if not isinstance(e.b, ir.Const):
        return None
    factor = int(e.b.value)
    if e.op == "mul":
        return min(a[0] * factor, a[1] * factor), max(a[0] * factor, a[1] * factor)
    if e.op == "floordiv" and factor > 0:
        return a[0] // factor, -(-a[1] // factor)
    return None


def _slope_of_select(e: ir.Select, v: Var) -> Slope | None:
    """Bounds on the slope of a select.  They cover the slopes of its two values, and the jump from
    one value to the other where the condition changes.
    """
    a, b = slope(e.if_true, v), slope(e.if_false, v)
    if a is None or b is None:
        return None
    least, most = min(a[0], b[0]), max(a[1], b[1])
    if v not in free_vars(e.cond):
        return least, most
    if not isinstance(e.cond, ir.Compare) or e.cond.op not in ("lt", "le"):
        return None
    terms, k = affine_form(e.cond.b - e.cond.a)
    if e.cond.op == "lt":
        k -= 1  # now the condition is terms + k >= 0
    if terms == {v: 1}:
        late, early, first = e.if_true, e.if_false, -k
    elif terms == {v: -1}:
        late, early, first = e.if_false, e.if_true, k + 1
    else:
        return None
    after, before = substituted(late, {v: const(first)}), substituted(early, {v: const(first - 1)})
    step = simplify(after - before)
    if not isinstance(step, ir.Const):
        return None
    return min(least, int(step.value)), max(most, int(step.value))


def stays_false(cond: Expr, loops: Iterable[Var]) -> bool:
    """Whether the guard `cond`, once false, is false in all later iterations of `loops`."""
    if not isinstance(cond, ir.Compare) or cond.op not in ("lt", "le"):
        return False
    slopes = [slope(cond.a - cond.b, v) for v in loops]
    return all(s is not None and s[0] >= 0 for s in slopes)
