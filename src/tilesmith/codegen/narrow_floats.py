"""Conversion between 16-bit floats in memory (`i16`) and their `float` values.

bfloat16 uses the instruction of CPUs with AVX512-BF16 if results need not be strict, since this
instruction takes denormal numbers as zero.  Otherwise bfloat16 uses integer arithmetic.  float16
uses the machine's conversions where they exist (F16C, AArch64) and integer arithmetic elsewhere.
So no support library is needed.  All roundings are to nearest, ties to even.
"""

from __future__ import annotations

from tilesmith.ir.dtypes import DType
from tilesmith.ir.target import Target

from .builder import Builder
from .llvm_text import splat, vector


class _Lanes:
    """Shorthand for instructions on `float`/`i32` vectors of one width."""

    def __init__(self, b: Builder, lanes: int) -> None:
        self.b = b
        self.lanes = lanes
        self.int = vector("i32", lanes)
        self.float = vector("float", lanes)
        self.short = vector("i16", lanes)

    def const(self, value: int) -> str:
        return str(value) if self.lanes == 1 else splat("i32", str(value), self.lanes)

    def op(self, op: str, a: str, b: int | str) -> str:
        return self.b.emit(f"{op} {self.int} {a}, {self.const(b) if isinstance(b, int) else b}")

    def compare(self, op: str, a: str, b: int) -> str:
        return self.b.emit(f"icmp {op} {self.int} {a}, {self.const(b)}")

    def select(self, cond: str, a: str, b: str) -> str:
        return self.b.emit(
            f"select {vector('i1', self.lanes)} {cond}, {self.int} {a}, {self.int} {b}"
        )

    def bits(self, value: str) -> str:
        return self.b.emit(f"bitcast {self.float} {value} to {self.int}")

    def number(self, bits: str) -> str:
        return self.b.emit(f"bitcast {self.int} {bits} to {self.float}")


def widen(b: Builder, target: Target, dtype: DType, stored: str, lanes: int) -> str:
    """The `float` value of `i16` bits that hold a number of type `dtype`."""
    v = _Lanes(b, lanes)
    if dtype.name == "f16" and target.has_half:
        half = b.emit(f"bitcast {v.short} {stored} to {vector('half', lanes)}")
        return b.emit(f"fpext {vector('half', lanes)} {half} to {v.float}")
    wide = b.emit(f"zext {v.short} {stored} to {v.int}")
    if dtype.name == "bf16":
        return v.number(v.op("shl", wide, 16))
    sign = v.op("shl", v.op("and", wide, 0x8000), 16)
    rest = v.op("shl", v.op("and", wide, 0x7FFF), 13)
    # 2^112 moves the exponent from float16's bias to float's and makes denormals normal
    scale = "0x46F0000000000000" if lanes == 1 else splat("float", "0x46F0000000000000", lanes)
    scaled = v.bits(b.emit(f"fmul {v.float} {v.number(rest)}, {scale}"))
    special = v.op("or", rest, 0x7F800000)
    is_special = v.compare("uge", rest, 0x0F800000)
    return v.number(v.op("or", v.select(is_special, special, scaled), sign))


def narrow(b: Builder, target: Target, dtype: DType, value: str, lanes: int) -> str:
    """The `i16` bits of a `float` value, rounded."""
    v = _Lanes(b, lanes)
    if dtype.name == "f16" and target.has_half:
        half = b.emit(f"fptrunc {v.float} {value} to {vector('half', lanes)}")
        return b.emit(f"bitcast {vector('half', lanes)} {half} to {v.short}")
    if dtype.name == "bf16" and _has_conversion(target):
        low = vector("bfloat", lanes)
        return b.emit(f"bitcast {low} {_converted(b, value, lanes)} to {v.short}")
    if dtype.name == "bf16":
        bits = v.op("lshr", _round_bf16(v, value), 16)
    else:
        bits = _half_bits(v, value)
    return b.emit(f"trunc {v.int} {bits} to {v.short}")


