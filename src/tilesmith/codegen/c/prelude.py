"""C helper functions for operations whose result C leaves undefined or implementation-defined.

Kernels call them by name, as in `ts_add_i32(a, b)`; a translation unit holds only the helpers that
its kernels use.  They need C99 with `math.h`, `stdint.h`, `stdbool.h` and `string.h`, integers in
two's complement and IEEE 754 floats.  `ir.expr` defines their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from string import Template

from tilesmith.ir.dtypes import ARITHMETIC, BY_NAME, STORAGE, DType
from tilesmith.ir.threefry import PARITY, ROTATIONS, ROUNDS

HEADERS = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "tilesmith.h"
"""

VALUE_TYPES: dict[str, str] = {
    "bool": "bool", "f16": "float", "bf16": "float", "f32": "float", "f64": "double",
    **{f"i{b}": f"int{b}_t" for b in (8, 16, 32, 64)},
    **{f"u{b}": f"uint{b}_t" for b in (8, 16, 32, 64)},
    **{d.name: "uint8_t" for d in STORAGE},
}  # fmt: skip
"""The C type of values of an element type."""

MEMORY_TYPES: dict[str, str] = VALUE_TYPES | {
    "bool": "uint8_t", "f16": "uint16_t", "bf16": "uint16_t",
}  # fmt: skip
"""The C type of an element in memory."""


def is_narrow(dtype: DType) -> bool:
    """True for the 16-bit floats, which are computed in `float` and rounded after every
    operation.
    """
    return dtype.is_float and dtype.bits == 16


_FAMILIES: dict[str, dict[str, str]] = {
    "int": {
        "add": "$t ts_add_$n($t a, $t b) { return ($t)(($u)a + ($u)b); }",
        "sub": "$t ts_sub_$n($t a, $t b) { return ($t)(($u)a - ($u)b); }",
        "mul": "$t ts_mul_$n($t a, $t b) { return ($t)(($u)a * ($u)b); }",
        "neg": "$t ts_neg_$n($t a) { return ($t)(0 - ($u)a); }",
        "abs": "$t ts_abs_$n($t a) { return a < 0 ? ($t)(0 - ($u)a) : a; }",
        "add_overflows": """\
bool ts_add_overflows_$n($t a, $t b) {
    return b > 0 ? a > $high - b : a < -$high - 1 - b;
}""",
        "sub_overflows": """\
bool ts_sub_overflows_$n($t a, $t b) {
    return b < 0 ? a > $high + b : a < -$high - 1 + b;
}""",
        "mul_overflows": """\
bool ts_mul_overflows_$n($t a, $t b) {
    if (a == -1 || b == -1) return (a == -1 ? b : a) < -$high;
    return a != 0 && ($t)(($u)a * ($u)b) / a != b;
}""",
        "truncdiv": """\
$t ts_truncdiv_$n($t a, $t b) {
    return b == 0 ? 0 : b == -1 ? ($t)(0 - ($u)a) : ($t)(a / b);
}""",
        "truncmod": """\
$t ts_truncmod_$n($t a, $t b) {
    return b == 0 || b == -1 ? 0 : ($t)(a % b);
}""",
        "floordiv": """\
$t ts_floordiv_$n($t a, $t b) {
    if (b == 0 || b == -1) return b == 0 ? 0 : ($t)(0 - ($u)a);
    return ($t)(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));
}""",
        "floormod": """\
$t ts_floormod_$n($t a, $t b) {
    if (b == 0 || b == -1) return 0;
    return ($t)(a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0));
}""",
        "shl": "$t ts_shl_$n($t a, $t b) { return (uint64_t)b < $bits ? ($t)(($u)a << b) : 0; }",
        "shr": """\
$t ts_shr_$n($t a, $t b) {
    $t n = (uint64_t)b < $bits ? b : $bits - 1;
    return ($t)(a < 0 ? ~(~a >> n) : a >> n);
}""",
        "pow": """\
$t ts_pow_$n($t a, $t b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    $u result = 1, square = ($u)a;
    for (; b > 0; b >>= 1, square *= square)
        if (b & 1) result *= square;
    return ($t)result;
}""",
    },
    "uint": {
        "add": "$t ts_add_$n($t a, $t b) { return ($t)(($u)a + b); }",
        "sub": "$t ts_sub_$n($t a, $t b) { return ($t)(($u)a - b); }",
        "mul": "$t ts_mul_$n($t a, $t b) { return ($t)(($u)a * b); }",
        "neg": "$t ts_neg_$n($t a) { return ($t)(0 - ($u)a); }",
        "abs": "$t ts_abs_$n($t a) { return a; }",
        "floordiv": "$t ts_floordiv_$n($t a, $t b) { return b == 0 ? 0 : ($t)(a / b); }",
        "floormod": "$t ts_floormod_$n($t a, $t b) { return b == 0 ? 0 : ($t)(a % b); }",
        "truncdiv": "$t ts_truncdiv_$n($t a, $t b) { return b == 0 ? 0 : ($t)(a / b); }",
        "truncmod": "$t ts_truncmod_$n($t a, $t b) { return b == 0 ? 0 : ($t)(a % b); }",
        "shl": "$t ts_shl_$n($t a, $t b) { return b < $bits ? ($t)(($u)a << b) : 0; }",
        "shr": "$t ts_shr_$n($t a, $t b) { return b < $bits ? ($t)(a >> b) : 0; }",
        "pow": """\
$t ts_pow_$n($t a, $t b) {
    $u result = 1, square = a;
    for (; b > 0; b >>= 1, square *= square)
        if (b & 1) result *= square;
    return ($t)result;
}""",
    },
    "float": {
        "floormod": """\
$t ts_floormod_$n($t a, $t b) {
    $t r = fmod$f(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}""",
        "min": "$t ts_min_$n($t a, $t b) { return a <= b || a != a ? a : b; }",
        "max": "$t ts_max_$n($t a, $t b) { return a >= b || a != a ? a : b; }",
    },
}  # fmt: skip
"""Kind of element type -> operation -> template of a helper.  `$n` is the name of the element type,
`$t` its C type, `$u` an unsigned type at least as wide, `$f` the suffix of functions of `math.h`.
"""

