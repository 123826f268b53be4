"""Reductions whose terms the threads of a block share: shuffles, shared memory and barriers."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import tilesmith as ts
from common.thread_reductions import ANSWERS, REDUCERS, rows, summed
from tilesmith import te
from tilesmith.cli.explain_device import counts_of_loops
from tilesmith.codegen.targets import target
from tilesmith.ir.device import Device
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Barrier, Func, WaveReduce
from tilesmith.loop.parse import parse_func
from tilesmith.loop.passes.barriers import add_barriers
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import walk
from tilesmith.support.errors import ScheduleError, VerifyError


def count(func: Func, kind: type) -> int:
    return sum(isinstance(s, kind) for s in walk(func.body))


def test_golden(golden):
    golden(print_func(summed((3, 200), 128, 32)))


@pytest.mark.parametrize(
    ("threads", "lanes", "barriers", "exchanges"),
    [
        (32, 32, 0, 1),  # within a wave: no shared memory
        (16, 32, 0, 1),
        (256, 32, 1, 2),  # one exchange between waves
        (1024, 32, 1, 2),
        (256, 1, 2, 0),  # no shuffles: 16 times 16
        (16, 1, 1, 0),
        (48, 32, 1, 1),  # sixteen lanes, then three parts
    ],
)
def test_barriers(threads: int, lanes: int, barriers: int, exchanges: int):
    func = summed((2, 1500), threads, lanes)
    assert (count(func, Barrier), count(func, WaveReduce)) == (barriers, exchanges)
    x = np.random.default_rng(0).integers(-9, 9, (2, 1500)).astype(np.float32)
    found = np.empty(2, np.float32)
    interpret(func, [x, found])
    np.testing.assert_array_equal(found, x.sum(1))


def test_random_reductions():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(25):
        op, dtype = rng.choice(list(REDUCERS)), rng.choice(("f32", "i32", "i64", "u8", "f64"))
        shape = rng.randint(1, 5), rng.randint(1, 90)
        threads, lanes = rng.choice((1, 2, 3, 8, 12, 32, 40, 64, 300)), rng.choice((1, 2, 8, 32))
        func = summed(shape, threads, lanes, op, dtype)
        x = np.random.default_rng(seed).integers(1, 4, shape).astype(func.buffers[0].dtype.numpy)
        if op == "mul":
            x[:, 3:] = 1
        found = np.empty(shape[:1], x.dtype)
        interpret(func, [x, found])
        np.testing.assert_array_equal(found, ANSWERS[op](x, 1).astype(x.dtype))


def test_every_lane_has_the_whole():
    """Partial sums in the order that the node's text says: halves, pair by pair."""
    func = parse_func("""\
def f(x: f32[2, 8], y: f32[2, 8]) -> y:
    for j in thread_y(2):
        for i in thread_x(8):
            let whole: f32 = wave_reduce(add, x[j, i], 4)
            y[j, i] = whole
""")
    verify(func, "nest")
    x = np.float32([[1e8, 1, -1e8, 1, 1, 2, 3, 4], range(8)])
    found = np.empty_like(x)
    interpret(func, [x, found])
    halves = x.reshape(2, 2, 4)[:, :, :2] + x.reshape(2, 2, 4)[:, :, 2:]
    wanted = (halves[:, :, 0] + halves[:, :, 1]).repeat(4).reshape(2, 8)
    np.testing.assert_array_equal(found, wanted)


BAD = {
    "alone": ("for i in thread_x(8):", "if i < 3:", "only some threads of a group"),
    "in a loop": ("for i in thread_x(8):", "for n in range(i):", "only some threads of a group"),
    "odd": ("for i in thread_x(6):", "if true:", "a power of two that divides them"),
    "outside": ("for i in range(8):", "if true:", "outside of blocks of threads"),
}


@pytest.mark.parametrize("name", BAD)
def test_verified(name: str):
    loop, inside, message = BAD[name]
    func = parse_func(f"""\
def f(x: f32[8], y: f32[8]) -> y:
    {loop}
        {inside}
            let whole: f32 = wave_reduce(add, x[i], 4)
            y[i] = whole
""")
    with pytest.raises(VerifyError, match=message):
        verify(func, "nest")


def test_a_missing_lane_is_reported():
    """The verifier does not know what is loaded; the interpreter does."""
    func = parse_func("""\
def f(x: f32[8], y: f32[8]) -> y:
    for i in thread_x(8):
        if x[i] < 6.0:
            let whole: f32 = wave_reduce(add, x[i], 4)
            y[i] = whole
""")
    verify(func, "nest")
    found = np.zeros(8, np.float32)
    interpret(func, [np.float32([1, 2, 3, 4, 7, 7, 7, 7]), found])
    np.testing.assert_array_equal(found, [10] * 4 + [0] * 4)  # another group stays away
    with pytest.raises(ScheduleError, match=r"thread \(4, 0, 0\) .* others of them do not come"):
        interpret(func, [np.arange(8, dtype=np.float32), found])


def test_an_exchange_orders_no_accesses():
    func = parse_func("""\
def f(x: f32[4], y: f32[4]) -> y:
    alloc s: f32[4] heap
    for b in block_x(1):
        for i in thread_x(4):
            s[i] = x[i]
            let whole: f32 = wave_reduce(add, x[i], 4)
            y[i] = s[3 - i] + whole
""")
    with pytest.raises(ScheduleError, match="data race"):
        interpret(func, [np.ones(4, np.float32), np.ones(4, np.float32)])


