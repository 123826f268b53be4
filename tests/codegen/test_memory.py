"""Loads, stores, masks, register buffers: every shape of access, on every instruction set that this
machine has.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernels import TARGETS, against_a_wall, lanes_at, native, run, serial

from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import assembly, compile_object
from tilesmith.codegen.targets import host
from tilesmith.codegen.targets import target as target_named
from tilesmith.ir.dtypes import DType, bool_, f16, f32, i8, i64
from tilesmith.ir.expr import (
    Binary,
    Broadcast,
    Compare,
    Load,
    Ramp,
    Select,
    Var,
    VectorReduce,
    const,
)  # fmt: skip
from tilesmith.loop.nodes import Allocate, Buffer, Func, If, LetStmt, Store, seq
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.function import NativeFunction
from tilesmith.support.errors import ScheduleError

pytestmark = pytest.mark.parametrize("target", TARGETS)


@pytest.mark.parametrize("dtype", (f32, i8, f16, bool_, i64), ids=str)
@pytest.mark.parametrize("stride", (-3, -1, 0, 1, 2, 3, 4, 5))
@pytest.mark.parametrize("lanes", (4, 7, 16))
def test_strided_loads_touch_only_their_elements(
    lanes: int, stride: int, dtype: DType, target: str
) -> None:
    n = (lanes - 1) * abs(stride) + 1
    source = against_a_wall(
        (np.arange(n) % 2 if dtype is bool_ else np.arange(n) % 100).astype(dtype.numpy)
    )
    x, y = Buffer("x", dtype, (n,)), Buffer("y", dtype, (lanes,))
    first = n - 1 if stride < 0 else 0
    load = Load(x, (Ramp(const(first), const(stride), lanes),))
    out = np.empty(lanes, dtype.numpy)
    run(Func("strided", (x, y), (y,), Store(y, (lanes_at(0, lanes),), load)), [source, out], target)
    np.testing.assert_array_equal(out, source[first + stride * np.arange(lanes)])


@pytest.mark.parametrize("stride", (-2, -1, 1, 3))
def test_strided_stores(stride: int, target: str) -> None:
    lanes, n = 8, 32
    x, y = Buffer("x", f32, (lanes,)), Buffer("y", f32, (n,))
    first = n - 1 if stride < 0 else 0
    store = Store(y, (Ramp(const(first), const(stride), lanes),), Load(x, (lanes_at(0, lanes),)))
    a, out = np.arange(1, 9, dtype=np.float32), np.zeros(n, np.float32)
    run(Func("strided", (x, y), (y,), store), [a, out], target)
    want = np.zeros(n, np.float32)
    want[first + stride * np.arange(lanes)] = a
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("stride", (1, -1, 2, 0))
@pytest.mark.parametrize("dtype", (f32, i8, bool_), ids=str)
def test_masked_lanes_are_neither_read_nor_written(dtype: DType, stride: int, target: str) -> None:
    lanes = 16
    for count in (0, 1, 5, 16):
        n = max((count - 1) * abs(stride) + 1, 1)
        values = np.ones(n, bool) if dtype is bool_ else (np.arange(n) + 1).astype(dtype.numpy)
        source, out = against_a_wall(values), against_a_wall(np.zeros(max(count, 1), dtype.numpy))
        x, y, limit = Buffer("x", dtype, (n,)), Buffer("y", dtype, (max(count, 1),)), Var("limit")
        lane = lanes_at(0, lanes)
        mask = Compare("lt", lane, Broadcast(limit, lanes))
        index = Ramp(const(n - 1 if stride < 0 else 0), const(stride), lanes)
        store = Store(y, (lane,), Load(x, (index,), mask), mask)
        f = native(Func("masked", (x, y, limit), (y,), store), target)
        f(source, out, count)
        first = n - 1 if stride < 0 else 0
        np.testing.assert_array_equal(out[:count], source[first + stride * np.arange(count)])


def test_a_masked_load_gives_zero(target: str) -> None:
    x, y = Buffer("x", f32, (8,)), Buffer("y", f32, (8,))
    lane = lanes_at(0, 8)
    mask = Compare("lt", Binary("floormod", lane, Broadcast(const(2), 8)), Broadcast(const(1), 8))
    a, out = np.arange(1, 9, dtype=np.float32), np.full(8, -1, np.float32)
    run(Func("m", (x, y), (y,), Store(y, (lane,), Load(x, (lane,), mask))), [a, out], target)
    np.testing.assert_array_equal(out, [1, 0, 3, 0, 5, 0, 7, 0])


@pytest.mark.parametrize("lanes", (1, 8))
def test_select_reads_only_the_chosen_branch(lanes: int, target: str) -> None:
    n = 5
    source, out = against_a_wall(np.arange(n, dtype=np.float32)), np.empty(16, np.float32)
    x, y, i = Buffer("x", f32, (n,)), Buffer("y", f32, (16,)), Var("i")
    at = lanes_at(i * lanes, lanes)
    limit = const(n) if lanes == 1 else Broadcast(const(n), lanes)
    other = const(-1.0) if lanes == 1 else Broadcast(const(-1.0), lanes)
    body = Store(y, (at,), Select(Compare("lt", at, limit), Load(x, (at,)) * 2.0, other))
    run(Func("guarded", (x, y), (y,), serial(i, 16 // lanes, body)), [source, out], target)
    np.testing.assert_array_equal(out, [0, 2, 4, 6, 8, *[-1] * 11])


def test_select_of_vectors_by_a_scalar(target: str) -> None:
    source, out = against_a_wall(np.arange(8, dtype=np.float32)), np.empty(16, np.float32)
    x, y, i = Buffer("x", f32, (8,)), Buffer("y", f32, (16,)), Var("i")
    at = Ramp(i * 8, const(1), 8)
    body = Store(y, (at,), Select(i < 1, Load(x, (at,)), Broadcast(const(7.0), 8)))
    run(Func("guarded", (x, y), (y,), serial(i, 2, body)), [source, out], target)
    np.testing.assert_array_equal(out, [*range(8), *[7] * 8])


def test_a_scalar_in_masked_lanes_is_read_when_a_lane_is_active(target: str) -> None:
    source, out = against_a_wall(np.array([3, 4], np.float32)), np.empty(32, np.float32)
    x, y, i = Buffer("x", f32, (2,)), Buffer("y", f32, (32,)), Var("i")
    at = Ramp(i * 8, const(1), 8)
    cond = Compare("lt", at, Broadcast(const(11), 8))
    body = Store(y, (at,), Select(cond, Broadcast(Load(x, (i,)), 8), Broadcast(const(0.0), 8)))
    run(Func("guarded", (x, y), (y,), serial(i, 4, body)), [source, out], target)
    np.testing.assert_array_equal(out, [3] * 8 + [4] * 3 + [0] * 21)


def test_a_reduction_in_masked_lanes(target: str) -> None:
    source, out = against_a_wall(np.arange(8, dtype=np.float32)), np.empty(8, np.float32)
    x, y, i = Buffer("x", f32, (8,)), Buffer("y", f32, (8,)), Var("i")
    at = Ramp(i * 4, const(1), 4)
    sum_ = VectorReduce("add", Load(x, (Ramp(i * 8, const(1), 8),)))
    body = Store(
        y,
        (at,),
        Select(
            Compare("lt", at, Broadcast(const(2), 4)), Broadcast(sum_, 4), Broadcast(const(1.0), 4)
        ),
    )
    run(Func("guarded", (x, y), (y,), serial(i, 2, body)), [source, out], target)
    np.testing.assert_array_equal(out, [28, 28, 1, 1, 1, 1, 1, 1])


def test_gather_and_scatter(target: str) -> None:
    rng = np.random.default_rng(0)
    where = rng.permutation(16).astype(np.int64)
    a, out = rng.random(16, np.float32), np.zeros(16, np.float32)
    x, w, y = Buffer("x", f32, (16,)), Buffer("w", i64, (16,)), Buffer("y", f32, (16,))
    lane = lanes_at(0, 16)
    index = Load(w, (lane,))
    run(
        Func("gather", (x, w, y), (y,), Store(y, (lane,), Load(x, (index,)))),
        [a, where, out],
        target,
    )
    np.testing.assert_array_equal(out, a[where])
    out2 = np.zeros(16, np.float32)
    run(
        Func("scatter", (x, w, y), (y,), Store(y, (index,), Load(x, (lane,)))),
        [a, where, out2],
        target,
    )
    want = np.zeros(16, np.float32)
    want[where] = a
    np.testing.assert_array_equal(out2, want)


def test_an_index_may_be_negative_before_its_constant_is_added(target: str) -> None:
    x, y, i, j = Buffer("x", f32, (12,)), Buffer("y", f32, (4, 3)), Var("i"), Var("j")
    body = Store(y, (i * 3 + j,), Load(x, ((const(3) - i) * 3 - j + 2,)))
    a, out = np.arange(12, dtype=np.float32), np.empty((4, 3), np.float32)
    run(Func("reverse", (x, y), (y,), serial(i, 4, serial(j, 3, body))), [a, out], target)
    np.testing.assert_array_equal(out.ravel(), a[::-1])


def test_a_value_read_again_after_a_store_is_the_new_one(target: str) -> None:
    x, y, v = Buffer("x", f32, (1,)), Buffer("y", f32, (2,)), Var("v", f32)
    zero, one = const(0), const(1)
    old = Load(x, (zero,))
    body = LetStmt(
        v, old, seq(Store(x, (zero,), old + 1.0), Store(y, (zero,), v), Store(y, (one,), old))
    )
    a, out = np.array([5], np.float32), np.empty(2, np.float32)
    run(Func("again", (x, y), (x, y), body), [a, out], target)
    np.testing.assert_array_equal(out, [5, 6])


def test_lets_of_one_variable_do_not_mix(target: str) -> None:
    x, y, v = Buffer("x", f32, (2,)), Buffer("y", f32, (2,)), Var("v", f32)
    first, second = (LetStmt(v, Load(x, (const(i),)), Store(y, (const(i),), v * v)) for i in (0, 1))
    a, out = np.array([5, 6], np.float32), np.empty(2, np.float32)
    run(Func("lets", (x, y), (y,), seq(first, second)), [a, out], target)
    np.testing.assert_array_equal(out, [25, 36])


def matmul(mr: int, vectors: int, lanes: int, k_extent: int) -> Func:
    """C[mr, vectors * lanes] = A[mr, k] @ B[k, vectors * lanes], accumulated in registers."""
    nr = vectors * lanes
    a, b, c = (
        Buffer("A", f32, (mr, k_extent)),
        Buffer("B", f32, (k_extent, nr)),
        Buffer("C", f32, (mr, nr)),
    )
    acc, k = Buffer("acc", f32, (mr * nr,), "register"), Var("k")
    tile = [(r, r * nr + v * lanes, v * lanes) for r in range(mr) for v in range(vectors)]
    zero = Broadcast(const(0.0), lanes)
    init = [Store(acc, (lanes_at(at, lanes),), zero) for _, at, _ in tile]
    update = [
        Store(
            acc,
            (lanes_at(at, lanes),),
            Load(acc, (lanes_at(at, lanes),))
            + Broadcast(Load(a, (k + r * k_extent,)), lanes)
            * Load(b, (lanes_at(k * nr + v, lanes),)),
        )
        for r, at, v in tile
    ]
    write = [
        Store(c, (lanes_at(at, lanes),), Load(acc, (lanes_at(at, lanes),))) for _, at, _ in tile
    ]
    return Func(
        "matmul",
        (a, b, c),
        (c,),
        Allocate(acc, seq(*init, serial(k, k_extent, seq(*update)), *write)),
    )


@pytest.mark.parametrize(
    "mr,vectors,lanes", ((6, 2, 16), (14, 2, 16), (4, 1, 32), (3, 2, 7), (2, 3, 1))
)
def test_register_tiles(mr: int, vectors: int, lanes: int, target: str) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((mr, 33), np.float32), rng.random((33, vectors * lanes), np.float32)
    c = np.empty((mr, vectors * lanes), np.float32)
    run(matmul(mr, vectors, lanes, 33), [a, b, c], target)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_register_tiles_stay_in_registers(target: str) -> None:
    t = target_named(target)
    if t.vector_bits == 128:
        pytest.skip("the tile below is made for wider registers")
    lanes = t.vector_lanes(4)
    rows = 14 if t.vector_registers == 32 else 6
    text = assembly(emit(matmul(rows, 2, lanes, 64), t).text, t)
    register = "zmm" if t.vector_bits == 512 else "ymm"
    assert text.count("vfmadd") == rows * 2
    assert not [line for line in text.splitlines() if "(%rsp" in line and register in line]


def test_register_buffers_of_mixed_widths(target: str) -> None:
    x, y, r = Buffer("x", f32, (8,)), Buffer("y", f32, (8,)), Buffer("r", f32, (8,), "register")
    body = seq(
        Store(r, (lanes_at(0, 8),), Load(x, (lanes_at(0, 8),))),
        Store(r, (const(3),), const(50.0)),
        Store(r, (lanes_at(4, 4),), Load(r, (lanes_at(4, 4),)) * 2.0),
        Store(y, (lanes_at(0, 8),), Load(r, (lanes_at(0, 8),))),
    )
    a, out = np.arange(8, dtype=np.float32), np.empty(8, np.float32)
    run(Func("mixed", (x, y), (y,), Allocate(r, body)), [a, out], target)
    np.testing.assert_array_equal(out, [0, 1, 2, 50, 8, 10, 12, 14])


@pytest.mark.parametrize("scope", ("register", "stack", "heap"))
def test_masks_on_private_buffers(scope: str, target: str) -> None:
    x, y, r = Buffer("x", f32, (8,)), Buffer("y", f32, (8,)), Buffer("r", f32, (8,), scope)  # type: ignore[arg-type]
    lane = lanes_at(0, 8)
    some = Compare("lt", lane, Broadcast(const(3), 8))
    body = seq(
        Store(r, (lane,), Broadcast(const(9.0), 8)),
        Store(r, (lane,), Load(x, (lane,)), some),
        Store(y, (lane,), Load(r, (lane,), Compare("lt", lane, Broadcast(const(5), 8)))),
    )
    a, out = np.arange(8, dtype=np.float32), np.empty(8, np.float32)
    run(Func("masks", (x, y), (y,), Allocate(r, body)), [a, out], target)
    np.testing.assert_array_equal(out, [0, 1, 2, 9, 9, 0, 0, 0])


@pytest.mark.parametrize("scope", ("stack", "heap"))
@pytest.mark.parametrize(("count", "whole"), [(21, 2), (20, 2), (24, 2), (15, 1), (33, 1)])
def test_last_vectors_of_private_buffers_are_whole(
    count: int, whole: int, scope: str, target: str
) -> None:
    """Lanes beyond the last of `count` elements are written where the allocation has bytes for
    them, so that the next load finds its vector; those before it are not.
    """
    x, y = Buffer("x", f32, (count,)), Buffer("y", f32, (count,))
    r = Buffer("r", f32, (count,), scope)  # type: ignore[arg-type]
    places = [(0, min(16, count)), (16, min(count - 16, 16))][:whole]
    body = seq(
        *(Store(r, (i,), const(9.0)) for i in (const(n) for n in range(count))),
        *(
            Store(r, (lane,), Load(x, (lane,), some) * 2.0, some)
            for lane, some in (_first(at, n, 16) for at, n in places)
        ),
        *(
            Store(y, (lane,), Load(r, (lane,), some), some)
            for lane, some in (_first(at, n, 16) for at, n in places)
        ),
    )
    a = np.arange(count, dtype=np.float32)
    out, wanted = np.zeros((2, count), np.float32)
    run(Func("tail", (x, y), (y,), Allocate(r, body)), [against_a_wall(a), out], target)
    for at, n in places:
        wanted[at : at + n] = 2 * a[at : at + n]
    np.testing.assert_array_equal(out, wanted)
    text = emit(Func("tail", (x, y), (y,), Allocate(r, body)), host()).text
    assert text.count("call void @llvm.masked.store") == whole  # those to y


def _first(at: int, count: int, lanes: int) -> tuple[Ramp, Compare]:
    """`lanes` places from `at` on, and a mask of the first `count`."""
    lane = Ramp(const(at), const(1), lanes)
    return lane, Compare("lt", Ramp(const(0), const(1), lanes), Broadcast(const(count), lanes))


@pytest.mark.parametrize("scope", ("stack", "heap"))
def test_masks_keep_what_is_alive(scope: str, target: str) -> None:
    x, y = Buffer("x", f32, (40,)), Buffer("y", f32, (40,))
    r = Buffer("r", f32, (40,), scope)  # type: ignore[arg-type]
    lane, some = _first(16, 4, 16)  # the last of the first row of 20, beside the second
    back = Ramp(const(15), const(-1), 16)
    body = seq(
        *(Store(r, (const(n),), const(9.0)) for n in range(40)),
        Store(r, (lane,), Load(x, (lane,)), some),
        Store(r, (back,), Load(x, (back,)), _first(0, 7, 16)[1]),
        *(Store(y, (const(n),), Load(r, (const(n),))) for n in range(40)),
    )
    a, out = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    run(Func("rows", (x, y), (y,), Allocate(r, body)), [a, out], target)
    wanted = np.full(40, 9, np.float32)
    wanted[9:20] = a[9:20]
    np.testing.assert_array_equal(out, wanted)


def test_a_register_buffer_needs_constant_indices(target: str) -> None:
    y, r, i = Buffer("y", f32, (4,)), Buffer("r", f32, (4,), "register"), Var("i")
    body = serial(i, 4, Store(r, (i,), const(1.0)))
    with pytest.raises(ScheduleError, match="r is in registers, and is read or written there with"):
        emit(Func("bad", (y,), (y,), Allocate(r, body)), host())


def test_loop_invariant_reads_do_not_happen_when_the_loop_does_not_run(target: str) -> None:
    n = Var("n")
    wall = against_a_wall(np.zeros(0, np.float32))
    x, y, i = Buffer("x", f32, (n,)), Buffer("y", f32, (4,)), Var("i")
    body = serial(i, n, If(i < 4, Store(y, (i,), Load(x, (const(0),)))))
    out = np.full(4, 3, np.float32)
    native(Func("empty", (x, y, n), (y,), body), target)(wall, out)
    np.testing.assert_array_equal(out, [3, 3, 3, 3])


@pytest.mark.parametrize("cpu", ("znver4", "sapphirerapids"))
@pytest.mark.parametrize("lanes", (4, 8, 16))
def test_elements_at_indices_side_by_side(lanes: int, cpu: str, target: str) -> None:
    """One by one where gathers are slow; the answer is the same."""
    n, rows = 4 * lanes, 3
    x, at = Buffer("x", f32, (rows * 50,)), Buffer("at", i64, (n,))
    y = Buffer("y", f32, (rows * n,))
    i, j = Var("i"), Var("j")
    index = Broadcast(i * 50, lanes) + Load(at, (lanes_at(j * lanes, lanes),))
    store = Store(y, (lanes_at(i * n + j * lanes, lanes),), Load(x, (index,)))
    func = Func("take", (x, at, y), (y,), serial(i, rows, serial(j, 4, store)))
    machine = replace(target_named(target), cpu=cpu)
    kernel = emit(func, machine)
    assert ("gather" in kernel.text) == (cpu != "znver4")
    code = compile_object(kernel.text, target_named(target))
    values = np.arange(rows * 50, dtype=np.float32)
    places = np.random.default_rng(0).integers(0, 50, n)
    out = np.zeros(rows * n, np.float32)
    NativeFunction(kernel, code, Arguments(func), target_named(target), 1)(values, places, out)
    np.testing.assert_array_equal(out.reshape(rows, n), values.reshape(rows, 50)[:, places])
