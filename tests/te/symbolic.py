"""Random tensor expressions whose extents are expressions of symbols, with their answers in NumPy.

Data are small integers in f32, so that sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from tilesmith import te
from tilesmith.ir.expr import Expr, Var

Dims = tuple[Var, Var]
Answer = Callable[[np.ndarray], np.ndarray]


@dataclass
class Pipeline:
    """Stages that each read the one before.

    input, output: the first and the last tensor.
    dims: the symbols that are the input's extents.
    answer: the output for an input.
    least: the least size of each symbol for which every extent is at least 1.
    """

    input: te.Tensor
    output: te.Tensor
    dims: Dims
    answer: Answer
    least: int

    def data(self, sizes: tuple[int, int], seed: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(-3, 4, sizes).astype(np.float32)


def random_pipeline(rnd: Random) -> Pipeline:
    """One to four stages on a matrix of symbolic rows and columns."""
    n, m = te.var("n"), te.var("m")
    x = last = te.placeholder((n, m), name="X")
    steps: list[Answer] = []
    least = 1
    kinds = list(KINDS)
    for number in range(rnd.randint(1, 4)):
        kind = rnd.choice(kinds)
        if kind is every_second:
            kinds.remove(kind)  # a quotient of a quotient is not bounded by proof
        last, step = kind(last, f"S{number}", rnd)
        least += 2 * (kind is window)
        steps.append(step)
    last, step = affine(last, "Y", rnd)

    def answer(data: np.ndarray) -> np.ndarray:
        for f in (*steps, step):
            data = f(data)
        return data

    return Pipeline(x, last, (n, m), answer, least * 2)


Step = Callable[[te.Tensor, str, Random], "tuple[te.Tensor, Answer]"]


def affine(x: te.Tensor, name: str, rnd: Random) -> tuple[te.Tensor, Answer]:
    a = float(rnd.randint(-2, 2))
    return te.compute(x.shape, lambda i, j: x[i, j] + a, name), lambda d: d + a


def transposed(x: te.Tensor, name: str, rnd: Random) -> tuple[te.Tensor, Answer]:
    rows, columns = x.shape
    return te.compute((columns, rows), lambda i, j: x[j, i], name), lambda d: d.T


def backwards(x: te.Tensor, name: str, rnd: Random) -> tuple[te.Tensor, Answer]:
    rows, _ = x.shape
    return te.compute(x.shape, lambda i, j: x[rows - 1 - i, j], name), lambda d: d[::-1]


def window(x: te.Tensor, name: str, rnd: Random) -> tuple[te.Tensor, Answer]:
    rows, columns = x.shape
    reach = rnd.randint(1, 2)

    def step(d: np.ndarray) -> np.ndarray:
        return d[: d.shape[0] - reach] - d[reach:]

    return te.compute((rows - reach, columns), lambda i, j: x[i, j] - x[i + reach, j], name), step


def padded(x: te.Tensor, name: str, rnd: Random) -> tuple[te.Tensor, Answer]:
    rows, columns = x.shape

    def body(i: Expr, j: Expr) -> Expr:
        return te.if_then_else(te.all(j >= 1, j < columns + 1), x[i, j - 1], 7.0)

    result = te.compute((rows, columns + 2), body, name)
    return result, lambda d: np.pad(d, ((0, 0), (1, 1)), constant_values=7)


def joined(x: te.Tensor, name: str, rnd: Random) -> tuple[te.Tensor, Answer]:
    """Behind one another."""
    rows, columns = x.shape

    def body(i: Expr, j: Expr) -> Expr:
        return te.if_then_else(i < rows, x[i, j], x[i - rows, j] * 2.0)

    return te.compute((rows + rows, columns), body, name), lambda d: np.concatenate([d, d * 2])


def every_second(x: te.Tensor, name: str, rnd: Random) -> tuple[te.Tensor, Answer]:
    rows, columns = x.shape
    result = te.compute((rows, columns // 2), lambda i, j: x[i, 2 * j + 1], name)
    return result, lambda d: d[:, 1::2]


def less_mean(x: te.Tensor, name: str, rnd: Random) -> tuple[te.Tensor, Answer]:
    """Less a sum, or a maximum, of the row or of the column."""
    rows, columns = x.shape
    of_rows = rnd.random() < 0.5
    k = te.reduce_axis(columns if of_rows else rows, "k")
    combine, numpy = rnd.choice([(te.sum, np.sum), (te.max, np.max)])
    total = te.compute(
        (rows if of_rows else columns,),
        lambda i: combine(x[i, k] if of_rows else x[k, i], axis=k),
        f"{name}_total",
    )
    result = te.compute(x.shape, lambda i, j: x[i, j] - total[i if of_rows else j], name)
    return result, lambda d: d - numpy(d, axis=1 if of_rows else 0, keepdims=True)


def flat_and_back(x: te.Tensor, name: str, rnd: Random) -> tuple[te.Tensor, Answer]:
    """Reshaped to a vector, which is changed, and back."""
    rows, columns = x.shape
    flat = te.compute(
        (rows * columns,), lambda i: x[i // columns, i % columns] * 2.0, f"{name}_flat"
    )
    result = te.compute(x.shape, lambda i, j: flat[i * columns + j] - 1.0, name)
    return result, lambda d: d * 2 - 1


KINDS: list[Step] = [
    affine, transposed, backwards, window, padded, joined, every_second, less_mean, flat_and_back,
]  # fmt: skip
