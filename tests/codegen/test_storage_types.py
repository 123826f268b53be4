"""Storage types: interpreter, native code, C and NumPy convert alike all codes, all 16-bit floats
and a sample of the others, and both sides of each tie.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from kernels import TARGETS, elementwise

from common.c_library import CLibrary
from tilesmith.ir.dtypes import ARITHMETIC, BY_NAME, STORAGE, DType, f16, f32, f64, i64, u8
from tilesmith.ir.expr import Cast, Expr, Load, Var, compare, const, unary
from tilesmith.ir.intrinsics import call
from tilesmith.ir.simplify import simplify
from tilesmith.ir.storage import convert_array
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Buffer, For, Func, Store
from tilesmith.support.errors import ExpressionError

FLOATS = [d for d in STORAGE if d.is_float]
BOTH = [*STORAGE, *ARITHMETIC]


def codes(dtype: DType) -> np.ndarray:
    """Every value of a storage type, several times where there are few."""
    return (np.arange(256) % (1 << dtype.bits)).astype(np.uint8).view(dtype.numpy)


def finite(dtype: DType) -> np.ndarray:
    """The finite values that are not negative, in order, as f64."""
    values = codes(dtype).astype(np.float64)
    return np.unique(np.abs(values[np.isfinite(values)]))


def values(source: DType) -> np.ndarray:
    """All values of types of up to 16 bits; a sample of others with ties and special numbers."""
    rng = np.random.default_rng(3)
    if source.is_storage:
        return codes(source)
    if source.is_bool:
        return np.arange(16) % 2 == 1
    if source.bits <= 16:
        bits = np.arange(1 << source.bits).astype(f"u{source.bytes}")
        return bits.view(source.numpy)
    if source.is_int:
        small = np.arange(-1024, 1024)
        wide = rng.integers(0, 256, 2048 * source.bytes, np.uint8).view(source.numpy)
        return np.concatenate([small.astype(source.numpy), wide])
    ties = np.concatenate([(a[1:] + a[:-1]) / 2 for a in map(finite, FLOATS)])
    exact = np.concatenate([*map(finite, FLOATS)])
    near = np.concatenate([ties, exact]).astype(source.numpy)
    inf = source.numpy.type(np.inf)
    ordered = np.concatenate([near, np.nextafter(near, inf), np.nextafter(near, -inf)])
    special = np.array([np.nan, np.inf, 0.0, 1e-45, 1e-310, 3e38, 1e300, 127.6], source.numpy)
    wide = rng.normal(size=1 << 12) * 2.0 ** rng.integers(-140, 130, 1 << 12)
    with np.errstate(all="ignore"):
        found = np.concatenate([ordered, special, wide.astype(source.numpy)])
    found = np.concatenate([found, -found])
    return found[: len(found) // 16 * 16]


def same(found: np.ndarray, want: np.ndarray) -> None:
    """Bit by bit, but for the sign and payload of NaN in arithmetic types."""
    assert found.dtype == want.dtype
    a, b = (v.view(f"u{v.dtype.itemsize}") for v in (found, want))
    different = a != b
    if want.dtype.kind in "fV":
        wide = want.astype(np.float64)
        different &= ~(np.isnan(found.astype(np.float64)) & np.isnan(wide))
    assert not different.any(), (found[different][:9], want[different][:9])


def one(source: DType, to: DType, n: int) -> Func:
    x, y, i = Buffer("x", source, (n,)), Buffer("y", to, (n,)), Var("i")
    body = For(i, const(0), const(n), "serial", Store(y, (i,), Cast(Load(x, (i,)), to)))
    return Func("f", (x, y), (y,), body)


PAIRS = [(s, t) for s in BOTH for t in BOTH if s.is_storage or t.is_storage]


@pytest.fixture(scope="module")
def library() -> CLibrary:
    return CLibrary({f"{s}_{t}": one(s, t, len(values(s))) for s, t in PAIRS})


@pytest.mark.parametrize("source", BOTH, ids=str)
def test_c_converts_as_numpy(source: DType, library: CLibrary) -> None:
    for to in (t for s, t in PAIRS if s is source):
        x = values(source)
        found = np.empty(len(x), to.numpy)
        library.call(f"{source}_{to}", [x, found])
        with np.errstate(all="ignore"):
            same(found, convert_array(x, to))


@pytest.mark.parametrize("source", BOTH, ids=str)
def test_native_code_converts_as_numpy(source: DType) -> None:
    for to in (t for s, t in PAIRS if s is source):
        x = values(source)
        with np.errstate(all="ignore"):
            same(
                elementwise(lambda v, to=to: Cast(v, to), [x], to, "native", 16),
                convert_array(x, to),
            )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", STORAGE, ids=str)
def test_targets_and_scalars(dtype: DType, target: str) -> None:
    x = values(f32)[-1024:]
    for lanes in (1, 8):
        found = elementwise(lambda v: Cast(Cast(v, dtype), f32), [x], f32, target, lanes)
        with np.errstate(all="ignore"):
            same(found, convert_array(convert_array(x, dtype), f32))


@pytest.mark.parametrize("dtype", STORAGE, ids=str)
def test_the_interpreter_converts_as_numpy(dtype: DType) -> None:
    for other in (f64, f16, i64, u8, BY_NAME["f8e5m2"]):
        for source, to in ((dtype, other), (other, dtype)):
            x = values(source)[-512:]
            found = np.empty(len(x), to.numpy)
            with np.errstate(all="ignore"):
                interpret(one(source, to, len(x)), [x, found])
                same(found, convert_array(x, to))


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.name != "f8e8m0"], ids=str)
def test_roundings_are_the_nearest(dtype: DType) -> None:
    """Against the list of values, without a conversion: a number beside a tie has one neighbour."""
    for low, high in pairwise(finite(dtype)):
        tie = (low + high) / 2
        around = np.array([np.nextafter(tie, 0), np.nextafter(tie, np.inf), low, high])
        np.testing.assert_array_equal(
            convert_array(around, dtype).astype(np.float64), [low, high, low, high]
        )
        assert not int(convert_array(np.array(tie), dtype).view(np.uint8)) & 1
    assert finite(dtype)[-1] == dtype.largest


@pytest.mark.parametrize("dtype", STORAGE, ids=str)
def test_folding_converts_as_numpy(dtype: DType) -> None:
    for value in (0.0, 1.0, 0.3) if dtype.is_int else (0.0, -0.0, 1.0, -1.0, 0.3, 300.0, 1e9):
        folded = simplify(Cast(Cast(const(value, f64), dtype), f64))
        with np.errstate(all="ignore"):
            want = convert_array(convert_array(np.array(value), dtype), f64)
        np.testing.assert_array_equal(float(str(folded).removesuffix(":f64")), want)


@pytest.mark.parametrize("make", [
    lambda x: x + x, lambda x: unary("neg", x), lambda x: compare("lt", x, x),
    lambda x: call("abs", x),
])  # fmt: skip
@pytest.mark.parametrize("dtype", STORAGE, ids=str)
def test_arithmetic_is_refused(dtype: DType, make: Callable[[Expr], Expr]) -> None:
    with pytest.raises(ExpressionError, match=rf"not defined on {dtype}; cast first"):
        make(Var("x", dtype))
