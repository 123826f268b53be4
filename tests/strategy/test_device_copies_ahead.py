"""Tiles of products that blocks fill ahead: where, how many buffers, and the same answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common import matrices
from tilesmith import te
from tilesmith.cli.explain_device import counts_of
from tilesmith.codegen.targets import target
from tilesmith.ir.target import Target
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import AsyncGroup, Barrier, For, Func, Wait
from tilesmith.loop.visit import walk
from tilesmith.strategy.device import default_schedule
from tilesmith.strategy.device.copies_ahead import buffers

GPU = target("cuda-sm_80")
assert GPU.device is not None
FEW = replace(GPU, device=replace(GPU.device, units=1))
"""A device that few tiles fill, so that sums are not divided."""


def plain(m: int, n: int, depth: int, dtype: str = "f32") -> list[te.Tensor]:
    a, b = te.placeholder((m, depth), dtype, "A"), te.placeholder((depth, n), dtype, "B")
    k = te.reduce_axis(depth, "k")
    return [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")]


def lowered(args: list[te.Tensor], machine: Target = GPU) -> Func:
    return te.lower(default_schedule(args, machine, 0.0), args)


def depth_of(func: Func) -> int:
    """The number of buffers; 1 without a pipeline."""
    waits = {s.pending + 2 for s in walk(func.body) if isinstance(s, Wait)}
    assert len(waits) <= 1
    return waits.pop() if waits else 1


def in_loop(func: Func) -> int:
    """Barriers of each iteration of a loop around groups of copies."""
    loops = [s for s in walk(func.body) if isinstance(s, For) and s.kind == "serial"]
    around = [s for s in loops if any(isinstance(x, AsyncGroup) for x in walk(s.body))]
    (loop,) = around
    return sum(isinstance(x, Barrier) for x in walk(loop.body))


@pytest.mark.parametrize("shape", [(64, 64, 96), (40, 36, 60), (33, 20, 200)])
def test_products(shape: tuple[int, int, int]):
    """Also with tails of rows, columns and terms."""
    args = plain(*shape)
    func = lowered(args, FEW)
    assert depth_of(func) == min(3, -(-shape[2] // 32)) and in_loop(func) == 1
    m, n, depth = shape
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, s).astype(np.float32) for s in ((m, depth), (depth, n)))
    c = np.full((m, n), np.nan, np.float32)
    interpret(func, [a, b, c])
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("types", [("f16", "f16", "f32"), ("u8", "i8", "i32")])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_products_of_instructions(types: tuple[str, str, str], is_transposed: bool):
    x, w, out, given = matrices.product(types, (40, 136, 192), is_transposed)
    func = lowered([x, w, out], FEW)
    assert depth_of(func) > 1 and in_loop(func) == 1
    found = np.empty(out.shape, out.dtype.numpy)
    interpret(func, [*given, found])
    error = 1e-5 if types[2] == "f32" else 0
    np.testing.assert_allclose(found, matrices.wanted(given, is_transposed), error, 10 * error)


@pytest.mark.parametrize("n", [1024, 4096])
@pytest.mark.parametrize("types", [("f32", "f32"), ("f16", "f32"), ("i8", "i32")])
def test_large_products(n: int, types: tuple[str, str]):
    """Shared memory is enough for the buffers, and no access to memory is slow."""
    low, to = types
    a, b = (te.placeholder((n, n), low, name) for name in "AB")
    k = te.reduce_axis(n, "k")
    term = lambda i, j: te.sum(a[i, k].astype(to) * b[k, j].astype(to), axis=k)  # noqa: E731
    func = lowered([a, b, te.compute((n, n), term, "C")])
    (counts,) = counts_of(func, GPU)
    assert depth_of(func) > 1
    assert (counts.uncoalesced, counts.unknown, counts.bank_conflicts) == (0, 0, 0)
    assert GPU.device is not None
    assert counts.shared_bytes <= GPU.device.shared_bytes


def test_where_nothing_is_copied_ahead():
    """Devices without asynchronous copies, little shared memory, elements that must be computed or
    are too small, and sums of one step.
    """
    assert FEW.device is not None
    small = replace(FEW, device=replace(FEW.device, shared_bytes=8 << 10))
    for machine in (target("cuda-sm_75"), target("opencl-gpu"), small):
        assert depth_of(lowered(plain(64, 64, 96), machine)) == 1
    assert depth_of(lowered(plain(64, 64, 96, "f16"), FEW)) == 1
    assert depth_of(lowered(plain(64, 64, 20), FEW)) == 1
    x, b = te.placeholder((64, 96), name="X"), te.placeholder((96, 64), name="B")
    a = te.compute((64, 96), lambda i, j: te.exp(x[i, j]), "A")
    k = te.reduce_axis(96, "k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    assert depth_of(lowered([x, b, c], FEW)) == 1


def test_buffers():
    """As many as fit in a block and leave room for another block, and as there are iterations."""
    assert GPU.device is not None
    machine = replace(
        GPU, device=replace(GPU.device, shared_bytes=48 << 10, unit_shared_bytes=64 << 10)
    )
    sizes = (8 << 10, 12 << 10, 16 << 10, 24 << 10, 40 << 10)
    assert [buffers(machine, n, 9) for n in sizes] == [3, 2, 2, 1, 1]
    assert [buffers(machine, 8 << 10, n) for n in (3, 2, 1)] == [3, 2, 1]
