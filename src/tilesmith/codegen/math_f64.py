"""Functions of f64 as arithmetic, for machines without a C library.

Errors in units in the last place, checked by tests: exp exp2 log 2, log1p tanh erf cosh 3, sinh
asinh acosh atanh 4, pow 2 for results near 1 and 8 near overflow. The argument reductions are the
same as for f32; the coefficients are our own fits.
"""

from __future__ import annotations

from tilesmith.ir.dtypes import f64, i64, u64
from tilesmith.ir.expr import Binary, Call, Cast, Compare, Expr, Select

from .math_terms import (
    INF,
    LOG2_E,
    NAN,
    ROUND_F64,
    Bindings,
    Expansion,
    any_of,
    bits_of,
    clamp,
    clamp_above,
    equal,
    intrinsic,
    less,
    literal,
    log_edges,
    pick,
    polynomial,
    shift_left,
    shift_right,
    unless_below,
)

_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # the high part has 32 bits
_LOG2_E_LOW = 2.0355273740931033e-17
# polynomial for (e^r - 1 - r) / r^2, where |r| <= ln(2) / 2
_EXP = (
    0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326084, 0.0013888888888883711,
    0.0001984126987500228, 2.480158732567746e-05, 2.755725517000089e-06, 2.755727347871858e-07,
    2.5105312729622103e-08, 2.09147553258932e-09,
)  # fmt: skip
# polynomial for (2^r - 1) / r, where |r| <= 1/2
_EXP2 = (
    0.6931471805599453, 0.24022650695910072, 0.05550410866482158, 0.009618129107628484,
    0.0013333558146428445, 0.0001540353039336245, 1.525273380405099e-05, 1.3215486816311955e-06,
    1.0178086021329605e-07, 7.054894247966286e-09, 4.445530245174007e-10, 2.573378928044613e-11,
    1.3717064479250784e-12,
)  # fmt: skip
# polynomial in s^2 for (log((1 + s) / (1 - s)) / s - 2) / s^2, where |s| <= 0.1716
_LOG = (
    0.6666666666666666, 0.40000000000000885, 0.28571428570799784, 0.22222222392581045,
    0.18181795547521137, 0.15386244737621665, 0.13268638369266825, 0.13088034850927555,
)  # fmt: skip
# polynomial in t^2 for erf(t) / t, where t <= 1
_ERF_NEAR = (
    1.1283791670955126, -0.37612638903183754, 0.1128379167095512, -0.02686617064512984,
    0.0052239776254232985, -0.000854832702193483, 0.00012055332902888736,
    -1.4925647567519332e-05, 1.6462045441468418e-06, -1.6364642158167616e-07,
    1.4792401209404813e-08, -1.216456005728345e-09, 8.709045129053106e-11,
    -4.230945824295338e-12,
)  # fmt: skip
# polynomial in (t - 2) / (t + 2) for t e^(t^2) (1 - erf(t)), where 1 <= t <= 6
_ERF_FAR = (
    0.5107913526210115, 0.16721101041410621, -0.20384429592887884, 0.12151493052458145,
    -0.028976446698033897, -0.007515738410319996, 0.004784898553835416, 0.0011266579805214313,
    -0.0007501844705510457, -0.00031435084641409986, 8.941547670466729e-05, 8.931154882059696e-05,
    6.282391336070971e-06, -1.8965324338990624e-05, -8.911110031713538e-06,
    1.7307349404360235e-06, 3.371667380491622e-06, -3.9895496448260847e-07,
)  # fmt: skip
# polynomial in t^2 for (sinh(t) / t - 1) / t^2, where t <= 1
_SINH = (
    0.16666666666666666, 0.008333333333333333, 0.00019841269841269773, 2.755731922404034e-06,
    2.505210836405804e-08, 1.6059048396350562e-10, 7.646625361656657e-13, 2.8445264169895285e-15,
)  # fmt: skip
_SIGN = 1 << 63


def both(a: Expr, b: Expr) -> Expr:
    """a & b."""
    return Binary("and", a, b)


def sign_of(x: Expr) -> Expr:
    """The bit of the sign, as a u64."""
    bits = bits_of(x, u64)
    return both(bits, literal(_SIGN, bits))


def signed(magnitude: Expr, x: Expr) -> Expr:
    """`magnitude`, which must not be negative, with the sign of x."""
    return bits_of(Binary("or", bits_of(magnitude, u64), sign_of(x)), f64)


# --- exp and its family --------------------------------------------------------------------------


def _power_of_two(k: Expr) -> Expr:
    """2^k for an i64 in the range of normal exponents."""
    return bits_of(shift_left(k + literal(1023, k), 52), f64)


def _split(x: Expr, scale: float, let: Bindings) -> tuple[Expr, Expr]:
    """k = round(x * scale), as f64 and as i64."""
    t = let("t", x * literal(scale, x) + literal(ROUND_F64, x))
    bits = bits_of(t, i64)
    return let("k", t - literal(ROUND_F64, x)), let("ki", bits - literal(0x4338000000000000, bits))


