"""Matrices of 16-bit integers, multiplied by an instruction for pairs of products.

    python examples/tensor_intrinsic.py

`vpmaddwd` multiplies 16 pairs of i16 and adds neighbours, which is twice the work of a multiply-add
of f32 in vectors of the same width.  The second matrix is packed as the instruction reads it.
"""

from __future__ import annotations

import time

import numpy as np

import tilesmith as ts
from tilesmith import te

ROWS, VECTORS = 4, 2  # of a tile of the result


MULTIPLY = max(
    (i for name, i in ts.tensor_intrinsics().items() if name.startswith("pmaddwd")),
    key=lambda i: i.result.size,
)
"""The widest one that this machine has."""


def product(m: int, n: int, k: int) -> tuple[te.Schedule, list[te.Tensor]]:
    """`C[m, n] = A[m, k] B[k, n]` with B as `packed` packs it.  k is even."""
    lanes = MULTIPLY.result.size
    a = te.placeholder((m, k), "i16", "A")
    w = te.placeholder((-(-n // lanes), k // 2, lanes, 2), "i16", "W")
    r = te.reduce_axis(k, "r")

    def term(i, j):
        x, y = a[i, r], w[j // lanes, r // 2, j % lanes, r % 2]
        return te.sum(x.astype("i32") * y.astype("i32"), axis=r)

    c = te.compute((m, n), term, "C")
    s = te.create_schedule(c)
    acc = s.cache_write(c, "register")
    _, columns, row, column = s[c].tile("i", "j", ROWS, VECTORS * lanes)
    across, lane = s[c].split(column, lanes)
    s[c].unroll(row)
    s[c].unroll(across)
    s[c].vectorize(lane)
    s[acc].compute_at(s[c], columns)
    (row, column), (reduced,) = s[acc].axis, s[acc].reduce_axis
    across, lane = s[acc].split(column, lanes)
    pairs, pair = s[acc].split(reduced, 2)
    s[acc].reorder(pairs, row, across, lane, pair)
    s[acc].unroll(row)
    s[acc].unroll(across)
    s[acc].tensorize(lane, MULTIPLY)
    return s, [a, w, c]


def packed(b: np.ndarray) -> np.ndarray:
    """`b[k, n]` as `W[n / lanes, k / 2, lanes, 2]`, with zeros behind the last column."""
    (k, n), lanes = b.shape, MULTIPLY.result.size
    whole = np.pad(b, ((0, 0), (0, -n % lanes)))
    return np.ascontiguousarray(whole.reshape(k // 2, 2, -1, lanes).transpose(2, 0, 3, 1))


def main(size: int = 512) -> None:
    schedule, args = product(size, size, size)
    multiply = ts.build(schedule, args, threads=1)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-1000, 1000, (size, size), np.int16) for _ in range(2))
    w, c = packed(b), np.empty((size, size), np.int32)
    multiply(a, w, c)
    assert np.array_equal(c, a.astype(np.int32) @ b.astype(np.int32))
    call = multiply.bind(a, w, c)
    times = []
    for _ in range(30):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    print(f"{2 * size**3 / min(times) / 1e9:.0f} GOP/s on one core, the best of 30 runs")


if __name__ == "__main__":
    main()
