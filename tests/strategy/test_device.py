"""Rules for devices: the interpreter finds no race in a schedule, and the result of plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilesmith import te
from tilesmith.codegen.targets import target
from tilesmith.ir.expr import Const
from tilesmith.loop.interpret import interpret
from tilesmith.loop.launches import launches
from tilesmith.loop.nodes import Barrier, Func, Stmt, WaveReduce
from tilesmith.loop.text import print_func
from tilesmith.loop.visit import walk
from tilesmith.strategy.device import default_schedule
from tilesmith.te.tensor import Tensor

GPU = target("opencl-gpu")


def product(rows: int, columns: int, depth: int, biased: bool = True) -> list[Tensor]:
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    bias, k = te.placeholder((columns,), name="bias"), te.reduce_axis(depth, "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    if not biased:
        return [a, b, c]
    return [a, b, bias, te.compute(c.shape, lambda i, j: c[i, j] + bias[j], "D")]


def vector(columns: int, depth: int) -> list[Tensor]:
    a, b = te.placeholder((depth,), name="A"), te.placeholder((depth, columns), name="B")
    bias, k = te.placeholder((columns,), name="bias"), te.reduce_axis(depth, "k")
    c = te.compute((columns,), lambda j: te.sum(a[k] * b[k, j], axis=k), "C")
    return [a, b, bias, te.compute(c.shape, lambda j: c[j] + bias[j], "D")]


def halves(rows: int, columns: int, depth: int) -> list[Tensor]:
    a, b = te.placeholder((rows, depth), "f16", "A"), te.placeholder((depth, columns), "f16", "B")
    k = te.reduce_axis(depth, "k")
    c = te.compute(
        (rows, columns),
        lambda i, j: te.sum(a[i, k].astype("f32") * b[k, j].astype("f32"), axis=k),
        "C",
    )
    return [a, b, te.compute(c.shape, lambda i, j: te.maximum(c[i, j], 0.0), "D")]


def convolution() -> list[Tensor]:
    x, w = te.placeholder((1, 3, 5, 5), name="X"), te.placeholder((10, 3, 3, 3), name="W")
    inside = te.compute(
        (1, 3, 7, 7),
        lambda n, c, h, v: te.select(
            (h >= 1) & (h < 6) & (v >= 1) & (v < 6), x[n, c, h - 1, v - 1], 0.0
        ),
        "padded",
    )
    c, p, q = te.reduce_axis(3, "c"), te.reduce_axis(3, "p"), te.reduce_axis(3, "q")
    y = te.compute(
        (1, 10, 5, 5),
        lambda n, o, h, v: te.sum(inside[n, c, h + p, v + q] * w[o, c, p, q], axis=(c, p, q)),
        "Y",
    )
    return [x, w, te.compute(y.shape, lambda *i: te.maximum(y[i], 0.0), "Z")]


def softmax(n: int = 90) -> list[Tensor]:
    x, k, m = te.placeholder((3, n), name="x"), te.reduce_axis(n, "k"), te.reduce_axis(n, "m")
    most = te.compute((3,), lambda i: te.max(x[i, k], axis=k), "most")
    e = te.compute((3, n), lambda i, j: te.exp(x[i, j] - most[i]), "e")
    total = te.compute((3,), lambda i: te.sum(e[i, m], axis=m), "total")
    return [x, te.compute((3, n), lambda i, j: e[i, j] / total[i], "y")]


def reduced(shape: tuple[int, int], over: tuple[int, ...]) -> list[Tensor]:
    x = te.placeholder(shape, name="x")
    axes = {n: te.reduce_axis(shape[n], f"k{n}") for n in over}

    def body(*at):
        rest = iter(at)
        index = [axes[n] if n in over else next(rest) for n in range(2)]
        return te.sum(x[tuple(index)], axis=tuple(axes.values()))

    left = tuple(n for i, n in enumerate(shape) if i not in over)
    return [x, te.compute(left, body, "s")]


CASES = {
    "product": (product(19, 21, 11), [(6, 5, 1)]),
    "product without a bias": (product(9, 9, 9, biased=False), [(3, 3, 1)]),
    "product with few rows": (product(2, 40, 9), [(256, 1, 1)]),
    "long sums in one tile": (product(10, 12, 256), [(3, 3, 1), (256, 1, 1)]),
    "long sums of few rows": (product(2, 40, 64), [(256, 1, 1), (256, 1, 1)]),
    "long sums of a vector": (vector(40, 64), [(256, 1, 1), (256, 1, 1)]),
    "convolution": (convolution(), [(256, 1, 1)]),
    "softmax": (softmax(), [(128, 1, 1)]),
    "softmax of long rows": (softmax(900), [(256, 1, 1)]),
    "sums of rows": (reduced((4, 100), (1,)), [(128, 1, 1)]),
    "sums of columns": (reduced((5, 300), (0,)), [(256, 1, 1)]),
    "sum of all": (reduced((4, 80), (0, 1)), [(256, 1, 1), (16, 1, 1), (1, 1, 1)]),
}


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
