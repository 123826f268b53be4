"""The text of loop IR is canonical and reads back as the same function."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from common.strategies import (
    BYTES,
    CONDITIONS,
    DATA,
    FLOAT_EXPRESSIONS,
    FLOATS,
    INDICES,
    VARS,
    VECTORS,
)
from loop.functions import FORMS, MATMUL
from loop.functions import VECTORS as VECTOR_FUNC
from tilesmith.ir.dtypes import ALL, bool_, f16, f32, f64, i8, i64
from tilesmith.ir.expr import (
    Binary,
    Broadcast,
    Cast,
    Const,
    Let,
    Load,
    Ramp,
    Unary,
    Var,
    VectorReduce,
    const,
)
from tilesmith.ir.parse import parse_expr
from tilesmith.loop.compare import assert_structural_equal, structural_equal
from tilesmith.loop.nodes import Allocate, Buffer, For, Func, LetStmt, Seq, Store, seq
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_func
from tilesmith.support.errors import ParseError

COMMON = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
NAMES = {v.name: v for v in (*VARS, *FLOATS)}
BUFFERS = {"D": DATA, "B": BYTES}


@pytest.mark.parametrize("text", [MATMUL, FORMS, VECTOR_FUNC], ids=["matmul", "forms", "vectors"])
def test_round_trip(text: str) -> None:
    func = parse_func(text)
    assert print_func(func) == text
    assert_structural_equal(func, parse_func(print_func(func)))


def test_golden(golden) -> None:
    golden(print_func(parse_func(FORMS)))


@pytest.mark.parametrize("strategy", [INDICES, CONDITIONS, FLOAT_EXPRESSIONS, VECTORS], ids="ICFV")
def test_expressions_read_back_as_the_same_node(strategy) -> None:
    @COMMON
    @given(strategy)
    def run(e) -> None:
        assert parse_expr(str(e), NAMES, BUFFERS) is e

    run()


def test_every_literal() -> None:
    for dtype in ALL:
        if dtype.is_bool:
            values = [True, False]
        elif dtype.is_float:
            values = [
                0.0,
                -0.0,
                1.0,
                -0.1,
                1 / 3,
                65504.0,
                1e-5,
                float("inf"),
                float("-inf"),
                float("nan"),
            ]
        else:
            values = [dtype.min, dtype.max, 0, 1]
        for value in values:
            e = const(value, dtype)
            assert parse_expr(str(e)) is e, str(e)


def test_every_operation() -> None:
    i, x, b = Var("i"), Var("x", f32), Var("b", bool_)
    names = {"i": i, "x": x, "b": b}
    for e in (
        Unary("neg", const(5)), Unary("neg", Unary("neg", i)), Unary("not", i),
        Unary("not", Unary("not", b)),
        i - (i - i), (i - i) - i, i * (i // i) % i, Binary("shl", i, i) + i, Binary("xor", b, b),
        Binary("and", Binary("or", b, b), b), Unary("not", i < 3) == b, (i < 3) == b,
        Binary("truncmod", i, i), Cast(x, f64), Ramp(i, const(-1), 8), Broadcast(x, 2),
        VectorReduce("mul", Broadcast(x, 8), 2), const(-3, i8), Binary("div", x, x),
        const(1.5, f16),
    ):  # fmt: skip
        assert parse_expr(str(e), names) is e, str(e)


def test_names_are_made_unique() -> None:
    a, b = Var("i"), Var("i")
    assert str(a + b) == "i + i_1"
    assert str(Var("exp") + Var("conv1/weight:0")) == "exp_1 + conv1_weight_0"
    A = Buffer("A", f32, (4, 4))
    v = Var("v")
    func = Func("f", (A,), (A,), For(v, const(0), const(4), "serial", Store(A, (v, v), const(0.0))))
    twice = Func("f", (A,), (A,), seq(func.body, func.body))
    assert_structural_equal(twice, parse_func(print_func(twice)))


def test_allocations_end_with_their_block() -> None:
    A = Buffer("A", f32, (4,))
    T = Buffer("T", f32, (const(4),), "heap")
    write = Store(A, (const(0),), const(0.0))
    inside = Allocate(T, Store(T, (const(0),), const(1.0)))
    x = Var("x")
    for body in (
        seq(inside, write),
        seq(write, inside),
        LetStmt(x, const(1), Seq((inside, write))),
    ):
        func = Func("f", (A,), (A,), body)
        again = parse_func(print_func(func))
        assert_structural_equal(func, again)
    assert not structural_equal(
        Func("f", (A,), (A,), seq(inside, write)),
        Func("f", (A,), (A,), Allocate(T, seq(inside.body, write))),
    )


def test_shared_parts_are_written_once() -> None:
    e = Var("i") + 1
    for _ in range(40):
        e = e * e + e
    text = str(e)
    assert len(text) < 3000 and "$1 := " in text
    assert structural_equal(e, parse_expr(text, {"i": Var("i")}))


def test_structural_equality_sees_differences() -> None:
    i, j = Var("i"), Var("j")
    assert structural_equal(i + j * i, j + i * j)
    assert not structural_equal(i + j, i + i)
    assert not structural_equal(i + 1, i + 2)
    assert not structural_equal(Var("a", f32), Var("a", f64))
    assert structural_equal(Let(i, j, i + 1), Let(j, i, j + 1))
    assert not structural_equal(Let(i, j, i + 1), Let(i, j, j + 1))
    a, b = Buffer("A", f32, (4,)), Buffer("A", f32, (5,))
    assert not structural_equal(a[i], b[i])
    assert not structural_equal(parse_func(MATMUL), parse_func(MATMUL.replace("parallel", "range")))
    assert isinstance(const(1), Const) and isinstance(a[i], Load) and i64 is i.dtype


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def f(A: f32[4]) -> A:\n    A[i] = 1.0\n",
            "line 2, column 7: expected the name of a variable",
        ),
        (
            "def f(A: f32[4]) -> B:\n    pass\n",
            "line 1, column 21: expected the name of a buffer parameter",
        ),
        ("def f(A: f99[4]) -> A:\n    pass\n", "expected an element type"),
        (
            "def f(A: f32[4]) -> A:\n    for i in loop(4):\n        pass\n",
            "expected a kind of loop",
        ),
        ("def f(A: f32[4]) -> A:\npass\n", "expected an indented block"),
        (
            "def f(A: f32[4]) -> A:\n    A[0] = 1\n      A[0] = 1.0\n",
            "expected a statement at column 5",
        ),
        ("def f(A: f32[4]) -> A:\n    A[0] = 1 + 1.0\n", "two operands of one type"),
        ("def f(A: f32[4]) -> A:\n    A[0] = 300:i8\n", "out of the range of i8"),
        ("def f(A: f32[4]) -> A:\n    A[0] = ?\n", "unexpected character '\\?'"),
        ("def f(A: f32[4", "expected ']'"),
        ("def f(A: f32[4], A: f32[4]) -> A:\n    pass\n", "appears twice"),
        ("def f(A: f32[4]) -> A:\n    A[0] = " + "(" * 100000, "nested too deeply"),
    ],
)
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_func(text)
