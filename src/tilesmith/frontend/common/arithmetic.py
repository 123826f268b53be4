"""Arithmetic that several formats have as operators."""

from __future__ import annotations

import math

from tilesmith.frontend.common.node import NodeContext
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import bf16, f16, f32, f64, i16, i32, i64
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn

BITS = {f16: i16, bf16: i16, f32: i32, f64: i64}
"""The integer type with as many bits as each float type."""


def rounded_away(x: Value) -> Value:
    """Floats rounded to whole numbers; ties round away from zero.

    It is exact, because `x` minus its whole part is exact.  `floor(x + 0.5)` isn't: the sum rounds.
    """
    whole = fn.apply(ew.Trunc(), x)
    return fn.where(abs(x - whole) >= 0.5, whole + fn.apply(ew.Sign(), x), whole)


def floor_quotient(n: NodeContext, x: Value, y: Value) -> Value:
    """The quotient of integers, rounded down."""
    whole = x / y
    if x.dtype.kind != "int":
        return whole
    # (x - x % y) / y could overflow: the difference may leave the range of the type
    nothing, rest = n.const(0, x.dtype), n.add(ew.Mod(True), x, y)
    signs = (v < nothing for v in (rest, y))
    differ = n.add(ew.LogicalXor(), *signs)
    lower = differ & rest.differs(nothing)
    return whole - lower.cast(x.dtype)


def shifted_right(n: NodeContext, x: Value, by: Value) -> Value:
    """`x` shifted to the right by `by` bits.  A shift that is out of range leaves only the sign."""
    if x.dtype.kind == "int":  # a shift by all bits but one leaves only the sign, too
        low, last = n.const(0, by.dtype), n.const(by.dtype.bits - 1, by.dtype)
        inside = (by >= low) & (by <= last)
        by = fn.where(inside, by, last)
    return n.add(ew.BitShift("right"), x, by)


def expm1(x: Value) -> Value:
    """exp(x) - 1 as tanh(x / 2) * (exp(x) + 1), which is accurate for small x."""
    return fn.tanh(x * 0.5) * (fn.exp(x) + 1)


def logarithm(x: Value, base: float) -> Value:
    """The logarithm of `x` to a base."""
    return fn.log(x) * (1 / math.log(base))


def angle(n: NodeContext, y: Value, x: Value) -> Value:
    """The angle between the x axis and the point (x, y), as C's atan2 computes it."""
    dtype = x.dtype

    def number(v: float) -> Value:
        return n.const(v, dtype)

    # For two infinities the angle is that of (+-1, +-1), and for two zeros that of (+-0, +-1).
    both_infinite = n.add(ew.IsInf(), y) & n.add(ew.IsInf(), x)
    is_zero = x.equals(number(0))
    both_zero = is_zero & y.equals(number(0))
    is_left = n.add(ew.Bitcast(BITS[dtype]), x) < 0
    side = fn.where(is_left, number(-1), number(1))
    below = n.add(ew.Bitcast(BITS[dtype]), y) < 0
    level = fn.where(below, number(-1), number(1))
    across = fn.where(both_infinite | both_zero, side, x)
    up = fn.where(both_infinite, level, y)
    tangent = n.add(ew.Atan(), up / across)
    turned = tangent + level * number(math.pi)
    angles = fn.where(is_left, turned, tangent)
    is_nan = fn.is_nan(x) | fn.is_nan(y)
    return fn.where(is_nan, number(math.nan), angles)