for _kind in ("int", "uint"):
    _FAMILIES[_kind] |= {
        "min": "$t ts_min_$n($t a, $t b) { return a < b ? a : b; }",
        "max": "$t ts_max_$n($t a, $t b) { return a > b ? a : b; }",
    }

for _to in ARITHMETIC:
    if not _to.is_int:
        continue
    _bits = 64 if _to.bits == 64 else 32
    _half, _type, _wide = f"{1 << _bits - 1}.0", VALUE_TYPES[_to.name], f"int{_bits}_t"
    _inside = f"a > -{_half} && a < {_half} ? ({_wide})a : INT{_bits}_MIN"
    if _to.kind == "uint" and _to.bits >= 32:
        _FAMILIES["float"][f"to_{_to}"] = f"""\
{_type} ts_to_{_to}_$n($t a) {{
    {_type} high = a >= {_half} ? ({_type})1 << {_bits - 1} : 0;
    a = high ? ($t)(a - {_half}) : a;
    return ({_type})({_inside}) ^ high;
}}"""
    else:
        _FAMILIES["float"][f"to_{_to}"] = (
            f"{_type} ts_to_{_to}_$n($t a) {{ return ({_type})({_inside}); }}"
        )


def _reinterpret(to: str, source: str) -> str:
    a, b = VALUE_TYPES[source], VALUE_TYPES[to]
    return f"{b} ts_{to}_of_bits_{source}({a} a) {{ {b} b; memcpy(&b, &a, sizeof b); return b; }}"


