"""Less frequent f32 functions.  They are computed in f64, with errors far below half an f32 ulp,
and rounded once.
"""

from __future__ import annotations

from tilesmith.ir.dtypes import f32, f64, i32, i64
from tilesmith.ir.expr import Binary, Cast, Compare, Expr, Select

from . import math_terms as terms
from .math_terms import INF, LOG2_E, NAN, Bindings, Expansion, literal

# polynomial in s^2 for log2((1 + s) / (1 - s)) / s, where |s| <= 0.1716
_LOG2_WIDE = (
    2.88539008177784893, 0.961796694115375303, 0.577077941750185928, 0.412209316728623625,
    0.319902970754504096, 0.282940293391743295,
)  # fmt: skip
_EXP2_WIDE = (
    0.693147180555023866, 0.240226506956876618, 0.0555041091481772889, 0.00961812919452609728,
    0.00133334705546508724, 0.000154034296231734592, 0.0000153056760382909109,
    1.32609698394227704e-6,
)  # fmt: skip
_ATAN_WIDE = (
    0.999999999947398921, -0.333333317207887304, 0.199999180592671321, -0.142840747990704382,
    0.110939956637841048, -0.0898376784969132129, 0.0725600419992857231, -0.0544715930367374982,
    0.0344409402732926681, -0.0162842759115607347, 0.00492369187726647447, -0.000698035339105792628,
)  # fmt: skip
_ASIN_WIDE = (
    0.999999999984483031, 0.166666674383431474, 0.0749993711751501141, 0.0446622987634244641,
    0.0300891576664037038, 0.0247297070237204129, 0.00717021087692454594, 0.0350137305144757468,
)  # fmt: skip
_SINH_WIDE = (
    1.0000000000498794, 0.16666666417587823, 0.00833335323102105013, 0.000198357097939563312,
    2.81903920381005713e-6,
)  # fmt: skip
_LN2 = 0.6931471805599453
_PI = 3.141592653589793


def _log2_wide(x: Expr, let: Bindings) -> Expr:
    """log2 of an f64 in the normal range, with a relative error below 1e-12."""
    bits = let("b", terms.bits_of(x, i64))
    e = let("e", terms.shift_right(bits - literal(0x3FE6A09E667F3BCD, bits), 52))  # sqrt(1/2)
    m = let("m", terms.bits_of(bits - terms.shift_left(e, 52), f64))
    s = let("s", (m - literal(1.0, m)) / (m + literal(1.0, m)))
    return Cast(e, f64) + s * terms.polynomial(let("z", s * s), _LOG2_WIDE)


def _exp2_wide(x: Expr, let: Bindings) -> Expr:
    """2^x in f64 for |x| <= 1000, with a relative error below 1e-11."""
    t = let("t", x + literal(terms.ROUND_F64, x))
    r = let("r", x - (t - literal(terms.ROUND_F64, x)))
    bits = terms.bits_of(t, i64)
    scale = terms.bits_of(terms.shift_left(bits, 52) + literal(0x3FF0000000000000, bits), f64)
    return (r * terms.polynomial(r, _EXP2_WIDE) + literal(1.0, x)) * scale


def _sign_wide(magnitude: Expr, x: Expr) -> Expr:
    """The f64 `magnitude` rounded to f32 with the sign of the f32 `x`; NaN where x is NaN."""
    return terms.copy_sign(Cast(magnitude, f32), x)


def _atan(x: Expr, let: Bindings) -> Expr:
    x = let("x", x)
    a = let("a", Cast(terms.intrinsic("abs", x), f64))
    big = let("big", terms.less(literal(1.0, a), a))
    t = let("t", terms.pick(big, literal(1.0, a) / a, a, a))
    y = let("y", t * terms.polynomial(let("z", t * t), _ATAN_WIDE))
    return _sign_wide(terms.pick(big, literal(_PI / 2, a) - y, y, a), x)


def _asin_core(a: Expr, let: Bindings) -> tuple[Expr, Expr]:
    """Two values for a >= 0: whether a > 1/2, and asin(t).  t is a if a <= 1/2, else sqrt((1 - a) /
    2), which is NaN for a > 1.
    """
    big = let("big", terms.less(literal(0.5, a), a))
    half = (literal(1.0, a) - a) * literal(0.5, a)
    z = let("z", terms.pick(big, half, a * a, a))
    root = terms.pick(big, terms.intrinsic("sqrt", z), a, a)
    return big, let("y", root * terms.polynomial(z, _ASIN_WIDE))


def _asin(x: Expr, let: Bindings) -> Expr:
    x = let("x", x)
    a = let("a", Cast(terms.intrinsic("abs", x), f64))
    big, y = _asin_core(a, let)
    return _sign_wide(terms.pick(big, literal(_PI / 2, a) - y * literal(2.0, a), y, a), x)


def _acos(x: Expr, let: Bindings) -> Expr:
    x = let("x", Cast(x, f64))
    big, y = _asin_core(let("a", terms.intrinsic("abs", x)), let)
    twice = y * literal(2.0, x)
    near = terms.pick(terms.less(x, 0.0), literal(_PI, x) - twice, twice, x)
    rest = literal(_PI / 2, x) - terms.pick(terms.less(x, 0.0), -y, y, x)
    return Cast(terms.pick(big, near, rest, x), f32)


