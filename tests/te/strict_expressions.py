"""Random tensor expressions on adversarial floats, for strict accuracy."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from tilesmith import te
from tilesmith.ir.dtypes import DType, bf16, f16, f32, f64, i8, i32, i64, u8
from tilesmith.ir.expr import Binary, Expr, cast, const

from .families import Family

_ODD = (
    0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 2.5, 3.0, 1e-3, -7.25, 1 / 3, 1e4, 16777217.0, 2147483648.0,
    -3e9, 1e20, 3e38, -3e38, 1e-38, 1.4e-45, -1e-40, 65504.0, 88.7, -103.9, 9.0,
    float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
"""Zeros of both signs, denormals, halves, edges of integers and of exp, infinities, NaN."""

_FUNCTIONS = (
    te.exp, te.exp2, te.log, te.log1p, te.tanh, te.erf, te.sigmoid, te.sin, te.cos, te.atan,
    te.sinh, te.asinh, te.rsqrt,
)  # fmt: skip
_EXACT = (te.sqrt, te.abs, te.floor, te.ceil, te.trunc, te.round)
_FLOATS: tuple[DType, ...] = (f32, f32, f32, f32, f64, f16, bf16)
_INTEGERS: tuple[DType, ...] = (i32, i64, i8, u8)
_BINARY = ("add", "sub", "mul", "mul", "add", "div", "min", "max", "floordiv", "floormod",
           "truncdiv", "truncmod")  # fmt: skip


def odd_floats(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Numbers of all magnitudes, every second one from `_ODD`."""
    with np.errstate(all="ignore"):
        scale = np.exp2(rng.integers(-20, 20, shape))
        plain = (rng.standard_normal(shape) * scale).astype(dtype.numpy)
        return np.where(rng.random(shape) < 0.5, rng.choice(_ODD, shape), plain).astype(dtype.numpy)


class Expressions:
    """Draws expressions over the elements of tensors that `leaf` gives."""

    def __init__(self, rng: random.Random, leaf: Callable[[], Expr]) -> None:
        self.rng = rng
        self.leaf = leaf

    def draw(self, depth: int, dtype: DType = f32) -> Expr:
        if depth == 0 or self.rng.random() < 0.1:
            found = self.leaf() if self.rng.random() < 0.8 else const(self.rng.choice(_ODD[:20]))
            return found if found.dtype is dtype else cast(found, dtype)
        kind = self.rng.choice("bbbbbbbfeeesnci")
        if kind == "b":
            a, b = self.draw(depth - 1, dtype), self.draw(depth - 1, dtype)
            return Binary(self.rng.choice(_BINARY), a, b)
        if kind == "f" and dtype is not f64:
            return self.rng.choice(_FUNCTIONS)(self.draw(depth - 1, dtype))
        if kind in "fe":
            return self.rng.choice(_EXACT)(self.draw(depth - 1, dtype))
        if kind == "s":
            a, b = self.draw(depth - 1, dtype), self.draw(depth - 1, dtype)
            test = self.rng.choice((a < b, a <= b, b > a, te.isnan(a), te.isinf(b)))
            return te.select(test, self.draw(depth - 1, dtype), b)
        if kind == "n":
            return -self.draw(depth - 1, dtype)
        if kind == "c":
            return cast(self.draw(depth - 1, self.rng.choice(_FLOATS)), dtype)
        return cast(cast(self.draw(depth - 1, dtype), self.rng.choice(_INTEGERS)), dtype)


def family(seed: int) -> Family:
    """A few stages: elementwise, perhaps a reduction, elementwise."""
    rng = random.Random(seed)
    n, m = rng.choice((1, 3, 4, 7, 8)), rng.choice((2, 5, 8, 16, 19))
    dtype = rng.choice(_FLOATS)
    a, b = (te.placeholder((n, m), dtype, name) for name in "AB")
    row = te.placeholder((m,), f32, "R")

    def element(i: Expr, j: Expr, *more: te.Tensor) -> Expr:
        def leaf() -> Expr:
            t = rng.choice((a, b, row, *more))
            return t[j] if t is row else t[i] if t.rank == 1 else t[i, j]

        return Expressions(rng, leaf).draw(rng.choice((1, 2, 3, 4)))

    first = te.compute((n, m), lambda i, j: element(i, j), "first")
    stages = [first]
    if rng.random() < 0.5:
        k = te.reduce_axis(m, "k")
        reducer = rng.choice((te.sum, te.sum, te.sum, te.prod, te.min, te.max))
        total = te.compute((n,), lambda i: reducer(first[i, k.var] * row[k.var], axis=k), "total")
        stages.append(total)
    last = te.compute((n, m), lambda i, j: element(i, j, *stages), "last")
    read = {x.op.outputs[0] for x in te.create_schedule(last.op).stages}
    return Family([t for t in (a, b, row) if t in read], [last], lambda *_: [])


def data(family: Family, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [odd_floats(rng, t.shape, t.dtype) for t in family.inputs]
