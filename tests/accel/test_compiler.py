"""Schedules of te become programs of the accelerator."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import te
from tilesmith.accel.clock import Counts
from tilesmith.accel.intrinsics import SCOPES, copy, gemm
from tilesmith.accel.kernel import AccelKernel, build
from tilesmith.accel.machine import Machine, Memory
from tilesmith.accel.simulate import simulate
from tilesmith.accel.text import parse

MACHINE = Machine()


def run(kernel: AccelKernel, arrays: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], Counts]:
    memory, counts = simulate(kernel.program, kernel.machine, kernel.memory(arrays))
    return kernel.outputs(memory), counts


def random(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, shape, np.int8)


def matmul(
    m: int, k: int, n: int, *, rows: int, columns: int, depth: int, threads: int
) -> AccelKernel:
    """`C[i32] = A . W` in tiles of `rows` rows, `columns` blocks of columns and `depth` blocks of
    the sum.
    """
    a = te.placeholder((m, k, 16), "i8", "A")
    w = te.placeholder((n, k, 16, 16), "i8", "W")
    ko, ki = te.reduce_axis(k, "ko"), te.reduce_axis(16, "ki")
    c = te.compute(
        (m, n, 16),
        lambda i, j, b: te.sum(
            a[i, ko, ki].astype("i32") * w[j, ko, b, ki].astype("i32"), axis=[ko, ki]
        ),
        "C",
    )
    s = te.create_schedule(c)
    acc = s.cache_write(c, SCOPES[Memory.ACC])
    a_in = s.cache_read(a, SCOPES[Memory.INP], [acc])
    w_in = s.cache_read(w, SCOPES[Memory.WGT], [acc])
    i, j, b = s[c].axis
    io, jo, ii, ji = s[c].tile(i, j, rows, columns)
    it, io = s[c].split(io, nparts=threads)
    s[c].bind(it, "vthread")
    s[c].reorder(io, it, jo, ii, ji)
    s[acc].compute_at(s[c], jo)
    x, y, z = s[acc].axis
    ko, ki = s[acc].reduce_axis
    outer, inner = s[acc].split(ko, factor=depth)
    s[acc].reorder(outer, inner, x, y, z, ki)
    s[a_in].compute_at(s[acc], outer)
    s[w_in].compute_at(s[acc], outer)
    s[acc].tensorize(z, gemm(MACHINE))
    s[a_in].tensorize(s[a_in].axis[-1], copy(MACHINE, Memory.INP))
    s[w_in].tensorize(s[w_in].axis[-2], copy(MACHINE, Memory.WGT))
    s[c].tensorize(b, copy(MACHINE, Memory.ACC))
    return build(s, [a, w, c], MACHINE)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_matrix_product_is_numpys(threads: int):
    kernel = matmul(32, 8, 4, rows=8, columns=2, depth=2, threads=threads)
    a, w = random((32, 8, 16), 1), random((4, 8, 16, 16), 2)
    found, _ = run(kernel, {"A": a, "W": w})
    wanted = np.einsum("mkp,nkqp->mnq", a.astype(np.int32), w.astype(np.int32))
    np.testing.assert_array_equal(found["C"].reshape(wanted.shape), wanted)
    assert parse(kernel.program.text()) == kernel.program


def test_virtual_threads_hide_latency():
    arrays = {"A": random((128, 16, 16), 1), "W": random((8, 16, 16, 16), 2)}
    one, two = (
        run(matmul(128, 16, 8, rows=64, columns=8, depth=4, threads=n), arrays)[1] for n in (1, 2)
    )
    assert one.gemm_cycles == two.gemm_cycles == 128 * 16 * 8
    assert two.cycles < 0.75 * one.cycles