def _two_exps(x: Expr, let: Bindings) -> tuple[Expr, Expr, Expr]:
    """a, e^a / 2 and e^-a / 2 in f64 with a = min(|x|, 100), since f32 overflows before 100."""
    a = let("a", terms.clamp_above(Cast(terms.intrinsic("abs", x), f64), 100.0))
    e = let("ex", _exp2_wide(let("y", a * literal(LOG2_E, a)), let) * literal(0.5, a))
    return a, e, literal(0.25, a) / e


def _sinh(x: Expr, let: Bindings) -> Expr:
    x = let("x", x)
    a, up, down = _two_exps(x, let)
    near = a * terms.polynomial(let("z", a * a), _SINH_WIDE)
    return _sign_wide(terms.pick(terms.less(a, 1.0), near, up - down, a), x)


def _cosh(x: Expr, let: Bindings) -> Expr:
    _, up, down = _two_exps(x, let)
    return Cast(up + down, f32)


def _asinh(x: Expr, let: Bindings) -> Expr:
    x = let("x", x)
    a = let("a", Cast(terms.intrinsic("abs", x), f64))
    y = let("y", a + terms.intrinsic("sqrt", a * a + literal(1.0, a)))
    far = _log2_wide(y, let) * literal(_LN2, a)
    near = a - a * a * a * literal(1 / 6, a)
    value = terms.pick(terms.less(a, 2.0**-10), near, far, a)
    return _sign_wide(terms.pick(terms.less(a, INF), value, a, a), x)


def _acosh(x: Expr, let: Bindings) -> Expr:
    x = let("x", Cast(x, f64))
    # log(x + sqrt(x^2 - 1)) = log(1 + d), and near x = 1 its series d - d^2/2 + d^3/3 - d^4/4
    d = let(
        "d",
        (x - literal(1.0, x))
        + terms.intrinsic("sqrt", (x - literal(1.0, x)) * (x + literal(1.0, x))),
    )
    far = _log2_wide(let("y", d + literal(1.0, x)), let) * literal(_LN2, x)
    near = d - d * d * (literal(0.5, x) - d * (literal(1 / 3, x) - d * literal(0.25, x)))
    value = terms.pick(terms.less(d, 2.0**-8), near, far, x)
    value = terms.pick(terms.less(x, INF), value, x, x)
    return Cast(terms.pick(terms.less(x, 1.0), NAN, value, x), f32)


def _atanh(x: Expr, let: Bindings) -> Expr:
    x = let("x", x)
    a = let("a", Cast(terms.intrinsic("abs", x), f64))
    ratio = let("y", (literal(1.0, a) + a) / (literal(1.0, a) - a))
    far = _log2_wide(ratio, let) * literal(_LN2 / 2, a)
    near = a + a * a * a * literal(1 / 3, a)
    value = terms.pick(terms.less(a, 2.0**-10), near, far, a)
    edge = terms.pick(terms.equal(a, 1.0), INF, NAN, a)
    return _sign_wide(terms.pick(terms.less(a, 1.0), value, edge, a), x)


def power(x: Expr, y: Expr, let: Bindings) -> Expr:
    """x^y as 2^(y log2 |x|) in f64, with C99's special cases (pow(1, NaN), pow(NaN, 0) are 1)."""
    x, y = let("x", x), let("y", y)
    a, yw = let("a", Cast(terms.intrinsic("abs", x), f64)), let("yw", Cast(y, f64))
    log = _log2_wide(a, let)
    log = terms.pick(
        terms.equal(a, 0.0), -INF, terms.pick(terms.less(a, INF), log, a, a), a
    )  # the logarithm of infinity is infinity, that of NaN is NaN
    power = Cast(_exp2_wide(let("v", terms.clamp(yw * log, -300.0, 300.0)), let), f32)
    half = yw * literal(0.5, yw)
    whole = let("whole", terms.equal(yw, terms.intrinsic("floor", yw)))
    odd = Binary("and", whole, Compare("ne", half, terms.intrinsic("floor", half)))
    negative = Compare("lt", terms.bits_of(x, i32), terms.zero_i32(x))
    power = let("pw", power)
    power = Select(Binary("and", negative, odd), -power, power)
    no_root = Binary(
        "and",
        terms.less(x, 0.0),
        Binary("and", terms.less(a, INF), terms.less(terms.intrinsic("floor", yw), yw)),
    )
    power = terms.pick(no_root, NAN, power, x)
    infinite = Binary("and", terms.equal(a, 1.0), terms.equal(terms.intrinsic("abs", y), INF))
    return terms.pick(
        terms.any_of(terms.equal(y, 0.0), terms.equal(x, 1.0), infinite), 1.0, power, x
    )


FUNCTIONS: dict[str, Expansion] = {
    "asin": _asin, "acos": _acos, "atan": _atan, "sinh": _sinh, "cosh": _cosh,
    "asinh": _asinh, "acosh": _acosh, "atanh": _atanh,
}  # fmt: skip
