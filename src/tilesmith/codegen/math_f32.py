"""exp, log and derived functions in f32 arithmetic.  `codegen.math` states their errors."""

from __future__ import annotations

from tilesmith.ir.dtypes import f32, i32
from tilesmith.ir.expr import Cast, Expr

from . import math_terms as terms
from .math_terms import LOG2_E, Bindings, Expansion, literal

# --- exp and its family --------------------------------------------------------------------------

_LN2_HIGH = 0.693359375  # this has 10 bits, so its product with any |k| < 2^14 is exact
_LN2_LOW = -0.000212194440054690583
_ROUND_F32 = (
    12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits of the mantissa
)
# polynomial for (e^r - 1 - r) / r^2, where |r| <= ln(2) / 2
_EXP = (
    0.500000008243023652, 0.166665248787976885, 0.0416662317176205188,
    0.00836835077787445872, 0.00139492315639482419,
)  # fmt: skip
# polynomial for (2^r - 1) / r, where |r| <= 1/2
_EXP2 = (
    0.693147196247571429, 0.240226512328913605, 0.0555034178123907795,
    0.00961801492094274948, 0.00133960981323799552, 0.000154737055732685117,
)  # fmt: skip


def _split_exponent(x: Expr, scale: float, let: Bindings) -> tuple[Expr, Expr]:
    """k = round(x * scale) as a float, and the bits of k + 1.5 * 2^23.

    No float-to-integer cast: it would be undefined for NaN.
    """
    t = let("t", x * literal(scale, x) + literal(_ROUND_F32, x))
    return t - literal(_ROUND_F32, x), terms.bits_of(t, i32)


def _reduced(x: Expr, let: Bindings) -> tuple[Expr, Expr, Expr]:
    """The remainder r of x = k ln2 + r, then k, then the biased bits of k."""
    kf, biased = _split_exponent(x, LOG2_E, let)
    kf = let("k", kf)
    r = let("r", (x - kf * literal(_LN2_HIGH, x)) - kf * literal(_LN2_LOW, x))
    return r, kf, biased


def _power_of_two(biased: Expr) -> Expr:
    """2^k for k in the range of normal exponents.  The shift drops the bias."""
    return terms.bits_of(terms.shift_left(biased, 23) + literal(0x3F800000, biased), f32)


def _scaled(p: Expr, kf: Expr, biased: Expr, let: Bindings) -> Expr:
    """p * 2^k for -150 <= k <= 128, with overflow and denormals rounded correctly.

    Without `scalef` this takes two products, since 2^k itself may be out of range.
    """
    if let.scales:
        return terms.scaled_by(p, kf)
    k = let("ki", biased - literal(0x4B400000, biased))
    half = let("kh", terms.shift_right(k, 1))
    return p * _power_of_two(half) * _power_of_two(k - half)


def _exp(x: Expr, let: Bindings) -> Expr:
    def of(x: Expr) -> Expr:
        r, kf, biased = _reduced(x, let)
        return _scaled(terms.polynomial(r, (1.0, 1.0, *_EXP)), kf, biased, let)

    return terms.unless_below(terms.clamp_above(x, 89.0), -104.0, let, of)


def _exp2(x: Expr, let: Bindings) -> Expr:
    def of(x: Expr) -> Expr:
        kf, biased = _split_exponent(x, 1.0, let)
        kf = let("k", kf)
        r = let("r", x - kf)
        return _scaled(terms.polynomial(r, (1.0, *_EXP2)), kf, biased, let)

    return terms.unless_below(terms.clamp_above(x, 128.5), -151.0, let, of)


def _one_minus_exp(x: Expr, let: Bindings) -> Expr:
    """1 - e^x for -80 <= x <= 0, to full relative precision near 0."""
    r, kf, biased = _reduced(x, let)
    p = let("p", r * r * terms.polynomial(r, _EXP) + r)  # e^r - 1
    s = let("s", terms.scaled_by(literal(1.0, x), kf) if let.scales else _power_of_two(biased))
    return (literal(1.0, x) - s) - s * p


