"""Rules for devices: the interpreter finds no race in a schedule, and the result of plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.device_groups import CASES, halves, product
from tilesmith import te
from tilesmith.codegen.targets import target
from tilesmith.ir.expr import Const
from tilesmith.loop.interpret import interpret
from tilesmith.loop.launches import launches
from tilesmith.loop.nodes import Barrier, Func, Stmt, WaveReduce
from tilesmith.loop.text import print_func
from tilesmith.loop.visit import walk
from tilesmith.strategy.device import default_schedule

GPU = target("opencl-gpu")


@pytest.mark.parametrize("name", CASES)
def test_rules(name):
    args, blocks = CASES[name]
    func = te.lower(default_schedule(args, GPU, 0.0), args, "f")
    assert [x.threads for x in launches(func)] == blocks
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, t.shape).astype(np.float32) for t in args]
    wanted = [a.copy() for a in given]
    interpret(te.lower(te.create_schedule(args[-1].op), args), wanted)
    interpret(func, given)
    np.testing.assert_allclose(given[-1], wanted[-1], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "exchanges", "barriers"),
    [("softmax", 4, 2), ("softmax of long rows", 4, 2), ("sums of rows", 2, 1)],
)
def test_rows_by_shuffles(name: str, exchanges: int, barriers: int):
    """In waves, then once between waves; a device without shuffles needs twice the barriers."""
    args, blocks = CASES[name]
    cuda = target("cuda-sm_80")
    func = te.lower(default_schedule(args, cuda, 0.0), args, "f")
    plain = te.lower(default_schedule(args, GPU, 0.0), args, "f")
    assert [x.threads for x in launches(func)] == blocks
    assert (count(func, WaveReduce), count(func, Barrier)) == (exchanges, barriers)
    assert (count(plain, WaveReduce), count(plain, Barrier)) == (0, 2 * barriers)
    given = [np.random.default_rng(0).integers(-3, 4, t.shape).astype(np.float32) for t in args]
    wanted = [a.copy() for a in given]
    interpret(plain, wanted)
    interpret(func, given)
    np.testing.assert_allclose(given[-1], wanted[-1], rtol=1e-6)


def count(func: Func, kind: type[Stmt]) -> int:
    return sum(isinstance(s, kind) for s in walk(func.body))


def test_the_place_of_a_maximum_is_shared_without_shuffles():
    """Threads don't exchange pairs: partial results lie in shared memory."""
    x, k = te.placeholder((3, 100), name="x"), te.reduce_axis(100, "k")
    first = te.comm_reducer(
        lambda a, b: tuple(te.select(a[1] < b[1], p, q) for p, q in zip(b, a, strict=True)),
        lambda i, v: (te.const(-1, i), te.const(-9, v)),
    )
    place, _ = te.compute((3,), lambda i: first((k.var, x[i, k]), axis=k), "y")
    args, cuda = [x, place], target("cuda-sm_80")
    func = te.lower(default_schedule(args, cuda, 0.0), args, "f")
    assert count(func, WaveReduce) == 0
    given, found = np.random.default_rng(0).random((3, 100), np.float32), np.zeros(3, np.int64)
    interpret(func, [given, found])
    np.testing.assert_array_equal(found, given.argmax(1))


def test_long_sums_by_matrix_instructions():
    cuda, args = target("cuda-sm_80"), halves(16, 16, 256)
    func = te.lower(default_schedule(args, cuda, 0.0), args, "f")
    partial, added = launches(func)
    assert partial.threads == (32, 1, 1) and added.threads == (256, 1, 1)
    assert "tensor mma_f16" in str(func)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, t.shape).astype(np.float16) for t in args[:2])
    found = np.empty((16, 16), np.float32)
    interpret(func, [a, b, found])
    np.testing.assert_array_equal(found, np.maximum(a.astype(np.float32) @ b, 0))


@pytest.mark.parametrize("units", [1, 4, 108])
def test_parts_follow_the_number_of_multiprocessors(units):
    """Blocks of all parts run at the same time; where there are tiles enough, sums stay whole."""
    assert GPU.device is not None
    gpu, args = replace(GPU, device=replace(GPU.device, units=units)), product(32, 128, 4096)
    found = launches(te.lower(default_schedule(args, gpu, 0.0), args, "f"))
    blocks = [int(n.value) for n in found[0].blocks if isinstance(n, Const)]
    assert blocks[:2] == [4, 1] and len(found) == (2 if units == 108 else 1)
    assert len(blocks) == 3 and blocks[2] == (16 if units == 108 else 1)


@pytest.mark.parametrize("name", ["product", "softmax"])
def test_loops(name, golden):
    args, _ = CASES[name]
    golden(print_func(te.lower(default_schedule(args, GPU, 0.0), args, "f")))


def test_what_threads_share_is_written_by_one():
    """A stage in shared memory, outside of the loops over threads."""
    x = te.placeholder((2, 8), name="x")
    t = te.compute((2,), lambda i: x[i, 0] * 2.0, "t")
    y = te.compute((2, 8), lambda i, j: t[i] + x[i, j], "y")
    s = te.create_schedule(y.op)
    s[y].bind(s[y].axis[0], "blockIdx.x")
    s[y].bind(s[y].axis[1], "threadIdx.x")
    s[t].compute_at(s[y], s[y].axis[0])
    s[t].set_scope("shared")
    given, found = np.arange(16, dtype=np.float32).reshape(2, 8), np.zeros((2, 8), np.float32)
    interpret(te.lower(s, [x, y]), [given, found])
    np.testing.assert_array_equal(found, given + 2 * given[:, :1])


@pytest.mark.parametrize("shape", [(6,), (4, 6)])
def test_a_function_of_a_sum(shape):
    """Of one element, and of several: a thread computes both."""
    x, k = te.placeholder(shape, name="x"), te.reduce_axis(6, "k")
    total = te.compute(shape[:-1], lambda *i: te.sum(x[(*i, k)], axis=k), "total")
    y = te.compute(shape[:-1], lambda *i: te.exp(total[i]), "y")
    given = np.random.default_rng(1).random(shape, np.float32)
    found = np.zeros(shape[:-1], np.float32)
    func = te.lower(default_schedule([x, y], GPU, 0.0), [x, y])
    assert len(launches(func)) == 1
    interpret(func, [given, found])
    np.testing.assert_allclose(found, np.exp(given.sum(-1)), rtol=1e-5)
