"""The rules that lowering counts on, one by one."""

from __future__ import annotations

import pytest

from tilesmith.ir import prove
from tilesmith.ir.affine import as_affine, from_affine
from tilesmith.ir.bounds import eliminate
from tilesmith.ir.dtypes import f32, f64, i8, i32, i64
from tilesmith.ir.expr import (
    Binary,
    Broadcast,
    Cast,
    Compare,
    Expr,
    Let,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    VectorReduce,
    all_of,
    any_of,
    cast,
    const,
    maximum,
    minimum,
)
from tilesmith.ir.intrinsics import call, checked_index, checks_index
from tilesmith.ir.parse import parse_expr
from tilesmith.ir.simplify import EMPTY, can_prove, interval, simplify
from tilesmith.ir.symbols import symbol
from tilesmith.loop.nodes import Buffer

NAMES = {n: Var(n) for n in ("i", "j", "io", "ii", "n", "w", "p", "h")}
VI, J, IO, II, N, W, P, H = NAMES.values()
X, Y = Var("x", f32), Var("y", f32)
A = Buffer("A", f32, (64,))
CTX = EMPTY.with_var(IO, 0, 3).with_var(II, 0, 15)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("p // 7 * 7 + p % 7", "p"),
        ("(p + 3) // 7 * 7 + (p + 3) % 7", "p + 3"),
        ("p // 4 % 3 * 4 + p % 4", "p % 12"),
        ("p // 12 * 12 + p // 4 % 3 * 4 + p % 4", "p"),
        ("(io * 16 + ii) // 16", "io"),
        ("(io * 16 + ii) % 16", "ii"),
        ("(i * 16 + ii) // 64", "i // 4"),
        ("(i * 16 + ii) % 64", "i % 4 * 16 + ii"),
        ("p // n // w * (n * w) + p // n % w * n + p % n", "p"),
        ("(p + 3) // n * (n * w) + (p + 3) % n * w - w * 3", "p * w"),
        ("p // n // 8 * (n * 8) + p // n % 8 * n + p % n", "p"),
        ("p // (n + 1) * (n + 1) * 3 + p % (n + 1) * 3", "p * 3"),
        ("(p + 1) // 4 * 2 <= (p + 1) // 2", "true"),
        ("(p + 3) // 4 * 2 <= (p + 1) // 2 + 1", "true"),
        ("p // 4 // 8", "p // 32"),
        ("p % 32 % 8", "p % 8"),
        ("p % 32 // 8", "p // 8 % 4"),
        ("(i % 4 * 25 + j) // 10 * 10 + (i % 4 * 25 + j) % 10", "i % 4 * 25 + j"),
        (
            "(i % 4 * 25 + j) // 10 * 10 + (i * 25 + j + 1) % 10",
            "(i % 4 * 25 + j) // 10 * 10 + (i * 25 + j + 1) % 10",
        ),
        ("ii // 16", "0"),
        ("ii % 16", "ii"),
        ("io * 16 + ii < 64", "true"),
        ("i * 16 + ii < 64", "i < 4"),
        ("i + 3 - i", "3"),
        ("2 * i + j - i * 2 < n", "j < n"),
        ("i * 2 + 1 == j * 2", "false"),
        ("min(io, 5)", "io"),
        ("max(io * 16 + ii, 100)", "100"),
        ("min(io * 16 + 16, n) - io * 16", "min(n - io * 16, 16)"),
        ("i < 5 and i < 7 and 0 <= i", "i < 5 and 0 <= i"),
        ("i < 5 and 5 <= i", "false"),
        ("i < 5 or 5 <= i", "true"),
        ("not i < 5", "5 <= i"),
        ("select(i < 5, select(i < 7, 1, 2), 3)", "select(i < 5, 1, 3)"),
        ("select(not i == 5, 1, 2)", "select(i != 5, 1, 2)"),
        ("(i + j) * 2 - j", "i * 2 + j"),
        ("truncdiv(ii, 4)", "ii // 4"),
        ("ramp(i * 16, 1, 16) // broadcast(16, 16)", "broadcast(i, 16)"),
        ("ramp(i * 16, 1, 16) % broadcast(16, 16)", "ramp(0, 1, 16)"),
        ("ramp(i, 1, 4) * broadcast(2, 4) + broadcast(j, 4)", "ramp(i * 2 + j, 2, 4)"),
        ("ramp(io * 16, 1, 16) < broadcast(64, 16)", "broadcast(true, 16)"),
        ("i32(ramp(i, 1, 4))", "ramp(i32(i), 1:i32, 4)"),
    ],
)
def test_rule(before: str, after: str) -> None:
    assert str(simplify(parse_expr(before, NAMES), CTX)) == after


