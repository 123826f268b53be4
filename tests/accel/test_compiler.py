"""Schedules of te become programs of the accelerator."""

from __future__ import annotations

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.accel.alu import AluOp
from tilesmith.accel.clock import Counts
from tilesmith.accel.instructions import Alu
from tilesmith.accel.intrinsics import SCOPES, alu, alu_value, copy, gemm
from tilesmith.accel.kernel import AccelKernel, build
from tilesmith.accel.machine import Machine, Memory
from tilesmith.accel.simulate import simulate
from tilesmith.accel.text import parse
from tilesmith.support.errors import ScheduleError, UnsupportedError

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


def shifted(reads_sums_twice: bool = False) -> AccelKernel:
    """`Y[i8] = limited(max((A . W + B) >> 5, -7))`, each step an operation of the ALU."""
    m, k, n = 12, 3, 2
    a = te.placeholder((m, k, 16), "i8", "A")
    w = te.placeholder((n, k, 16, 16), "i8", "W")
    bias = te.placeholder((n, 16), "i32", "B")
    ko, ki = te.reduce_axis(k, "ko"), te.reduce_axis(16, "ki")
    shape = (m, n, 16)
    sums = te.compute(
        shape,
        lambda i, j, b: te.sum(
            a[i, ko, ki].astype("i32") * w[j, ko, b, ki].astype("i32"), axis=[ko, ki]
        ),
        "sums",
    )
    biased = te.compute(
        shape, lambda *i: alu_value(AluOp.ADD, [sums[i], bias[i[1], i[2]]]), "biased"
    )
    down = te.compute(shape, lambda *i: alu_value(AluOp.SHR, [biased[i]], imm=5), "down")
    low = None if reads_sums_twice else -7
    y = te.compute(
        shape,
        lambda *i: alu_value(
            AluOp.MAX, [down[i], sums[i]][: 1 + reads_sums_twice], imm=low, to=MACHINE.operand
        ),
        "Y",
    )
    s = te.create_schedule(y)
    result = s.cache_write(y, SCOPES[Memory.OUT])
    for stage in (sums, biased, down):
        s[stage].set_scope(SCOPES[Memory.ACC])
    for tensor, memory, reader in (
        (a, Memory.INP, sums), (w, Memory.WGT, sums), (bias, Memory.ACC, biased)
    ):  # fmt: skip
        cached = s.cache_read(tensor, SCOPES[memory], [reader])
        first = s[cached].axis[-2 if memory is Memory.WGT else -1]
        s[cached].tensorize(first, copy(MACHINE, memory))
    s[sums].reorder(ko, *s[sums].axis, ki)
    s[sums].tensorize(s[sums].axis[-1], gemm(MACHINE))
    s[biased].tensorize(s[biased].axis[-1], alu(MACHINE, AluOp.ADD))
    s[down].tensorize(s[down].axis[-1], alu(MACHINE, AluOp.SHR, 5))
    s[result].tensorize(s[result].axis[-1], alu(MACHINE, AluOp.MAX, low, to_out=True))
    s[y].tensorize(s[y].axis[-1], copy(MACHINE, Memory.OUT))
    return build(s, [a, w, bias, y], MACHINE)


def test_the_alu_requantises_by_shifts():
    a, w = random((12, 3, 16), 1), random((2, 3, 16, 16), 2)
    bias = np.random.default_rng(3).integers(-999, 999, (2, 16), np.int32)
    found, _ = run(shifted(), {"A": a, "W": w, "B": bias})
    sums = np.einsum("mkp,nkqp->mnq", a.astype(np.int32), w.astype(np.int32))
    wanted = np.maximum((sums + bias) >> 5, -7).clip(-128, 127)
    np.testing.assert_array_equal(found["Y"].reshape(wanted.shape), wanted)


def zeros(machine: Machine, tiles: int) -> AccelKernel:
    """Accumulators that nothing adds to."""
    y = te.compute((tiles, 16), lambda i, b: te.const(0, "i32"), "Y")
    s = te.create_schedule(y)
    s.cache_write(y, SCOPES[Memory.ACC])
    s[y].tensorize(s[y].axis[-1], copy(machine, Memory.ACC))
    return build(s, [y], machine)


