"""Reads are proved to lie inside their tensors, or refused with the guard that would help."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.graph.builder import Builder
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Const, Expr, ExprLike, Var
from tilesmith.ir.extents import product, strides_of
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.loop.nodes import Assert, For
from tilesmith.loop.visit import walk
from tilesmith.ops.rules import UnequalDims
from tilesmith.ops.shape import Reshape
from tilesmith.support.errors import ExpressionError, ModelError

N = Var("n")
M = Var("m")
A = te.placeholder((8,), name="A")
B = te.placeholder((N,), name="B")
AT = te.placeholder((8,), "i64", name="AT")
SQUARE = te.placeholder((8, 8), name="S")

Body = Callable[[Expr], ExprLike]


def lowered(body: Body, extent: int | Var = 8) -> None:
    c = te.compute((extent,), lambda i: body(i), name="C")
    arguments = [t for t in (A, B, AT, SQUARE) if t in inputs_of(c.op)]
    te.lower(te.create_schedule(c.op), [*arguments, c])


def inputs_of(op: te.Compute) -> set[te.Tensor]:
    """All tensors that `op` and its producers read."""
    found = set(op.inputs)
    for t in op.inputs:
        if isinstance(t.op, te.Compute):
            found |= inputs_of(t.op)
    return found


REFUSED: list[tuple[Body, str]] = [
    (lambda i: A[i + 1], "index i + 1 of dimension 0 runs from 1 to 8, allowed is 0 to 7; guard "
     "the read, as in te.if_then_else(i + 1 < 8, A[...], value), or clamp the index, as in "
     "te.minimum(i + 1, 7)"),
    (lambda i: A[i + 10**9], "runs from 1000000000 to 1000000007"),
    (lambda i: A[i - 1], "te.maximum(i - 1, 0)"),
    (lambda i: A[-1], "index -1 of dimension 0 is -1, allowed is 0 to 7; indices count from 0"),
    (lambda i: A[i * 2 - 1], "te.all(i * 2 - 1 >= 0, i * 2 - 1 < 8)"),
    (lambda i: SQUARE[i, i + 3], "index i + 3 of dimension 1 runs from 3 to 10"),
    (lambda i: A[AT[i]], "index AT[i] of dimension 0 is read from memory and may have any value"),
    (lambda i: A[te.minimum(AT[i], 7)], "te.maximum(min(AT[i], 7), 0)"),
    (lambda i: te.if_then_else(i < 7, A[i + 2], 0.0), "as in te.if_then_else(i + 2 < 8"),
    (lambda i: te.if_then_else(i < 7, 0.0, A[i + 1]), "index i + 1"),
    # both operands of a conjunction are evaluated
    (lambda i: te.if_then_else(te.all(i < 7, A[i + 1] > 0.0), 1.0, 0.0), "A[i + 1] may leave A"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), REFUSED, ids=[m[:40] for _, m in REFUSED])
def test_read_out_of_range_is_refused(body: Body, message: str) -> None:
    with pytest.raises(ExpressionError, match=re.escape(message)) as e:
        lowered(body)
    assert re.search(r"C \(.*test_ranges.py:\d+\): the read ", str(e.value))


PROVED: list[Body] = [
    lambda i: A[7 - i],
    lambda i: A[(i + 3) % 8],
    lambda i: A[i // 2 + 4],
    lambda i: te.if_then_else(i < 7, A[i + 1], 0.0),
    lambda i: te.if_then_else(i >= 7, 0.0, A[i + 1]),
    lambda i: te.if_then_else(i < 9, 0.0, A[i + 100]),  # never read
    lambda i: te.if_then_else(te.any(i < 1, i > 6), 0.0, A[i - 1] + A[i + 1]),
    lambda i: te.if_then_else(i > 0, te.if_then_else(i < 7, A[i + 1] - A[i - 1], 0.0), 0.0),
    lambda i: A[te.minimum(i + 1, 7)],
    lambda i: A[te.maximum(i - 3, 0)],
    lambda i: A[te.minimum(te.maximum(i - 3, 3 - i), 10 - te.maximum(i - 3, 3 - i))],  # reflected
    lambda i: A[te.minimum(te.maximum(AT[i], 0), 7)],
    lambda i: te.if_then_else(te.all(AT[i] >= 0, AT[i] < 8), A[AT[i]], 0.0),
    lambda i: A[AT[i] % 8],
]


@pytest.mark.parametrize("number", range(len(PROVED)))
def test_guards_and_clamps_prove_a_read(number: int) -> None:
    lowered(PROVED[number])


SYMBOLIC: list[Body] = [
    lambda i: B[N - 1 - i],
    lambda i: te.if_then_else(i + 1 < N, B[i + 1], 0.0),
    lambda i: B[te.minimum(i + 1, N - 1)],
    lambda i: te.if_then_else(i % 2 < 1, B[i], B[i // 2]),
]


@pytest.mark.parametrize("number", range(len(SYMBOLIC)))
def test_symbolic_extents(number: int) -> None:
    lowered(SYMBOLIC[number], N)


@pytest.mark.parametrize("schedule", ["auto", "tiled"])
def test_index_divided_by_a_symbol(schedule: str) -> None:
    """A flattened matrix needs no clamp: i < n * m proves i // m < n and i % m < m."""
    n, m = te.var("n"), te.var("m")
    X = te.placeholder((n, m), name="X")
    doubled = te.compute((n, m), lambda i, j: 2.0 * X[i, j], name="doubled")
    flat = te.compute((n * m,), lambda i: doubled[i // m, i % m], name="flat")
    s = te.create_schedule(flat.op)
    outer, inner = s[flat].split("i", 8)
    s[flat].parallel(outer)
    s[flat].vectorize(inner)
    f = ts.build("auto" if schedule == "auto" else s, [X, flat])
    for rows, columns in ((0, 3), (3, 0), (1, 1), (7, 5), (33, 64)):
        x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
        out = np.zeros(rows * columns, np.float32)
        f(x, out)
        np.testing.assert_array_equal(out, 2 * x.ravel())


def test_index_flattened_by_symbols() -> None:
    """`(a * m + b // 2) * k + c` is proved to be less than `n * m * k` where b < 2 * m."""
    n, m, k = te.var("n"), te.var("m"), te.var("k")
    flat = te.placeholder((n * m * k,), name="F")
    made = te.compute((n, m * 2, k), lambda a, b, c: flat[(a * m + b // 2) * k + c], name="made")
    f = ts.build("auto", [flat, made])
    x = np.arange(24, dtype=np.float32)
    out = np.zeros((2, 6, 4), np.float32)
    f(x, out, 3)
    np.testing.assert_array_equal(out, np.repeat(x.reshape(2, 3, 4), 2, axis=1))


def test_symbolic_extent_too_short() -> None:
    with pytest.raises(ExpressionError, match="runs from 1 to n, allowed is 0 to n - 1"):
        lowered(lambda i: B[i + 1], N)
    with pytest.raises(ExpressionError, match="index i of dimension 0 runs from 0 to m - 1"):
        lowered(lambda i: B[i] + te.cast(M, B.dtype), M)


def test_rows_chosen_by_an_intermediate() -> None:
    place = te.compute((8,), lambda i: te.minimum(te.maximum(AT[i] - 1, 0), 7), name="place")
    lowered(lambda i: A[place[i]])
    wild = te.compute((8,), lambda i: AT[i] - 1, name="wild")
    with pytest.raises(ExpressionError, match=r"index wild\[i\] .* is read from memory"):
        lowered(lambda i: A[wild[i]])


@pytest.mark.parametrize("inlined", [False, True])
def test_intermediate_is_refused_whatever_the_schedule(inlined: bool) -> None:
    double = te.compute((8,), lambda i: A[i] * 2.0, name="double")
    c = te.compute((8,), lambda i: double[i + 1], name="C")
    s = te.create_schedule(c.op)
    if inlined:
        s[double].compute_inline()
    with pytest.raises(ExpressionError, match="may leave double: index i \\+ 1"):
        te.lower(s, [A, c])


def test_nothing_to_read_is_reported_when_run() -> None:
    last = te.maximum(te.minimum(AT[0], N - 1), 0)
    c = te.compute((4,), lambda i: B[last] + te.cast(i, B.dtype), name="C")
    f = ts.build(te.create_schedule(c.op), [AT, B, c])
    out = np.zeros(4, np.float32)
    f(np.full(8, 2), np.arange(3, dtype=np.float32), out)
    assert out.tolist() == [2, 3, 4, 5]
    with pytest.raises(ModelError, match="C: B has no element in dimension 0"):
        f(np.full(8, 2), np.zeros(0, np.float32), out)


def test_nothing_to_read_in_either_dimension_is_reported_when_run() -> None:
    """The assertion of one dimension does not take the place of that of another."""
    n, m = symbol("n", 0), symbol("m", 0)
    x = te.placeholder((n, m), name="X")

    def edge(i: Expr, extent: Expr) -> Expr:
        return te.maximum(te.minimum(i - 1, extent - 1), 0)

    c = te.compute((n + 2, m + 2), lambda i, j: x[edge(i, n), edge(j, m)], name="C")
    f = ts.build(te.create_schedule(c.op), [x, c])
    out = np.zeros((4, 5), np.float32)
    f(np.ones((2, 3), np.float32), out)
    assert out.min() == 1
    for shape in ((0, 3), (2, 0), (0, 0)):
        with pytest.raises(ModelError, match="C: X has no element"):
            f(np.ones(shape, np.float32), np.zeros((shape[0] + 2, shape[1] + 2), np.float32))


def test_nothing_is_checked_at_run_time() -> None:
    c = te.compute((N,), lambda i: te.if_then_else(i > 0, B[i - 1], 0.0), name="C")
    func = te.lower(te.create_schedule(c.op), [B, c])
    assert not any(isinstance(s, Assert) for s in walk(func.body))


def test_variable_that_is_no_axis() -> None:
    k, j = te.reduce_axis(8, "k"), te.reduce_axis(8, "j")
    c = te.compute((8,), lambda i: te.sum(SQUARE[i, k], axis=j), name="C")
    with pytest.raises(ExpressionError, match=r"C \(.*\): .* uses the variable k, .* lists \(j\)"):
        te.lower(te.create_schedule(c.op), [SQUARE, c])


@pytest.mark.parametrize("low", [0, 1])
def test_reshapes_of_products_of_open_extents(low: int) -> None:
    """Their number of elements may have no bound that fits 64 bits."""
    d, e = symbol("d", low), symbol("e")
    for shape in ((4, d, 4, d), (3, d, d * 2, d), (d, d, e, d, e), (d + 1, e, e, d), (e, 2, d, d)):
        x = te.placeholder(shape, name="X")
        strides = strides_of(shape)

        def element(i: Expr, x=x, strides=strides) -> Expr:
            whole = [i // s for s in strides]
            return x[tuple(w % n for w, n in zip(whole, x.shape, strict=True))]

        flat = te.compute((product(shape),), element)
        te.lower(te.create_schedule(flat.op), [x, flat])


def test_unequal_extents_are_an_error_with_both() -> None:
    b = Builder("one")
    x = b.input("x", TensorType(f32, (symbol("d"), 3)))
    with pytest.raises(UnequalDims, match="expected extents that are equal or broadcast"):
        b.add(Reshape((symbol("e"), 3)), x, loc="a node")


@pytest.mark.parametrize("expected", [16, 128, 512])
def test_a_whole_row_is_as_long_as_its_symbol_not_as_its_range(expected: int) -> None:
    """A stage that is computed for one row of its reader: more columns than there are cost time."""
    n = symbol("n", 1, 512, expected)
    x, k = te.placeholder((n, n), name="x"), te.reduce_axis(n, "k")
    half = te.compute((n, n), lambda i, j: x[i, j] * 0.5, "half")
    y = te.compute((n, n), lambda i, j: te.sum(half[i, k] * x[k, j], axis=k), "y")
    s = te.create_schedule(y)
    s[half].compute_at(s[y], s[y].axis[0])
    s[half].vectorize(s[half].split(s[half].axis[1], factor=16)[1])
    loops = [w for w in walk(te.lower(s, [x, y]).body) if isinstance(w, For)]
    extents = [w.extent.value for w in loops if isinstance(w.extent, Const)]
    is_small = expected == 512  # then all sizes are
    assert is_small or max(extents, default=1) <= 16


def test_a_guard_of_a_sum_bounds_its_quotient() -> None:
    """What is not negative has quotients that are not, as in transposed convolutions."""
    x = te.placeholder((8,), "f32", "x")

    def taken(i: Expr, k: Expr) -> Expr:
        return te.if_then_else(i + 1 - k >= 0, x[(i + 1 - k) // 2], 0.0)

    y = te.compute((15, 3), taken, "y")
    data, found = np.arange(8, dtype=np.float32), np.empty((15, 3), np.float32)
    ts.build(te.create_schedule([y.op]), [x, y])(data, found)
    at = np.arange(15)[:, None] + 1 - np.arange(3)
    np.testing.assert_array_equal(found, np.where(at >= 0, data[at // 2], 0))
    z = te.compute((15, 3), lambda i, k: te.if_then_else(i + 3 - k >= 0, x[(i - k) // 2], 0.0), "z")
    with pytest.raises(ExpressionError, match="may leave x"):
        ts.build(te.create_schedule([z.op]), [x, z])
