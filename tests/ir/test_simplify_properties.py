"""Simplification keeps values and is idempotent, on random expressions against a tiny evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.evaluate import Undefined, evaluate
from common.strategies import (
    BYTES,
    CONDITIONS,
    DATA,
    FLOAT_EXPRESSIONS,
    FLOATS,
    INDICES,
    RANGES,
    VARS,
    VECTORS,
    narrow,
)
from tilesmith.ir.bounds import eliminate
from tilesmith.ir.context import Context
from tilesmith.ir.dtypes import i8, i32, u8
from tilesmith.ir.expr import Expr, Load, Var, const, minimum
from tilesmith.ir.simplify import EMPTY, can_prove, interval, simplify

COMMON = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def bounded() -> Context:
    ctx = EMPTY
    for v, (lo, hi) in RANGES.items():
        ctx = ctx.with_var(v, lo, hi)
    return ctx


def points(seed: int) -> list[dict]:
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(12):
        env: dict = {v: int(rng.integers(lo, hi + 1)) for v, (lo, hi) in RANGES.items()}
        env[DATA] = rng.choice([0, 1, -1, 7, 2**62, -(2**63), 2**63 - 1, 5], 16).astype(np.int64)
        env[BYTES] = rng.choice([0, 1, 7, 15, 128, 255], 16).astype(np.uint8)
        result.append(env)
    return result


def check(e: Expr, ctx: Context, envs: list[dict]) -> None:
    simple = simplify(e, ctx)
    assert simple.dtype is e.dtype and simple.lanes == e.lanes
    for env in envs:
        try:
            expected = evaluate(e, env)
        except Undefined:
            continue
        found = evaluate(simple, env)
        assert np.array_equal(expected, found, equal_nan=e.dtype.is_float), (
            str(e),
            str(simple),
            env,
        )
        if e.dtype.is_float:
            known = ~np.isnan(expected)
            assert np.array_equal(np.signbit(expected)[known], np.signbit(found)[known]), (
                str(e),
                str(simple),
            )
        if e.dtype.is_int:
            values = interval(e, ctx)
            assert all(values.contains(int(v)) for v in expected), (str(e), values, env)
    again = simplify(simple, ctx._copy())
    assert again is simple, (str(e), str(simple), str(again))


@COMMON
@given(INDICES, st.integers(0, 1000))
def test_index_arithmetic(e: Expr, seed: int) -> None:
    check(e, bounded(), points(seed))


@COMMON
@given(INDICES, st.integers(0, 1000))
def test_index_arithmetic_without_facts(e: Expr, seed: int) -> None:
    check(e, EMPTY._copy(), points(seed))


@COMMON
@given(CONDITIONS, st.integers(0, 1000))
def test_conditions(e: Expr, seed: int) -> None:
    check(e, bounded(), points(seed))


@COMMON
@given(CONDITIONS, INDICES, st.integers(0, 1000))
def test_under_an_assumption(cond: Expr, e: Expr, seed: int) -> None:
    envs = []
    for env in points(seed):
        try:
            if evaluate(cond, env)[0]:
                envs.append(env)
        except Undefined:
            pass
    ctx = bounded().assuming(cond)
    simple = simplify(e, ctx)
    for env in envs:
        try:
            expected = evaluate(e, env)
        except Undefined:
            continue
        assert np.array_equal(expected, evaluate(simple, env)), (
            str(cond),
            str(e),
            str(simple),
            env,
        )


@COMMON
@given(CONDITIONS, CONDITIONS, st.integers(0, 1000))
def test_what_is_proved_is_true(given_: Expr, claim: Expr, seed: int) -> None:
    ctx = bounded().assuming(given_)
    if not can_prove(claim, ctx):
        return
    for env in points(seed):
        try:
            if evaluate(given_, env)[0]:
                assert evaluate(claim, env)[0], (str(given_), str(claim), env)
        except Undefined:
            pass


@COMMON
@given(FLOAT_EXPRESSIONS)
def test_floats_keep_every_bit(e: Expr) -> None:
    specials = [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan]
    envs = [{FLOATS[0]: x, FLOATS[1]: y} for x in specials for y in specials]
    check(e, EMPTY._copy(), envs)


@pytest.mark.parametrize("dtype", [i8, u8, i32], ids=str)
def test_integers_that_wrap(dtype) -> None:
    variables: list[Expr] = [Var("a", dtype), Var("b", dtype)]

    @COMMON
    @given(narrow(dtype, variables), st.integers(0, 1000))
    def run(e: Expr, seed: int) -> None:
        rng = np.random.default_rng(seed)
        corners = [int(dtype.min), int(dtype.max), 0, 1, 2, 100]
        envs = [{v: int(rng.choice(corners)) for v in variables} for _ in range(10)]
        check(e, EMPTY._copy(), envs)

    run()


@COMMON
@given(VECTORS, st.integers(0, 1000))
def test_vectors(e: Expr, seed: int) -> None:
    check(e, bounded(), points(seed))


def test_symbolic_ends_are_sound() -> None:
    i, j, _, n = VARS

    @COMMON
    @given(CONDITIONS, st.integers(1, 40))
    def run(claim: Expr, size: int) -> None:
        # i < ceil(n / 4), j < min(4, n - 4 i)
        ctx = EMPTY.with_var(n, 1, 40).with_var(VARS[2], -8, 8)
        ctx = ctx.with_var(i, 0, (n + 3) // 4 - 1)
        ctx = ctx.with_var(j, 0, minimum(n - i * 4 - 1, const(3)))
        simple = simplify(claim, ctx)
        rng = np.random.default_rng(size)
        data = rng.integers(-5, 20, 16)
        for a in range(-(-size // 4)):
            for b in range(min(4, size - 4 * a)):
                env = {
                    i: a,
                    j: b,
                    VARS[2]: int(rng.integers(-8, 9)),
                    n: size,
                    DATA: data,
                    BYTES: data.astype(np.uint8),
                }
                try:
                    expected = evaluate(claim, env)
                except Undefined:
                    continue
                assert np.array_equal(expected, evaluate(simple, env)), (
                    str(claim),
                    str(simple),
                    env,
                )

    run()


@COMMON
@given(INDICES, st.integers(0, 1000))
def test_eliminated_bounds_hold(e: Expr, seed: int) -> None:
    """Over all i and j of a triangle, for some k and n."""
    i, j = VARS[:2]
    found = eliminate(e, {i: (0, 3), j: (i, minimum(i + 4, const(5)))}, bounded())
    if found is None:
        return
    for env in points(seed)[:4]:
        for a in range(4):
            for b in range(a, min(a + 4, 5) + 1):
                point = {**env, i: a, j: b}
                try:
                    value = int(evaluate(e, point)[0])
                    lo, hi = (int(evaluate(end, env)[0]) for end in found)
                except Undefined:
                    continue
                assert lo <= value <= hi, (str(e), str(found[0]), str(found[1]), point)


def test_a_quotient_of_a_sum_that_wraps_around_is_no_bound() -> None:
    i = Var("i")
    loaded = Load(DATA, (i,))
    for e in (minimum(loaded, (loaded * 2 + i) // 2), minimum(loaded, (loaded * 4 + i + 3) // 4)):
        check(e, EMPTY.with_var(i, 1, 9), [{i: 3, DATA: np.full(16, 2**63 - 1, np.int64)}])
