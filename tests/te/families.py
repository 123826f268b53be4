"""Small tensor expressions of the shapes that real kernels have, with their answers in NumPy.

Data are small integers in f32, so that sums are exact in any order and results can be compared for
equality (softmax, with its exponential, up to rounding).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilesmith import te
from tilesmith.ir.expr import Expr


@dataclass
class Family:
    inputs: list[te.Tensor]
    outputs: list[te.Tensor]
    reference: Callable[..., list[np.ndarray]]
    exact: bool = True
    index_limit: int = 0
    """Integer inputs are below this."""

    @property
    def ops(self) -> list[te.Compute]:
        return list(dict.fromkeys(t.op for t in self.outputs))

    def data(self, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        arrays = []
        for t in self.inputs:
            low, high = (-4, 5) if t.dtype.is_float else (0, self.index_limit)
            arrays.append(rng.integers(low, high, t.shape).astype(t.dtype.numpy))
        return arrays


def matmul() -> Family:
    m, n, k = 7, 10, 6
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((m, n), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return Family([a, b], [d], lambda a, b: [np.maximum(a @ b, 0)])


def _windows(x: np.ndarray, k: int, s: int) -> np.ndarray:
    w = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(-2, -1))
    return w[..., ::s, ::s, :, :]


def conv() -> Family:
    ci, h, w, co, kk, s, p = 2, 6, 7, 5, 3, 2, 1
    oh, ow = (h + 2 * p - kk) // s + 1, (w + 2 * p - kk) // s + 1
    x, wt = te.placeholder((ci, h, w), name="X"), te.placeholder((co, ci, kk, kk), name="W")

    def padded(c, i, j):
        inside = te.all(i >= p, i < h + p, j >= p, j < w + p)
        return te.if_then_else(inside, x[c, i - p, j - p], 0.0)

    pad = te.compute((ci, h + 2 * p, w + 2 * p), padded, name="pad")
    c, kh, kw = te.reduce_axis(ci, "c"), te.reduce_axis(kk, "kh"), te.reduce_axis(kk, "kw")
    y = te.compute(
        (co, oh, ow),
        lambda o, i, j: te.sum(pad[c, i * s + kh, j * s + kw] * wt[o, c, kh, kw], axis=(c, kh, kw)),
        name="conv",
    )
    z = te.compute((co, oh, ow), lambda o, i, j: y[o, i, j] + 1.0, name="add")

    def reference(x, wt):
        win = _windows(np.pad(x, ((0, 0), (p, p), (p, p))), kk, s)
        return [np.einsum("cijkl,ockl->oij", win, wt) + 1]

    return Family([x, wt], [z], reference)


def depthwise() -> Family:
    c, h, w, kk = 3, 5, 6, 3
    x, wt = te.placeholder((c, h, w), name="X"), te.placeholder((c, kk, kk), name="W")
    kh, kw = te.reduce_axis(kk, "kh"), te.reduce_axis(kk, "kw")
    y = te.compute(
        (c, h - 2, w - 2),
        lambda n, i, j: te.sum(x[n, i + kh, j + kw] * wt[n, kh, kw], axis=(kh, kw)),
        name="dw",
    )
    return Family([x, wt], [y], lambda x, wt: [np.einsum("cijkl,ckl->cij", _windows(x, kk, 1), wt)])


def pool() -> Family:
    c, h, w = 2, 7, 7
    x = te.placeholder((c, h, w), name="X")

    def padded(n, i, j):
        return te.if_then_else(
            te.all(i >= 1, i <= h, j >= 1, j <= w), x[n, i - 1, j - 1], float("-inf")
        )

    pad = te.compute((c, h + 2, w + 2), padded, name="pad")
    kh, kw = te.reduce_axis(3, "kh"), te.reduce_axis(3, "kw")
    y = te.compute(
        (c, 4, 4),
        lambda n, i, j: te.max(pad[n, i * 2 + kh, j * 2 + kw], axis=(kh, kw)),
        name="pool",
    )

    def reference(x):
        padded_x = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        return [_windows(padded_x, 3, 2).max(axis=(-2, -1))]

    return Family([x], [y], reference)


def softmax() -> Family:
    m, n = 4, 9
    x = te.placeholder((m, n), name="X")
    k, k2 = te.reduce_axis(n, "k"), te.reduce_axis(n, "k2")
    top = te.compute((m,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((m, n), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((m,), lambda i: te.sum(e[i, k2], axis=k2), name="total")
    y = te.compute((m, n), lambda i, j: e[i, j] / total[i], name="softmax")

    def reference(x):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return [e / e.sum(axis=1, keepdims=True)]

    return Family([x], [y], reference, exact=False)


def transpose() -> Family:
    a, b, c = 5, 4, 6
    x = te.placeholder((a, b, c), name="X")
    t = te.compute((c, a, b), lambda k, i, j: x[i, j, k] * 2.0, name="T")
    y = te.compute((c, a * b), lambda k, ij: t[k, ij // b, ij % b], name="Y")
    return Family([x], [y], lambda x: [x.transpose(2, 0, 1).reshape(c, a * b) * 2])


def stencil() -> Family:
    n = 11
    x = te.placeholder((n,), name="X")
    b1 = te.compute((n - 2,), lambda i: x[i] + x[i + 1] + x[i + 2], name="B1")
    b2 = te.compute((n - 4,), lambda i: b1[i] - b1[i + 1] + b1[i + 2] * 2.0, name="B2")
    y = te.compute((n - 4,), lambda i: b2[i] + b1[i + 1], name="Y")

    def reference(x):
        b1 = x[:-2] + x[1:-1] + x[2:]
        return [b1[:-2] - b1[1:-1] + b1[2:] * 2 + b1[1:-1]]

    return Family([x], [y], reference)


def argmax() -> Family:
    m, n = 4, 10
    x = te.placeholder((m, n), name="X")

    def better(a, b):
        first = te.any(a[1] > b[1], te.all(a[1] == b[1], a[0] <= b[0]))
        return te.select(first, a[0], b[0]), te.select(first, a[1], b[1])

    reducer = te.comm_reducer(
        better, lambda i, v: (te.const(i.max, i), te.const(v.min, v)), name="argmax"
    )
    k = te.reduce_axis(n, "k")
    index, value = te.compute((m,), lambda i: reducer((k.var, x[i, k]), axis=k), name="argmax")
    return Family([x], [index, value], lambda x: [x.argmax(axis=1), x.max(axis=1)])


def elementwise() -> Family:
    """A diamond, a broadcast and two outputs, one of which the other reads."""
    m, n = 6, 9
    x, y = te.placeholder((m, n), name="X"), te.placeholder((n,), name="Y")
    a = te.compute((m, n), lambda i, j: x[i, j] * y[j], name="a")
    b = te.compute((m, n), lambda i, j: a[i, j] + 1.0, name="b")
    c = te.compute((m, n), lambda i, j: a[i, j] - y[j], name="c")
    d = te.compute((m, n), lambda i, j: b[i, j] * c[i, j], name="d")
    return Family([x, y], [b, d], lambda x, y: [x * y + 1, (x * y + 1) * (x * y - y)])


def gather() -> Family:
    m, n, rows = 5, 6, 8
    table, index = te.placeholder((rows, n), name="T"), te.placeholder((m,), "i64", name="I")
    scaled = te.compute((rows, n), lambda i, j: table[i, j] * 3.0, name="S")

    def element(i: Expr, j: Expr) -> Expr:
        row = te.minimum(te.maximum(index[i], 0), rows - 1)
        return scaled[row, n - 1 - j] + 1.0

    y = te.compute((m, n), element, name="G")
    return Family([table, index], [y], lambda t, i: [t[i][:, ::-1] * 3 + 1], index_limit=rows)


def filtered() -> Family:
    """A recurrence that reads two steps back, and a sum of its last steps."""
    t, n = 9, 10
    x, state = te.placeholder((t, n), name="X"), te.placeholder((t, n), name="state")
    first = te.compute((2, n), lambda i, j: x[i, j] * 2.0, name="first")
    step = te.compute(
        (t, n), lambda i, j: te.minimum(x[i, j] + state[i - 1, j], 7.0) - state[i - 2, j],
        name="step",
    )  # fmt: skip
    steps = te.scan(first, step, state, name="steps")
    y = te.compute((n,), lambda j: steps[t - 1, j] + steps[t - 3, n - 1 - j], name="Y")

    def reference(x):
        rows = [*(x[:2] * 2)]
        for i in range(2, t):
            rows.append(np.minimum(x[i] + rows[-1], 7) - rows[-2])
        return [rows[-1] + rows[-3][::-1]]

    return Family([x], [y], reference)


def recurrent() -> Family:
    """A cell with two states and a product of one of them with weights."""
    t, b, h = 4, 3, 5
    x, w = te.placeholder((t, b, h), name="X"), te.placeholder((h, h), name="W")
    hs, cs = te.placeholder((t, b, h), name="hs"), te.placeholder((t, b, h), name="cs")
    k = te.reduce_axis(h, "k")
    p = te.compute((t, b, h), lambda i, j, o: te.sum(hs[i - 1, j, k] * w[k, o], axis=k), name="P")

    def cell(i, j, o):
        c = te.maximum(te.minimum(p[i, j, o] + x[i, j, o], 3.0), cs[i - 1, j, o] - 1.0)
        return te.minimum(te.maximum(c - x[i, j, o], -3.0), 3.0), c

    new = te.compute((t, b, h), cell, name="cell")
    first = te.compute((1, b, h), lambda i, j, o: (x[0, j, o], x[0, j, o] * 2.0), name="first")
    states = te.scan(first, new, [hs, cs], name="states")

    def reference(x, w):
        hs, cs = [x[0]], [x[0] * 2]
        for i in range(1, t):
            cs.append(np.maximum(np.minimum(hs[-1] @ w + x[i], 3), cs[-1] - 1))
            hs.append(np.minimum(np.maximum(cs[-1] - x[i], -3), 3))
        return [np.stack(hs), np.stack(cs)]

    return Family([x, w], list(states), reference)


FAMILIES: dict[str, Callable[[], Family]] = {
    f.__name__: f
    for f in (
        matmul,
        conv,
        depthwise,
        pool,
        softmax,
        transpose,
        stencil,
        argmax,
        elementwise,
        gather,
        filtered,
        recurrent,
    )
}
