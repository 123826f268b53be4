"""The interpreter: loops, memory, vectors, masks, and its checks; expressions against the tiny
evaluator.
"""

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
    VECTORS,
    narrow,
)
from loop.functions import MATMUL
from loop.functions import VECTORS as VECTOR_FUNC
from tilesmith.ir.dtypes import ALL, f32, i8, i32, i64, u8
from tilesmith.ir.expr import Broadcast, Expr, Let, Ramp, Var, const
from tilesmith.ir.simplify import EMPTY, simplify
from tilesmith.loop.interpret import compile_func, interpret
from tilesmith.loop.nodes import Buffer, For, Func, LetStmt, Stmt, Store
from tilesmith.loop.parse import parse_func
from tilesmith.support.errors import InternalError, ModelError, UsageError

COMMON = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def run_text(text: str, *args) -> None:
    interpret(parse_func(text), args)


def test_matmul() -> None:
    a = np.random.default_rng(0).random((7, 40), np.float32)
    b = np.random.default_rng(1).random((40, 50), np.float32)
    c = np.zeros((7, 50), np.float32)
    interpret(parse_func(MATMUL), [a, b, c, 7])
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_a_function_ends_where_it_returns() -> None:
    text = """\
def f(A: i64[2], n: i64) -> A:
    A[0] = 1
    for i in range(4):
        if i == n:
            return 7
    A[1] = 1
"""
    for n, code in ((2, 7), (4, 0)):
        a = np.zeros(2, np.int64)
        assert interpret(parse_func(text), [a, n]) == code
        assert a.tolist() == [1, code == 0]
    assert str(parse_func(text)) == text


def test_vectors_and_reductions() -> None:
    a = np.arange(-32, 32).astype(np.float32)
    c, s = np.zeros(64, np.float32), np.zeros(4, np.float32)
    interpret(parse_func(VECTOR_FUNC), [a, c, s])
    np.testing.assert_array_equal(c, np.maximum(a, 0) * 2)
    np.testing.assert_array_equal(s, a.reshape(4, 16).sum(1))


def test_masks_guard_loads_and_stores() -> None:
    text = """\
def f(A: f32[6], C: f32[8]) -> C:
    let six: boolx8 = ramp(0, 1, 8) < broadcast(6, 8)
    let seven: boolx8 = ramp(0, 1, 8) < broadcast(7, 8)
    C[ramp(0, 1, 8), mask=seven] = A[ramp(0, 1, 8), mask=six]
    C[7, mask=false] = 5.0
    C[100, mask=false] = 5.0
"""
    c = np.full(8, -1, np.float32)
    run_text(text, np.arange(6, dtype=np.float32), c)
    assert c.tolist() == [0, 1, 2, 3, 4, 5, 0, -1]


def test_select_reads_only_the_chosen_side() -> None:
    text = """\
def f(A: f32[4], C: f32[8]) -> C:
    for i in range(8):
        C[i] = select(i < 4, A[i], A[i - 4] + select(i < 6, A[i - 4], 0.5))
    C[ramp(0, 1, 8)] = select(ramp(0, 1, 8) < broadcast(4, 8), A[ramp(0, 1, 8)], C[ramp(0, 1, 8)])
"""
    c = np.zeros(8, np.float32)
    run_text(text, np.arange(4, dtype=np.float32), c)
    assert c.tolist() == [0, 1, 2, 3, 0, 2, 2.5, 3.5]