_SINGLE: dict[str, str] = {
    "ts_address": """\
void *ts_address(const void *table, size_t number) {
    void *address;
    memcpy(&address, (const char *)table + number * sizeof address, sizeof address);
    return address;
}""",
    "ts_point": """\
void ts_point(void *table, size_t number, const void *to) {
    memcpy((char *)table + number * sizeof to, &to, sizeof to);
}""",
    # with the DSP extension, one instruction computes two products of 16 bits
    "ts_smlad_u8_i8": """\
int32_t ts_smlad_u8_i8(int32_t c, const uint8_t *a, const int8_t *w) {
#if defined(__ARM_FEATURE_SIMD32) && defined(__GNUC__)
    uint32_t x, y, even_x, odd_x, even_y, odd_y;
    memcpy(&x, a, 4), memcpy(&y, w, 4);
    __asm__("uxtb16 %0, %1" : "=r"(even_x) : "r"(x));
    __asm__("uxtb16 %0, %1, ror #8" : "=r"(odd_x) : "r"(x));
    __asm__("sxtb16 %0, %1" : "=r"(even_y) : "r"(y));
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd_y) : "r"(y));
    __asm__("smlad %0, %1, %2, %3" : "=r"(c) : "r"(even_x), "r"(even_y), "r"(c));
    __asm__("smlad %0, %1, %2, %3" : "=r"(c) : "r"(odd_x), "r"(odd_y), "r"(c));
    return c;
#else
    const int32_t sum = a[0] * w[0] + a[1] * w[1] + a[2] * w[2] + a[3] * w[3];
    return (int32_t)((uint32_t)c + (uint32_t)sum);
#endif
}""",
    "ts_f32_of_bits_u32": _reinterpret("f32", "u32"),
    "ts_u32_of_bits_f32": _reinterpret("u32", "f32"),
    "ts_f64_of_bits_u64": _reinterpret("f64", "u64"),
    "ts_u64_of_bits_f64": _reinterpret("u64", "f64"),
    "ts_load_f16": """\
float ts_load_f16(uint16_t h) {
    uint32_t rest = (uint32_t)(h & 0x7fff) << 13;
    /* 2^112 moves the exponent from binary16's bias to binary32's and makes denormals normal */
    uint32_t bits = ts_u32_of_bits_f32(ts_f32_of_bits_u32(rest) * 5.192296858534828e+33f);
    if (rest >= 0x0f800000) bits = rest | 0x7f800000;
    return ts_f32_of_bits_u32(bits | (uint32_t)(h & 0x8000) << 16);
}""",
    "ts_store_f16": """\
uint16_t ts_store_f16(float x) {
    uint32_t bits = ts_u32_of_bits_f32(x), rest = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (rest > 0x7f800000) return sign | 0x7e00;
    if (rest >= 0x477ff000) return sign | 0x7c00; /* 65520 rounds to infinity */
    if (rest < 0x38800000) /* denormal: the sum has the result's last place at 2^-24 */
        return sign | (uint16_t)(ts_u32_of_bits_f32(ts_f32_of_bits_u32(rest) + 0.5f) - 0x3f000000);
    return sign | (uint16_t)((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}""",
    "ts_load_bf16": """\
float ts_load_bf16(uint16_t h) { return ts_f32_of_bits_u32((uint32_t)h << 16); }""",
    "ts_store_bf16": """\
uint16_t ts_store_bf16(float x) {
    uint32_t bits = ts_u32_of_bits_f32(x);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}""",
    "ts_round_f16": "float ts_round_f16(float x) { return ts_load_f16(ts_store_f16(x)); }",
    "ts_round_bf16": "float ts_round_bf16(float x) { return ts_load_bf16(ts_store_bf16(x)); }",
    "ts_odd_f32": """\
float ts_odd_f32(double x) { /* rounded to odd, so that rounding again rounds only once */
    float y = (float)x;
    if (x != x || (double)y == x) return y;
    return ts_f32_of_bits_u32((ts_u32_of_bits_f32(y) - (fabs((double)y) > fabs(x))) | 1);
}""",
    "ts_check_index": """\
int64_t ts_check_index(struct tilesmith_context *context, int32_t message, int64_t index,
                       int64_t extent, int64_t position) {
    if ((uint64_t)index + (uint64_t)extent >= 2 * (uint64_t)extent && !context->failure.code) {
        struct tilesmith_failure *failure = &context->failure;
        failure->code = TILESMITH_ASSERTION, failure->assertion = message, failure->count = 3;
        failure->values[0] = index, failure->values[1] = position, failure->values[2] = extent;
    }
    if ((uint64_t)index + (uint64_t)extent >= 2 * (uint64_t)extent) return 0;
    return index < 0 ? index + extent : index;
}""",
    "ts_threefry": f"""\
uint32_t ts_threefry(uint32_t x, uint32_t y, uint32_t k0, uint32_t k1) {{
    static const uint8_t turns[] = {{{", ".join(str(n) for group in ROTATIONS for n in group)}}};
    uint32_t key[3], n;
    key[0] = k0, key[1] = k1, key[2] = k0 ^ k1 ^ {PARITY:#x};
    x += k0, y += k1;
    for (n = 0; n < {ROUNDS}; n++) {{
        x += y;
        y = (y << turns[n % 8] | y >> (32 - turns[n % 8])) ^ x;
        if (n % 4 == 3) x += key[(n / 4 + 1) % 3], y += key[(n / 4 + 2) % 3] + n / 4 + 1;
    }}
    return x;
}}""",
}
"""Helpers by name.  A helper follows the helpers that it calls."""


@lru_cache(maxsize=256)
def family_helper(op: str, dtype: DType, suffix: str = "f") -> str:
    """The definition of `ts_<op>_<dtype>`.

    suffix: ending of the names of functions of `math.h` on `float`.

    Raises KeyError if `op` has no helper for this kind of element type.
    """
    return Template(_FAMILIES[dtype.kind][op]).substitute(
        n=dtype.name,
        t=VALUE_TYPES[dtype.name],
        u="uint64_t" if dtype.bits > 32 else "uint32_t",
        f="" if dtype.bits == 64 else suffix,
        bits=dtype.bits,
        high=f"INT{dtype.bits}_MAX",
    )


def has_tensor_helper(name: str) -> bool:
    """Whether there is a helper `ts_<name>`, which computes a tensor intrinsic from the accumulator
    and the addresses of the tiles.
    """
    return f"ts_{name}" in _SINGLE


def has_helper(op: str, dtype: DType) -> bool:
    """True when there is a `ts_<op>_<dtype>`."""
    return op in _FAMILIES.get(dtype.kind, ())


def definitions(
    names: Iterable[str], own: Mapping[str, str] | None = None, suffix: str = "f"
) -> str:
    """C text of the helpers `names` and of the helpers that these call.

    own: definitions that replace those of this module.
    suffix: ending of the names of functions of `math.h` on `float`.
    """
    single = {**_SINGLE, **(own or {})}
    wanted = set(names)
    for name, text in reversed(single.items()):
        if name in wanted:
            wanted |= set(re.findall(r"\bts_\w+", text))
    texts = [text for name, text in single.items() if name in wanted]
    for name in sorted(wanted - single.keys()):
        op, dtype = name.removeprefix("ts_").rsplit("_", 1)
        texts.append(family_helper(op, BY_NAME[dtype], suffix))
    return "".join(f"static inline {text}\n\n" for text in texts)
