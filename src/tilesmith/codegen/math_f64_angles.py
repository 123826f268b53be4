"""Trigonometric functions of f64 and their inverses as arithmetic, for machines without a C
library.

Errors in units in the last place, for every argument, checked by tests: sin cos 2, asin acos atan
3, tan 4.
"""

from __future__ import annotations

from itertools import pairwise

from tilesmith.ir.dtypes import f64, i64, u64
from tilesmith.ir.expr import Binary, Cast, Compare, Expr, Select

from .math_f64 import both, sign_of, signed
from .math_terms import (
    INF,
    NAN,
    Bindings,
    Expansion,
    bits_of,
    equal,
    intrinsic,
    less,
    literal,
    pick,
    polynomial,
    shift_left,
    shift_right,
)

_PI_2, _PI_2_LOW = 1.5707963267948966, 6.123233995736766e-17
_PI_4 = 0.7853981633974483
# polynomials in r^2 for (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2 / 2) / r^4, where |r| <= pi /
# 4
_SIN = (
    -0.16666666666666666, 0.008333333333333331, -0.0001984126984126504, 2.755731921932058e-06,
    -2.50521062259944e-08, 1.6058530596645953e-10, -7.586636882825159e-13,
)  # fmt: skip
_COS = (
    0.041666666666666664, -0.0013888888888888887, 2.4801587301584632e-05, -2.755731922139249e-07,
    2.0876755787492604e-09, -1.1470460319209511e-11, 4.745838412531023e-14,
)  # fmt: skip
# polynomial in t^2 for (atan(t) / t - 1) / t^2, where t <= tan(pi / 8)
_ATAN = (
    -0.3333333333333333, 0.19999999999999785, -0.14285714285654638, 0.11111111104652255,
    -0.09090908728587459, 0.07692295658327873, -0.06666412077725274, 0.058787824694439814,
    -0.0522938047378184, 0.045467195095551666, -0.034445844423577385, 0.016148228546771868,
)  # fmt: skip
# polynomial in t^2 for (asin(t) / t - 1) / t^2, where t <= 1/2
_ASIN = (
    0.16666666666666666, 0.07500000000000119, 0.04464285714255019, 0.030381944475693704,
    0.022372157435623815, 0.017352816768546473, 0.013963775787848137, 0.011566511821890942,
    0.00962140274734483, 0.009322101501082774, 0.0030350071727267623, 0.019579201619744684,
    -0.019277545928584557, 0.02963502626354855,
)  # fmt: skip
# number of zero bits in front of the bits of 2/pi
_ZEROS = 55
_TWO_OVER_PI = (
    0x0000000000000145, 0xF306DC9C882A53F8, 0x4EAFA3EA69BB81B6, 0xC52B3278872083FC,
    0xA2C757BD778AC36E, 0x48DC74849BA5C00C, 0x925DD413A32439FC, 0x3BD63962534E7DD1,
    0x046BEA5D768909D3, 0x38E04D68BEFC8273, 0x23AC7306A673E939, 0x08BF177BF250763F,
    0xF12FFFBC0B301FDE, 0x5E2316B414DA3EDA, 0x6CFD9E4F96136E9E, 0x8C7ECD3CBFD45AEA,
    0x4F758FD7CBE2F67A, 0x0E73EF14A525D4D7, 0xF6BF623F1ABA10AC, 0x06608DF8F6D757E1,
)  # fmt: skip


def _words(first: Expr, count: int, let: Bindings) -> list[Expr]:
    """`count` consecutive words of the bits of 2/pi, beginning with word `first`."""
    words = []
    for n in range(count):
        values = [literal(w, first) for w in _TWO_OVER_PI[n : len(_TWO_OVER_PI) - count + 1 + n]]
        bit = 0
        while len(values) > 1:  # a bit of `first` selects one of two neighbours
            mask = literal(1 << bit, first)
            odd = let("o", Compare("ne", both(first, mask), literal(0, first)))
            pairs = zip(values[::2], values[1::2], strict=False)
            values = [let("w", Select(odd, b, a)) for a, b in pairs] + (
                values[-1:] if len(values) % 2 else []
            )
            bit += 1
        words.append(values[0])
    return words


def _high_product(a: Expr, b: Expr, let: Bindings) -> Expr:
    """The upper word of the product a * b of two u64s, where a < 2^53."""
    mask = literal(0xFFFFFFFF, a)
    ah, al = let("ah", shift_right(a, 32)), let("al", both(a, mask))
    bh, bl = let("bh", shift_right(b, 32)), let("bl", both(b, mask))
    middle = let("m1", ah * bl + shift_right(al * bl, 32))
    other = let("m2", al * bh + both(middle, mask))
    return ah * bh + shift_right(middle, 32) + shift_right(other, 32)


