"""Which outputs may be the same memory as an input: proved, and true in the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilesmith import te
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Var
from tilesmith.loop.in_place import shareable
from tilesmith.loop.interpret import interpret
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_func

SHAPE = (10, 7)
A, B = (te.placeholder(SHAPE, "f32", name) for name in "AB")
ROW = te.placeholder((7,), "f32", "R")
WIDE = te.placeholder(SHAPE, "f64", "W")


def found(s: te.Schedule, *args: te.Tensor) -> dict[str, list[str]]:
    pairs = shareable(te.lower(s, args))
    return {out.name: [b.name for b in inputs] for out, inputs in pairs.items()}


def plain(stage: te.Stage) -> None:
    """The schedule as it begins."""


def tiled(stage: te.Stage) -> None:
    io, _, _, ji = stage.tile(*stage.axis, 4, 4)
    stage.vectorize(ji)
    stage.parallel(io)


def fused(stage: te.Stage) -> None:
    _, inner = stage.split(stage.fuse(*stage.axis), factor=4)
    stage.unroll(inner)


def reordered(stage: te.Stage) -> None:
    stage.reorder(*reversed(stage.axis))


@pytest.mark.parametrize("steps", [plain, tiled, fused, reordered])
def test_elementwise_kernels(steps: Callable[[te.Stage], None]) -> None:
    c = te.compute(SHAPE, lambda i, j: A[i, j] * ROW[j] + te.cast(WIDE[i, j], f32) - B[i, j], "C")
    s = te.create_schedule(c.op)
    steps(s[c])
    assert found(s, A, B, ROW, WIDE, c) == {"C": ["A", "B"]}
    func = te.lower(s, [A, B, ROW, WIDE, c])
    rng = np.random.default_rng(0)
    a, b, row, wide = (
        rng.standard_normal(t.shape).astype(t.dtype.numpy) for t in (A, B, ROW, WIDE)
    )
    expected = np.empty_like(a)
    interpret(func, [a, b, row, wide, expected])
    interpret(func, [a, b, row, wide, b])
    np.testing.assert_array_equal(b, expected)


def test_what_reads_other_elements_is_refused() -> None:
    mirrored = te.compute(SHAPE, lambda i, j: A[9 - i, j] + 1.0, "C")
    neighbours = te.compute(SHAPE, lambda i, j: A[i, j] + A[i, (j + 1) % 7], "C")
    for c in (mirrored, neighbours):
        assert found(te.create_schedule(c.op), A, c) == {"C": []}


def test_a_read_that_follows_the_store_is_refused() -> None:
    both = te.compute(SHAPE, lambda i, j: (A[i, j] + 1.0, A[i, j] * 2.0), "C")
    assert found(te.create_schedule(both[0].op), A, *both) == {"C": [], "C.1": ["A"]}


def test_reductions_are_refused_and_what_follows_them_is_not() -> None:
    k = te.reduce_axis(7, "k")
    total = te.compute((10,), lambda i: te.sum(A[i, k], axis=k), "T")
    assert found(te.create_schedule(total.op), A, total) == {}
    c = te.compute(SHAPE, lambda i, j: A[i, j] - total[i], "C")
    s = te.create_schedule(c.op)
    assert found(s, A, c) == {"C": ["A"]}  # all sums come first
    s[total].compute_at(s[c], s[c].axis[0])
    assert found(s, A, c) == {"C": []}


def test_elements_that_are_written_twice() -> None:
    """In place the second time would read what the first one wrote."""
    c = te.compute(SHAPE, lambda i, j: A[i, j] + 1.0, "C")
    s = te.create_schedule(c.op)
    s[c].split(s[c].axis[1], factor=4)
    text = print_func(te.lower(s, [A, c]))
    assert [len(inputs) for inputs in shareable(parse_func(text)).values()] == [1]
    assert shareable(parse_func(text.replace("jo * 4", "jo * 3"))) == {}


def test_symbolic_shapes() -> None:
    n = Var("n")
    x = te.placeholder((n, 64), "f32", "X")
    y = te.compute((n, 64), lambda i, j: x[i, j] * 2.0, "Y")
    for steps in (plain, fused, reordered):
        s = te.create_schedule(y.op)
        steps(s[y])
        assert found(s, x, y) == {"Y": ["X"]}
