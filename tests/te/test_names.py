"""The names that users of TE type: variables, types, operands, targets, and words of others."""

from __future__ import annotations

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.codegen.targets import target
from tilesmith.loop.text import print_func
from tilesmith.support.errors import ScheduleError


def clipped(n: int = 6) -> tuple[te.Tensor, te.Tensor]:
    x = te.placeholder((n,), te.f32, "x")
    return x, te.compute((n,), lambda i: te.min(te.max(x[i], 0), 1.0), "y")


def test_a_variable_is_an_extent_and_an_operand() -> None:
    n = te.var("n")
    x = te.placeholder((n,), te.f32, "x")
    y = te.compute((n,), lambda i: x[i] + te.cast(n, "f32"), "y")
    f = ts.build(te.create_schedule(y), [x, y])
    for size in (1, 5):
        out = np.empty(size, np.float32)
        f(np.ones(size, np.float32), out)
        np.testing.assert_array_equal(out, np.full(size, 1 + size, np.float32))


def test_extrema_of_two_operands_and_over_axes() -> None:
    x, y = clipped()
    k = te.reduce_axis(6, "k")
    largest = te.compute((1,), lambda _: te.max(y[k], axis=k), "largest")
    values = np.array([-2, -0.5, 0, 0.25, 0.75, 9], np.float32)
    out = np.empty(1, np.float32)
    ts.build(te.create_schedule([largest]), [x, largest])(values, out)
    assert out[0] == 1.0
    got = np.empty(6, np.float32)
    ts.build(te.create_schedule(y), [x, y])(values, got)
    np.testing.assert_array_equal(got, np.clip(values, 0, 1))


def test_a_schedule_of_tensors_is_that_of_their_operations() -> None:
    x, y = clipped()
    by_tensor, by_op = (te.create_schedule(r) for r in (y, y.op))
    assert print_func(te.lower(by_tensor, [x, y])) == print_func(te.lower(by_op, [x, y]))
    with pytest.raises(ScheduleError, match="takes tensors made by"):
        te.create_schedule(x)


def test_a_lowered_function_prints_its_loops() -> None:
    x, y = clipped()
    func = te.lower(te.create_schedule(y), [x, y])
    assert str(func) == print_func(func) and "for i in range(6)" in str(func)


@pytest.mark.parametrize(
    ("name", "level"),
    [("sse", "x86-64"), ("sse4", "x86-64-v2"), ("avx2", "x86-64-v3"), ("avx512", "x86-64-v4")],
)
def test_instruction_sets_name_targets(name: str, level: str) -> None:
    assert target(name) == target(level)


def test_words_of_others_are_answered_with_ours() -> None:
    x, y = clipped()
    s = te.create_schedule(y)
    with pytest.raises(AttributeError, match=r"no te.thread_axis: s\[t\].bind\(axis"):
        te.thread_axis  # noqa: B018  # the attribute is what is tested
    with pytest.raises(AttributeError, match=r"no stage.bound: extents are the shape that te.com"):
        s[y].bound  # noqa: B018  # the attribute is what is tested
    with pytest.raises(AttributeError, match=r"there is no te.nothing$"):
        te.nothing  # noqa: B018  # the attribute is what is tested
    copy = s.cache_read(x, "heap", [y])
    for word, ours in (("global", "heap"), ("local", "register")):
        with pytest.raises(ScheduleError, match=f"TVM's '{word}' is '{ours}' here"):
            s[copy].set_scope(word)  # type: ignore[arg-type]  # what is tested


def test_copies_for_readers_keep_the_names_of_axes() -> None:
    X = te.placeholder((8, 9), name="X")
    A = te.compute((8, 9), lambda row, column: X[row, column] + 1.0, name="A")
    B = te.compute((8, 9), lambda i, j: A[i, j] * 2.0, name="B")
    s = te.create_schedule(B.op)
    copy = s.cache_read(A, "heap", [B])
    assert [a.name for a in s[copy].axis] == ["row", "column"]
    s[copy].split("column", 4)
    assert [a.name for a in s[s.cache_read(X, "heap", [A])].axis] == ["i0", "i1"]