def _quadrant(x: Expr, let: Bindings) -> tuple[Expr, Expr]:
    """(q, r) with |x| = q pi/2 + r modulo 2 pi, |r| <= pi/4; q is a u64 in 0..3.

    |x| is m 2^(e-1075).  The quotient is m times a 192-bit window of 2/pi; wrapping reduces it
    modulo 4, and 128 bits are kept.  For an f64 close to a multiple of pi/2, about 62 bits cancel.
    """
    ax = let("ax", intrinsic("abs", x))
    small = let("small", less(ax, _PI_4))
    bits = let("b", bits_of(ax, u64))
    m = both(bits, literal((1 << 52) - 1, bits))
    m = let("m", Binary("or", m, literal(1 << 52, bits)))
    last = 1075 - _ZEROS + 2
    usable = both(Compare("le", literal(last, bits), shift_right(bits, 52)), less(ax, INF))
    e = Select(usable, shift_right(bits, 52), literal(last, bits))
    shift = let("sh", e - literal(last, bits))
    s = let("s", both(shift, literal(63, bits)))
    back = let("bk", literal(63, bits) - s)
    w = _words(let("wd", shift_right(shift, 6)), 4, let)
    window = [
        let("u", Binary("or", shift_left(a, s), shift_right(shift_right(b, 1), back)))
        for a, b in pairwise(w)
    ]
    low = let("lo", m * window[1])
    middle = let("mi", low + _high_product(m, window[2], let))
    carry = Select(less(middle, low), literal(1, bits), literal(0, bits))
    top = let("tp", m * window[0] + _high_product(m, window[1], let) + carry)
    q = let("q", shift_right(top + literal(1 << 61, bits), 62))
    high = Cast(Cast(top - shift_left(q, 62), i64), f64)
    rest = Cast(Cast(shift_right(middle, 1), i64), f64)
    fraction = high + rest * literal(2.0**-63, x)
    r = fraction * literal(3.4061215800865545e-19, x)  # pi/2 * 2^-62
    return let("qi", Select(small, literal(0, bits), q)), let("r", Select(small, ax, r))


def _sine_cosine(x: Expr, let: Bindings) -> tuple[Expr, Expr, Expr, Expr]:
    """q, whether q is odd, and the sine and cosine of r."""
    q, r = _quadrant(x, let)
    z = let("z", r * r)
    odd = let("odd", Compare("ne", both(q, literal(1, q)), literal(0, q)))
    sine = let("sn", r * z * polynomial(z, _SIN) + r)
    half = let("hz", z * literal(0.5, z))
    near = let("nr", literal(1.0, z) - half)
    rest = ((literal(1.0, z) - near) - half) + z * z * polynomial(z, _COS)
    return q, odd, sine, let("cs", near + rest)


def _flipped(value: Expr, q: Expr) -> Expr:
    """`-value` where bit 1 of `q` is set, else `value`."""
    flip = shift_left(both(q, literal(2, q)), 62)
    return bits_of(Binary("xor", bits_of(value, u64), flip), f64)


def _of_finite(value: Expr, x: Expr) -> Expr:
    return Select(less(intrinsic("abs", x), INF), value, x - x)


def _sin(x: Expr, let: Bindings) -> Expr:
    q, odd, sine, cosine = _sine_cosine(x, let)
    value = _flipped(Select(odd, cosine, sine), q)
    value = bits_of(Binary("xor", bits_of(value, u64), sign_of(x)), f64)
    return _of_finite(value, x)


def _cos(x: Expr, let: Bindings) -> Expr:
    q, odd, sine, cosine = _sine_cosine(x, let)
    return _of_finite(_flipped(Select(odd, sine, cosine), q + literal(1, q)), x)


def _tan(x: Expr, let: Bindings) -> Expr:
    _, odd, sine, cosine = _sine_cosine(x, let)
    value = Select(odd, -cosine, sine) / Select(odd, sine, cosine)
    value = bits_of(Binary("xor", bits_of(value, u64), sign_of(x)), f64)
    return _of_finite(value, x)


def _atan(x: Expr, let: Bindings) -> Expr:
    a = let("a", intrinsic("abs", x))
    big, middle = (
        let("big", less(literal(2.414213562373095, x), a)),
        less(literal(0.41421356237309503, x), a),
    )
    one = literal(1.0, x)
    t = pick(big, -one / a, pick(middle, (a - one) / (a + one), a, x), x)
    t = let("t", pick(equal(a, INF), 0.0, t, x))
    z = let("z", t * t)
    from_ = let("fr", pick(big, _PI_2, pick(middle, _PI_4, 0.0, x), x))
    low = pick(big, _PI_2_LOW, pick(middle, _PI_2_LOW / 2, 0.0, x), x)
    value = from_ + ((t * z * polynomial(z, _ATAN) + low) + t)
    return signed(value, x)


def _asin_core(a: Expr, let: Bindings) -> tuple[Expr, Expr, Expr]:
    """Three values for a >= 0: whether a > 1/2; t; and rest, where asin(t) = t + rest.  t is a if a
    <= 1/2, else sqrt((1 - a) / 2).
    """
    big = let("big", less(literal(0.5, a), a))
    z = let("z", pick(big, (literal(1.0, a) - a) * literal(0.5, a), a * a, a))
    t = let("t", pick(big, intrinsic("sqrt", z), a, a))
    return big, t, let("rs", t * z * polynomial(z, _ASIN))


def _asin(x: Expr, let: Bindings) -> Expr:
    a = let("a", intrinsic("abs", x))
    big, t, rest = _asin_core(a, let)
    far = literal(_PI_2, x) - ((t + rest) * literal(2.0, x) - literal(_PI_2_LOW, x))
    value = pick(big, far, t + rest, x)
    return pick(less(literal(1.0, x), a), NAN, signed(value, x), x)


def _acos(x: Expr, let: Bindings) -> Expr:
    big, t, rest = _asin_core(let("a", intrinsic("abs", x)), let)
    value = let("vl", t + rest)
    twice = value * literal(2.0, x)
    below = literal(2 * _PI_2, x) - (twice - literal(2 * _PI_2_LOW, x))
    low = literal(_PI_2_LOW, x)
    near = literal(_PI_2, x) - pick(less(x, 0.0), -(value + low), value - low, x)
    return pick(big, pick(less(x, 0.0), below, twice, x), near, x)


FUNCTIONS: dict[str, Expansion] = {
    "sin": _sin, "cos": _cos, "tan": _tan, "asin": _asin, "acos": _acos, "atan": _atan,
}  # fmt: skip
