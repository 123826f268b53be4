"""Malformed expressions and schedules that ask too much: typed errors, with the cure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Var
from tilesmith.support.errors import ExpressionError, ScheduleError
from tilesmith.te.lower_memory import STACK_BYTES

A = te.placeholder((8, 8), name="A")
BOOLS = te.placeholder((8,), "bool", name="bools")
INTS = te.placeholder((8,), "i32", name="ints")
K = te.reduce_axis(8, "k")


def pairs(*results: str) -> Callable[..., object]:
    """A reduction of pairs that gives other types."""
    return te.comm_reducer(
        lambda a, b: (a[0], *(te.cast(b[1], te.placeholder((), r).dtype) for r in results)),
        lambda d, _: (te.const(0, d), te.const(0, d)),
        name="pairs",
    )


EXPRESSIONS: list[tuple[Callable[[], object], str]] = [
    (lambda: te.sum(A[0, K], axis=[K, K]), "lists an axis twice: k, k"),
    (lambda: te.sum(A[0, K], axis=[]), "needs at least one axis"),
    (lambda: te.compute((8,), lambda i: te.sum(A[i, i], axis=i)), "i is not a reduction axis"),
    (lambda: te.compute((8,), lambda i: A[i / 2, i]), r"i / 2: / divides floats, .* write //"),
    (lambda: te.compute((8,), lambda i: A[8 / i, i]), "write //"),
    (lambda: te.placeholder((64 / 16, 64)), "an extent is a whole number, found 4.0; write //"),
    (lambda: te.compute((2.5,), lambda i: A[i, 0]), "a whole number, found 2.5$"),  # type: ignore[list-item]
    (lambda: te.reduce_axis(8 / 2), "reduce_axis k: an extent is a whole number"),  # type: ignore[arg-type]
    (lambda: te.compute((-4,), lambda i: A[i, 0], name="C"), "C: .* at least 0, found -4"),
    (lambda: te.reduce_axis(-1), "at least 0, found -1"),
    (lambda: te.reduce_axis((1, 4)), "axes start at 0: add the start to the index"),
    (lambda: te.placeholder(8), r"a shape is a tuple of extents, found 8; write \(8,\)"),  # type: ignore[arg-type]
    (lambda: te.placeholder((True,)), "a whole number, found True"),
    (lambda: te.placeholder((Var("n", f32),)), "a symbolic extent is an i64, found n, f32"),
    (lambda: A[0.5, 0], "A is indexed with 0.5, a f32"),
    (lambda: A[0], "A has rank 2, indexed with 1 indices"),
    (lambda: A[0, 0] + INTS[0], "add needs two operands of one type, got f32 and i32"),
    (lambda: -BOOLS[0], r"neg\(bools\[0\]\) is not defined on bool"),
    (lambda: BOOLS[0] + BOOLS[1], r"add\(bools\[0\], bools\[1\]\) is not defined on bool"),
    (lambda: te.sum(BOOLS[K], axis=K), "te.sum of bools: cast"),
    (lambda: te.exp(INTS[0]), "exp takes floats of one type, found i32; cast first"),
    (lambda: te.call("frob", A[0, 0]), "unknown function 'frob'; known are exp, "),
    (lambda: pairs("i64")((A[0, K], A[0, K]), axis=K), "pairs combines values of type f32, i64"),
    (lambda: pairs()((A[0, K], A[0, K]), axis=K), "pairs combines values of type f32; it reduces"),
]


@pytest.mark.parametrize(("wrong", "message"), EXPRESSIONS, ids=[m[:40] for _, m in EXPRESSIONS])
def test_malformed_expression(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        wrong()


def test_reduction_over_no_elements_is_allowed() -> None:
    k = te.reduce_axis(0, "k")
    c = te.compute((8,), lambda i: te.sum(A[i, k], axis=k))
    te.lower(te.create_schedule(c.op), [A, c])


class Chain:
    """A -> B -> C of one size, element by element."""

    def __init__(self, *shape: int) -> None:
        self.a = te.placeholder(shape, name="A")
        self.b = te.compute(shape, lambda *i: self.a[i] + 1.0, name="B")
        self.c = te.compute(shape, lambda *i: self.b[i] * 2.0, name="C")
        self.s = te.create_schedule(self.c.op)

    def lower(self) -> object:
        return te.lower(self.s, [self.a, self.c])


def test_stack_has_a_limit() -> None:
    e = Chain(1 << 20)
    e.s[e.b].set_scope("stack")
    with pytest.raises(ScheduleError, match=r"B is to be on the stack and has 4194304 bytes.*heap"):
        e.lower()
    e.s[e.b].compute_at(e.s[e.c], e.s[e.c].split("i0", 64)[0])
    e.lower()


def test_stages_share_the_stack() -> None:
    half = STACK_BYTES // 2 // 4 + 16
    a = te.placeholder((half,), name="A")
    b = te.compute((half,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((half,), lambda i: b[i] + 1.0, name="C")
    d = te.compute((half,), lambda i: c[i] + b[i], name="D")
    s = te.create_schedule(d.op)
    s[b].set_scope("stack")
    te.lower(s, [a, d])
    s[c].set_scope("stack")
    with pytest.raises(ScheduleError, match=r"B is to be on the stack.* leave 262080 of them"):
        te.lower(s, [a, d])


def test_copies_of_unrolled_loops_share_the_stack() -> None:
    e = Chain(64, 4096)
    e.s[e.b].compute_at(e.s[e.c], "i0")
    e.s[e.b].set_scope("stack")
    e.lower()
    e.s[e.c].unroll("i0")
    with pytest.raises(ScheduleError, match=r"B .* has 16384 bytes.* leave 8192 of them"):
        e.lower()


@pytest.mark.parametrize("kind", ["unroll", "vectorize"])
def test_code_has_a_limit(kind: str) -> None:
    e = Chain(512, 512) if kind == "unroll" else Chain(1024, 1024)
    for axis in "i0", "i1":
        e.s[e.c].unroll(axis) if kind == "unroll" or axis == "i0" else e.s[e.c].vectorize(axis)
    with pytest.raises(ScheduleError, match=r"makes \d+ operations .* C, because of the loops i0 "):
        e.lower()


def test_stages_inside_unrolled_loops_are_copied() -> None:
    e = Chain(64, 4096)
    e.s[e.b].compute_at(e.s[e.c], "i0")
    e.s[e.c].unroll("i0")
    e.lower()
    e.s[e.b].unroll("i1")
    with pytest.raises(ScheduleError, match=r"i0 \(unrolled, 64 iterations\), i1 \(unrolled, 4096"):
        e.lower()


def test_double_buffer_behind_an_inlined_reader() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((64,), lambda i: b[i] * 2.0, name="C")
    d = te.compute((64,), lambda i: c[i] * 2.0, name="D")
    e = te.compute((64,), lambda i: d[i] * 2.0, name="E")
    s = te.create_schedule(e.op)
    s[c].compute_inline()
    s[d].compute_at(s[e], "i")
    s[b].compute_at(s[e], "i")
    s[d].double_buffer()
    with pytest.raises(ScheduleError, match=r"D cannot be double-buffered at E\.i: it reads B"):
        te.lower(s, [a, e])


@pytest.mark.parametrize("scope", ["register", "stack"])
def test_registers_outside_of_threads_that_read_them(scope: str) -> None:
    a = te.placeholder((8, 2), name="A")
    b = te.compute((2,), lambda j: a[0, j] + 1.0, name="B")
    c = te.compute((8, 2), lambda i, j: b[j] * a[i, j], name="C")
    s = te.create_schedule(c.op)
    s[b].set_scope(scope)
    s[b].unroll("j")
    s[c].unroll("j")
    te.lower(s, [a, c])
    s[c].parallel("i")
    if scope == "register":
        with pytest.raises(ScheduleError, match=r"threads of parallel loop i inside would share"):
            te.lower(s, [a, c])
        return
    x, y = np.arange(16, dtype=np.float32).reshape(8, 2), np.zeros((8, 2), np.float32)
    ts.build(s, [a, c], threads=2)(x, y)
    np.testing.assert_array_equal(y, (x[0] + 1) * x)


def test_double_buffer_of_a_stage_whose_part_reads_what_is_beside_it() -> None:
    x = te.placeholder((3, 8), name="X")
    scaled = te.compute((3, 8), lambda i, j: x[i, j] * 2.0, name="S")
    k = te.reduce_axis(3, "k")
    total = te.compute((8,), lambda j: te.sum(scaled[k, j], k), name="G")
    z = te.compute((8,), lambda j: total[j] + scaled[0, j], name="Z")
    s = te.create_schedule(z.op)
    s[total].split("k", 2)
    s.rfactor(total, "ki")
    s[total].compute_at(s[z], "j")
    s["G_rf"].compute_at(s[total], "ki")
    s[scaled].compute_at(s[z], "j")
    te.lower(s, [x, z])
    s[total].double_buffer()
    with pytest.raises(ScheduleError, match=r"G cannot be double-buffered at Z\.j: it reads S"):
        te.lower(s, [x, z])


def test_strided_register_buffer() -> None:
    e = Chain(64, 8)
    outer, inner = e.s[e.c].split("i0", 8)
    e.s[e.b].compute_at(e.s[e.c], outer)
    e.s[e.b].set_scope("register")
    e.s[e.b].vectorize("i0")
    e.s[e.b].unroll("i1")
    e.s[e.c].reorder(outer, "i1", inner)
    e.s[e.c].unroll("i1")
    e.s[e.c].vectorize(inner)
    with pytest.raises(ScheduleError, match=r"B is in registers.* transform_layout"):
        ts.build(e.s, [e.a, e.c])
    e.s.transform_layout(e.b, lambda i, j: (j, i))
    ts.build(e.s, [e.a, e.c])
