"""Offsets of heap buffers: no two buffers alive together overlap, and dead ones are reused."""

from __future__ import annotations

from itertools import pairwise

import pytest
from loop_programs import loop

from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Expr, Load, Var, const
from tilesmith.ir.symbols import value_of
from tilesmith.loop.nodes import Allocate, Buffer, Func, Stmt, Store, seq
from tilesmith.loop.passes.workspace import plan_workspace
from tilesmith.support.errors import InternalError

X = Buffer("X", f32, (64,))
A, B, C = (Buffer(n, f32, (64,), "heap") for n in "ABC")


def copy(source: Buffer, target: Buffer) -> Stmt:
    i = Var("i")
    return loop(i, 64, Store(target, (i,), Load(source, (i,))))


def func(body: Stmt) -> Func:
    return Func("f", (X,), (X,), body)


def within(body: Stmt, *buffers: Buffer) -> Stmt:
    for b in reversed(buffers):
        body = Allocate(b, body)
    return body


def test_a_chain_needs_two_buffers_at_a_time() -> None:
    plan = plan_workspace(
        func(within(seq(copy(X, A), copy(A, B), copy(B, C), copy(C, X)), A, B, C))
    )
    assert plan.shared_bytes == 2 * 256 and plan.per_thread_bytes == 0
    assert plan.offsets[A] != plan.offsets[B] != plan.offsets[C]
    assert plan.overlapping() == {A, C} | ({B} if plan.offsets[B] in (plan.offsets[A],) else set())


def test_a_loop_keeps_alive_what_it_uses_again() -> None:
    body = seq(copy(X, A), copy(A, B), copy(B, C), copy(C, X))
    plan = plan_workspace(func(within(loop(Var("t"), 3, body), A, B, C)))
    assert plan.shared_bytes == 3 * 256 and not plan.overlapping()
    inside = plan_workspace(func(loop(Var("t"), 3, within(body, A, B, C))))
    assert inside.shared_bytes == 2 * 256


def test_buffers_of_a_parallel_loop_are_per_thread() -> None:
    body = loop(Var("t"), 3, within(seq(copy(A, B), copy(B, X)), B), "parallel")
    plan = plan_workspace(func(within(seq(copy(X, A), body), A)))
    assert (plan.shared_bytes, plan.per_thread_bytes) == (256, 256)
    assert plan.per_thread == {B}


def test_copies_of_a_statement_share_their_buffer() -> None:
    first = within(seq(copy(X, A), copy(A, B), copy(B, X), copy(A, X)), A, B)
    second = within(seq(copy(X, B), copy(B, X)), B)
    plan = plan_workspace(func(seq(first, second)))
    assert plan.offsets[A] != plan.offsets[B] and plan.shared_bytes == 2 * 256


def test_small_buffers_are_aligned() -> None:
    small: tuple[Buffer, ...] = tuple(Buffer(n, f32, (3,), "heap") for n in "pq")
    zero: Expr = const(0)
    value = Load(small[0], (zero,)) + Load(small[1], (zero,))
    body = seq(*(Store(b, (zero,), const(1.0, f32)) for b in small), Store(X, (zero,), value))
    plan = plan_workspace(func(within(body, *small)))
    assert sorted(plan.offsets.values()) == [0, 64] and plan.shared_bytes == 128


def test_buffers_of_symbolic_size_lie_behind_the_others() -> None:
    n = Var("n")
    fixed = Buffer("fixed", f32, (20,), "heap")
    bigs = [Buffer(f"big{i}", f32, (n * (i + 1),), "heap") for i in range(2)]
    body: Stmt = seq(*(Store(b, (const(0),), const(0.0, f32)) for b in (fixed, *bigs)))
    for b in (fixed, *bigs):
        body = Allocate(b, body)
    plan = plan_workspace(Func("f", (X, n), (X,), body))
    for size in (0, 1, 16, 17, 100):
        at, one, two = (value_of(plan.offsets[b], {n: size}) for b in (fixed, *bigs))
        ends = sorted([(at, at + 80), (one, one + 4 * size), (two, two + 8 * size)])
        assert at == 0 and all(a[1] <= b[0] for a, b in pairwise(ends))
        assert value_of(plan.shared_bytes, {n: size}) >= ends[-1][1]


def test_a_size_that_no_parameter_determines_is_refused() -> None:
    n, other = Var("n"), Var("other")
    big = Buffer("big", f32, (other,), "heap")
    body = Allocate(big, Store(big, (const(0),), const(0.0, f32)))
    with pytest.raises(InternalError, match="that the parameters of f determine, found other"):
        plan_workspace(Func("f", (X, n), (X,), body))
