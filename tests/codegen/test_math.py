"""Every expansion against float64 over the whole range, with and without contraction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kernels import TARGETS, elementwise

from tilesmith.codegen.math import KEPT, expand
from tilesmith.codegen.math import scales as machine_scales
from tilesmith.codegen.targets import target
from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType, bf16, bool_, f16, f32, f64, i8, i32, i64
from tilesmith.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Let,
    Select,
    Unary,
    Var,
    const,
)
from tilesmith.ir.functions import INTRINSICS
from tilesmith.ir.intrinsics import call

_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip
_COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}


def evaluate(root: Expr, env: dict[Var, np.ndarray], contract: bool) -> np.ndarray:
    """`root` over whole arrays; `contract` rounds a product that feeds a sum only once (f32)."""
    if isinstance(root, Let):
        inner = {**env, root.var: evaluate(root.value, env, contract)}
        return evaluate(root.body, inner, contract)
    if isinstance(root, Var):
        return env[root]
    if isinstance(root, Const):
        return np.asarray(root.value, root.dtype.numpy)
    if isinstance(root, Broadcast):
        return evaluate(root.value, env, contract)
    args = [evaluate(c, env, contract) for c in root.children]
    match root:
        case Binary(op=("add" | "sub") as op) if contract and root.dtype is f32:
            wide = [
                np.multiply(*(evaluate(f, env, contract).astype(np.float64) for f in c.children))
                if isinstance(c, Binary) and c.op == "mul"
                else a.astype(np.float64)
                for c, a in zip(root.children, args, strict=True)
            ]
            if isinstance(root.a, Binary) and root.a.op == "mul":
                wide[1] = args[1].astype(np.float64)  # only one of two products can be contracted
            return np.asarray(_BINARY[op](*wide)).astype(np.float32)
        case Binary(op=op):
            return _BINARY[op](*args)
        case Unary(op="neg"):
            return -args[0]
        case Compare(op=op):
            return _COMPARE[op](*args)
        case Select():
            return np.where(*args)
        case Cast():
            return args[0].astype(root.dtype.numpy)
        case Call(name="bitcast"):
            return np.ascontiguousarray(args[0]).view(root.dtype.numpy)
        case Call(name="scalef"):
            return (
                np.ldexp(args[0], np.nan_to_num(np.floor(args[1])).astype(np.int32)) + 0 * args[1]
            )
        case Call(name=name):
            assert name in KEPT, name
            return np.asarray(INTRINSICS[name].evaluate(*args)).astype(root.dtype.numpy)
    raise AssertionError(root)


def run(
    name: str,
    *xs: np.ndarray,
    contract: bool = False,
    dtype: DType = f32,
    scales: bool = False,
) -> np.ndarray:
    vars_ = [Var(f"x{i}", dtype) for i in range(len(xs))]
    expanded = expand(call(name, *vars_), scales)
    with np.errstate(all="ignore"):
        return np.broadcast_to(
            evaluate(expanded, dict(zip(vars_, xs, strict=True)), contract), xs[0].shape
        )


def samples(count: int = 400_000) -> np.ndarray:
    """Bit patterns spread over all finite f32, both signs, denormals, and the special values."""
    step = 0x7F800000 // count | 1
    bits = np.arange(0, 0x7F800000, step, dtype=np.uint32)
    edges = np.array([0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x7F7FFFFF, 0x7F800000], np.uint32)
    small = np.linspace(-20, 20, count, dtype=np.float32)
    near_one = (np.arange(-20000, 20000, dtype=np.int32) + 0x3F800000).view(np.float32)
    positive = np.concatenate([bits, edges]).view(np.float32)
    nan = np.array([np.nan], np.float32)
    return np.concatenate([positive, -positive, small, near_one, -near_one, nan])


def ulp_errors(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units in the last place of the exact value; 0 between equal special values."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        unit = np.spacing(np.minimum(np.abs(rounded), np.finfo(np.float32).max)).astype(np.float64)
        # an overflow one step early or late is within a unit of the largest float
        limit = float(np.finfo(np.float32).max)
        error = np.abs(np.clip(got.astype(np.float64), -limit, limit) - exact.clip(-limit, limit))
    return np.where(same, 0.0, np.where(np.isnan(got) != np.isnan(rounded), np.inf, error / unit))


_ERF = np.vectorize(math.erf, otypes=[np.float64])
_EXACT = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log1p": np.log1p, "tanh": np.tanh, "erf": _ERF,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "rsqrt": lambda x: 1 / np.sqrt(x),
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
_BOUND = {
    "exp": 1.5, "exp2": 1.5, "log": 1.5, "log1p": 2.0, "tanh": 3.0, "erf": 3.5, "sin": 2.0,
    "cos": 2.0, "tan": 3.5, "rsqrt": 1.5, "asin": 1.0, "acos": 1.0, "atan": 1.0, "sinh": 1.0,
    "cosh": 1.0, "asinh": 1.0, "acosh": 1.0, "atanh": 1.0,
}  # fmt: skip


_SCALED = ("exp", "exp2", "tanh", "erf")


@pytest.mark.parametrize("contract", [False, True], ids=["separate", "contracted"])
@pytest.mark.parametrize(
    ("name", "scales"), [*((n, False) for n in _BOUND), *((n, True) for n in _SCALED)]
)
def test_error_stays_below_the_stated_bound(name: str, scales: bool, contract: bool) -> None:
    x = samples(60_000 if name == "erf" else 200_000)
    got = run(name, x, contract=contract, scales=scales)
    with np.errstate(all="ignore"):
        exact = np.asarray(_EXACT[name](x.astype(np.float64)))
    errors = ulp_errors(got, exact)
    worst = int(np.argmax(errors))
    assert errors[worst] <= _BOUND[name], (
        f"{name}({x[worst]!r}) = {got[worst]!r}, exactly {exact[worst]!r}: {errors[worst]} ulp"
    )
    zeros = (exact == 0) & (x == 0)
    assert np.array_equal(np.signbit(got[zeros]), np.signbit(exact[zeros]))


@pytest.mark.parametrize("name", ["exp", "exp2"])
@pytest.mark.parametrize("scales", [False, True])
@pytest.mark.parametrize("dtype", [f32, f64])
def test_what_a_mask_excludes_does_not_underflow(name: str, scales: bool, dtype: DType) -> None:
    """Some CPUs take more than a hundred cycles for a result that is less than normal numbers."""
    x = Var("x", dtype)
    excluded = np.array([-np.inf, np.finfo(dtype.numpy).min, -1e9, -1e4], dtype.numpy)
    with np.errstate(under="raise", over="ignore", invalid="ignore"):
        body = expand(Call(name, (x,), dtype), scales, alone=True)
        np.testing.assert_array_equal(evaluate(body, {x: excluded}, False), 0)


def test_every_float_intrinsic_is_expanded_or_kept() -> None:
    for name, intrinsic in INTRINSICS.items():
        if intrinsic.only is i64:
            continue  # tested in tests/driver/test_bad_indices.py and tests/codegen/test_sizes.py
        args = [Var(f"x{i}", intrinsic.only or f32, 8) for i in range(intrinsic.arity)]
        expanded = expand(call(name, *args, dtype=i32 if name == "bitcast" else None))
        assert expanded.lanes == 8
        left = {n.name for n in ir.post_order(expanded) if isinstance(n, Call)}
        assert left <= KEPT


def test_pow_over_the_range() -> None:
    rng = np.random.default_rng(7)
    x = np.exp(rng.uniform(-80, 80, 200_000)).astype(np.float32)
    x[:50_000] = rng.uniform(0.5, 2, 50_000)
    x[50_000:60_000] *= -1
    y = rng.uniform(-60, 60, x.size).astype(np.float32)
    y[50_000:55_000] = np.rint(y[50_000:55_000])
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    assert ulp_errors(run("pow", x, y), exact).max() <= 1.0


def test_pow_special_values() -> None:
    special = [0.0, 1.0, 2.0, 3.0, 0.5, 1e-30, 1e30, 1e-45, 3e38, 8388609.0, math.inf, math.nan]
    values = np.array(special + [-v for v in special], np.float32)
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    got = run("pow", x, y)
    errors = ulp_errors(got, exact)
    worst = int(np.argmax(errors))
    assert errors[worst] <= 1.0, f"pow({x[worst]}, {y[worst]}) = {got[worst]}, not {exact[worst]}"
    with np.errstate(over="ignore"):
        zeros = exact.astype(np.float32) == 0
    assert np.array_equal(np.signbit(got[zeros]), np.signbit(exact[zeros]))


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 2.5])
def test_pow_with_a_constant_exponent(exponent: float) -> None:
    x = samples(20_000)
    var = Var("x", f32)
    with np.errstate(all="ignore"):
        got = evaluate(expand(call("pow", var, const(exponent))), {var: x}, contract=False)
        exact = np.power(x.astype(np.float64), np.full(x.shape, exponent))
    assert ulp_errors(np.broadcast_to(got, x.shape), exact).max() <= 1.5


@pytest.mark.parametrize("exponent", [0.25, 0.75, -0.25, -0.5, -0.75])
def test_pow_by_square_roots(exponent: float) -> None:
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0], np.float32)
    x = np.concatenate([special, samples(20_000)])
    var = Var("x", f32)
    with np.errstate(all="ignore"):
        got = evaluate(expand(call("pow", var, const(exponent))), {var: x}, contract=False)
        exact = np.power(x.astype(np.float64), np.full(x.shape, exponent))
    assert ulp_errors(got, exact).max() <= 3.5
    assert np.array_equal(np.signbit(got[:4]), np.signbit(exact[:4]))


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "log", "floor", "abs"])
def test_half_precision_rounds_once_from_f32(name: str, dtype: DType) -> None:
    x = np.arange(65536, dtype=np.uint16).view(dtype.numpy)
    got = run(name, x, dtype=dtype)
    with np.errstate(all="ignore"):
        want = run(name, x.astype(np.float32)) if name not in KEPT else None
        if want is None:
            want = np.asarray(INTRINSICS[name].evaluate(x.astype(np.float32)))
        want = want.astype(dtype.numpy)
    nan = np.isnan(want.astype(np.float32))
    assert np.array_equal(np.isnan(got.astype(np.float32)), nan)
    assert np.array_equal(got[~nan], want[~nan])


def test_predicates() -> None:
    x = np.array([0, -1, math.inf, -math.inf, math.nan], np.float32)
    assert run("isnan", x).tolist() == [False, False, False, False, True]
    assert run("isinf", x).tolist() == [False, False, True, True, False]
    assert expand(call("isnan", Var("x", bf16))).dtype is bool_


@pytest.mark.parametrize("dtype", [i8, i32, i64], ids=str)
def test_integer_power_wraps_like_repeated_products(dtype: DType) -> None:
    base, exponent = (a.ravel().astype(dtype.numpy) for a in np.meshgrid(range(-5, 6), range(20)))
    got = run("pow", base, exponent, dtype=dtype)
    want = np.ones_like(base)
    for i in range(20):
        want = np.where(i < exponent, want * base, want)
    assert np.array_equal(got, want)


def test_integer_power_of_negative_exponents_rounds_toward_zero() -> None:
    base = np.array([2, 1, -1, -1, 5], np.int32)
    exponent = np.array([-1, -3, -3, -2, -2], np.int32)
    assert run("pow", base, exponent, dtype=i32).tolist() == [0, 1, -1, 1, 0]


def test_double_precision_goes_to_the_c_library() -> None:
    x = Var("x", f64)
    assert expand(call("exp", x)) is call("exp", x)
    assert not any(
        isinstance(n, Call) and n.name == "rsqrt" for n in ir.post_order(expand(call("rsqrt", x)))
    )


@pytest.mark.parametrize("name", _SCALED)
@pytest.mark.parametrize("lanes", [1, 2, 4, 12, 16, 32])
@pytest.mark.parametrize("target_name", TARGETS)
def test_exponentials_run_as_they_are_evaluated(target_name: str, lanes: int, name: str) -> None:
    scales = machine_scales(target(target_name))
    x = samples(2_000)
    x = x[: len(x) // 96 * 96].copy()
    x[:3] = (np.inf, -np.inf, np.nan)
    got = elementwise(lambda e: expand(call(name, e), scales), [x], f32, target_name, lanes)
    with np.errstate(all="ignore"):
        exact = np.asarray(_EXACT[name](x.astype(np.float64)))
    assert ulp_errors(got, exact).max() <= _BOUND[name]