def rounded(b: Builder, target: Target, dtype: DType, value: str, lanes: int) -> str:
    """The value of `dtype` nearest to `value`, as a `float`."""
    if dtype.name == "bf16":
        v = _Lanes(b, lanes)
        # LLVM then knows that the conversion back to bfloat16, for a store, is exact.
        if _has_conversion(target):
            low = _converted(b, value, lanes)
            return b.emit(f"fpext {vector('bfloat', lanes)} {low} to {v.float}")
        return v.number(v.op("and", _round_bf16(v, value), -65536))
    return widen(b, target, dtype, narrow(b, target, dtype, value, lanes), lanes)


def _has_conversion(target: Target) -> bool:
    """Whether the CPU has an instruction that rounds to bfloat16.  Strict results do not use it."""
    return {"avx512bf16", "avx512vl"} <= target.features


def _converted(b: Builder, value: str, lanes: int) -> str:
    """The bfloat16 of a `float` value, by the CPU's instruction."""
    return b.emit(f"fptrunc {vector('float', lanes)} {value} to {vector('bfloat', lanes)}")


def to_odd(b: Builder, value: str, lanes: int) -> str:
    """A `double` rounded to `float` so that rounding again to 16 bits gives the correctly rounded
    result.

    Rounding to odd: truncate, and set the last bit if anything was cut off (Boldo and Melquiond,
    2008).
    """
    v = _Lanes(b, lanes)
    double = vector("double", lanes)
    cond = vector("i1", lanes)
    near = b.emit(f"fptrunc {double} {value} to {v.float}")
    back = b.emit(f"fpext {v.float} {near} to {double}")
    inexact = b.emit(f"fcmp one {double} {back}, {value}")
    abs_back = b.emit(f"call {double} @llvm.fabs({double} {back})")
    abs_value = b.emit(f"call {double} @llvm.fabs({double} {value})")
    away = b.emit(f"fcmp ogt {double} {abs_back}, {abs_value}")
    bits = v.bits(near)
    cut = v.op("sub", bits, b.emit(f"zext {cond} {away} to {v.int}"))
    return v.number(v.op("or", cut, b.emit(f"zext {cond} {inexact} to {v.int}")))


def _round_bf16(v: _Lanes, value: str) -> str:
    """The bits of `value` with the upper half rounded to bfloat16.  NaNs stay NaNs."""
    bits = v.bits(value)
    odd = v.op("and", v.op("lshr", bits, 16), 1)
    up = v.op("add", v.op("add", bits, 0x7FFF), odd)
    nan = v.b.emit(f"fcmp uno {v.float} {value}, {value}")
    return v.select(nan, v.op("or", bits, 0x400000), up)


def _half_bits(v: _Lanes, value: str) -> str:
    """The float16 bits of a `float` value, in the lower half of an i32."""
    bits = v.bits(value)
    sign = v.op("and", bits, -(1 << 31))
    magnitude = v.op("xor", bits, sign)
    is_nan = v.compare("ugt", magnitude, 0x7F800000)
    special = v.select(is_nan, v.const(0x7E00), v.const(0x7C00))
    # denormal results: adding 0.5 leaves the rounded result in the last bits of the sum
    half = "0x3FE0000000000000" if v.lanes == 1 else splat("float", "0x3FE0000000000000", v.lanes)
    small = v.op(
        "sub", v.bits(v.b.emit(f"fadd {v.float} {v.number(magnitude)}, {half}")), 0x3F000000
    )
    odd = v.op("and", v.op("lshr", magnitude, 13), 1)
    moved = v.op("add", v.op("add", magnitude, ((15 - 127) << 23) + 0xFFF), odd)
    normal = v.op("lshr", moved, 13)
    finite = v.select(v.compare("ult", magnitude, 0x38800000), small, normal)
    result = v.select(v.compare("uge", magnitude, 0x47800000), special, finite)
    return v.op("or", result, v.op("lshr", sign, 16))