def test_refused():
    x = te.placeholder((4, 64), name="x")
    k = te.reduce_axis(64, "k")
    y = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), "y")
    s = te.create_schedule(y.op)
    with pytest.raises(ScheduleError, match="use rfactor"):
        s[y].bind(k, "blockIdx.x")
    with pytest.raises(ScheduleError, match="lanes=3: expected a power of two"):
        s[y].bind(k, "threadIdx.x", lanes=3)
    with pytest.raises(ScheduleError, match=r"lanes=4: .* bound to threadIdx.x"):
        s[y].bind(k, "threadIdx.y", lanes=4)
    with pytest.raises(ScheduleError, match=r"lanes=4: .* an axis that is reduced"):
        s[y].bind(s[y].axis[0], "threadIdx.x", lanes=4)
    s[y].bind(k, "threadIdx.x")
    with pytest.raises(ScheduleError, match="y, which is in param memory: expected scope 'regist"):
        te.lower(s, [x, y])
    s = te.create_schedule(y.op)
    own = s[s.cache_write(y, "register")]
    own.bind(own.op.reduce_axis[0], "threadIdx.x")
    own.set_scope("stack")
    with pytest.raises(ScheduleError, match="at root: expected compute_at inside a loop that is"):
        te.lower(s, [x, y])
    t = te.create_schedule(y.op)
    own = t[t.cache_write(y, "register")]
    t[y].bind(t[y].axis[0], "threadIdx.x")
    own.compute_at(t[y], t[y].axis[0])
    own.bind(own.op.reduce_axis[0], "threadIdx.x")
    with pytest.raises(ScheduleError, match="terms of another element; compute y_register outside"):
        te.lower(t, [x, y])


def test_pairs_are_refused():
    x = te.placeholder((64,), name="x")
    k = te.reduce_axis(64, "k")
    first = te.comm_reducer(
        lambda a, b: tuple(te.select(a[1] < b[1], p, q) for p, q in zip(a, b, strict=True)),
        lambda i, v: (te.const(-1, i), te.const(9, v)),
    )
    y = te.compute((1,), lambda i: first((k.var, x[k]), axis=k), "y")
    s = te.create_schedule(y[0].op)
    with pytest.raises(ScheduleError, match=r"threads only combine partial results of te.sum"):
        s[y[0]].bind(s[y[0]].op.reduce_axis[0], "threadIdx.x")


def test_only_some_threads():
    """A row that is not there: all threads of a wave stay away, but not all of a block."""
    func = summed((5, 64), 32, 32, "add", "f32", 4)
    x = np.random.default_rng(0).integers(-9, 9, (5, 64)).astype(np.float32)
    found = np.empty(5, np.float32)
    interpret(func, [x, found])
    np.testing.assert_array_equal(found, x.sum(1))
    with pytest.raises(ScheduleError, match=r"threads need a barrier .* y_register_parts"):
        te.lower(*rows((5, 64), 64, 32, "add", "f32", 4))
    alone = parse_func("""\
def f(x: f32[8], y: f32[8]) -> y:
    for i in thread_x(8):
        if i < 5:
            let whole: f32 = wave_reduce(add, x[i], 4)
            y[i] = whole
""")
    message = r"threads exchange their values of x\[i\] inside of 'if i < 5:'.* tail='roundup'"
    with pytest.raises(ScheduleError, match=message):
        add_barriers(alone)


def test_a_device_without_shuffles():
    gpu = target("opencl-gpu")
    with pytest.raises(ScheduleError, match=r"at most 1 lanes that exchange values .* found 32"):
        ts.build(*rows((2, 64), 64, 32), target=gpu)
    has = replace(gpu, device=replace(gpu.device, shuffle_lanes=32))
    source = ts.build(*rows((2, 64), 64, 32), target=has).source
    assert source.count("= sub_group_shuffle_xor(") == 6  # 32 lanes, then two waves
    assert "cl_khr_subgroup_shuffle : enable" in source


def test_lanes_of_a_device():
    with pytest.raises(ValueError, match="shuffle_lanes: expected a power of two, found 24"):
        Device.from_json({"shuffle_lanes": 24})


@pytest.mark.parametrize("index", ["threadIdx.y", "threadIdx.z"])
def test_threads_along_other_axes(index: str):
    """Columns: neighbours along x add up terms of different sums, and no bank is asked twice."""
    x = te.placeholder((100, 64), name="x")
    k = te.reduce_axis(100, "k")
    y = te.compute((64,), lambda j: te.sum(x[k, j], axis=k), "y")
    s = te.create_schedule(y.op)
    own = s[s.cache_write(y, "register")]
    block, column = s[y].split(s[y].axis[0], factor=32)
    column, first = s[y].split(column, factor=1)
    s[y].bind(block, "blockIdx.x")
    s[y].bind(column, "threadIdx.x")
    s[y].bind(first, index)
    own.compute_at(s[y], column)
    _, part = own.split(own.op.reduce_axis[0], factor=20, tail="guard")
    own.bind(part, index)
    func = te.lower(s, [x, y])
    verify(func, "nest")
    given = np.random.default_rng(0).integers(-9, 9, (100, 64)).astype(np.float32)
    found = np.empty(64, np.float32)
    interpret(func, [given, found])
    np.testing.assert_array_equal(found, given.sum(0))
    (counts,) = counts_of_loops(print_func(func), target("cuda-sm_80"))
    assert counts.barriers == 2 and counts.bank_conflicts == 0
