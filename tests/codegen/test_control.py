"""Loops, branches, assertions, threads and workspaces."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from kernels import lanes_at, native, run, serial

from tilesmith.codegen.emit import emit
from tilesmith.codegen.targets import host
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Binary, Call, Expr, Load, Var, const
from tilesmith.ir.loop_tables import ForKind
from tilesmith.loop.nodes import (
    Allocate,
    Assert,
    Buffer,
    Evaluate,
    For,
    Func,
    If,
    LetStmt,
    Stmt,
    Store,
    seq,
)  # fmt: skip
from tilesmith.loop.passes.workspace import plan_workspace
from tilesmith.support.errors import InternalError, ModelError


def loop(var: Var, extent: Expr | int, kind: ForKind, body: Stmt, start: int = 0) -> For:
    return For(var, const(start), const(extent) if isinstance(extent, int) else extent, kind, body)


def test_loops_with_a_start_and_a_variable_extent() -> None:
    y, i, j, n = Buffer("y", i64, (10, 10)), Var("i"), Var("j"), Var("n")
    body = loop(i, n, "serial", loop(j, i, "serial", Store(y, (i * 10 + j,), i * 100 + j)), start=2)
    f = native(Func("triangle", (y, n), (y,), body))
    for count in (0, 1, 5):
        out, want = np.zeros((10, 10), np.int64), np.zeros((10, 10), np.int64)
        for a in range(2, 2 + count):
            for b in range(a):
                want[a, b] = a * 100 + b
        f(out, count)
        np.testing.assert_array_equal(out, want)


def test_branches() -> None:
    y, i = Buffer("y", i64, (8,)), Var("i")
    body = If(i % 2 == 0, Store(y, (i,), i), If(i < 4, Store(y, (i,), -i), Store(y, (i,), i * 10)))
    out = np.empty(8, np.int64)
    run(Func("branches", (y,), (y,), serial(i, 8, body)), [out])
    np.testing.assert_array_equal(out, [0, -1, 2, -3, 4, 50, 6, 70])


def test_one_variable_in_two_loops() -> None:
    y, i = Buffer("y", i64, (8,)), Var("i")
    body = seq(
        serial(i, 4, Store(y, (i,), i * 3)),
        loop(i, 4, "serial", Store(y, (i,), i * 3 + 1), start=4),
    )
    out = np.empty(8, np.int64)
    run(Func("twice", (y,), (y,), body), [out])
    np.testing.assert_array_equal(out, [0, 3, 6, 9, 13, 16, 19, 22])


def test_invariant_values_leave_loops() -> None:
    y, i, j, n = Buffer("y", i64, (100,)), Var("i"), Var("j"), Var("n")
    text = emit(
        Func(
            "hoist",
            (y, n),
            (y,),
            serial(i, 10, serial(j, 10, Store(y, (i * 10 + j,), n // 7 + i * 5))),
        ),
        host(),
    ).text
    assert text.index("sdiv") < text.index("loop")  # before the first loop
    inner = text[text.rindex("phi") :]
    assert "mul" not in inner  # i * 5 and i * 10 stand in the outer loop


@pytest.mark.parametrize("extent", (1, 2, 3, 100))
@pytest.mark.parametrize("threads", (1, 2, 5))
def test_parallel_loops_cover_every_iteration_once(extent: int, threads: int) -> None:
    y, i, n, v = Buffer("y", i64, (200,)), Var("i"), Var("n"), Var("v")
    body = Store(y, (i,), Load(y, (i,)) + i * v)
    func = Func("p", (y, n), (y,), LetStmt(v, n + 1, loop(i, n, "parallel", body, start=3)))
    out, want = np.ones(200, np.int64), np.ones(200, np.int64)
    native(func, threads=threads)(out, extent)
    want[3 : 3 + extent] += np.arange(3, 3 + extent) * (extent + 1)
    np.testing.assert_array_equal(out, want)


def test_each_thread_has_buffers_of_its_own() -> None:
    rows, cols = 64, 256
    x, y = Buffer("x", f32, (rows, cols)), Buffer("y", f32, (rows, cols))
    i, j, k = Var("i"), Var("j"), Var("k")
    heap, stack = Buffer("heap", f32, (cols,), "heap"), Buffer("stack", f32, (cols,), "stack")
    fill = serial(
        j,
        cols,
        seq(
            Store(heap, (j,), Load(x, (i * cols + j,)) * 2.0), Store(stack, (j,), Load(heap, (j,)))
        ),
    )
    read = serial(
        k, cols, Store(y, (i * cols + k,), Load(heap, (k,)) + Load(stack, (const(cols - 1) - k,)))
    )
    body = Allocate(heap, Allocate(stack, seq(fill, read)))
    func = Func("private", (x, y), (y,), loop(i, rows, "parallel", body))
    assert emit(func, host()).workspace_bytes_per_thread == cols * 4
    a = np.random.default_rng(0).random((rows, cols), np.float32)
    f = native(func, threads=4)
    for _ in range(50):
        out = np.empty_like(a)
        f(a, out)
        np.testing.assert_array_equal(out, 2 * a + 2 * a[:, ::-1])


def test_a_shared_workspace_is_seen_by_all_threads() -> None:
    n = 1000
    x, y, t = Buffer("x", f32, (n,)), Buffer("y", f32, (n,)), Buffer("t", f32, (n,), "heap")
    i, j = Var("i"), Var("j")
    first = loop(i, n, "parallel", Store(t, (i,), Load(x, (i,)) + 1.0))
    second = loop(j, n, "parallel", Store(y, (j,), Load(t, (const(n - 1) - j,))))
    func = Func("shared", (x, y), (y,), Allocate(t, seq(first, second)))
    assert emit(func, host()).workspace_bytes_shared == 4032
    a, out = np.arange(n, dtype=np.float32), np.empty(n, np.float32)
    native(func, threads=3)(a, out)
    np.testing.assert_array_equal(out, a[::-1] + 1)


def test_a_parallel_loop_inside_another_runs() -> None:
    y, i, j = Buffer("y", i64, (6, 5)), Var("i"), Var("j")
    body = loop(i, 6, "parallel", loop(j, 5, "parallel", Store(y, (i * 5 + j,), i * 5 + j)))
    out = np.empty((6, 5), np.int64)
    run(Func("nested", (y,), (y,), body), [out])
    np.testing.assert_array_equal(out.ravel(), np.arange(30))


@pytest.mark.parametrize("kind", ("serial", "parallel"))
def test_assertions_stop_the_kernel_with_their_message(kind: ForKind) -> None:
    x, y, i = Buffer("x", i64, (8,)), Buffer("y", i64, (8,)), Var("i")
    value = Load(x, (i,))
    body = seq(
        Assert(value < 100, "index above the limit"),
        Assert(const(0) <= value, "index below zero"),
        Store(y, (i,), value),
    )
    f = native(Func("checked", (x, y), (y,), loop(i, 8, kind, body)))
    good, out = np.arange(8), np.empty(8, np.int64)
    f(good, out)
    np.testing.assert_array_equal(out, good)
    for bad, message in (
        (100, r"checked: index above the limit \(found 100\)"),
        (-1, r"checked: index below zero \(found -1\)"),
    ):
        wrong = good.copy()
        wrong[6] = bad
        with pytest.raises(ModelError, match=message):
            f(wrong, out)


def test_siblings_share_workspace_and_are_not_called_disjoint() -> None:
    y, i, j = Buffer("y", f32, (64,)), Var("i"), Var("j")
    a, b = Buffer("a", f32, (64,), "heap"), Buffer("b", f32, (64,), "heap")
    parts = [
        Allocate(
            t,
            seq(
                serial(i, 64, Store(t, (i,), const(c))),
                serial(j, 64, Store(y, (j,), Load(y, (j,)) + Load(t, (j,)))),
            ),
        )
        for t, c in ((a, 1.0), (b, 2.0))
    ]
    func = Func("siblings", (y,), (y,), seq(*parts))
    plan = plan_workspace(func)
    assert plan.shared_bytes == 256
    assert plan.overlapping() == {a, b}
    out = np.zeros(64, np.float32)
    run(func, [out])
    np.testing.assert_array_equal(out, 3)


def test_prefetch_is_an_instruction() -> None:
    x, y, i = Buffer("x", f32, (64,)), Buffer("y", f32, (64,)), Var("i")
    body = seq(Evaluate(Call("prefetch", (Load(x, (i + 8,)),), i64)), Store(y, (i,), Load(x, (i,))))
    func = Func("ahead", (x, y), (y,), serial(i, 32, body))
    assert "llvm.prefetch" in emit(func, host()).text
    a, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    run(func, [a, out])
    np.testing.assert_array_equal(out[:32], a[:32])


def test_loops_that_passes_should_have_removed_are_refused() -> None:
    y, i = Buffer("y", f32, (4,)), Var("i")
    with pytest.raises(InternalError, match="still unrolled at code generation"):
        emit(Func("bad", (y,), (y,), loop(i, 4, "unrolled", Store(y, (i,), const(1.0)))), host())
    with pytest.raises(InternalError, match="needs flat buffers"):
        emit(Func("bad", (y,), (y,), Store(y, (const(0), const(1)), const(1.0))), host())


def test_the_text_is_the_same_every_time() -> None:
    x, y, i = Buffer("x", f32, (64,)), Buffer("y", f32, (64,)), Var("i")
    func = Func(
        "same",
        (x, y),
        (y,),
        serial(i, 4, Store(y, (lanes_at(i * 16, 16),), Load(x, (lanes_at(i * 16, 16),)))),
    )
    assert emit(func, host()).text == emit(func, host()).text
    assert emit(replace(func, name="a-b"), host()).symbol == "a_b"
    assert re.search(r"^define i32 @same\(", emit(func, host()).text, re.MULTILINE)


def _innermost_of_rows_by_index(before: Stmt | None = None) -> str:
    """The innermost loop of a copy of rows that indices choose."""
    x, r, y = Buffer("x", f32, (100 * 64,)), Buffer("r", i64, (8,)), Buffer("y", f32, (8 * 64,))
    i, j = Var("i"), Var("j")
    copy: Stmt = Store(y, (i * 64 + j,), Load(x, (Load(r, (i,)) * 64 + j,)))
    inner = serial(j, 64, copy if before is None else seq(before, copy))
    text = emit(Func("rows", (x, r, y), (y,), serial(i, 8, inner)), host()).text
    loops = re.split(r"^loop\w+:$", text, flags=re.MULTILINE)
    assert len(loops) == 3
    return loops[-1]


def test_an_index_is_loaded_outside_the_loop_that_it_serves() -> None:
    assert "load i64" not in _innermost_of_rows_by_index()


def test_no_index_is_loaded_before_an_assertion() -> None:
    """It may be what keeps the index inside the buffer."""
    assert "load i64" in _innermost_of_rows_by_index(Assert(const(1) < const(2), "never"))


def test_no_index_is_loaded_for_a_loop_that_may_not_run() -> None:
    x, r, y = (Buffer(b, t, (8,)) for b, t in (("x", f32), ("r", i64), ("y", f32)))
    j, n = Var("j"), Var("n")
    body = Store(y, (j,), Load(x, (Load(r, (n,)) + j,)))
    f = native(Func("none", (x, r, y, n), (y,), serial(j, Binary("sub", const(8), n), body)))
    text = f.source
    guard = text.index("br i1")
    assert "load i64" not in text[:guard] and "load i64" in text[guard:]