def _scaled(p: Expr, k: Expr, let: Bindings) -> Expr:
    """p * 2^k in two steps, as 2^k itself may be out of range."""
    half = let("kh", shift_right(k, 1))
    return p * _power_of_two(half) * _power_of_two(k - half)


def _remainder(x: Expr, k: Expr, let: Bindings) -> Expr:
    """x - k ln(2)."""
    return let("r", (x - k * literal(_LN2_HIGH, x)) - k * literal(_LN2_LOW, x))


def _exp(x: Expr, let: Bindings) -> Expr:
    def of(x: Expr) -> Expr:
        k, ki = _split(x, LOG2_E, let)
        r = _remainder(x, k, let)
        p = let("p", (r * r * polynomial(r, _EXP) + r) + literal(1.0, x))
        return _scaled(p, ki, let)

    return unless_below(clamp_above(x, 710.5), -746.0, let, of)


def _exp2(x: Expr, let: Bindings) -> Expr:
    def of(x: Expr) -> Expr:
        k, ki = _split(x, 1.0, let)
        r = let("r", x - k)
        return _scaled(r * polynomial(r, _EXP2) + literal(1.0, x), ki, let)

    return unless_below(clamp_above(x, 1025.0), -1076.0, let, of)


def _tanh(x: Expr, let: Bindings) -> Expr:
    # tanh |x| = d / (2 - d) with d = 1 - e^(-2|x|).  From |x| = 19.1 on, tanh |x| rounds to 1.
    y = let("y", clamp_above(intrinsic("abs", x), 22.0) * literal(-2.0, x))
    k, ki = _split(y, LOG2_E, let)
    r = _remainder(y, k, let)
    p = r * r * polynomial(r, _EXP) + r
    s = let("s", _power_of_two(ki))
    d = let("d", (literal(1.0, x) - s) - s * p)
    return signed(d / (literal(2.0, x) - d), x)


def _erf(x: Expr, let: Bindings) -> Expr:
    # from t = 5.93 on, erf t rounds to 1
    t = let("a", clamp_above(intrinsic("abs", x), 6.0))
    z = let("z", t * t)
    near = t * polynomial(z, _ERF_NEAR)
    far = let("f", pick(less(t, 1.0), 1.0, t, x))
    u = (far - literal(2.0, x)) / (far + literal(2.0, x))
    rest = _exp(let("y", -(far * far)), let) * polynomial(let("u", u), _ERF_FAR) / far
    return signed(pick(less(t, 1.0), near, literal(1.0, x) - rest, x), x)


def _sinh(x: Expr, let: Bindings) -> Expr:
    a = let("a", intrinsic("abs", x))
    z = let("z", a * a)
    near = z * a * polynomial(z, _SINH) + a
    root = let("h", _exp(a * literal(0.5, x), let))
    half = let("hh", root * literal(0.5, x))
    far = half * root - literal(0.5, x) / (root * root)
    return signed(pick(less(a, 1.0), near, far, x), x)


def _cosh(x: Expr, let: Bindings) -> Expr:
    root = let("h", _exp(intrinsic("abs", x) * literal(0.5, x), let))
    half = let("hh", root * literal(0.5, x))
    return half * root + literal(0.5, x) / (root * root)


# --- logarithms ----------------------------------------------------------------------------------


def _log_split(x: Expr, let: Bindings) -> tuple[Expr, Expr]:
    """e and f with x = 2^e (1 + f) and sqrt(1/2) <= 1 + f < sqrt(2), for positive finite x."""
    tiny = let("tiny", less(x, 2.2250738585072014e-308))
    bits = let("b", bits_of(pick(tiny, x * literal(2.0**54, x), x, x), i64))
    e = let("e", shift_right(bits - literal(0x3FE6A09E667F3BCD, bits), 52))
    f = let("f", bits_of(bits - shift_left(e, 52), f64) - literal(1.0, x))
    return let("ef", Cast(e, f64) - pick(tiny, 54.0, 0.0, x)), f


def _log_parts(x: Expr, let: Bindings) -> tuple[Expr, Expr]:
    """(high, low) whose sum is log(x), for positive finite x.

    With s = f / (2 + f), log(1 + f) = 2 s + s R = f - f^2 / 2 + s (f^2 / 2 + R).
    """
    e, f = _log_split(x, let)
    s = let("s", f / (f + literal(2.0, x)))
    z = let("z", s * s)
    square = let("q", f * f * literal(0.5, x))
    low = s * (square + z * polynomial(z, _LOG)) + e * literal(_LN2_LOW, x)
    return e * literal(_LN2_HIGH, x), f + (low - square)


def _log(x: Expr, let: Bindings) -> Expr:
    high, low = _log_parts(x, let)
    return log_edges(x, high + low)


