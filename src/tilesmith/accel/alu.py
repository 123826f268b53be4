"""The operations of the vector ALU, each defined once as an expression of its operands.

The simulators, the documentation and the hardware read these expressions.  Operands are elements of
tiles of accumulators, 32-bit integers; sums and products wrap around.  Some operations take the
bits of an element for those of an f32, so that sums are rescaled exactly as on a CPU.
"""

from __future__ import annotations

from enum import Enum

from tilesmith.ir.dtypes import f32, f64, i32
from tilesmith.ir.expr import Call, Expr, Var, cast, maximum, minimum

A = Var("a", i32)
"""The element of the tile `dst`."""
B = Var("b", i32)
"""The element of the tile `src`, or the immediate number."""
C = Var("c", i32)
"""The element of the tile after `src`."""
LOW = Var("low", i32)
"""The immediate number."""


def _f32(bits: Expr) -> Expr:
    return Call("bitcast", (bits,), f32)


def _bits(value: Expr) -> Expr:
    return Call("bitcast", (value,), i32)


def _rounded(value: Expr) -> Expr:
    """The nearest integer, ties to even, within the range of i32; the least one for NaN."""
    largest = 2.0**31 - 2.0**7  # the largest f32 below 2^31
    return cast(minimum(maximum(Call("round", (value,), f32), -(2.0**31)), largest), i32)


def _fused(a: Expr, b: Expr, c: Expr) -> Expr:
    """The product of two f32 plus another f32, as the instruction of CPUs gives it, which doesn't
    round the product.

    A product of two f32 is exact as f64.  The sum is rounded to f64 first: that changes the f32
    only if the sum isn't exact and the f64 lies halfway between two f32.
    """
    return cast(cast(a, f64) * cast(b, f64) + cast(c, f64), f32)


class AluOp(Enum):
    """An operation of the ALU.  `meaning`: what becomes of A; `doc`: the same in words."""

    MOV = "mov"
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    MIN = "min"
    MAX = "max"
    SHL = "shl"
    SHR = "shr"
    SCALE = "scale"
    FADD = "fadd"
    ROUND = "round"
    RESCALE = "rescale"

    @property
    def meaning(self) -> Expr:
        return _MEANINGS[self][0]

    @property
    def doc(self) -> str:
        return _MEANINGS[self][1]

    @property
    def reads_dst(self) -> bool:
        """Whether it reads the tile that it writes."""
        return self is not AluOp.MOV

    @property
    def reads_pair(self) -> bool:
        """Whether it also reads the tile after `src`; then it has no form with an immediate."""
        return self is AluOp.RESCALE


_MEANINGS: dict[AluOp, tuple[Expr, str]] = {
    AluOp.MOV: (B, "copies"),
    AluOp.ADD: (A + B, "adds"),
    AluOp.SUB: (A - B, "subtracts"),
    AluOp.MUL: (A * B, "multiplies"),
    AluOp.MIN: (minimum(A, B), "the smaller one"),
    AluOp.MAX: (maximum(A, B), "the larger one"),
    AluOp.SHL: (A << (B & 31), "shifts to the left"),
    AluOp.SHR: (A >> (B & 31), "shifts to the right and copies the sign"),
    AluOp.SCALE: (_bits(cast(A, f32) * _f32(B)), "an integer times an f32, as f32"),
    AluOp.FADD: (_bits(_f32(A) + _f32(B)), "adds two f32"),
    AluOp.ROUND: (
        maximum(_rounded(_f32(A)), B),
        "an f32 as the nearest integer, ties to even, and at least `b`",
    ),
    AluOp.RESCALE: (
        maximum(_rounded(_fused(cast(A, f32), _f32(B), _f32(C))), LOW),
        "an integer times one f32 plus another one, as the nearest integer, and at least `low`; "
        "the product is exact, and the sum is rounded to an f32",
    ),
}
