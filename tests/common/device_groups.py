"""Fused groups for a device, one for each of its rules."""

from __future__ import annotations

import numpy as np

from tilesmith import te
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import DType, f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.attention import Attention
from tilesmith.ops.elementwise import Add, Div, Exp, Mul, Sub
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.reduce import ReduceMax, ReduceSum
from tilesmith.te.tensor import Tensor


def product(rows: int, columns: int, depth: int, biased: bool = True) -> list[Tensor]:
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    bias, k = te.placeholder((columns,), name="bias"), te.reduce_axis(depth, "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    if not biased:
        return [a, b, c]
    return [a, b, bias, te.compute(c.shape, lambda i, j: c[i, j] + bias[j], "D")]


def vector(columns: int, depth: int) -> list[Tensor]:
    a, b = te.placeholder((depth,), name="A"), te.placeholder((depth, columns), name="B")
    bias, k = te.placeholder((columns,), name="bias"), te.reduce_axis(depth, "k")
    c = te.compute((columns,), lambda j: te.sum(a[k] * b[k, j], axis=k), "C")
    return [a, b, bias, te.compute(c.shape, lambda j: c[j] + bias[j], "D")]


def halves(rows: int, columns: int, depth: int) -> list[Tensor]:
    a, b = te.placeholder((rows, depth), "f16", "A"), te.placeholder((depth, columns), "f16", "B")
    k = te.reduce_axis(depth, "k")
    c = te.compute(
        (rows, columns),
        lambda i, j: te.sum(a[i, k].astype("f32") * b[k, j].astype("f32"), axis=k),
        "C",
    )
    return [a, b, te.compute(c.shape, lambda i, j: te.maximum(c[i, j], 0.0), "D")]


def convolution() -> list[Tensor]:
    x, w = te.placeholder((1, 3, 5, 5), name="X"), te.placeholder((10, 3, 3, 3), name="W")
    inside = te.compute(
        (1, 3, 7, 7),
        lambda n, c, h, v: te.select(
            (h >= 1) & (h < 6) & (v >= 1) & (v < 6), x[n, c, h - 1, v - 1], 0.0
        ),
        "padded",
    )
    c, p, q = te.reduce_axis(3, "c"), te.reduce_axis(3, "p"), te.reduce_axis(3, "q")
    y = te.compute(
        (1, 10, 5, 5),
        lambda n, o, h, v: te.sum(inside[n, c, h + p, v + q] * w[o, c, p, q], axis=(c, p, q)),
        "Y",
    )
    return [x, w, te.compute(y.shape, lambda *i: te.maximum(y[i], 0.0), "Z")]


def softmax(n: int = 90) -> list[Tensor]:
    x, k, m = te.placeholder((3, n), name="x"), te.reduce_axis(n, "k"), te.reduce_axis(n, "m")
    most = te.compute((3,), lambda i: te.max(x[i, k], axis=k), "most")
    e = te.compute((3, n), lambda i, j: te.exp(x[i, j] - most[i]), "e")
    total = te.compute((3,), lambda i: te.sum(e[i, m], axis=m), "total")
    return [x, te.compute((3, n), lambda i, j: e[i, j] / total[i], "y")]


def reduced(shape: tuple[int, int], over: tuple[int, ...]) -> list[Tensor]:
    x = te.placeholder(shape, name="x")
    axes = {n: te.reduce_axis(shape[n], f"k{n}") for n in over}

    def body(*at):
        rest = iter(at)
        index = [axes[n] if n in over else next(rest) for n in range(2)]
        return te.sum(x[tuple(index)], axis=tuple(axes.values()))

    left = tuple(n for i, n in enumerate(shape) if i not in over)
    return [x, te.compute(left, body, "s")]


CASES = {
    "product": (product(19, 21, 11), [(6, 5, 1)]),
    "product without a bias": (product(9, 9, 9, biased=False), [(3, 3, 1)]),
    "product with few rows": (product(2, 40, 9), [(256, 1, 1)]),
    "long sums in one tile": (product(10, 12, 256), [(3, 3, 1), (256, 1, 1)]),
    "long sums of few rows": (product(2, 40, 64), [(256, 1, 1), (256, 1, 1)]),
    "long sums of a vector": (vector(40, 64), [(256, 1, 1), (256, 1, 1)]),
    "convolution": (convolution(), [(256, 1, 1)]),
    "softmax": (softmax(), [(128, 1, 1)]),
    "softmax of long rows": (softmax(900), [(256, 1, 1)]),
    "sums of rows": (reduced((4, 100), (1,)), [(128, 1, 1)]),
    "sums of columns": (reduced((5, 300), (0,)), [(256, 1, 1)]),
    "sum of all": (reduced((4, 80), (0, 1)), [(256, 1, 1), (16, 1, 1), (1, 1, 1)]),
}


def attention(
    queries: tuple[int, ...],
    keys: int,
    width: int,
    mask: bool = False,
    added: bool = False,
    turned: bool = False,
    low: DType = f32,
) -> Graph:
    """softmax(q @ k * scale + mask) @ v + x.

    turned: keys are stored with the width as rows.
    low: the type of queries and keys.
    """
    b = Builder("attention")
    *heads, rows, size = queries
    stored = (*heads, size, keys) if turned else (*heads, keys, size)
    q, k = b.input("q", TensorType(low, queries)), b.input("k", TensorType(low, stored))
    v = b.input("v", TensorType(f32, (*heads, keys, width)))
    scores = b.add(MatMul(transpose_b=not turned, to=f32), q, k)
    scores = b.add(Mul(), scores, b.constant(np.float32(size**-0.5)))
    if mask:
        scores = b.add(Add(), scores, b.input("mask", TensorType(f32, (rows, keys))))
    e = b.add(Exp(), b.add(Sub(), scores, b.add(ReduceMax((-1,), True), scores)))
    y = b.add(MatMul(), b.add(Div(), e, b.add(ReduceSum((-1,), True), e)), v)
    return b.finish([b.add(Add(), y, b.input("x", y.type)) if added else y])


def heads(
    queries: tuple[int, int, int],
    keys: tuple[int, int],
    width: int = 16,
    causal: bool = False,
    mask: DType | None = None,
) -> Graph:
    """Attention with heads, of which some may share keys.

    queries: batch, heads and rows.
    keys: heads and rows.
    """
    b = Builder("heads")
    batch, number, rows = queries
    shapes = (number, rows), keys, keys
    q, k, v = (b.input(n, TensorType(f32, (batch, *s, width))) for n, s in zip("qkv", shapes))
    masks = [] if mask is None else [b.input("mask", TensorType(mask, (rows, keys[1])))]
    return b.finish([b.add(Attention(is_causal=causal), q, k, v, *masks)])