def test_memory_starts_with_a_pattern() -> None:
    text = """\
def f(C: f32[2], D: i32[1]) -> C, D:
    alloc T: f32[2] heap
    alloc U: i32[1] stack
    T[0] = 1.0
    C[0] = T[0]
    C[1] = T[1]
    D[0] = U[0]
"""
    c, d = np.zeros(2, np.float32), np.zeros(1, np.int32)
    run_text(text, c, d)
    assert c[0] == 1 and np.isnan(c[1]) and d[0] == np.int32(-1515870811)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("C[4] = 0.0", "'C\\[4\\] = 0.0', the shape is \\[4\\]"),
        ("C[-1] = 0.0", "access outside the buffer"),
        ("C[0] = C[n]", "access outside the buffer: 'C\\[n\\]'"),
        ("C[ramp(2, 1, 4)] = broadcast(1.0, 4)", "with index 4 in lane 2"),
        ("C[0] = reduce_add(C[ramp(-1, 1, 4)], 1)", "with index -1 in lane 0"),
    ],
)
def test_accesses_are_checked(line: str, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        run_text(f"def f(C: f32[4], n: i64) -> C:\n    {line}\n", np.zeros(4, np.float32), 4)


def test_arguments_are_checked() -> None:
    f = parse_func("def f(C: f32[4, n], n: i64) -> C:\n    pass\n")
    good = np.zeros((4, 3), np.float32)
    interpret(f, [good, 3])
    for args, message in (
        ([good], "takes 2 arguments"),
        ([good, 4], r"has shape \(4, 3\), expected \(4, 4\)"),
        ([good.astype(np.float64), 3], "must be a C-contiguous array of f32"),
        ([np.zeros((3, 4), np.float32).T, 3], "C-contiguous"),
        ([3, 3], "is an array, got int"),
        ([good, good], "is a number, got an array"),
    ):
        with pytest.raises(UsageError, match=message):
            interpret(f, args)


def test_assert() -> None:
    text = 'def f(C: f32[4], n: i64) -> C:\n    assert n < 4, "n must be below 4"\n'
    run_text(text, np.zeros(4, np.float32), 3)
    with pytest.raises(ModelError, match="n must be below 4"):
        run_text(text, np.zeros(4, np.float32), 4)


def test_deep_loops_and_lets() -> None:
    """More loops than Python can nest in one function."""
    c = Buffer("C", i64, (1,))
    variables = [Var(f"v{k}") for k in range(30)]
    total: Expr = const(0)
    for v in variables:
        total = total + v
    body: Stmt = Store(c, (const(0),), c[const(0)] + total)
    for k, v in enumerate(reversed(variables)):
        body = For(v, const(k % 3), const(2 if k % 10 == 0 else 1), "serial", body)
        body = LetStmt(Var("x"), const(1), body)
    out = np.zeros(1, np.int64)
    interpret(Func("f", (c,), (c,), body), [out])
    base = sum(k % 3 for k in range(30))
    assert out[0] == 8 * base + 3 * 4


def test_one_variable_may_be_bound_by_several_lets() -> None:
    x, c = Var("x", f32), Buffer("C", f32, (2,))
    twice = Let(x, const(3.0), x + x)
    e = Let(x, twice, x * x) + Let(x, const(1.0), x + x) + twice
    out = np.zeros(2, np.float32)
    interpret(Func("f", (c,), (c,), Store(c, (const(0),), e)), [out])
    assert out[0] == 36 + 2 + 6


def value_of(e: Expr, env: dict, arrays: dict[Buffer, np.ndarray]) -> np.ndarray:
    """The value of `e` as the interpreter stores it."""
    out = Buffer("out", e.dtype, (e.lanes,))
    index = Ramp(const(0), const(1), e.lanes) if e.lanes > 1 else const(0)
    scalars = [v for v in env if isinstance(v, Var)]
    params = (out, *arrays, *scalars)
    result = np.zeros(e.lanes, e.dtype.numpy)
    func = Func("f", params, (out,), Store(out, (index,), e))
    compile_func(func)([result, *arrays.values(), *(env[v] for v in scalars)])
    return result


def agree(e: Expr, env: dict, arrays: dict[Buffer, np.ndarray]) -> None:
    try:
        expected = evaluate(e, {**env, **arrays})
    except Undefined:
        return
    found = value_of(e, env, arrays)
    assert np.array_equal(expected, found, equal_nan=e.dtype.is_float), (str(e), expected, found)


@pytest.mark.parametrize("strategy", [INDICES, CONDITIONS, VECTORS], ids="ICV")
def test_expressions_agree_with_the_evaluator(strategy) -> None:
    @COMMON
    @given(strategy, st.integers(0, 1000))
    def run(e: Expr, seed: int) -> None:
        rng = np.random.default_rng(seed)
        env = {v: int(rng.integers(lo, hi + 1)) for v, (lo, hi) in RANGES.items()}
        data = rng.choice([0, 1, -1, 7, 2**62, -(2**63), 2**63 - 1], 16).astype(np.int64)
        arrays = {DATA: data, BYTES: rng.integers(0, 256, 16).astype(np.uint8)}
        agree(e, env, arrays)
        agree(simplify(e, EMPTY), env, arrays)

    run()


@COMMON
@given(FLOAT_EXPRESSIONS, st.sampled_from([0.0, -0.0, 1.5, float("inf"), float("nan")]))
def test_floats_agree_with_the_evaluator(e: Expr, x: float) -> None:
    agree(e, {FLOATS[0]: x, FLOATS[1]: -2.5}, {})


@pytest.mark.parametrize("dtype", [i8, u8, i32], ids=str)
def test_narrow_integers_agree_with_the_evaluator(dtype) -> None:
    a, b = Var("a", dtype), Var("b", dtype)

    @COMMON
    @given(narrow(dtype, [a, b]), st.integers(0, 1000))
    def run(e: Expr, seed: int) -> None:
        rng = np.random.default_rng(seed)
        corners = [int(dtype.min), int(dtype.max), 0, 1, 3]
        agree(e, {a: int(rng.choice(corners)), b: int(rng.choice(corners))}, {})

    run()


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_type_is_stored_and_read(dtype) -> None:
    a, c = Buffer("A", dtype, (4,)), Buffer("C", dtype, (4,))
    i = Var("i")
    data = np.array([1, 0, 1, 1]).astype(dtype.numpy)
    out = np.zeros(4, dtype.numpy)
    interpret(
        Func("f", (a, c), (c,), For(i, const(0), const(4), "serial", Store(c, (i,), a[i]))),
        [data, out],
    )
    assert data.tobytes() == out.tobytes()
    ramp = Ramp(const(0), const(1), 4)
    out[:] = 0
    interpret(Func("f", (a, c), (c,), Store(c, (ramp,), a[ramp])), [data, out])
    assert data.tobytes() == out.tobytes()
    interpret(Func("f", (c,), (c,), Store(c, (ramp,), Broadcast(const(1, dtype), 4))), [out])
    np.testing.assert_array_equal(out, np.ones(4, dtype.numpy))