def test_zeros_of_more_tiles_than_a_field_holds_are_written():
    deep = Machine(acc_bytes=1 << 20, wgt_bytes=1 << 16)
    kernel = zeros(deep, 1200)
    found, _ = run(kernel, {})
    assert not found["Y"].any()
    assert sum(isinstance(x, Alu) for x in kernel.program.instructions) == 3


def lowered_by_padding() -> AccelKernel:
    """`Y[i] = X[i - 1]`, and zero in the first row: padding in DRAM."""
    x = te.placeholder((4, 16), "i32", "X")
    here = te.compute(x.shape, lambda i, b: x[i, b], "here")
    y = te.compute(
        (5, 16), lambda i, b: te.if_then_else(i >= 1, here[i - 1, b], te.const(0, "i32")), "Y"
    )
    s = te.create_schedule(y)
    s[here].set_scope(SCOPES[Memory.ACC])
    for stage in (here, y):
        s[stage].tensorize(s[stage].axis[-1], copy(MACHINE, Memory.ACC))
    return build(s, [x, y], MACHINE)


def transposed() -> AccelKernel:
    """`Y[i, j] = X[j, i] >> 1` on accumulators."""
    x = te.placeholder((4, 4, 16), "i32", "X")
    y = te.compute(
        x.shape, lambda i, j, b: alu_value(AluOp.SHR, [x[j, i, b]], imm=1, to=MACHINE.operand), "Y"
    )
    s = te.create_schedule(y)
    result = s.cache_write(y, SCOPES[Memory.OUT])
    cached = s.cache_read(x, SCOPES[Memory.ACC], [result])
    s[cached].tensorize(s[cached].axis[-1], copy(MACHINE, Memory.ACC))
    s[result].tensorize(s[result].axis[-1], alu(MACHINE, AluOp.SHR, 1, to_out=True))
    s[y].tensorize(s[y].axis[-1], copy(MACHINE, Memory.OUT))
    return build(s, [x, y], MACHINE)


def apart() -> AccelKernel:
    """A rescaling in which each row has a scale, and all rows the first row's offset."""
    x = te.placeholder((4, 16), "i32", "X")
    p = te.placeholder((4, 2, 16), "i32", "P")
    y = te.compute(
        x.shape,
        lambda i, b: alu_value(
            AluOp.RESCALE, [x[i, b], p[i, 0, b], p[0, 1, b]], imm=-128, to=MACHINE.operand
        ),
        "Y",
    )
    s = te.create_schedule(y)
    result = s.cache_write(y, SCOPES[Memory.OUT])
    for tensor in (x, p):
        cached = s.cache_read(tensor, SCOPES[Memory.ACC], [result])
        s[cached].tensorize(s[cached].axis[-1], copy(MACHINE, Memory.ACC))
    s[result].tensorize(s[result].axis[-1], alu(MACHINE, AluOp.RESCALE, -128, to_out=True))
    s[y].tensorize(s[y].axis[-1], copy(MACHINE, Memory.OUT))
    return build(s, [x, p, y], MACHINE)


def test_what_the_machine_cannot_run_is_refused():
    with pytest.raises(ScheduleError, match="padding: expected it in a buffer, found it in DRAM"):
        lowered_by_padding()
    with pytest.raises(ScheduleError, match="the first operand of the ALU must be in its place"):
        transposed()
    with pytest.raises(ScheduleError, match="the last operand must be the tile after the one"):
        apart()
    with pytest.raises(ScheduleError, match="replaces sums, which is read again"):
        shifted(reads_sums_twice=True)
    x = te.placeholder((4, 16), "i8", "X")
    s = te.create_schedule(te.compute((4, 16), lambda i, j: x[i, j] + x[i, j], "Y"))
    with pytest.raises(ScheduleError, match="has no instruction for"):
        build(s, [x, s.outputs[0]], MACHINE)
    with pytest.raises(ScheduleError, match=r"needs tiles up to \d+ of inp, which has 2048"):
        matmul(1024, 8, 4, rows=512, columns=2, depth=8, threads=2)


def test_an_instruction_of_the_accelerator_has_no_code_on_the_cpu():
    x = te.placeholder((4, 16), "i32", "x")
    y = te.compute(x.shape, lambda i, n: x[i, n], "y")
    s = te.create_schedule(y)
    s[y].tensorize(s[y].axis[-1], copy(MACHINE, Memory.ACC))
    with pytest.raises(UnsupportedError, match=r"expected `accel.kernel.build`"):
        ts.build(s, [x, y])
