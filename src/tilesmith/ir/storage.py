"""Conversions from and to storage types, as arithmetic on their codes.

A `Cast` from or to a storage type stays one node until code is written.  Writers replace it by
`converted`, so that every backend has the same conversions.  The interpreter and the reference
evaluator use the conversions of `ml_dtypes`, which must agree with these on all values.

Conversions round to nearest, ties to even.  A number beyond the type's range becomes infinity or
NaN if the type has one, else its largest number.  NaN becomes a zero in types without NaN.  In
conversions to f8e8m0, ties round up; zero and negative numbers become NaN.  Conversions to integer
storage types keep the low bits of an integer; a float is first converted to i32.  `truncated`
defines the integers for floats out of range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .dtypes import (
    DType,
    f4e2m1,
    f6e2m3,
    f6e3m2,
    f8e4m3fn,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
    f8e8m0,
    f32,
    f64,
    i8,
    i32,
    u8,
    u32,
)  # fmt: skip
from .dtypes import dtype as to_dtype
from .expr import Cast, Expr, ExprLike, absolute, cast, compare, const, minimum, select
from .intrinsics import call

_NAN = 0x7FC00000
_MINUS_NAN = 0xFFC00000
_INFINITY = 0x7F800000


@dataclass(frozen=True, slots=True)
class _Format:
    """The encoding of a float with a sign bit, an exponent and a mantissa.

    mantissa: bits of the mantissa.
    bias: bias of the exponent.
    overflow: the code, without sign, of numbers that are too large.
    nan: the code, without sign, of NaN; None if the type has none.
    one_nan: whether the only NaN has the code of minus zero.  Then there is no infinity.
    """

    mantissa: int
    bias: int
    overflow: int
    nan: int | None = None
    one_nan: bool = False


_FORMATS: dict[DType, _Format] = {
    f8e4m3fn: _Format(3, 7, 0x7F, 0x7F),
    f8e5m2: _Format(2, 15, 0x7C, 0x7E),
    f8e4m3fnuz: _Format(3, 8, 0x80, 0x80, one_nan=True),
    f8e5m2fnuz: _Format(2, 16, 0x80, 0x80, one_nan=True),
    f6e2m3: _Format(3, 1, 31),
    f6e3m2: _Format(2, 3, 31),
    f4e2m1: _Format(1, 1, 7),
}


def code_of(value: float, dtype: DType) -> int:
    """The code of a number of a storage type."""
    return int(np.asarray(value, dtype.numpy).view(np.uint8))


def convert_array(array: np.ndarray, to: DType) -> np.ndarray:
    """The elements converted to `to` as `Cast` does.

    f64 is rounded once to storage types, unlike in `ml_dtypes`.
    """
    source = to_dtype(array.dtype)
    if to.is_int and source.is_float:
        return truncated(array, to)
    if to.is_storage and source is f64:
        near = array.astype(np.float32)
        back = near.astype(np.float64)
        bits = near.view(np.uint32) - (np.abs(back) > np.abs(array))
        array = (bits | (back != array)).astype(np.uint32).view(np.float32)
    elif to.is_storage and source.is_storage:
        array = array.astype(np.float32)
    return array.astype(to.numpy)


def truncated(array: np.ndarray, to: DType) -> np.ndarray:
    """Floats as integers of type `to`, rounded toward zero.

    Floats first become i64 if `to` has 64 bits, else i32; then `to` takes the low bits.  NaN and
    numbers out of the range of that i64 or i32 become its least number.  For u32 and u64, 2^31 or
    2^63 is subtracted first from floats that reach it, and added at the end.  This is the
    conversion of x86's instructions, and so of NumPy, PyTorch and ONNX Runtime.
    """
    bits = 64 if to.bits == 64 else 32
    half = 2.0 ** (bits - 1)
    x = array.astype(np.float64)
    above = (x >= half) & (to.kind == "uint" and to.bits >= 32)
    x = np.where(above, x - half, x)
    whole = np.where(np.abs(x) < half, x, -half).astype(np.int64)
    moved = whole ^ np.where(above, np.int64(-1) << np.int64(bits - 1), np.int64(0))
    return moved.astype(to.numpy)


def converted(e: Cast) -> Expr:
    """The cast from or to a storage type as arithmetic on its codes."""
    value = _decoded(e.a) if e.a.dtype.is_storage else e.a
    if not e.type.is_storage:
        return cast(value, e.type)
    if e.type.is_int:
        whole = cast(value, i32) if value.dtype.is_float else value
        code = cast(whole, u8) & ((1 << e.type.bits) - 1)
    else:
        # f32 rounds integers beyond 2^24.  They are too large for every type but f8e8m0, which
        # keeps only their exponent.
        code = cast(_encoded(_odd(value) if value.dtype is f64 else cast(value, f32), e.type), u8)
    return call("bitcast", code, dtype=e.type)


def _bits(x: Expr) -> Expr:
    return call("bitcast", x, dtype=u32)


def _number(bits: Expr) -> Expr:
    return call("bitcast", bits, dtype=f32)


def _choose(cond: Expr, if_true: ExprLike, if_false: Expr) -> Expr:
    return select(cond, if_true, if_false)


def _decoded(a: Expr) -> Expr:
    """The value as an f32, i8 or u8."""
    dtype = a.dtype
    if dtype.is_int:
        code = call("bitcast", a, dtype=u8 if dtype.kind == "uint" else i8)
        if dtype.kind == "uint":
            return code & ((1 << dtype.bits) - 1)
        return (code << (8 - dtype.bits)) >> (8 - dtype.bits)
    code = cast(call("bitcast", a, dtype=u8), u32)
    if dtype is f8e8m0:
        bits = _choose(compare("eq", code, 0), 0x00400000, code << 23)  # 2^-127 is denormal
        return _number(_choose(compare("eq", code, 0xFF), _NAN, bits))
    format = _FORMATS[dtype]
    sign_bit = 1 << (dtype.bits - 1)
    rest = code & (sign_bit - 1)
    sign = (code & sign_bit) << (32 - dtype.bits)
    # The product moves the exponent to the bias of f32 and makes denormal numbers normal.
    moved = rest << (23 - format.mantissa)
    bits = _bits(_number(moved) * 2.0 ** (127 - format.bias))
    if dtype is f8e5m2:
        bits = _choose(compare("le", format.overflow, rest), moved | _INFINITY, bits)
    elif dtype is f8e4m3fn:
        bits = _choose(compare("eq", rest, 0x7F), _NAN, bits)
    bits = bits | sign
    return _number(_choose(compare("eq", code, 0x80), _MINUS_NAN, bits) if format.one_nan else bits)


def _encoded(x: Expr, dtype: DType) -> Expr:
    """The code of an f32, as a u32."""
    bits = _bits(x)
    if dtype is f8e8m0:
        small = cast(compare("lt", 0x00400000, bits), u32)  # bits of denormal numbers
        whole = minimum((bits + 0x00400000) >> 23, 0xFF)
        code = _choose(compare("lt", bits, 0x00800000), small, whole)
        return _choose(compare("le", 0x7FFFFFFF, bits - 1), 0xFF, code)
    format = _FORMATS[dtype]
    rest = bits & 0x7FFFFFFF
    sign = (bits >> 31) << (dtype.bits - 1)
    dropped = 23 - format.mantissa
    odd = (rest >> dropped) & 1
    rebias = (((format.bias - 127) << 23) + (1 << (dropped - 1)) - 1) % (1 << 32)
    normal = (rest + const(rebias, u32) + odd) >> dropped
    # Adding `ruler` aligns the number: the last mantissa bit of the sum has the weight of the last
    # bit of a denormal result.
    ruler = 2.0 ** (1 - format.bias + dropped)
    denormal = _bits(_number(rest) + ruler) - int(np.float32(ruler).view(np.uint32))
    is_small = compare("lt", rest, (128 - format.bias) << 23)
    code = minimum(_choose(is_small, denormal, normal), format.overflow)
    is_nan = compare("lt", _INFINITY, rest)
    if format.one_nan:
        signed = _choose(compare("eq", code, 0), 0, code | sign)
        return _choose(is_nan | compare("eq", code, 0x80), 0x80, signed)
    if format.nan is None:
        return _choose(is_nan, sign ^ (1 << (dtype.bits - 1)), code | sign)
    return _choose(is_nan, format.nan, code) | sign


def _odd(x: Expr) -> Expr:
    """An f64 rounded to f32 so that rounding again gives the correctly rounded result.

    Rounding to odd: truncate, and set the last bit if anything was cut off (Boldo and Melquiond,
    2008).
    """
    near = cast(x, f32)
    back = cast(near, f64)
    away = cast(compare("lt", absolute(x), absolute(back)), u32)
    return _number((_bits(near) - away) | cast(compare("ne", back, x), u32))