def _tanh(x: Expr, let: Bindings) -> Expr:
    # tanh |x| = d / (2 - d) with d = 1 - e^(-2|x|).  From |x| = 9.01 on, tanh |x| rounds to 1.
    x = let("x", x)
    d = let(
        "d",
        _one_minus_exp(
            let("y", terms.clamp_above(terms.intrinsic("abs", x), 10.0) * literal(-2.0, x)), let
        ),
    )
    return terms.copy_sign(d / (literal(2.0, x) - d), x)


# polynomial for -log(1 - erf(t)) / t, where 0 <= t <= 4
_ERF = (
    1.12837917161924823, 0.636619381273439026, 0.102777839834697838, -0.0191531094443015782,
    -0.000160291445105184634, 0.00166690183648236912, -0.000632756129265120432,
    0.000117615103068609832, -9.25291889494746966e-6,
)  # fmt: skip


def _erf(x: Expr, let: Bindings) -> Expr:
    # erf t = 1 - e^(-t q(t)) keeps the relative precision at both ends.  From t = 3.92 on, erf t
    # rounds to 1.
    x = let("x", x)
    t = let("a", terms.clamp_above(terms.intrinsic("abs", x), 4.0))
    u = let("u", -(t * terms.polynomial(t, _ERF)))
    return terms.copy_sign(_one_minus_exp(u, let), x)


# --- logarithms ----------------------------------------------------------------------------------

# polynomial for (log(1 + f) - f + f^2 / 2) / f^3, where sqrt(1/2) <= 1 + f <= sqrt(2)
_LOG = (
    0.333333126052695436, -0.250000096016415866, 0.200021186275069859, -0.166679957799063072,
    0.14219552537238568, -0.124055896001645463, 0.118881628854280514, -0.116756507020719086,
    0.0674663755625261742,
)  # fmt: skip


def _log_parts(x: Expr, let: Bindings) -> tuple[Expr, Expr]:
    """(high, low) whose sum is log(x) for positive finite x."""
    tiny = let("tiny", terms.less(x, 1.1754943508222875e-38))
    bits = let("b", terms.bits_of(terms.pick(tiny, x * literal(8388608.0, x), x, x), i32))
    e = let(
        "e", terms.shift_right(bits - literal(0x3F3504F3, bits), 23)
    )  # the bits of sqrt(1/2), so that sqrt(1/2) <= 1 + f <= sqrt(2)
    f = let("f", terms.bits_of(bits - terms.shift_left(e, 23), f32) - literal(1.0, x))
    ef = let("ef", Cast(e, f32) - terms.pick(tiny, 23.0, 0.0, x))
    low = f * f * f * terms.polynomial(f, _LOG) + ef * literal(_LN2_LOW, x)
    low = f + (low - f * f * literal(0.5, x))
    return ef * literal(_LN2_HIGH, x), low


def _log(x: Expr, let: Bindings) -> Expr:
    x = let("x", x)
    high, low = _log_parts(x, let)
    return terms.log_edges(x, high + low)


def _log1p(x: Expr, let: Bindings) -> Expr:
    x = let("x", x)
    u = let("u", x + literal(1.0, x))
    high, low = _log_parts(u, let)
    lost = (
        x - (u - literal(1.0, x))
    ) / u  # the rounding error of 1 + x, multiplied by the logarithm's derivative
    result = let("l", terms.log_edges(u, high + (low + lost)))
    return terms.pick(terms.equal(x, 0.0), x, result, x)  # log1p(-0) is -0


def rsqrt(x: Expr, let: Bindings) -> Expr:
    return literal(1.0, x) / terms.intrinsic("sqrt", x)


FUNCTIONS: dict[str, Expansion] = {
    "exp": _exp, "exp2": _exp2, "log": _log, "log1p": _log1p, "tanh": _tanh, "erf": _erf,
}  # fmt: skip
