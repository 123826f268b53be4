"""Products of matrices of narrow types."""

from __future__ import annotations

import numpy as np

from tilesmith import te

LOW = {"f16": "f32", "bf16": "f32", "i8": "i32", "u8": "i32"}


def product(
    types: tuple[str, str, str], shape: tuple[int, int, int], is_transposed: bool = False
) -> tuple[te.Tensor, te.Tensor, te.Tensor, list[np.ndarray]]:
    """Operands, a result that is scaled and never negative, and values of the operands.

    shape: rows, columns and length of the sum.
    """
    m, n, depth = shape
    x = te.placeholder((m, depth), types[0], "x")
    w = te.placeholder((n, depth) if is_transposed else (depth, n), types[1], "w")
    k = te.reduce_axis(depth, "k")
    to = types[2]
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(
            x[i, k].astype(to) * (w[j, k] if is_transposed else w[k, j]).astype(to), axis=k
        ),
        "c",
    )
    out = te.compute((m, n), lambda i, j: te.maximum(c[i, j] * 2, 0), "out")
    rng = np.random.default_rng(8)
    given = [
        rng.standard_normal(t.shape).astype(t.dtype.numpy)
        if to == "f32"
        else rng.integers(-99 if t.dtype.name == "i8" else 0, 199 if t.dtype.name == "u8" else 99,
                          t.shape).astype(t.dtype.numpy)
        for t in (x, w)
    ]  # fmt: skip
    return x, w, out, given


def wanted(given: list[np.ndarray], is_transposed: bool = False) -> np.ndarray:
    """What `product` computes, in f64."""
    x, w = (a.astype(np.float64) for a in given)
    return np.maximum(x @ (w.T if is_transposed else w) * 2, 0)
