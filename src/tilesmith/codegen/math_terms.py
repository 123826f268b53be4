"""The building blocks of the expansions of mathematical functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType, f32, i32, u32
from tilesmith.ir.expr import Expr, Var, const

LOG2_E = 1.4426950408889634
ROUND_F64 = 6755399441055744.0
"""1.5 * 2^52: adding it leaves the nearest integer in the low bits of an f64's mantissa."""
INF = float("inf")
NAN = float("nan")


def literal(value: float | int | bool, like: Expr) -> Expr:
    """The literal `value` in the type and lanes of `like`."""
    literal = const(value, like.dtype)
    return ir.Broadcast(literal, like.lanes) if like.lanes > 1 else literal


def less(a: Expr, b: Expr | float) -> Expr:
    return ir.Compare("lt", a, b if isinstance(b, Expr) else literal(b, a))


def equal(a: Expr, b: Expr | float) -> Expr:
    return ir.Compare("eq", a, b if isinstance(b, Expr) else literal(b, a))


def any_of(*conds: Expr) -> Expr:
    result = conds[0]
    for c in conds[1:]:
        result = ir.Binary("or", result, c)
    return result


def pick(cond: Expr, a: Expr | float, b: Expr | float, like: Expr) -> Expr:
    return ir.Select(
        cond,
        a if isinstance(a, Expr) else literal(a, like),
        b if isinstance(b, Expr) else literal(b, like),
    )


def intrinsic(name: str, x: Expr) -> Expr:
    return ir.Call(name, (x,), x.dtype)


def bits_of(x: Expr, dtype: DType) -> Expr:
    return ir.Call("bitcast", (x,), dtype)


def scaled_by(x: Expr, k: Expr) -> Expr:
    """x * 2^k, rounded once, for an f32 k that is a whole number; needs `Bindings.scales`."""
    return ir.Call("scalef", (x, k), x.dtype)


def shift_left(x: Expr, n: int | Expr) -> Expr:
    return ir.Binary("shl", x, n if isinstance(n, Expr) else literal(n, x))


def shift_right(x: Expr, n: int | Expr) -> Expr:
    return ir.Binary("shr", x, n if isinstance(n, Expr) else literal(n, x))


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The value of a polynomial by Horner's rule.  `coefficients` begin with the constant term."""
    result = literal(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        result = result * x + literal(c, x)
    return result


def clamp_above(x: Expr, high: float) -> Expr:
    """min(x, high) in one instruction; NaN if x is NaN."""
    return pick(less(literal(high, x), x), high, x, x)


def clamp(x: Expr, low: float, high: float) -> Expr:
    x = clamp_above(x, high)
    return pick(less(x, low), low, x, x)


def unless_below(x: Expr, low: float, let: Bindings, f: Callable[[Expr], Expr]) -> Expr:
    """0 where x < low, else f(x).

    For smaller x, `f` would underflow, which takes some CPUs more than a hundred cycles.  The
    arguments of masked elements in a softmax are below `low`.
    """
    x = let("a", x)
    is_tiny = less(x, low)
    return pick(is_tiny, 0.0, f(let("x", pick(is_tiny, 0.0, x, x))), x)


class Bindings:
    """Names for the intermediate values of an expansion, so that its text stays linear in its size.

    scales: whether the machine multiplies by a power of two in one instruction (`scaled_by`).
    alone: whether the machine has no C library, so that functions of f64 are expanded too.
    """

    def __init__(self, scales: bool = False, alone: bool = False) -> None:
        self.scales = scales
        self.alone = alone
        self._bound: list[tuple[Var, Expr]] = []

    def __call__(self, name: str, value: Expr) -> Expr:
        if isinstance(value, (Var, ir.Const)):
            return value
        var = Var(name, value.dtype, value.lanes)
        self._bound.append((var, value))
        return var

    def around(self, result: Expr) -> Expr:
        for var, value in reversed(self._bound):
            result = ir.Let(var, value, result)
        return result


Expansion = Callable[[Expr, Bindings], Expr]
"""A function from an argument to the expansion's result.  It adds intermediate values to the
bindings.
"""


def log_edges(x: Expr, result: Expr) -> Expr:
    """The logarithm of x with its special cases: `result` for positive finite x, -inf for 0, NaN
    for negative x, x itself for infinity and NaN.
    """
    edge = pick(equal(x, 0.0), -INF, pick(less(x, 0.0), NAN, x, x), x)
    inside = ir.Binary("and", less(literal(0.0, x), x), less(x, INF))
    return ir.Select(inside, result, edge)


def copy_sign(magnitude: Expr, sign_of: Expr) -> Expr:
    sign = ir.Binary("and", bits_of(sign_of, u32), u32_literal(0x80000000, magnitude))
    return bits_of(ir.Binary("or", bits_of(magnitude, u32), sign), f32)


def u32_literal(value: int, like: Expr) -> Expr:
    literal = const(value, u32)
    return ir.Broadcast(literal, like.lanes) if like.lanes > 1 else literal


def zero_i32(like: Expr) -> Expr:
    zero = const(0, i32)
    return ir.Broadcast(zero, like.lanes) if like.lanes > 1 else zero
