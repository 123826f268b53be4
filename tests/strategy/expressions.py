"""Tensor expressions of many structures and any size, for what is generated from structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilesmith import te
from tilesmith.ir.dtypes import i32
from tilesmith.ir.expr import Expr
from tilesmith.te.tensor import Placeholder, Tensor

Arguments = Sequence[Tensor]


def matmul(n: int, m: int, k: int) -> Arguments:
    a, b = te.placeholder((n, k), "f32", "A"), te.placeholder((k, m), "f32", "B")
    r = te.reduce_axis(k, "k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")]


def matmul_transposed(n: int, m: int, k: int) -> Arguments:
    """Both factors lie across the lanes, bias and activation follow."""
    a, b = te.placeholder((k, n), "f32", "A"), te.placeholder((m, k), "f32", "B")
    bias = te.placeholder((m,), "f32", "bias")
    r = te.reduce_axis(k, "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[r, i] * b[j, r], axis=r), "C")
    out = te.compute((n, m), lambda i, j: te.maximum(c[i, j] + bias[j], 0.0), "R")
    return [a, b, bias, out]


def batched(n: int, m: int, k: int) -> Arguments:
    a, b = te.placeholder((3, n, k), "f32", "A"), te.placeholder((3, k, m), "f32", "B")
    r = te.reduce_axis(k, "k")
    c = te.compute((3, n, m), lambda z, i, j: te.sum(a[z, i, r] * b[z, r, j], axis=r), "C")
    return [a, b, c]


def _padded(x: Tensor, pad: int) -> Tensor:
    n, c, h, w = (int(e) for e in x.shape)  # type: ignore[arg-type]
    return te.compute(
        (n, c, h + 2 * pad, w + 2 * pad),
        lambda b, f, y, z: te.if_then_else(
            te.all(y >= pad, y < h + pad, z >= pad, z < w + pad), x[b, f, y - pad, z - pad], 0.0
        ),
        "P",
    )


def convolution(n: int, m: int, k: int) -> Arguments:
    """3x3 with padding, strided, bias and activation."""
    x, w = te.placeholder((1, k, n, m), "f32", "X"), te.placeholder((n, k, 3, 3), "f32", "W")
    p = _padded(x, 1)
    c, ky, kx = te.reduce_axis(k, "c"), te.reduce_axis(3, "ky"), te.reduce_axis(3, "kx")
    h, v = (n + 1) // 2, (m + 1) // 2
    conv = te.compute(
        (1, n, h, v),
        lambda b, o, y, z: te.sum(
            p[b, c, y * 2 + ky, z * 2 + kx] * w[o, c, ky, kx], axis=[c, ky, kx]
        ),
        "C",
    )
    out = te.compute((1, n, h, v), lambda b, o, y, z: te.maximum(conv[b, o, y, z] + 1.0, 0.0), "R")
    return [x, w, out]


def grouped(n: int, m: int, k: int) -> Arguments:
    """Two groups of channels, read shuffled."""
    x, w = te.placeholder((1, 2 * k, n, m), "f32", "X"), te.placeholder((6, k, 1, 3), "f32", "W")
    shuffled = te.compute(x.shape, lambda b, c, y, z: x[b, c % 2 * k + c // 2, y, z], "S")
    c, kx = te.reduce_axis(k, "c"), te.reduce_axis(3, "kx")
    conv = te.compute(
        (1, 6, n, max(m - 2, 1)),
        lambda b, o, y, z: te.sum(
            shuffled[b, o // 3 * k + c, y, te.minimum(z + kx, m - 1)] * w[o, c, 0, kx], axis=[c, kx]
        ),
        "C",
    )
    return [x, w, conv]


def depthwise(n: int, m: int, k: int) -> Arguments:
    """Dilated windows, a channel at a time."""
    x, w = te.placeholder((1, k, n, m), "f32", "X"), te.placeholder((k, 3, 3), "f32", "W")
    p = _padded(x, 2)
    ky, kx = te.reduce_axis(3, "ky"), te.reduce_axis(3, "kx")
    conv = te.compute(
        (1, k, n, m),
        lambda b, c, y, z: te.sum(p[b, c, y + 2 * ky, z + 2 * kx] * w[c, ky, kx], axis=[ky, kx]),
        "C",
    )
    return [x, w, conv]


def sliding(n: int, m: int, k: int) -> Arguments:
    """Dilated windows of five columns in channels-last order: their steps share what they read."""
    x, w = te.placeholder((n, m + 8, k), "f32", "X"), te.placeholder((5, k), "f32", "W")
    q = te.reduce_axis(5, "q")
    conv = te.compute((n, m, k), lambda i, j, c: te.sum(x[i, j + 2 * q, c] * w[q, c], axis=q), "C")
    return [x, w, conv]


def softmax(n: int, m: int, k: int) -> Arguments:
    del k
    a = te.placeholder((n, m), "f32", "A")
    r, q = te.reduce_axis(m, "r"), te.reduce_axis(m, "q")
    top = te.compute((n,), lambda i: te.max(a[i, r], axis=r), "M")
    e = te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]), "E")
    total = te.compute((n,), lambda i: te.sum(e[i, q], axis=q), "S")
    return [a, te.compute((n, m), lambda i, j: e[i, j] / total[i], "O")]


def layer_norm(n: int, m: int, k: int) -> Arguments:
    del k
    a = te.placeholder((n, m), "f32", "A")
    r, q = te.reduce_axis(m, "r"), te.reduce_axis(m, "q")
    mean = te.compute((n, 1), lambda i, _: te.sum(a[i, r], axis=r), "M")
    d = te.compute((n, m), lambda i, j: a[i, j] - mean[i, 0] / float(m), "D")
    var = te.compute((n, 1), lambda i, _: te.sum(d[i, q] * d[i, q], axis=q), "V")
    out = te.compute((n, m), lambda i, j: d[i, j] * te.rsqrt(var[i, 0] / float(m) + 1e-5), "O")
    return [a, out]


def nearest(n: int, m: int, k: int) -> Arguments:
    """Squared distances between points, and the nearest one: two results of one reduction."""
    x, y = te.placeholder((n, k), "f32", "X"), te.placeholder((m, k), "f32", "Y")
    r, j = te.reduce_axis(k, "r"), te.reduce_axis(m, "j")
    d = te.compute(
        (n, m), lambda a, b: te.sum((x[a, r] - y[b, r]) * (x[a, r] - y[b, r]), axis=r), "D"
    )
    argmin = te.comm_reducer(
        lambda a, b: (
            te.select(te.any(a[1] < b[1], te.all(a[1] == b[1], a[0] < b[0])), a[0], b[0]),
            te.minimum(a[1], b[1]),
        ),
        lambda a, b: (te.const(1 << 30, a), te.const(3e38, b)),
        "argmin",
    )
    at, least = te.compute((n,), lambda a: argmin((te.cast(j.var, i32), d[a, j]), axis=j), "I")  # type: ignore[misc]
    return [x, y, at, least]


def row_sums(n: int, m: int, k: int) -> Arguments:
    a = te.placeholder((n, m, k), "f32", "A")
    r, q = te.reduce_axis(m, "r"), te.reduce_axis(k, "q")
    return [a, te.compute((n,), lambda i: te.sum(a[i, r, q], axis=[r, q]), "S")]


def column_maxima(n: int, m: int, k: int) -> Arguments:
    del k
    a, r = te.placeholder((n, m), "f32", "A"), te.reduce_axis(n, "r")
    return [a, te.compute((m,), lambda i: te.max(a[r, i], axis=r), "S")]


def total(n: int, m: int, k: int) -> Arguments:
    a = te.placeholder((8 * n, 2 * m, k), "f32", "A")
    axes = [te.reduce_axis(e, name) for e, name in zip(a.shape, "rqp", strict=True)]
    return [a, te.compute((), lambda: te.sum(a[tuple(axes)] * a[tuple(axes)], axis=axes), "S")]


def transpose(n: int, m: int, k: int) -> Arguments:
    a = te.placeholder((n, m, k), "f32", "A")
    return [a, te.compute((k, m, n), lambda i, j, z: a[z, j, i] + 1.0, "T")]


def stencil(n: int, m: int, k: int) -> Arguments:
    del k
    a = te.placeholder((n + 2, m + 2), "f32", "A")
    b = te.compute((n, m + 2), lambda i, j: a[i, j] + a[i + 1, j] * 2.0 + a[i + 2, j], "B")
    return [a, te.compute((n, m), lambda i, j: b[i, j] + b[i, j + 1] * 2.0 + b[i, j + 2], "O")]


def elementwise(n: int, m: int, k: int) -> Arguments:
    """Two outputs, one of which the other reads."""
    a, b = te.placeholder((n, m, k), "f32", "A"), te.placeholder((k,), "f32", "B")
    c = te.compute(a.shape, lambda i, j, z: te.exp(a[i, j, z] * 0.1 + b[z]), "C")
    d = te.compute(a.shape, lambda i, j, z: c[i, j, z] * c[i, j, z] + 1.0, "D")
    return [a, b, c, d]


def two_products(n: int, m: int, k: int) -> Arguments:
    """A product of a product: the second reads rows of the first again and again."""
    a, b = te.placeholder((n, k), "f32", "A"), te.placeholder((k, m), "f32", "B")
    w = te.placeholder((m, k), "f32", "W")
    r, q = te.reduce_axis(k, "r"), te.reduce_axis(m, "q")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")
    e = te.compute((n, m), lambda i, j: te.maximum(c[i, j], 0.0), "E")
    return [a, b, w, te.compute((n, k), lambda i, j: te.sum(e[i, q] * w[q, j], axis=q), "D")]


def triangular(n: int, m: int, k: int) -> Arguments:
    a, b = te.placeholder((n, k), "f32", "A"), te.placeholder((k, m), "f32", "B")
    r = te.reduce_axis(k, "k")
    c = te.compute(
        (n, m),
        lambda i, j: te.sum(te.if_then_else(r.var <= i, a[i, r] * b[r, j], 0.0), axis=r),
        "C",
    )
    return [a, b, c]


def gathered(n: int, m: int, k: int) -> Arguments:
    """Rows that data choose."""
    a, b = te.placeholder((n, k), "f32", "A"), te.placeholder((k, m), "f32", "B")
    rows, r = te.placeholder((n,), "i64", "rows"), te.reduce_axis(k, "r")

    def element(i: Expr, j: Expr) -> Expr:
        row = te.minimum(te.maximum(rows[i], 0), n - 1)
        return te.sum(a[row, r] * b[r, j], axis=r)

    return [a, b, rows, te.compute((n, m), element, "C")]


def window(n: int, m: int, k: int) -> Arguments:
    """3x3 with padding in channels-last order, an activation."""
    x, w = te.placeholder((2, n, m, k), "f32", "X"), te.placeholder((3, 3, k, m), "f32", "W")
    p, q, c = te.reduce_axis(3, "p"), te.reduce_axis(3, "q"), te.reduce_axis(k, "c")
    wide = te.compute(
        (2, n + 2, m + 2, k),
        lambda b, y, z, c: te.if_then_else(
            te.all(y >= 1, y < n + 1, z >= 1, z < m + 1), x[b, y - 1, z - 1, c], 0.0
        ),
        "P",
    )
    conv = te.compute(
        (2, n, m, m),
        lambda b, y, z, o: te.sum(wide[b, y + p, z + q, c] * w[p, q, c, o], axis=[p, q, c]),
        "C",
    )
    out = te.compute((2, n, m, m), lambda b, y, z, o: te.maximum(conv[b, y, z, o], 0.0), "R")
    return [x, w, out]


def volume(n: int, m: int, k: int) -> Arguments:
    """3x3x3 without padding."""
    x = te.placeholder((1, k + 2, n + 2, m + 2, 3), "f32", "X")
    w = te.placeholder((3, 3, 3, 3, m), "f32", "W")
    r, p, q = te.reduce_axis(3, "r"), te.reduce_axis(3, "p"), te.reduce_axis(3, "q")
    c = te.reduce_axis(3, "c")
    y = te.compute(
        (1, k, n, m, m),
        lambda b, z, i, j, o: te.sum(
            x[b, z + r, i + p, j + q, c] * w[r, p, q, c, o], axis=[r, p, q, c]
        ),
        "Y",
    )
    return [x, w, y]


EXPRESSIONS: dict[str, Callable[[int, int, int], Arguments]] = {
    f.__name__: f
    for f in (
        matmul, matmul_transposed, batched, convolution, grouped, depthwise, sliding, softmax,
        layer_norm, nearest, row_sums, column_maxima, total, transpose, stencil, elementwise,
        two_products, triangular, gathered, window, volume,
    )
}  # fmt: skip


def arrays(args: Arguments, seed: int) -> list[np.ndarray]:
    """Contents for inputs (normal floats, indices 0 and 1), and empty outputs."""
    rng = np.random.default_rng(seed)
    result = []
    for t in args:
        shape, numpy = tuple(int(e) for e in t.shape), t.dtype.numpy  # type: ignore[arg-type]
        if not isinstance(t.op, Placeholder):
            result.append(np.full(shape, np.nan if t.dtype.is_float else -9, numpy))
        elif t.dtype.is_float:
            result.append(rng.standard_normal(shape).astype(numpy))
        else:
            result.append(rng.integers(0, min(shape[0], 2), shape).astype(numpy))
    return result


def outputs(args: Arguments) -> list[te.Compute]:
    """The operations that are computed."""
    return list(dict.fromkeys(t.op for t in args if not isinstance(t.op, Placeholder)))
