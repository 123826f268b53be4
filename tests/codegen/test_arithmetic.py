"""Operations on every element type, scalar and vector, on every instruction set here."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from kernels import TARGETS, elementwise

from common.arithmetic import FLOATS, INTS, edges, floats, ints, reference_int, same
from tilesmith.codegen.targets import host
from tilesmith.ir.dtypes import (
    DType,
    bf16,
    bool_,
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
)  # fmt: skip
from tilesmith.ir.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Expr,
    Let,
    Select,
    Unary,
    Var,
    VectorReduce,
)
from tilesmith.ir.intrinsics import call
from tilesmith.ir.storage import convert_array

ALL = (bool_, *INTS, *FLOATS)
LANES = (1, 4, 7, 16)
OPERATIONS = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max",
              "and", "or", "xor", "shl", "shr")  # fmt: skip

pytestmark = pytest.mark.parametrize("target", TARGETS)


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_integer_operations(dtype: DType, target: str) -> None:
    n = 4 * 7 * 16
    a, b = ints(dtype, n, 1), ints(dtype, n, 2)
    b[::5] = b[::5] % 20  # shifts within the width too
    for op in OPERATIONS:
        for lanes in (1, 7, 16) if op in ("add", "floordiv", "shr") else (4,):
            same(
                elementwise(lambda x, y, op=op: Binary(op, x, y), [a, b], dtype, target, lanes),
                reference_int(op, a, b),
            )


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("dtype", (i8, u8), ids=str)
def test_all_pairs_of_bytes(dtype: DType, op: str, target: str) -> None:
    every = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    a, b = np.repeat(every, 256), np.tile(every, 256)
    wanted = reference_int(op, a, b)
    for lanes in (1, 16):
        same(elementwise(lambda x, y: Binary(op, x, y), [a, b], dtype, target, lanes), wanted)


@pytest.mark.parametrize("divisor", (1, 2, 3, 8, 10, -1, -2, -3, 0))
def test_division_by_a_constant(divisor: int, target: str) -> None:
    a = ints(i64, 112, 3)
    for op in ("floordiv", "floormod", "truncdiv", "truncmod"):
        got = elementwise(lambda x, op=op: _with(op, x, divisor), [a], i64, target, 4)
        same(got, reference_int(op, a, np.full_like(a, divisor)))


def _with(op: str, x: Expr, divisor: int) -> Expr:
    from tilesmith.ir.expr import as_expr

    return Binary(op, x, as_expr(divisor, x))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ("add", "sub", "mul", "div", "min", "max", "floormod", "truncmod"))
def test_float_operations(op: str, dtype: DType, target: str) -> None:
    n = 4 * 7 * 16
    a, b = floats(dtype, n, 1), floats(dtype, n, 2)
    f = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.minimum,
        "max": np.maximum, "floormod": np.mod, "truncmod": np.fmod,
    }[op]  # fmt: skip
    wide = np.float32 if dtype.bits == 16 else dtype.numpy
    with np.errstate(all="ignore"):
        want = f(a.astype(wide), b.astype(wide)).astype(dtype.numpy)
    for lanes in LANES[:3] if "mod" not in op else (1, 4):
        got = elementwise(lambda x, y: Binary(op, x, y), [a, b], dtype, target, lanes)
        if op in ("min", "max", "floormod"):  # which zero comes out is not defined
            got, want = got + np.zeros(1, dtype.numpy), want + np.zeros(1, dtype.numpy)
        same(got, want)


@pytest.mark.parametrize("lanes", (1, 8))
def test_min_max_with_a_constant_keep_nan(lanes: int, target: str) -> None:
    a = floats(f32, 64, 1)
    for op, f in (("min", np.minimum), ("max", np.maximum)):
        for swap in (False, True):
            got = elementwise(
                lambda x, op=op, swap=swap: _clamp(op, x, 0.5, swap), [a], f32, target, lanes
            )
            same(got, f(a, np.float32(0.5)))


def _clamp(op: str, x: Expr, limit: float, swap: bool) -> Expr:
    from tilesmith.ir.expr import as_expr

    c = as_expr(limit, x)
    return Binary(op, c, x) if swap else Binary(op, x, c)


@pytest.mark.parametrize("dtype", (*INTS, *FLOATS), ids=str)
def test_comparisons(dtype: DType, target: str) -> None:
    make = floats if dtype.is_float else ints
    a, b = make(dtype, 112, 1), make(dtype, 112, 2)
    b[::3] = a[::3]
    for op, f in (("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal)):
        same(elementwise(lambda x, y, op=op: Compare(op, x, y), [a, b], bool_, target, 7), f(a, b))
    got = elementwise(lambda x, y: Select(Compare("lt", x, y), x, y), [a, b], dtype, target, 16)
    same(got, np.where(a < b, a, b))


def test_bools(target: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(112) < 0.5, rng.random(112) < 0.5
    for op, f in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        same(elementwise(lambda x, y, op=op: Binary(op, x, y), [a, b], bool_, target, 16), f(a, b))
    same(elementwise(lambda x: Unary("not", x), [a], bool_, target, 7), ~a)


@pytest.mark.parametrize("dtype", (*INTS, *FLOATS), ids=str)
def test_negation_and_absolute_value(dtype: DType, target: str) -> None:
    a = (floats if dtype.is_float else ints)(dtype, 112, 1)
    same(elementwise(lambda x: Unary("neg", x), [a], dtype, target, 16), -a)
    if dtype.kind != "uint":
        same(elementwise(lambda x: call("abs", x), [a], dtype, target, 7), np.abs(a))


@pytest.mark.parametrize("source", ALL, ids=str)
def test_casts(source: DType, target: str) -> None:
    rng = np.random.default_rng(4)
    small = rng.integers(0, 100, 112).astype(source.numpy)
    wide = (
        np.concatenate([floats(source, 64, 5), edges(source)])
        if source.is_float
        else small
        if source.is_bool
        else ints(source, 112, 5)
    )
    for to in ALL:
        a = wide
        with np.errstate(all="ignore"):
            want = convert_array(a, to)
            if to.is_float and to.bits == 16 and source.is_int:
                want = a.astype(np.float32).astype(to.numpy)
        for lanes in (1, 16):
            same(elementwise(lambda x, to=to: Cast(x, to), [a], to, target, lanes), want)


@pytest.mark.parametrize("lanes", (1, 16))
@pytest.mark.parametrize("dtype", (f16, bf16), ids=str)
def test_every_narrow_float_widens_and_rounds_back(dtype: DType, lanes: int, target: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    wide = elementwise(lambda x: Cast(x, f32), [every], f32, target, lanes)
    same(wide, every.astype(np.float32))
    back = elementwise(lambda x: Cast(x, dtype), [wide], dtype, target, lanes)
    same(back, flushed(every, wide, target))


@pytest.mark.parametrize("source", (f32, f64), ids=str)
@pytest.mark.parametrize("dtype", (f16, bf16), ids=str)
def test_rounding_to_narrow_floats(dtype: DType, source: DType, target: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy).astype(source.numpy)
    every = np.sort(every[np.isfinite(every)])
    ties = (every[1:] + every[:-1]) / 2
    a = np.concatenate([ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)]).astype(
        source.numpy
    )
    a = a[: len(a) // 16 * 16]
    got = elementwise(lambda x: Cast(x, dtype), [a], dtype, target, 16)
    if source is f64 and dtype is bf16:  # ml_dtypes rounds twice
        want = _round_bf16(a)
    else:
        want = a.astype(dtype.numpy)
    same(got, flushed(want, a, target))


def flushed(want: np.ndarray, a: np.ndarray, target: str) -> np.ndarray:
    """What `a` becomes: in bf16, denormals become zero by the instruction that the CPU may have."""
    if want.dtype != bf16.numpy or target != "native" or "avx512bf16" not in host().features:
        return want
    zero = np.copysign(np.float32(0), a.astype(np.float32)).astype(want.dtype)
    return np.where(np.abs(a) < 2.0**-126, zero, want)


def _round_bf16(a: np.ndarray) -> np.ndarray:
    """float64 to bfloat16 with one rounding: to odd in float32 first."""
    near = a.astype(np.float32)
    bits = near.view(np.uint32).copy()
    inexact = near.astype(np.float64) != a
    bits -= (np.abs(near.astype(np.float64)) > np.abs(a)).astype(np.uint32)
    bits |= inexact.astype(np.uint32)
    return bits.view(np.float32).astype(ml_dtypes.bfloat16)


def test_intrinsics_with_instructions_of_their_own(target: str) -> None:
    for dtype in (f32, f64, f16):
        a = np.abs(floats(dtype, 112, 6))
        wide = a.astype(np.float32) if dtype is f16 else a
        for name, f in (
            ("sqrt", np.sqrt),
            ("floor", np.floor),
            ("ceil", np.ceil),
            ("trunc", np.trunc),
            ("round", np.rint),
        ):
            for lanes in (1, 7):
                with np.errstate(all="ignore"):
                    want = f(wide).astype(dtype.numpy)
                same(
                    elementwise(lambda x, name=name: call(name, x), [a], dtype, target, lanes), want
                )
        same(elementwise(lambda x: call("isnan", x), [a], bool_, target, 16), np.isnan(a))
        same(elementwise(lambda x: call("isinf", x), [a], bool_, target, 16), np.isinf(a))
    x = floats(f32, 112, 7)
    same(elementwise(lambda v: Call("bitcast", (v,), i32), [x], i32, target, 16), x.view(np.int32))
    h = np.arange(1 << 10, dtype=np.int16)
    same(
        elementwise(lambda v: Call("bitcast", (v,), f16), [h], f16, target, 16), h.view(np.float16)
    )


def test_the_mathematics_library_serves_doubles(target: str) -> None:
    a = np.linspace(0.1, 0.9, 16)
    for name, f in (
        ("exp", np.exp),
        ("log", np.log),
        ("tanh", np.tanh),
        ("sin", np.sin),
        ("asinh", np.arcsinh),
    ):
        got = elementwise(lambda x, name=name: call(name, x), [a], f64, target, 4)
        np.testing.assert_allclose(got, f(a), rtol=1e-14)
    got = elementwise(lambda x, y: call("pow", x, y), [a, a + 1], f64, target, 1)
    np.testing.assert_allclose(got, a ** (a + 1), rtol=1e-14)


def test_let_evaluates_once_and_nests(target: str) -> None:
    def f(x: Expr) -> Expr:
        v, w = Var("v", f32, x.lanes), Var("w", f32, x.lanes)
        return Let(v, x + 1.0, Let(w, v * v, w * v))

    a = np.arange(16, dtype=np.float32)
    same(elementwise(f, [a], f32, target, 4), (a + 1) ** 3)


@pytest.mark.parametrize(
    "lanes,groups", ((2, 1), (16, 1), (7, 1), (16, 4), (12, 4), (6, 2), (15, 3))
)
def test_vector_reductions(lanes: int, groups: int, target: str) -> None:
    from kernels import run

    from tilesmith.ir.expr import Load, Ramp, const
    from tilesmith.loop.nodes import Buffer, Func, Store

    rng = np.random.default_rng(8)
    table = (
        ("add", np.sum, (f32, i32, u8)), ("mul", np.prod, (f64, i64)),
        ("min", np.min, (f32, i16, u16)),
        ("max", np.max, (f16, i8, u32)), ("and", np.all, (bool_,)), ("or", np.any, (bool_,)),
    )  # fmt: skip
    for op, f, dtypes in table:
        for dtype in dtypes:
            a = rng.integers(0, 3, lanes).astype(dtype.numpy)
            x, y = Buffer("x", dtype, (lanes,)), Buffer("y", dtype, (groups,))
            at = Ramp(const(0), const(1), groups) if groups > 1 else const(0)
            value = VectorReduce(op, Load(x, (Ramp(const(0), const(1), lanes),)), groups)
            out = np.empty(groups, dtype.numpy)
            run(Func("reduce", (x, y), (y,), Store(y, (at,), value)), [a, out], target)
            same(out, f(a.reshape(groups, -1), axis=1).astype(dtype.numpy))


def test_a_nan_survives_a_max_reduction(target: str) -> None:
    from kernels import run

    from tilesmith.ir.expr import Load, Ramp, const
    from tilesmith.loop.nodes import Buffer, Func, Store

    x, y = Buffer("x", f32, (16,)), Buffer("y", f32, (1,))
    func = Func(
        "m",
        (x, y),
        (y,),
        Store(y, (const(0),), VectorReduce("max", Load(x, (Ramp(const(0), const(1), 16),)))),
    )
    for at in range(16):
        a, out = np.arange(16, dtype=np.float32), np.empty(1, np.float32)
        a[at] = np.nan
        run(func, [a, out], target)
        assert np.isnan(out[0])
