"""Stages that are stored further out than they are computed: windows that slide."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import driver, te
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Var, const
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Allocate, Buffer, Func, Stmt, Store, seq
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import map_stmt, walk
from tilesmith.support.errors import ScheduleError
from tilesmith.support.options import Options
from tilesmith.te.slopes import slope

from .stencils import random_chain, random_sliding

SESSION = driver.Session.of(Options(verify_each=True))


@pytest.mark.parametrize("seed", range(120))
def test_windows_keep_the_answer(seed: int) -> None:
    """Interpreted as lowered and after all loop passes; every sixth one as machine code."""
    rnd = random.Random(seed)
    chain = random_chain(rnd, symbolic=seed % 5 == 4)
    s = te.create_schedule(chain.stages[-1].op)
    args = [chain.input, chain.stages[-1]]
    try:
        random_sliding(s, chain, rnd)
        func = te.lower(s, args)
    except ScheduleError:
        return
    verify(func, "nest")
    want = chain.answer(chain.data)
    found = np.full(want.shape, np.nan, np.float32)
    interpret(func, [chain.data.copy(), found, *chain.sizes.values()])
    np.testing.assert_array_equal(found, want, err_msg=f"seed {seed}\n{s.text()}")
    final = driver.run_loop_passes(func, SESSION)
    flat = np.full(want.size, np.nan, np.float32)
    interpret(final, [chain.data.reshape(-1).copy(), flat, *chain.sizes.values()])
    np.testing.assert_array_equal(flat.reshape(want.shape), want, err_msg=f"seed {seed}")
    if seed % 6 == 0 and not chain.sizes:
        found[:] = np.nan
        ts.build(s, args, threads=2)(chain.data, found)
        np.testing.assert_array_equal(found, want, err_msg=f"seed {seed}\n{s.text()}")


def counted(func: Func, name: str) -> Func:
    """`func` with a further parameter, to which each store into the buffer `name` adds 1."""
    count = Buffer("count", i64, (1,))

    def stmt(s: Stmt) -> Stmt:
        if not isinstance(s, Store) or s.buffer.name != name:
            return s
        return seq(s, Store(count, (const(0),), count[const(0)] + 1))

    body = map_stmt(func.body, f_expr=lambda e: e, f_stmt=stmt)
    return Func(func.name, (*func.params, count), (*func.outputs, count), body)


def stores(s: te.Schedule, args: list[te.Tensor], name: str) -> int:
    """How many elements of stage `name` are computed, repetitions counted."""
    shapes = [tuple(t.shape) for t in args]
    arrays = [np.zeros(n, t.dtype.numpy) for n, t in zip(shapes, args, strict=True)]
    count = np.zeros(1, np.int64)
    interpret(counted(te.lower(s, args), name), [*arrays, count])
    return int(count[0])


def pair(
    index: Callable[..., te.Tensor], rows: int = 24, results: int = 9
) -> tuple[te.Schedule, te.Tensor, te.Tensor, te.Tensor]:
    x = te.placeholder((rows, 6), name="X")
    b = te.compute((rows, 6), lambda y, i: x[y, i] * 2.0, name="B")
    c = te.compute((results, 6), lambda y, i: index(b, y, i), name="C")
    return te.create_schedule(c.op), x, b, c


@pytest.mark.parametrize(
    ("index", "rows"),
    [
        (lambda b, y, i: b[y, i] + b[y + 1, i] + b[y + 2, i], 11),
        (lambda b, y, i: b[2 * y, i] + b[2 * y + 1, i] + b[2 * y + 2, i], 19),  # strided
        (lambda b, y, i: b[2 * y, i] + b[2 * y + 3, i], 20),  # strided, an odd window
        (lambda b, y, i: b[y, i] + b[y + 4, i], 13),  # dilated
        (lambda b, y, i: b[y // 2, i] + b[y // 2 + 1, i], 6),  # upsampled
        (lambda b, y, i: b[10 - y, i] + b[12 - y, i], 11),  # backwards
        (lambda b, y, i: b[te.maximum(y - 1, 0), i] + b[y + 1, i], 10),  # an end that repeats
        (lambda b, y, i: b[2 * y, i], 9),  # no overlap
    ],
)
def test_each_element_is_computed_once(index: Callable[..., te.Tensor], rows: int) -> None:
    s, x, b, c = pair(index)
    s[b].compute_at(s[c], "y")
    s[b].store_root()
    assert stores(s, [x, c], "B") == 6 * rows


def test_a_window_slides_in_two_loops() -> None:
    x = te.placeholder((12, 13), name="X")
    b = te.compute((12, 13), lambda y, i: x[y, i] * 2.0, name="B")
    c = te.compute((10, 9), lambda y, i: b[y, i] + b[y + 2, i + 4], name="C")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], "i")
    s[b].store_root()
    assert stores(s, [x, c], "B") == 12 * 13
    assert allocations(te.lower(s, [x, c])) == {"B": (4, 13)}  # columns come again in each row


def test_a_loop_that_moves_nothing_computes_once() -> None:
    """The reduction over `k` needs the same rows in every iteration."""
    x = te.placeholder((12,), name="X")
    b = te.compute((12,), lambda y: x[y] + 1.0, name="B")
    k = te.reduce_axis(5, "k")
    c = te.compute((10,), lambda y: te.sum(b[y] * b[y + 2] * te.cast(k.var, f32), k), name="C")
    s = te.create_schedule(c.op)
    s[c].reorder("k", "y")
    s[b].compute_at(s[c], "k")
    s[b].store_root()
    assert stores(s, [x, c], "B") == 12


def allocations(func: Func) -> dict[str, tuple[int, ...]]:
    found = (s.buffer for s in walk(func.body) if isinstance(s, Allocate))
    return {b.name: tuple(int(n) for n in b.shape) for b in found}


def test_memory_is_folded_to_the_window() -> None:
    s, x, b, c = pair(lambda b, y, i: b[y, i] + b[y + 2, i])
    s[b].compute_at(s[c], "y")
    s[b].store_root()
    assert allocations(te.lower(s, [x, c])) == {"B": (4, 6)}
    s[b].fold_storage("y", 3)
    assert allocations(te.lower(s, [x, c])) == {"B": (3, 6)}


def test_memory_is_symbolic_in_other_dimensions_only() -> None:
    n = Var("n", i64)
    x = te.placeholder((n, 8), name="X")
    b = te.compute((n, 8), lambda y, i: x[y, i] * 2.0, name="B")
    c = te.compute((n - 2, 8), lambda y, i: b[y, i] + b[y + 2, i], name="C")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], "y")
    s[b].store_root()
    assert allocations(te.lower(s, [x, c])) == {"B": (4, 8)}
    data, found = np.arange(40, dtype=np.float32).reshape(5, 8), np.zeros((3, 8), np.float32)
    ts.build(s, [x, c])(data, found)
    np.testing.assert_array_equal(found, 2 * (data[:3] + data[2:]))


def test_compute_at_puts_the_memory_back() -> None:
    s, x, b, c = pair(lambda b, y, i: b[y, i] + b[y + 2, i])
    s[b].compute_at(s[c], "y")
    s[b].store_root()
    assert s.state.kept_over("B") == ("y",)
    s[b].compute_at(s[c], "y")
    assert s.state.kept_over("B") == ()
    assert allocations(te.lower(s, [x, c])) == {"B": (3, 6)}


def test_slopes() -> None:
    v, w = Var("v", i64), Var("w", i64)
    cases = {
        v * 3 - w: (3, 3),
        (v * 3) // 2: (1, 2),
        te.maximum(v - 1, 0): (0, 1),
        te.select(v < 0, v * 2, v * 3): (2, 3),
        te.select(v < 0, v, v * 3 + 4): (1, 5),
        te.select(w < 0, v, -v): (-1, 1),
        w + 1: (0, 0),
        v % 2: None,
        v * v: None,
    }
    for e, want in cases.items():
        assert slope(e, v) == want, str(e)


class Strips:
    """C reads rows y to y + 2 of B; rows are split in strips of 4."""

    def __init__(self) -> None:
        self.s, self.x, self.b, self.c = pair(lambda b, y, i: b[y, i] + b[y + 2, i])
        self.s[self.c].split("y", 4)
        self.s[self.b].compute_at(self.s[self.c], "yi")


def refuse(make: Callable[[Strips], None], message: str) -> None:
    e = Strips()
    with pytest.raises(ScheduleError, match=message):
        make(e)
        te.lower(e.s, [e.x, e.c])


def test_storage_between_loops_that_are_not_ordered_is_refused() -> None:
    def parallel_first(e: Strips) -> None:
        e.s[e.c].parallel("yo")
        e.s[e.b].store_root()

    def parallel_later(e: Strips) -> None:
        e.s[e.b].store_at(e.s[e.c], "yo")
        e.s[e.c].parallel("yi")

    refuse(parallel_first, r"loop C\.yo between them is parallel.*store it at yo")
    refuse(parallel_later, r"loop C\.yi between them is parallel")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda e: e.s[e.b].store_root(), "moves with the loops yo and yi; store it inside yo"),
        (lambda e: e.s[e.b].store_at(e.s[e.c], "i"), "cannot be stored at C.i: expected one of"),
        (lambda e: e.s[e.b].store_at(e.s[e.c], "y"), "it was split into yo and yi"),
        (lambda e: e.s[e.c].store_root(), "it is an output"),
        (lambda e: e.s[e.b].fold_storage("y", 4), "store_at an outer loop first"),
    ],
)
def test_wrong_storage(make: Callable[[Strips], None], message: str) -> None:
    refuse(make, message)


def test_wrong_folds() -> None:
    def fold(axis: str, factor: int) -> Callable[[Strips], None]:
        def make(e: Strips) -> None:
            e.s[e.b].store_at(e.s[e.c], "yo")
            e.s[e.b].fold_storage(axis, factor)

        return make

    refuse(fold("y", 2), "need 3 indices of y at a time; expected a factor of at least 3, found 2")
    refuse(fold("i", 4), r"values along i stay in use.*found i \(y\)")
    refuse(fold("k", 4), "has no axis 'k'")
    refuse(fold("y", 0), "a factor of at least 1")


def test_storage_needs_a_loop_of_a_reader() -> None:
    s, _, b, _ = pair(lambda b, y, i: b[y, i])
    with pytest.raises(ScheduleError, match="compute_at first"):
        s[b].store_root()


def test_windows_that_move_in_no_direction_are_refused() -> None:
    s, x, b, c = pair(lambda b, y, i: b[te.maximum(y, 8 - y), i])
    s[b].compute_at(s[c], "y")
    s[b].store_root()
    with pytest.raises(ScheduleError, match="does not move in one direction as y grows"):
        te.lower(s, [x, c])


def test_diagonal_windows_are_refused() -> None:
    x = te.placeholder((9, 9), name="X")
    b = te.compute((9, 9), lambda y, i: x[y, i] + 1.0, name="B")
    c = te.compute((8,), lambda y: b[y, y] + b[y + 1, y + 1], name="C")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], "y")
    s[b].store_root()
    with pytest.raises(ScheduleError, match="the loop y moves several dimensions"):
        te.lower(s, [x, c])


def test_rounded_tails_do_not_overwrite_what_is_kept() -> None:
    s, x, b, c = pair(lambda b, y, i: b[y, i] + b[y + 2, i])
    s[b].compute_at(s[c], "y")
    s[b].store_root()
    s[b].split("i", 4, tail="roundup")
    with pytest.raises(ScheduleError, match="cannot round up axis i of B"):
        te.lower(s, [x, c])


def test_double_buffers_and_windows_exclude_each_other() -> None:
    s, x, b, c = pair(lambda b, y, i: b[y, i] + b[y + 2, i])
    s[b].compute_at(s[c], "y")
    s[b].double_buffer()
    with pytest.raises(ScheduleError, match="cannot be double-buffered and stored"):
        s[b].store_root()
    s = te.create_schedule(c.op)
    copy = s.cache_read(x, "heap", [b])
    for stage in (b, copy):
        s[stage].compute_at(s[c], "y")
    s[copy].double_buffer()
    s[b].store_root()
    with pytest.raises(ScheduleError, match="another stage there is stored further out"):
        te.lower(s, [x, c])
