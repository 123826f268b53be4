"""A product of matrices on a GPU, from one thread per element to tensor cores, step by step.

    python examples/gemm_gpu.py [SIZE] [--loops]

Each step is a schedule of the same expression.  What it costs is counted without a GPU: accesses
to global memory in the main loops, bank conflicts of shared memory, barriers, and how many threads
a multiprocessor holds.  Where the driver finds a GPU, the rate follows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import tilesmith as ts
from tilesmith import te
from tilesmith.cli.explain_device import counts_of
from tilesmith.codegen.targets import target
from tilesmith.ir.layout import Layout, LayoutDim

Step = tuple[te.Schedule, list[te.Tensor]]


def expression(n: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """f16 factors, sums in f32."""
    a, b = (te.placeholder((n, n), "f16", name) for name in "AB")
    k = te.reduce_axis(n, "k")
    product = lambda i, j: te.sum(a[i, k].astype("f32") * b[k, j].astype("f32"), axis=k)  # noqa: E731
    return a, b, te.compute((n, n), product, "C")


def bind(stage: te.Stage, **axes: te.Axis) -> None:
    for name, axis in axes.items():
        stage.bind(axis, f"{'blockIdx' if name[0] == 'b' else 'threadIdx'}.{name[1]}")


def load(
    s: te.Schedule, t: te.Tensor, at: tuple[te.Stage, te.Axis], x: int, *yz: int, lanes: int = 1
) -> None:
    """Let a block's threads load `t` into shared memory together.  Eight neighbours store
    vectors in eight rows, which lie in other banks.
    """
    s[t].compute_at(*at)
    if lanes == 1:
        rest = s[t].fuse(*s[t].axis)
    else:
        rows, row = s[t].split(s[t].axis[0], factor=8)
        vectors, vector = s[t].split(s[t].axis[1], factor=lanes)
        s[t].reorder(rows, vectors, row, vector)
        s[t].vectorize(vector)
        rest = s[t].fuse(rows, vectors, row)
    for size, index in zip((x, *yz), ("threadIdx.x", "threadIdx.y", "threadIdx.z")):
        rest, part = s[t].split(rest, factor=size, tail="guard")
        s[t].bind(part, index)


def one_thread_per_element(n: int) -> Step:
    """Every factor comes from global memory, for each product again."""
    a, b, c = expression(n)
    s = te.create_schedule(c.op)
    by, bx, y, x = s[c].tile(*s[c].axis, 8, 32)
    bind(s[c], by=by, bx=bx, ty=y, tx=x)
    return s, [a, b, c]


def shared_tiles(n: int) -> Step:
    """A block loads tiles of both factors once; each of its threads reads them from there."""
    a, b, c = expression(n)
    s = te.create_schedule(c.op)
    own = s.cache_write(c, "register")
    shared = [s.cache_read(t, "shared", [own]) for t in (a, b)]
    by, bx, y, x = s[c].tile(*s[c].axis, 8, 32)
    bind(s[c], by=by, bx=bx, ty=y, tx=x)
    s[own].compute_at(s[c], x)
    ko, ki = s[own].split(s[own].reduce_axis[0], factor=32)
    s[own].reorder(ko, ki, *s[own].axis)
    for t in shared:
        load(s, t, (s[own], ko), 32, 8)
    return s, [a, b, c]


def tiles_in_registers(n: int, pad: int = 0) -> Step:
    """A thread computes 4 x 4 elements: 8 loads for 16 products.  Banks conflict, though."""
    a, b, c = expression(n)
    s = te.create_schedule(c.op)
    own = s.cache_write(c, "register")
    shared = [s.cache_read(t, "shared", [own]) for t in (a, b)]
    by, bx, y, x = s[c].tile(*s[c].axis, 64, 32)
    ty, y = s[c].split(y, factor=4)
    tx, x = s[c].split(x, factor=4)
    s[c].reorder(by, bx, ty, tx, y, x)
    bind(s[c], by=by, bx=bx, ty=ty, tx=tx)
    s[c].unroll(y)
    s[c].unroll(x)
    s[own].compute_at(s[c], tx)
    ko, ki = s[own].split(s[own].reduce_axis[0], factor=32)
    s[own].reorder(ko, ki, *s[own].axis)
    for axis in s[own].axis:
        s[own].unroll(axis)
    if pad:
        s[shared[0]].storage_align(s[shared[0]].axis[0], 32 + pad)
    for t in shared:
        load(s, t, (s[own], ko), 8, 16)
    return s, [a, b, c]


def padded_rows(n: int) -> Step:
    """Rows of A in shared memory are one word longer: no two threads ask one bank for two words."""
    return tiles_in_registers(n, pad=2)


def tensor_cores(n: int, buffers: int = 1) -> Step:
    """A warp multiplies tiles of 16 x 16 by 16 x 8 elements with one instruction."""
    a, b, c = expression(n)
    s = te.create_schedule(c.op)
    own = s.cache_write(c, "fragment")
    shared = [s.cache_read(t, "shared", [own]) for t in (a, b)]
    outer = (LayoutDim(i, "outer", size) for i, size in enumerate((16, 8)))
    inner = (LayoutDim(i, "inner", size) for i, size in enumerate((16, 8)))
    s.transform_layout(own, Layout((*outer, *inner)))
    by, bx, y, x = s[c].tile(*s[c].axis, 64, 32)
    ty, y = s[c].split(y, factor=16)
    xt, x = s[c].split(x, factor=8)
    yh, yl = s[c].split(y, factor=8)
    xh, xl = s[c].split(x, factor=2)
    s[c].reorder(by, bx, ty, yl, xh, yh, xt, xl)
    bind(s[c], by=by, bx=bx, ty=ty, tx=s[c].fuse(yl, xh))
    for axis in (yh, xt, xl):
        s[c].unroll(axis)
    s[own].compute_at(s[c], ty)
    i, j = s[own].axis
    _, i = s[own].split(i, factor=16)
    jt, j = s[own].split(j, factor=8)
    ko, ki = s[own].split(s[own].reduce_axis[0], factor=32)
    kt, ki = s[own].split(ki, factor=16)
    s[own].reorder(ko, kt, jt, i, j, ki)
    s[own].unroll(kt)
    s[own].unroll(jt)
    s[own].tensorize(i, ts.tensor_intrinsics("cuda-sm_80")["mma_f16"])
    for t in shared:
        s[t].storage_align(s[t].axis[0], 40)
        load(s, t, (s[own], ko), 32, 4, lanes=1 if buffers == 1 else 8)
        if buffers > 1:
            s[t].pipeline(buffers)
    return s, [a, b, c]


def copies_ahead(n: int) -> Step:
    """Tiles have two buffers: asynchronous copies of 16 bytes fill one while warps read the other.
    One barrier is enough for each step.
    """
    return tensor_cores(n, buffers=2)


def by_rule(n: int) -> Step:
    """What `"auto"` chooses: larger tiles, and as many buffers as shared memory has room for."""
    from tilesmith.strategy.device import default_schedule

    args = [*expression(n)]
    return default_schedule(args, target("cuda-sm_80"), 0.0), args


STEPS: tuple[Callable[[int], Step], ...] = (
    one_thread_per_element, shared_tiles, tiles_in_registers, padded_rows, tensor_cores,
    copies_ahead, by_rule,
)  # fmt: skip


def rate(s: te.Schedule, args: list[te.Tensor], n: int) -> str:
    """TFLOP/s on the GPU of this machine, with copies of arrays; empty if there is none."""
    a, b = np.random.default_rng(0).standard_normal((2, n, n)).astype(np.float16)
    c = np.empty((n, n), np.float32)
    try:
        f = ts.build(s, args, target="cuda")
        f(a, b, c)
    except ts.DeviceError:
        return ""
    start = time.perf_counter()
    f(a, b, c)
    return f", {2 * n**3 / (time.perf_counter() - start) / 1e12:.2f} TFLOP/s with copies"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("size", type=int, nargs="?", default=1024, help="a multiple of 64")
    parser.add_argument("--loops", action="store_true", help="print the loops, too")
    given = parser.parse_args()
    for step in STEPS:
        s, args = step(given.size)
        func = te.lower(s, args)
        (found,) = counts_of(func, target("cuda-sm_80"))
        print(f"\n{step.__name__}: {step.__doc__}\n\n{s}\n")
        if given.loops:
            print(func)
        print(
            f"{found.coalesced} coalesced and {found.uncoalesced} other accesses of up to "
            f"{found.vector_bytes} bytes, {found.shared} to shared memory with "
            f"{found.bank_conflicts} conflicts, {found.matrix} matrix instructions, "
            f"{found.barriers} barriers, occupancy {found.occupancy:.0%}"
            f"{rate(s, args, given.size)}"
        )


if __name__ == "__main__":
    main()