def test_unchanged_is_the_same_object() -> None:
    for text in ("i * 16 + j + 3", "(i + 1) // 2", "i < n + 1", "select(i < 5, n, w)"):
        e = parse_expr(text, NAMES)
        assert simplify(e, CTX) is e


def test_floats_keep_signed_zero_nan_and_infinity() -> None:
    zero, one = const(0.0), const(1.0)
    assert simplify(X * one) is X and simplify(X / one) is X and simplify(X - zero) is X
    assert simplify(X + const(-0.0)) is X
    for e in (X + zero, X * zero, X - X, X / X, minimum(X, const(0.0)), Compare("eq", X, X)):
        assert simplify(e) is e
    assert simplify(maximum(const(float("-inf")), X)) is X
    assert simplify(const(0.1) + const(0.2)) is const(0.1 + 0.2, f32)
    assert simplify(Binary("div", one, zero)) is const(float("inf"))


def test_narrow_integers_wrap() -> None:
    a = Var("a", i8)
    assert simplify(const(100, i8) + const(100, i8)) is const(-56, i8)
    e = Compare("lt", a, a + 1)
    assert simplify(e) is e  # 127 + 1 is -128


def test_values_from_memory_may_overflow() -> None:
    data = Buffer("D", Var("v").dtype, (4,))
    v = data[VI]
    e = Compare("lt", v, v + 1)
    assert simplify(e) is e
    assert simplify((v * 4) // 4) is not v
    assert simplify(v + VI - v) is VI  # holds modulo 2**64


def test_casts() -> None:
    a = Var("a", i32)
    assert simplify(Cast(Cast(a, VI.dtype), i32)) is a
    assert simplify(Cast(Cast(II, i32), VI.dtype), CTX) is II
    assert simplify(Cast(Cast(X, f64), f32)) is X
    e = Cast(Cast(X, i32), f32)
    assert simplify(e) is e
    assert simplify(Cast(Broadcast(X, 4), f64)) is Broadcast(Cast(X, f64), 4)


def test_loads_and_masks() -> None:
    four = Broadcast(const(True), 4)
    ramp = Ramp(VI, const(1), 4)
    assert simplify(Load(A, (ramp,), four)) is Load(A, (ramp,))
    assert simplify(Load(A, (ramp,), Broadcast(const(False), 4))) is Broadcast(const(0.0), 4)
    assert simplify(Load(A, (Broadcast(VI, 4),))) is Broadcast(A[VI], 4)


def test_reductions_and_lets() -> None:
    assert simplify(VectorReduce("add", Broadcast(X, 8))) is X * 8.0
    odd = VectorReduce("add", Broadcast(X, 3))
    assert simplify(odd) is odd  # x + x + x is not 3 * x in floating point
    v = Var("v")
    assert simplify(Let(v, const(3), v + VI)) is VI + 3
    assert simplify(Let(v, J, VI)) is VI


def test_calls_fold_and_move_into_broadcasts() -> None:
    assert simplify(call("sqrt", const(4.0))) is const(2.0)
    assert simplify(call("exp", Broadcast(X, 4))) is Broadcast(call("exp", X), 4)


def test_the_check_of_an_index_that_is_surely_inside_goes() -> None:
    byte = Load(Buffer("x", i8, (9,)), (const(0),))
    place = cast(cast(byte, i32) + 128, i64)
    assert simplify(checked_index(place, 256, 0), EMPTY) is simplify(place, EMPTY)
    for index, extent in ((place, 255), (cast(byte, i64), 256), (place, Var("n"))):
        assert checks_index(simplify(checked_index(index, extent, 0), EMPTY))


def test_symbolic_ends() -> None:
    ctx = EMPTY.with_var(N, 1, 1000).with_var(IO, 0, (N + 15) // 16 - 1)
    assert can_prove(IO * 16 < N, ctx)
    ctx = ctx.with_var(II, 0, minimum(const(16), N - IO * 16) - 1)
    assert can_prove(IO * 16 + II < N, ctx)
    assert not can_prove(IO * 16 + II < N - 1, ctx)
    rows = EMPTY.with_var(N, 1, 1000).with_var(J, 0, N - 1)
    assert simplify((VI * N + J) // N, rows) is VI
    assert simplify((VI * N + J) % N, rows) is J
    assert simplify(VI, EMPTY.with_var(VI, N, N)) is N


def test_a_product_that_may_exceed_the_type_is_still_positive() -> None:
    a, b, c = (symbol(name) for name in "abc")
    assert interval(a * b * c) == interval(maximum(N, 1))
    assert can_prove((a * b * c + 15) // 16 >= 1)


def test_a_proof_meets_each_sum_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five products, each replaced by two ends: without memory there are 9,000 ways."""
    met, step = [], prove._step
    monkeypatch.setattr(prove, "_step", lambda *given: met.append(given) or step(*given))
    total = const(0)
    for i in range(5):
        total = total + symbol(f"a{i}", 1, 99) * symbol(f"b{i}", 1, 99)
    assert not can_prove(total >= 6)
    assert 100 < len(met) < 500


def test_assumptions() -> None:
    ctx = EMPTY.assuming(all_of(VI < N, const(0) <= VI, N % 16 == 0))
    assert can_prove(VI <= N, ctx) and can_prove(const(-1) < VI, ctx)
    assert interval(N, ctx).stride == 16
    assert simplify(N % 4, ctx) is const(0)
    assert simplify(Unary("not", VI < N), ctx) is const(False)
    assert not can_prove(VI < N - 1, ctx)
    assert simplify(Select(VI < N, VI, J), ctx) is VI
    assert can_prove(any_of(VI < 0, VI < N), ctx)
    ctx = EMPTY.assuming(maximum(N - 3, 0) >= 1)
    assert simplify(minimum(maximum(N - 2, 0), 1), ctx) is const(1)
    assert simplify(maximum(N - 3, 0), EMPTY.assuming(maximum(N - 3, 0) >= 0)) is not N - 3
    ctx = EMPTY.assuming(minimum(VI, maximum(N - 3, 0)) >= 1)  # both operands are
    assert simplify(maximum(N - 3, 0), ctx) is N - 3
    assert simplify(VI >= 1, ctx) is const(True)
    assert simplify(N >= 4, ctx) is const(True)
    assert simplify(N >= 5, ctx) is not const(True)
    b = Var("b", (VI < N).dtype)
    assert simplify(Select(b, VI, J), EMPTY.assuming(Unary("not", b))) is J


def test_affine_round_trip() -> None:
    e = VI * 3 - J * 2 + (P // 4) - 7
    found = as_affine(e)
    assert found is not None
    terms, constant = found
    assert constant == -7 and terms == {VI: 3, J: -2, P // 4: 1}
    assert simplify(e) is from_affine(terms, constant)
    assert as_affine(X) is None


def test_deep_chains_do_not_overflow_the_stack() -> None:
    x: Expr = X
    e: Expr = VI
    for k in range(3000):
        x = minimum(x + Y, Y * float(k))
        e = e + NAMES["j"] * k
    assert simplify(x).dtype is f32
    assert simplify(e) is VI + J * (2999 * 3000 // 2) or str(simplify(e)) == "j * 4498500 + i"
    assert str(x)


@pytest.mark.parametrize(
    ("text", "ranges", "lo", "hi"),
    [
        ("h * 2 + i - 1", {VI: (0, 2)}, "h * 2 - 1", "h * 2 + 1"),
        ("h - i", {VI: (0, 2)}, "h - 2", "h"),
        ("(io * 16 + ii) // 4", {II: (0, 15)}, "io * 4", "io * 4 + 3"),
        ("(io * 16 + ii) % 64", {II: (0, 15)}, "io % 4 * 16", "io % 4 * 16 + 15"),
        ("(h + i) % 7", {VI: (0, 3)}, "0", "6"),
        ("min(h + i, 10)", {VI: (0, 2)}, "min(h, 10)", "min(h + 2, 10)"),
        ("max(h * 2 + i - 1, 0)", {VI: (0, 2)}, "max(h * 2 - 1, 0)", "max(h * 2 + 1, 0)"),
        ("select(h < 3, i, i + 5)", {VI: (0, 2)}, "select(h < 3, 0, 5)", "select(h < 3, 2, 7)"),
        ("i * 4 + j", {VI: (0, 3), J: (0, VI)}, "0", "15"),
    ],
)
def test_eliminate(text: str, ranges: dict, lo: str, hi: str) -> None:
    found = eliminate(parse_expr(text, NAMES), ranges)
    assert found is not None and (str(found[0]), str(found[1])) == (lo, hi)


def test_eliminate_symbolic_extent() -> None:
    found = eliminate(H * N + J, {H: (0, 3), J: (0, N - 1)}, EMPTY.with_var(N, 1, 100))
    assert found is not None and (str(found[0]), str(found[1])) == ("0", "n * 4 - 1")


def test_eliminate_says_when_it_can_not() -> None:
    data = Buffer("D", VI.dtype, (8,))
    assert eliminate(data[VI], {VI: (0, 3)}) is None
    assert eliminate(P // VI, {VI: (0, 3)}) is None
    assert simplify(Load(A, (W,))) is A[W]
