#!/usr/bin/env python3
"""From a naive matrix product to the speed of a BLAS, one schedule step at a time.

    python examples/gemm_schedule.py --threads 2

*What* is computed never changes; each stage below adds one decision about *how*.  Every stage's
result is checked, and timed in turns with NumPy's, so that the last column can be trusted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

import tilesmith as ts
from tilesmith import te
from tilesmith.codegen.targets import target
from tilesmith.support.measure import interleave, ratio

N = 640
Kernel: TypeAlias = tuple[te.Schedule, list[te.Tensor]]

HOST = target("native")
LANES = HOST.vector_lanes(4)
ROWS = 10 if HOST.vector_registers >= 32 else 5
COLUMNS = 2 * LANES
"""The register tile: ROWS x 2 accumulators, 2 registers for B and room for an element of A.

Of 32 registers that takes 10 x 2 + 2, of 16 it takes 5 x 2 + 2; ROWS and COLUMNS divide 640.
"""


def matmul() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """What is computed: C = A B."""
    A = te.placeholder((N, N), "f32", "A")
    B = te.placeholder((N, N), "f32", "B")
    k = te.reduce_axis(N, "k")
    C = te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), "C")
    return A, B, C


def naive() -> Kernel:
    """Three plain loops."""
    A, B, C = matmul()
    return te.create_schedule(C.op), [A, B, C]


def tiled() -> Kernel:
    """Loops cut into tiles, the reduction outside of a tile: rows of B are reused."""
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    io, jo, ii, ji = s[C].tile(*s[C].axis, ROWS, COLUMNS)
    (k,) = s[C].reduce_axis
    s[C].reorder(io, jo, k, ii, ji)
    return s, [A, B, C]


def vectorized() -> Kernel:
    """A tile's columns are vectors."""
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    io, jo, ii, ji = s[C].tile(*s[C].axis, ROWS, COLUMNS)
    (k,) = s[C].reduce_axis
    s[C].reorder(io, jo, k, ii, ji)
    s[C].vectorize(ji)
    return s, [A, B, C]


def parallel() -> Kernel:
    """Rows of tiles are shared among threads."""
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    io, jo, ii, ji = s[C].tile(*s[C].axis, ROWS, COLUMNS)
    (k,) = s[C].reduce_axis
    s[C].reorder(io, jo, k, ii, ji)
    s[C].vectorize(ji)
    s[C].parallel(io)
    return s, [A, B, C]


def unrolled() -> Kernel:
    """A tile is summed up in registers and written once: unrolled rows, each two vectors wide."""
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    tile = s.cache_write(C, "register")
    io, jo, ii, ji = s[C].tile(*s[C].axis, ROWS, COLUMNS)
    s[C].vectorize(ji)
    s[C].unroll(ii)
    s[C].parallel(io)
    _micro_kernel(s, tile, C, jo)
    return s, [A, B, C]


def packed() -> Kernel:
    """B is first copied into panels as wide as a tile, which the inner loop reads front to back."""
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    tile = s.cache_write(C, "register")
    panels = s.cache_read(B, "heap", [tile])
    s.transform_layout(panels, lambda k, j: (j // COLUMNS, k, j % COLUMNS))
    copied_k, copied_j = s[panels].axis
    po, pi = s[panels].split(copied_j, factor=COLUMNS)
    s[panels].reorder(po, copied_k, pi)
    s[panels].vectorize(pi)
    s[panels].parallel(po)
    io, jo, ii, ji = s[C].tile(*s[C].axis, ROWS, COLUMNS)
    s[C].vectorize(ji)
    s[C].unroll(ii)
    s[C].parallel(io)
    _micro_kernel(s, tile, C, jo)
    return s, [A, B, C]


def _micro_kernel(s: te.Schedule, tile: te.Tensor, C: te.Tensor, at: te.Axis) -> None:
    """Sum a tile up in registers at loop `at` of C: the reduction outside, the tile unrolled."""
    s[tile].compute_at(s[C], at)
    i, j = s[tile].axis
    (k,) = s[tile].reduce_axis
    s[tile].reorder(k, i, j)
    s[tile].unroll(i)
    s[tile].vectorize(j)


STAGES: tuple[Callable[[], Kernel], ...] = (
    naive,
    tiled,
    vectorized,
    parallel,
    unrolled,
    packed,
)


def best(a: np.ndarray, b: np.ndarray, threads: int) -> Callable[[], np.ndarray]:
    """The last stage, ready to run on two 640x640 float32 arrays."""
    return _build(STAGES[-1](), a, b, threads)


def _build(kernel: Kernel, a: np.ndarray, b: np.ndarray, threads: int) -> Callable[[], np.ndarray]:
    schedule, args = kernel
    f = ts.build(schedule, args, options=ts.Options.from_environment(threads=threads))
    c = np.zeros((N, N), np.float32)

    def run() -> np.ndarray:
        f(a, b, c)
        return c

    return run


def main(threads: int, rounds: int, show: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, N), dtype=np.float32) for _ in range(2))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(expected).max()
    out = np.empty((N, N), np.float32)
    gigaflop = 2 * N**3 / 1e9
    print(f"{'stage':<12}{'ms':>9}{'GFLOP/s':>10}{'of NumPy':>10}   what it adds")
    for stage in STAGES:
        kernel = stage()
        if show:
            print(f"\n{kernel[0].text()}")
        run = _build(kernel, a, b, threads)
        error = np.abs(run() - expected).max() / scale
        if not error < 1e-5:
            raise SystemExit(f"{stage.__name__}: wrong result, relative error {error:.1e}")
        samples = interleave(
            {"ours": run, "numpy": lambda: np.matmul(a, b, out=out)},
            rounds=rounds,
            turn_seconds=0.05,
        )
        ms, share = samples["ours"].median, ratio(samples["numpy"], samples["ours"])
        what = (stage.__doc__ or "").strip()
        print(
            f"{stage.__name__:<12}{ms * 1e3:>9.2f}{gigaflop / ms:>10.1f}{share:>10.0%}   {what}",
            flush=True,
        )
    numpy = samples["numpy"].median
    print(f"{'numpy':<12}{numpy * 1e3:>9.2f}{gigaflop / numpy:>10.1f}{1:>10.0%}   its BLAS")


def with_numpy_threads(threads: int) -> None:
    """NumPy reads its number of threads when it is imported: start again if that was another."""
    wanted = dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)
    )
    if any(os.environ.get(k) != v for k, v in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10, help="turns for each measurement")
    parser.add_argument("--show", action="store_true", help="print each stage's schedule")
    given = parser.parse_args()
    with_numpy_threads(given.threads)
    main(given.threads, given.rounds, given.show)
