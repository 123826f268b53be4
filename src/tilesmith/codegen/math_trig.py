"""Sine, cosine and tangent of f32, for every argument.  `codegen.math` states their errors."""

from __future__ import annotations

from tilesmith.ir.dtypes import f32, f64, i32, i64, u32, u64
from tilesmith.ir.expr import Binary, Cast, Compare, Expr, Select

from . import math_terms as terms
from .math_terms import INF, Bindings, Expansion, literal

# the bits of 2/pi, with 26 zeros before them
_TWO_OVER_PI = (
    0x00000028BE60DB93, 0x91054A7F09D5F47D, 0x4D377036D8A5664F,
    0x10E4107F9458EAF7, 0xAEF1586DC91B8E90,
)  # fmt: skip
_SIN = (
    -0.166666666416059484,
    0.00833332937536580187,
    -0.000198393299606913464,
    2.7182557215437861e-6,
)
_COS = (0.0416666469744858613, -0.00138873704153273832, 0.000024438585816190684)


def _quadrant(x: Expr, let: Bindings) -> tuple[Expr, Expr]:
    """(q, r) with |x| = q pi/2 + r modulo 2 pi, |r| <= pi/4; q is an i32 in 0..3.

    |x| is m 2^(e-150).  The quotient is m times a 96-bit window of 2/pi; wrapping reduces it modulo
    4 and leaves 62 bits of fraction.  For a float close to a multiple of pi/2, about 30 bits
    cancel; the remaining 32 are more than a mantissa has.
    """
    ax = let("ax", terms.intrinsic("abs", x))
    bits = let("b", Cast(terms.bits_of(ax, u32), u64))
    m = let(
        "m", Binary("or", Binary("and", bits, literal(0x7FFFFF, bits)), literal(0x800000, bits))
    )
    small = let("small", terms.less(ax, 0.5))
    shift = let(
        "sh", Select(small, literal(0, bits), terms.shift_right(bits, 23) - literal(126, bits))
    )
    word, s = terms.shift_right(shift, 6), let("s", Binary("and", shift, literal(63, bits)))
    first, second = (
        let("w0", Compare("eq", word, literal(0, bits))),
        let("w1", Compare("eq", word, literal(1, bits))),
    )
    w = [
        let(
            "w", Select(first, literal(a, bits), Select(second, literal(b, bits), literal(c, bits)))
        )
        for a, b, c in zip(_TWO_OVER_PI, _TWO_OVER_PI[1:], _TWO_OVER_PI[2:], strict=False)
    ]
    back = let("bk", literal(63, bits) - s)
    high = Binary(
        "or", terms.shift_left(w[0], s), terms.shift_right(terms.shift_right(w[1], 1), back)
    )
    low = terms.shift_right(
        Binary(
            "or", terms.shift_left(w[1], s), terms.shift_right(terms.shift_right(w[2], 1), back)
        ),
        32,
    )
    product = let("pr", m * high + terms.shift_right(m * low, 32))
    q = let("q", terms.shift_right(product + literal(1 << 61, bits), 62))
    fraction = Cast(Cast(product - terms.shift_left(q, 62), i64), f64)
    r = Cast(fraction * literal(3.4061215800865545e-19, fraction), f32)  # pi/2 * 2^-62
    zero = Cast(literal(0, bits), i32)
    return let("qi", Select(small, zero, Cast(q, i32))), let("r", Select(small, ax, r))


def _sine_of(r: Expr, z: Expr) -> Expr:
    return r * z * terms.polynomial(z, _SIN) + r


def _cosine_of(z: Expr) -> Expr:
    return z * z * terms.polynomial(z, _COS) - z * literal(0.5, z) + literal(1.0, z)


def _sine_cosine(x: Expr, let: Bindings) -> tuple[Expr, Expr, Expr, Expr]:
    """q, whether q is odd, and the sine and cosine of r."""
    q, r = _quadrant(x, let)
    z = let("z", r * r)
    odd = let("odd", Compare("ne", Binary("and", q, literal(1, q)), literal(0, q)))
    return q, odd, let("sn", _sine_of(r, z)), let("cs", _cosine_of(z))


def _negate_by(value: Expr, q: Expr) -> Expr:
    """`-value` where bit 1 of `q` is set, else `value`."""
    flip = terms.shift_left(Binary("and", Cast(q, u32), terms.u32_literal(2, value)), 30)
    return terms.bits_of(Binary("xor", terms.bits_of(value, u32), flip), f32)


def _sin(x: Expr, let: Bindings) -> Expr:
    x = let("x", x)
    q, odd, sine, cosine = _sine_cosine(x, let)
    value = _negate_by(Select(odd, cosine, sine), q)
    sign = Binary("and", terms.bits_of(x, u32), terms.u32_literal(0x80000000, x))
    value = terms.bits_of(Binary("xor", terms.bits_of(value, u32), sign), f32)
    return Select(terms.less(terms.intrinsic("abs", x), INF), value, x - x)


def _cos(x: Expr, let: Bindings) -> Expr:
    x = let("x", x)
    q, odd, sine, cosine = _sine_cosine(x, let)
    value = _negate_by(
        Select(odd, sine, cosine), q + literal(1, q)
    )  # the cosine is negative in quadrants 1 and 2
    return Select(terms.less(terms.intrinsic("abs", x), INF), value, x - x)


def _tan(x: Expr, let: Bindings) -> Expr:
    x = let("x", x)
    _, odd, sine, cosine = _sine_cosine(x, let)
    value = Select(odd, -cosine, sine) / Select(odd, sine, cosine)
    sign = Binary("and", terms.bits_of(x, u32), terms.u32_literal(0x80000000, x))
    value = terms.bits_of(Binary("xor", terms.bits_of(value, u32), sign), f32)
    return Select(terms.less(terms.intrinsic("abs", x), INF), value, x - x)


FUNCTIONS: dict[str, Expansion] = {
    "sin": _sin, "cos": _cos, "tan": _tan,
}  # fmt: skip
