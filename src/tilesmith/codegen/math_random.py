"""Random bits in integer arithmetic (see `ir.threefry`)."""

from __future__ import annotations

from tilesmith.ir.expr import Binary, Expr
from tilesmith.ir.threefry import PARITY, threefry

from .math_terms import Bindings, literal, shift_left, shift_right


def threefry_word(c0: Expr, c1: Expr, k0: Expr, k1: Expr, let: Bindings) -> Expr:
    """The first word of the block of a counter and a key."""

    def add(a: Expr, b: Expr | int) -> Expr:
        return let("t", a + (b if isinstance(b, Expr) else literal(b, a)))

    def rotated(a: Expr, b: Expr, n: int) -> Expr:
        turned = Binary("or", shift_left(a, n), shift_right(a, 32 - n))
        return let("r", Binary("xor", turned, b))

    third = Binary("xor", Binary("xor", k0, k1), literal(PARITY, k0))
    word, _ = threefry((c0, c1), (k0, k1, let("k", third)), add, rotated)
    return word
