"""Expressions 1,500 levels deep go through every level of the compiler."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, Load, post_order
from tilesmith.loop.interpret import interpret
from tilesmith.loop.parse import parse_func
from tilesmith.loop.passes.bind_parts import MOST_DEPTH
from tilesmith.loop.text import print_func
from tilesmith.loop.visit import exprs
from tilesmith.runtime.function import NativeFunction
from tilesmith.support import depth as support_depth
from tilesmith.support.errors import ExpressionError, ScheduleError
from tilesmith.te.tensor import Tensor

N = 64
DEPTH = 1500
X = te.placeholder((N,), name="X")
AT = te.placeholder((N,), "i32", name="AT")
x = np.linspace(0.5, 1, N, dtype=np.float32)
LIMITS = np.arange(400, dtype=np.float32) / 400
at = np.arange(N, dtype=np.int32)[::-1].copy()


def repeated(step: Callable[[Expr, int], Expr], first: Expr, times: int = DEPTH) -> Expr:
    for n in range(times):
        first = step(first, n)
    return first


def gathered(e: Expr, _: int) -> Load:
    return AT[te.minimum(te.maximum(te.cast(e, i64), 0), N - 1)]


def guarded(i: Expr) -> Expr:
    """Only the branch that is taken may read: others lie outside of X."""
    return repeated(
        lambda e, n: te.if_then_else(te.all(i + n >= 120, i + n < 120 + N), X[i + (n - 120)], e),
        X[i],
        250,
    )


def guarded_by_data(i: Expr) -> Expr:
    """As `guarded`; the innermost reads stand in parts of their own."""
    inner = repeated(lambda e, n: e + X[i + 1] * float(n % 3), X[i + 1], 300)
    return te.if_then_else(te.all(X[i] > 0.75, i < N - 1), inner, 0.0)


def conjunction(i: Expr) -> Expr:
    cond = repeated(lambda e, n: te.all(e, X[i] < n + 0.75), i < N)
    return te.if_then_else(cond, X[i], 0.0)


BODIES: dict[str, tuple[Callable[[Expr], Expr], Callable[[], np.ndarray]]] = {
    "sum": (lambda i: repeated(lambda e, _: e + X[i], X[i]), lambda: x * (DEPTH + 1)),
    "sum from the right": (
        lambda i: repeated(lambda e, _: X[i] + e, X[i]), lambda: x * (DEPTH + 1),
    ),
    "index": (
        lambda i: X[repeated(lambda e, _: te.minimum(e + 1, N - 1), i)], lambda: x[-1] + 0 * x,
    ),
    "gathers": (
        lambda i: te.cast(repeated(gathered, AT[i], 250), X.dtype),
        lambda: at.astype(np.float32),  # an odd number of reversals
    ),
    "conjunction": (conjunction, lambda: np.where(x < 0.75, x, 0)),
    "guarded": (guarded, lambda: x[-1] + 0 * x),
    "guarded by data": (
        guarded_by_data,
        lambda: np.where((x > 0.75) & (np.arange(N) < N - 1), np.roll(x, -1) * 301, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_deep_expression(name: str) -> None:
    body, expected = BODIES[name]
    y = te.compute((N,), body, name="Y")
    inputs = [t for t in (X, AT) if t in set(y.op.inputs)]
    arrays = [x if t is X else at for t in inputs]
    args = [*inputs, y]
    s = te.create_schedule(y.op)
    assert s.hash() and str(y.op.body[0]) and repr(y.op)

    func = te.lower(s, args)
    assert all(depth(e) <= 3 * MOST_DEPTH for e in exprs(func.body))
    results = [np.zeros(N, np.float32) for _ in range(3)]
    interpret(parse_func(print_func(func)), [*arrays, results[0]])
    ts.build(s, args)(*arrays, results[1])
    s[y].vectorize(s[y].split("i", 24)[1])
    ts.build(s, args)(*arrays, results[2])
    for result in results:
        np.testing.assert_allclose(result, expected(), rtol=1e-4)


def shared_by_data(i: Expr) -> Expr:
    """Both branches use the value before: 2**n paths lead to the first one."""
    return repeated(
        lambda e, n: te.if_then_else(X[i] > float(LIMITS[n]), e + 1.0, e + 2.0), X[i], 400
    )


def shared_by_index(i: Expr) -> Expr:
    return repeated(lambda e, n: te.if_then_else(i * (n + 3) % 7 < 3, e + 1.0, e + 2.0), X[i], 40)


def escape(i: Expr) -> Expr:
    """How many iterations of u = u * u + x stay below 4, as a minimum and by selects."""
    u, count, alive = X[i], te.const(0), te.const(1)
    for _ in range(24):
        inside = u <= 4.0
        alive = te.minimum(alive, te.select(inside, 1, 0))
        u, count = te.select(inside, u * u + X[i], u), te.select(inside, count + alive, count)
    return te.cast(count, X.dtype)


def reads_that_decide_each_other(i: Expr) -> Expr:
    u = v = X[i]
    for n in range(150):
        inside = te.all(u + v > n / 100, i + n < N)
        u, v = te.select(inside, X[te.minimum(i + n, N - 1)] + v, u), te.select(inside, u, v)
    return u


def decided_reads() -> np.ndarray:
    u, v, i = x, x, np.arange(N)
    for n in range(150):
        inside = (u + v > np.float32(n / 100)) & (i + n < N)
        u, v = np.where(inside, x[np.minimum(i + n, N - 1)] + v, u), np.where(inside, u, v)
    return u


def iterations(values: np.ndarray) -> np.ndarray:
    u, count = values.copy(), np.zeros(N)
    for _ in range(24):
        inside = u <= 4
        u, count = np.where(inside, u * u + values, u), count + inside
    return count


def times_in_first(n: int) -> np.ndarray:
    return np.sum(np.arange(N)[:, None] * (np.arange(n) + 3) % 7 < 3, 1)


SHARED: dict[str, tuple[Callable[[Expr], Expr], Callable[[], np.ndarray]]] = {
    "by data": (shared_by_data, lambda: x + 2 * 400 - np.sum(x[:, None] > LIMITS, 1)),
    "by index": (shared_by_index, lambda: x + 2 * 40 - times_in_first(40)),
    "escape": (escape, lambda: iterations(x)),
    "reads": (reads_that_decide_each_other, decided_reads),
}


@pytest.mark.parametrize("name", SHARED)
def test_selects_that_share_operands_stay_small(name: str) -> None:
    """Every select leads to the one before by both branches: 2**n ways in all."""
    body, expected = SHARED[name]
    y = te.compute((N,), body, name="Y")
    s = te.create_schedule(y.op)
    results = [np.zeros(N, np.float32) for _ in range(3)]
    interpret(te.lower(s, [X, y]), [x, results[0]])
    ts.build(s, [X, y])(x, results[1])
    s[y].vectorize(s[y].split("i", 24)[1])
    ts.build(s, [X, y])(x, results[2])
    for result in results:
        np.testing.assert_allclose(result, expected(), rtol=1e-4)


@pytest.mark.parametrize("lanes", [1, 8])
def test_many_calls_of_a_function_share_its_code(lanes: int) -> None:
    """Expanded in place, 1,500 sines took half a minute; the results are the same bits."""
    x = np.linspace(-3, 3, N, dtype=np.float32)

    def built(calls: int) -> NativeFunction:
        y = te.compute((N,), lambda i: repeated(lambda e, _: te.sin(e), X[i], calls), name="Y")
        s = te.create_schedule(y)
        outer, inner = s[y].split("i", lanes)
        s[y].vectorize(inner)
        s[y].parallel(outer)
        return ts.build(s, [X, y], threads=2)

    deep, one = built(DEPTH), built(1)
    assert len(deep.source.splitlines()) < 4 * DEPTH
    assert deep.source.count("define internal") == one.source.count("define internal") + 1
    wanted, found = x, np.zeros_like(x)
    deep(x, found)
    for _ in range(DEPTH):
        step = np.zeros_like(x)
        one(wanted, step)
        wanted = step
    np.testing.assert_array_equal(found, wanted)


def test_deep_expression_as_c() -> None:
    y = te.compute((N,), lambda i: repeated(lambda e, _: e + X[i], X[i]), name="Y")
    out = np.zeros(N, np.float32)
    ts.build(te.create_schedule(y.op), [X, y], target="c")(x, out)
    np.testing.assert_allclose(out, x * (DEPTH + 1), rtol=1e-4)


LEVELS = 400


def select_by_itself() -> Tensor:
    def body(i: Expr) -> Expr:
        return repeated(lambda e, n: te.select(e >= n, e + 1.0, 0.0), X[i], LEVELS)

    return te.compute((N,), body, name="Y")


def names_by_hand(levels: int = LEVELS) -> Tensor:
    def body(b, x, y):
        with b.loop(N, "i") as i:
            value = x[i]
            for n in range(levels):
                value = b.let(f"v{n}", value + 1.0)
            y[i] = value

    return te.extern(N, [X], body, name="Y")


def conditions_by_hand(levels: int = LEVELS) -> Tensor:
    def body(b, x, y):
        with ExitStack() as around:
            i = around.enter_context(b.loop(N, "i"))
            for n in range(levels):
                around.enter_context(b.when(x[i] < 2.0 + n))
            y[i] = x[i] + float(levels)

    return te.extern(N, [X], body, name="Y")


@pytest.mark.parametrize("make", [select_by_itself, names_by_hand, conditions_by_hand])
def test_statements_deeper_than_pythons_stack(make: Callable[[], Tensor]) -> None:
    limit, stack = sys.getrecursionlimit(), threading.stack_size()
    y = make()
    out = np.zeros(N, np.float32)
    ts.build(te.create_schedule(y.op), [X, y])(x, out)
    np.testing.assert_allclose(out, x + LEVELS, rtol=1e-4)
    assert (sys.getrecursionlimit(), threading.stack_size()) == (limit, stack)


def test_statements_deeper_than_any_stack_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_depth, "LEVELS", 0)
    with pytest.raises(ExpressionError, match="Y: the body nests deeper than can be compiled"):
        conditions_by_hand(3 * LEVELS)
    y = names_by_hand()
    with pytest.raises(ScheduleError, match="nests deeper than can be compiled"):
        ts.build(te.create_schedule(y.op), [X, y])


def test_what_fails_on_a_larger_stack_fails_as_it_would_here() -> None:
    @support_depth.at_depth(ScheduleError, "it", "make it less deep")
    def fails(n: int) -> int:
        if n == 0:
            raise ExpressionError("at the end")
        return fails_inside(n - 1)

    def fails_inside(n: int) -> int:
        return fails.__wrapped__(n)  # type: ignore[attr-defined]

    with pytest.raises(ExpressionError, match="at the end"):
        fails(3 * sys.getrecursionlimit())


def depth(e: Expr) -> int:
    found: dict[Expr, int] = {}
    for node in post_order(e):
        found[node] = 1 + max((found[c] for c in node.children), default=0)
    return found[e]
