"""What an assertion reports when it fails."""

from __future__ import annotations

from tilesmith.ir.expr import Binary, Compare, Const, Expr, Unary


def compared(cond: Expr) -> list[Expr]:
    """The integers that a condition compares, without constants: they tell why it failed."""
    found: dict[Expr, None] = {}
    stack = [cond]
    while stack:
        e = stack.pop()
        if isinstance(e, Compare):
            operands = (e.a, e.b) if e.a.dtype.is_int else ()
            found |= {x: None for x in operands if x.lanes == 1 and not isinstance(x, Const)}
        elif isinstance(e, (Binary, Unary)):
            stack += reversed(e.children)
    return list(found)
