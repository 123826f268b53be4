"""The verifier names the stage, the pass and the statement."""

from __future__ import annotations

import pytest

from loop.functions import MATMUL, VECTORS
from tilesmith.ir.dtypes import f32, i32, u8
from tilesmith.ir.expr import Binary, Broadcast, Call, Compare, Expr, Var, const
from tilesmith.loop.nodes import (
    Allocate,
    Assert,
    Buffer,
    CallFunction,
    CallHost,
    Evaluate,
    For,
    Func,
    Has,
    If,
    LetStmt,
    Locate,
    Point,
    Return,
    Stmt,
    Store,
    While,
    seq,
)
from tilesmith.loop.parse import parse_func
from tilesmith.loop.verify import Stage, verify
from tilesmith.support.errors import VerifyError

A, B = Buffer("A", f32, (4,)), Buffer("B", f32, (4,))
M = Buffer("M", f32, (4, 4))
T = Buffer("T", u8, (8,))
VI, J, CODE = Var("i"), Var("j"), Var("code", i32)
ZERO, ONE = const(0), const(1.0)


def loop(body: Stmt, kind="serial", extent: Expr | None = None, var: Var = VI) -> For:
    return For(var, ZERO, const(4) if extent is None else extent, kind, body)


def func(body: Stmt, *more: Buffer | Var) -> Func:
    return Func("f", (A, B, *more), (B,), body)


STORE = Store(B, (VI,), A[VI])


def test_good_functions() -> None:
    verify(parse_func(MATMUL), "nest")
    verify(parse_func(VECTORS), "final")
    verify(func(loop(STORE, "vectorized")), "flat")


@pytest.mark.parametrize(
    ("body", "stage", "message"),
    [
        (STORE, "nest", "variable 'i' is not in scope.*statement 'B\\[i\\] = A\\[i\\]'"),
        (loop(loop(STORE)), "nest", "'i' is bound again inside its own scope"),
        (seq(loop(STORE), STORE), "nest", "variable 'i' is not in scope"),
        (loop(Store(A, (VI,), ONE)), "nest", "'A' is neither an output nor allocated here"),
        (loop(Store(B, (VI,), const(1))), "nest", "gets a value of type i64"),
        (loop(Store(B, (VI, VI), ONE)), "nest", "rank 1, accessed with 2 indices"),
        (loop(Store(B, (const(0, i32),), ONE)), "nest", "an index of 'B' is i32"),
        (loop(STORE, "vectorized", J), "nest", "variable 'j'"),
        (loop(loop(STORE, "unrolled", J), var=J), "nest", "must be a literal"),
        (loop(STORE, "unrolled"), "final", "a loop of kind 'unrolled' is left"),
        (loop(STORE, "spiral"), "nest", "unknown kind of loop"),
        (Store(B, (ZERO,), M[ZERO, ZERO]), "nest", "buffer 'M' is not in scope"),
        (Allocate(Buffer("T", f32, (2, 2), "heap"), STORE), "flat", "'T' has rank 2"),
        (Allocate(Buffer("T", f32, (2,), "param"), STORE), "nest", "has scope 'param'"),
        (Allocate(Buffer("T", f32, (-2,), "heap"), STORE), "nest", "negative extent"),
        (LetStmt(J, ONE, STORE), "nest", "'j' is i64, its value f32"),
        (If(Broadcast(const(True), 4), STORE), "final", "the condition is boolx4"),
        (Assert(ZERO, "no"), "nest", "the condition is i64"),
        (loop(Return(const(3, i32)), "parallel"), "final", "inside of a loop whose iterations"),
        (Return(VI), "nest", "variable 'i' is not in scope"),
        (CallFunction(VI, "k", (), "", seq()), "final", "'i' is i64, expected i32"),
        (CallFunction(CODE, "k", (A[ZERO],), "", seq()), "nest", "inside of a launch, or too"),
        (CallFunction(CODE, "k", (), "", CallFunction(CODE, "k", (), "", seq())), "final",
         "'code' is bound again"),
        (CallHost(CODE, 0, A[ZERO], (), "", seq()), "final", "expected an element of bytes"),
        (Locate(Buffer("L", u8, (4,), "heap"), T[ZERO], 0, seq()), "final", "'L' is no u8"),
        (Point(T[ZERO], 0, T[ZERO]), "final", "written to a table that is only read"),
        (Point(A[ZERO], 0, T[ZERO]), "final", "expected an element of bytes"),
        (Has(CODE, T[ZERO], 0, seq()), "final", "'code' is i32, expected bool"),
        (loop(While(Compare("lt", VI, const(3)), STORE)), "final", "inside of a counted loop"),
        (While(ZERO, seq()), "final", "the condition is i64"),
        (Return(ZERO), "nest", "the result is no literal or variable of type i32"),
        (Evaluate(ONE), "nest", "only a call of 'prefetch' has an effect"),
        (Store(B, (ZERO,), Call("frob", (ONE,), f32)), "nest", "unknown function 'frob'"),
        (Store(B, (ZERO,), Call("pow", (ONE,), f32)), "nest", "'pow' takes 2 arguments"),
        (Store(B, (Binary("div", ZERO, ZERO),), ONE), "nest", "'div' of i64"),
        (Store(B, (Broadcast(ZERO, 4),), Broadcast(ONE, 4)), "nest", "before vectorising"),
        (Store(B, (Broadcast(ZERO, 4),), ONE), "final", "at 4 indices gets a value of type f32"),
        (Store(B, (ZERO,), ONE, Broadcast(const(True), 4)), "final", "mask for 1 lanes is boolx4"),
    ],
)  # fmt: skip
def test_bad_functions(body: Stmt, stage: Stage, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(func(body, T), stage)


def test_message_names_pass_and_stage() -> None:
    with pytest.raises(VerifyError, match=r"after peel is not valid at stage 'flat'.*in 'f'"):
        verify(func(STORE), "flat", after="peel")


def test_parameters() -> None:
    with pytest.raises(VerifyError, match="parameter 'A' appears twice"):
        verify(func(loop(STORE), A), "nest")
    with pytest.raises(VerifyError, match="output 'M' is not a parameter"):
        verify(Func("f", (A,), (M,), seq()), "nest")
    with pytest.raises(VerifyError, match="'M' has rank 2"):
        verify(func(loop(STORE), M), "flat")
    n = Var("n")
    verify(func(loop(STORE), Buffer("N", f32, (n * 2,)), n), "flat")
