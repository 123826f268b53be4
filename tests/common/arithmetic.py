"""Operations on scalars: operands at the edges of their types, and the results by NumPy."""

from __future__ import annotations

import numpy as np

from tilesmith.ir.dtypes import (
    DType,
    bf16,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)  # fmt: skip

INTS = (i8, i16, i32, i64, u8, u16, u32, u64)


FLOATS = (f16, bf16, f32, f64)


def ints(dtype: DType, n: int, seed: int) -> np.ndarray:
    """Random values with the extremes, zero and minus one among them."""
    rng = np.random.default_rng(seed)
    a = rng.integers(int(dtype.min), int(dtype.max), n, dtype=dtype.numpy, endpoint=True)
    special = [int(dtype.min), int(dtype.max), 0, 1, 2, 3] + (
        [-1, -2, -3] if dtype.kind == "int" else []
    )
    a[rng.permutation(n)[: 4 * len(special)]] = np.tile(np.array(special, dtype.numpy), 4)
    return a


def floats(dtype: DType, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    a = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)).astype(dtype.numpy)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]
    a[rng.permutation(n)[: 4 * len(special)]] = np.tile(np.array(special, dtype.numpy), 4)
    return a


def edges(dtype: DType) -> np.ndarray:
    """Floats around the limits of each integer type, and special ones: 112 - 64 of them."""
    limits = [s * 2.0**n for n in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1)]
    around = [x + d for x in limits for d in (-1.5, 0.0)]
    special = [np.nan, np.inf, -np.inf, -0.5, -0.9, -1.0, -1.9, -2.0, -129.0, -300.0, -7e4, 3e9,
               5e9, 1e20, 1e30, -1e30]  # fmt: skip
    with np.errstate(over="ignore"):
        return np.array(around + special).astype(dtype.numpy)


def same(a: np.ndarray, b: np.ndarray) -> None:
    """Equal bit for bit, any NaN like any other."""
    assert a.dtype == b.dtype
    if a.dtype.kind in "fV":
        a, b = a.astype(np.float64), b.astype(np.float64)
        assert np.array_equal(np.signbit(a)[~np.isnan(a)], np.signbit(b)[~np.isnan(b)])
    np.testing.assert_array_equal(a, b)


def reference_int(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = a.dtype.itemsize * 8
    with np.errstate(all="ignore"):
        if op in ("add", "sub", "mul"):
            return {"add": np.add, "sub": np.subtract, "mul": np.multiply}[op](a, b)
        if op in ("min", "max"):
            return (np.minimum if op == "min" else np.maximum)(a, b)
        if op in ("and", "or", "xor"):
            return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op](a, b)
        values = []
        for x, y in zip(a.tolist(), b.tolist(), strict=True):
            if op in ("shl", "shr"):
                y %= 1 << bits  # the amount is taken as unsigned
                r = (x << y if y < bits else 0) if op == "shl" else x >> min(y, bits)
            elif y == 0:
                r = 0
            elif op == "floordiv":
                r = x // y
            elif op == "floormod":
                r = x % y
            else:
                q = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
                r = q if op == "truncdiv" else x - q * y
            values.append(r & ((1 << bits) - 1))
        return np.array(values, dtype=f"u{bits // 8}").view(a.dtype)