def _log1p(x: Expr, let: Bindings) -> Expr:
    x = let("x", x)
    u = let("u", x + literal(1.0, x))
    high, low = _log_parts(u, let)
    lost = (x - (u - literal(1.0, x))) / u  # rounding error of 1 + x
    lost = pick(less(u, 2.0**60), lost, 0.0, x)
    result = let("l", log_edges(u, high + (low + lost)))
    return pick(equal(x, 0.0), x, result, x)  # log1p(-0) is -0


def _asinh(x: Expr, let: Bindings) -> Expr:
    a = let("a", intrinsic("abs", x))
    large = let("large", less(literal(2.0**28, x), a))
    z = let("z", pick(large, 0.0, a * a, x))
    d = a + z / (literal(1.0, x) + intrinsic("sqrt", z + literal(1.0, x)))
    value = _log1p(pick(large, a - literal(1.0, x), d, x), let)
    value = value + pick(large, _LN2_HIGH + _LN2_LOW, 0.0, x)
    return signed(value, x)


def _acosh(x: Expr, let: Bindings) -> Expr:
    large = let("large", less(literal(2.0**28, x), x))
    d = let("d", x - literal(1.0, x))
    inside = let("i", pick(large, 0.0, d * (d + literal(2.0, x)), x))
    value = _log1p(pick(large, d, d + intrinsic("sqrt", inside), x), let)
    value = value + pick(large, _LN2_HIGH + _LN2_LOW, 0.0, x)
    return pick(less(x, 1.0), NAN, value, x)


def _atanh(x: Expr, let: Bindings) -> Expr:
    a = let("a", intrinsic("abs", x))
    value = _log1p(literal(2.0, x) * a / (literal(1.0, x) - a), let) * literal(0.5, x)
    return pick(less(literal(1.0, x), a), NAN, signed(value, x), x)


def power(x: Expr, y: Expr, let: Bindings) -> Expr:
    """x^y as 2^(y log2 |x|), with the logarithm as a sum of two f64.  Special cases follow C99."""
    x, y = let("x", x), let("y", y)
    a = let("a", intrinsic("abs", x))
    one = literal(1.0, x)
    e, f = _log_split(a, let)
    # s = f / (2 + f) as high + low, and log(1 + f) = 2 s + s^3 (...)
    d = let("d", f + literal(2.0, x))
    rest = f - (d - literal(2.0, x))
    s = let("s", f / d)
    low = (_fma(-s, d, f) - s * rest) / d
    z = let("z", s * s)
    first = let("l0", s * literal(2.0, x))
    second = low * literal(2.0, x) + s * z * polynomial(z, _LOG)
    second = let("l1", second)
    high = let("h", first + second)
    low = let("hl", second - (high - first))
    # the logarithm times log2(e), plus the exponent e
    scaled = let("g", high * literal(LOG2_E, x))
    more = _fma(high, literal(LOG2_E, x), -scaled) + high * literal(_LOG2_E_LOW, x)
    more = let("gl", more + low * literal(LOG2_E, x))
    log = let("lh", e + scaled)
    log_low = let("ll", (scaled - (log - e)) + more)
    usual = let("us", both(less(literal(0.0, x), a), less(a, INF)))
    log = let("lg", Select(usual, log, pick(equal(a, 0.0), -INF, a, x)))
    whole = let("v", y * log)
    fits = both(usual, less(intrinsic("abs", whole), 1100.0))
    below = let("vl", Select(fits, _fma(y, log, -whole) + y * log_low, literal(0.0, x)))
    bounded = let("vb", clamp(whole, -1100.0, 1100.0))
    k, ki = _split(bounded, 1.0, let)
    r = let("r", (bounded - k) + below)
    result = let("pw", _scaled(r * polynomial(r, _EXP2) + one, ki, let))
    integer = let("in", equal(y, intrinsic("floor", y)))
    half = let("ha", y * literal(0.5, x))
    odd = both(integer, Compare("ne", half, intrinsic("floor", half)))
    negative = Compare("ne", sign_of(x), literal(0, bits_of(x, u64)))
    result = Select(both(negative, odd), -result, result)
    no_root = both(less(x, 0.0), both(less(a, INF), less(intrinsic("floor", y), y)))
    result = pick(no_root, NAN, result, x)
    infinite = both(equal(a, 1.0), equal(intrinsic("abs", y), INF))
    return pick(any_of(equal(y, 0.0), equal(x, 1.0), infinite), 1.0, result, x)


def _fma(a: Expr, b: Expr, c: Expr) -> Expr:
    return Call("fma", (a, b, c), f64)


FUNCTIONS: dict[str, Expansion] = {
    "exp": _exp, "exp2": _exp2, "log": _log, "log1p": _log1p, "tanh": _tanh, "erf": _erf,
    "sinh": _sinh, "cosh": _cosh, "asinh": _asinh, "acosh": _acosh, "atanh": _atanh,
}  # fmt: skip
