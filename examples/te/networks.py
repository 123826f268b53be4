"""Layers of neural networks, as TVM's operator library has them.  "auto" schedules them all."""

from __future__ import annotations

import numpy as np
from tutorial import Program, Tutorial

from tilesmith import te


def conv2d(c: int, h: int, w: int) -> Program:
    """A 3x3 convolution of `c` to `c` channels with a bias and ReLU, in channels-last order."""
    X = te.placeholder((h + 2, w + 2, c), name="X")
    W, B = te.placeholder((3, 3, c, c), name="W"), te.placeholder((c,), name="B")
    p, q, k = te.reduce_axis(3, "p"), te.reduce_axis(3, "q"), te.reduce_axis(c, "k")
    conv = te.compute(
        (h, w, c),
        lambda y, x, o: te.sum(X[y + p, x + q, k] * W[p, q, k, o], axis=(p, q, k)),
        "conv",
    )
    relu = te.compute((h, w, c), lambda y, x, o: te.maximum(conv[y, x, o] + B[o], 0.0), "relu")
    return "auto", [X, W, B, relu]


def numpy_conv2d(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    h, n = x.shape[0] - 2, x.shape[1] - 2
    taps = (x[p : p + h, q : q + n] @ w[p, q] for p in range(3) for q in range(3))
    return np.maximum(sum(taps) + b, 0)


def depthwise(c: int, h: int, w: int) -> Program:
    """A 3x3 filter for each channel."""
    X = te.placeholder((c, h + 2, w + 2), name="X")
    W = te.placeholder((c, 3, 3), name="W")
    p, q = te.reduce_axis(3, "p"), te.reduce_axis(3, "q")
    out = te.compute(
        (c, h, w), lambda c, y, x: te.sum(X[c, y + p, x + q] * W[c, p, q], axis=(p, q)), "out"
    )
    return "auto", [X, W, out]


def numpy_depthwise(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    return np.einsum("cyxpq,cpq->cyx", windows, w)


def softmax(m: int, n: int) -> Program:
    """Rows to probabilities, without overflow."""
    X = te.placeholder((m, n), name="X")
    k, r = te.reduce_axis(n, "k"), te.reduce_axis(n, "r")
    most = te.compute((m,), lambda i: te.max(X[i, k], axis=k), "most")
    e = te.compute((m, n), lambda i, j: te.exp(X[i, j] - most[i]), "e")
    total = te.compute((m,), lambda i: te.sum(e[i, r], axis=r), "total")
    return "auto", [X, te.compute((m, n), lambda i, j: e[i, j] / total[i], "out")]


def numpy_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(m: int, n: int) -> Program:
    """Rows with mean 0 and variance 1, then a scale and a shift."""
    X = te.placeholder((m, n), name="X")
    G, B = te.placeholder((n,), name="G"), te.placeholder((n,), name="B")
    k, r = te.reduce_axis(n, "k"), te.reduce_axis(n, "r")
    total = te.compute((m,), lambda i: te.sum(X[i, k], axis=k), "total")
    centred = te.compute((m, n), lambda i, j: X[i, j] - total[i] / n, "centred")
    square = te.compute((m,), lambda i: te.sum(centred[i, r] * centred[i, r], axis=r), "square")
    out = te.compute(
        (m, n), lambda i, j: centred[i, j] * te.rsqrt(square[i] / n + 1e-5) * G[j] + B[j], "out"
    )
    return "auto", [X, G, B, out]


def numpy_layer_norm(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + np.float32(1e-5)) * g + b


def attention(heads: int, n: int, d: int) -> Program:
    """softmax(Q K' / sqrt(d)) V for each head."""
    Q, K, V = (te.placeholder((heads, n, d), name=name) for name in "QKV")
    a, b, c, e = (te.reduce_axis(m, x) for m, x in ((d, "a"), (n, "b"), (n, "c"), (n, "e")))
    score = te.compute(
        (heads, n, n), lambda h, i, j: te.sum(Q[h, i, a] * K[h, j, a], axis=a), "score"
    )
    most = te.compute((heads, n), lambda h, i: te.max(score[h, i, b], axis=b), "most")
    p = te.compute(
        (heads, n, n), lambda h, i, j: te.exp((score[h, i, j] - most[h, i]) * d**-0.5), "p"
    )
    total = te.compute((heads, n), lambda h, i: te.sum(p[h, i, c], axis=c), "total")
    mix = te.compute((heads, n, d), lambda h, i, j: te.sum(p[h, i, e] * V[h, e, j], axis=e), "mix")
    out = te.compute((heads, n, d), lambda h, i, j: mix[h, i, j] / total[h, i], "out")
    return "auto", [Q, K, V, out]


def numpy_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return numpy_softmax(q @ k.swapaxes(1, 2) * np.float32(q.shape[-1] ** -0.5)) @ v


WORDS = 1000


def embedding_bag(m: int, words: int, n: int) -> Program:
    """The sum of the rows of a table that indices choose; the clamp makes them safe."""
    I = te.placeholder((m, words), "i32", "I")  # noqa: E741  (the indices)
    T = te.placeholder((WORDS, n), name="T")
    k = te.reduce_axis(words, "k")

    def row(i: te.Axis) -> te.Tensor:
        return te.maximum(te.minimum(I[i, k], WORDS - 1), 0)

    return "auto", [I, T, te.compute((m, n), lambda i, j: te.sum(T[row(i), j], axis=k), "out")]


def numpy_embedding_bag(i: np.ndarray, t: np.ndarray) -> np.ndarray:
    return t[i].sum(1)


TUTORIALS = (
    Tutorial(conv2d, numpy_conv2d, (16, 6, 10), (128, 40, 50), "Halide, apps/conv_layer", 60),
    Tutorial(depthwise, numpy_depthwise, (4, 9, 20), (64, 56, 56), "TVM, topi.nn", 30),
    Tutorial(softmax, numpy_softmax, (5, 77), (512, 1000), "TVM, topi.nn.softmax", 40),
    Tutorial(layer_norm, numpy_layer_norm, (5, 77), (512, 768), "TVM, topi.nn.layer_norm", 45),
    Tutorial(attention, numpy_attention, (2, 24, 16), (8, 256, 64), "TVM, topi (three calls)", 45),
    Tutorial(
        embedding_bag, numpy_embedding_bag, (5, 7, 16), (512, 32, 128), "TVM, topi.take + sum", 14,
        below=WORDS,
    ),
)  # fmt: skip
