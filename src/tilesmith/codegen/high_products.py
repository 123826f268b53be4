"""The middle bits of products of 32-bit integers, as fixed-point arithmetic takes them.

    i32(i64(a) * i64(b) + 2^30 >> 31)

x86 multiplies the even lanes of two vectors of i32, and gives products of 64 bits.  So one
multiplication of the even lanes and one of the odd lanes make all products, in the lanes where they
are needed.  The alternative is to widen all lanes to 64 bits and to narrow the results, which moves
each lane twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import i32, i64
from tilesmith.ir.expr import Const, Expr, const
from tilesmith.ir.target import Target

from .builder import Builder

_FEATURE = "sse4.1"
"""The instructions that multiply signed even lanes."""


@dataclass(frozen=True, slots=True)
class HighProduct:
    """(a * b + added) >> bits, from which the lowest 32 bits are taken.

    a, b: factors, i32.
    added: a constant.
    bits: 1 to 32.
    """

    a: Expr
    b: Expr
    added: int
    bits: int


def high_product(e: ir.Cast, target: Target) -> HighProduct | None:
    """The product in `e`, if `target` multiplies even lanes; None for other forms."""
    if e.type is not i32 or e.a.dtype is not i64 or e.lanes < 4 or e.lanes % 2:
        return None
    if target.architecture != "x86_64" or _FEATURE not in target.features:
        return None
    shift = _operands(e.a, "shr")
    bits = None if shift is None else _constant(shift[1])
    if shift is None or bits is None or not 1 <= bits <= 32:
        return None
    product, added = shift[0], 0
    x, y = _operands(product, "add") or (product, const(0))
    for total, number in ((x, _constant(y)), (y, _constant(x))):
        if number is not None:
            product, added = total, number
    factors = _operands(product, "mul")
    if factors is None:
        return None
    a, b = map(_narrow, factors)
    return None if a is None or b is None else HighProduct(a, b, added, bits)


def write(b: Builder, product: HighProduct, lanes: int, first: str, second: str) -> str:
    """The lowest 32 bits of the shifted products, given the operand texts of the factors."""
    wide, narrow = f"<{lanes // 2} x i64>", f"<{lanes} x i32>"
    factors = [b.emit(f"bitcast {narrow} {x} to {wide}") for x in (first, second)]
    low = [b.emit(f"shl {wide} {x}, splat (i64 32)") for x in factors]
    halves = []
    # even results move to the lower half of the 64 bits, odd results to the upper half
    moves = f"lshr {{}}, splat (i64 {product.bits})", f"shl {{}}, splat (i64 {32 - product.bits})"
    for pair, move in zip((low, factors), moves, strict=True):
        x, y = (b.emit(f"ashr {wide} {v}, splat (i64 32)") for v in pair)
        made = b.emit(f"mul {wide} {x}, {y}")
        if product.added:
            made = b.emit(f"add {wide} {made}, splat (i64 {product.added})")
        made = b.emit(move.format(f"{wide} {made}"))
        halves.append(b.emit(f"bitcast {wide} {made} to {narrow}"))
    picks = tuple(i + lanes * (i % 2) for i in range(lanes))
    return b.shuffle(narrow, halves[0], halves[1], picks)


def _operands(e: Expr, op: str) -> tuple[Expr, Expr] | None:
    return (e.a, e.b) if isinstance(e, ir.Binary) and e.op == op else None


def _constant(e: Expr) -> int | None:
    inner = e.value if isinstance(e, ir.Broadcast) else e
    return int(inner.value) if isinstance(inner, Const) else None


def _narrow(e: Expr) -> Expr | None:
    """The i32 vector that `e` widens; None for others."""
    if isinstance(e, ir.Cast) and e.a.dtype is i32 and e.lanes > 1:
        return e.a
    return None
