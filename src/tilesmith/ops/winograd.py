"""Convolutions with a 3x3 window by Winograd's minimal filtering, F(m x m, 3 x 3).

A tile of m x m results comes from a tile of t x t inputs, t = m + 2, with t^2 products per pair of
channels instead of 9 m^2 (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks"):

    y = A' [ sum over channels of (G w G') * (B' d B) ] A

The matrices are those of Toom-Cook interpolation at t - 1 finite points and at infinity.  The
finite points are 0 and pairs +q, -q, which share the even and the odd part of their polynomial.

Accuracy: for m = 4 the pairs are sqrt(1/2) and sqrt(2), between which rounding errors grow least.
Largest error against float64 over the largest magnitude of the result, normal random data, tiles
summed in sequence:

    channels      direct     m = 2      m = 4      m = 4 with the textbook's points 1 and 2
    64            0.9e-6     0.3e-6     1.3e-6     5.8e-6
    256           1.6e-6     0.5e-6     2.4e-6     13.5e-6
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import f32, f64
from tilesmith.ir.expr import Expr
from tilesmith.te import tensor as te

from . import rules
from .base import Op
from .slicing import pad
from .window import Window

WINDOW = 3

SQUARES: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (0.5, 2.0)}
"""Tile size m -> the squares of the interpolation points q."""


def input_rows(m: int, d: Sequence[Any]) -> list[Any]:
    """B' d for t numbers, arrays or expressions; points in the order 0, +q, -q, ..., infinity."""
    squares = SQUARES[m]
    every = _coefficients(squares)
    result = [_sum((c, d[2 * i]) for i, c in enumerate(every))]
    for s in squares:
        others = _coefficients([o for o in squares if o != s])
        even = _sum((c, d[2 * i + 2]) for i, c in enumerate(others))
        odd = _sum((c, d[2 * i + 1]) for i, c in enumerate(others))
        result += [_sum([(1.0, even), (sign * math.sqrt(s), odd)]) for sign in (1, -1)]
    return [*result, _sum((c, d[2 * i + 1]) for i, c in enumerate(every))]


def output_rows(m: int, p: Sequence[Any]) -> list[Any]:
    """A' p for t numbers, arrays or expressions: even rows add the two of a pair, odd rows subtract
    them.
    """
    points = [math.sqrt(s) for s in SQUARES[m]]
    pairs = [(p[k] + p[k + 1], p[k] - p[k + 1]) for k in range(1, m + 1, 2)]
    result = []
    for i in range(m):
        terms = [(q**i, pair[i % 2]) for q, pair in zip(points, pairs, strict=True)]
        first = [(1.0, p[0])] if i == 0 else []
        last = [(1.0, p[m + 1])] if i == m - 1 else []
        result.append(_sum([*first, *terms, *last]))
    return result


def _coefficients(squares: Sequence[float]) -> list[float]:
    """The coefficients of the product of (y - s), lowest power first."""
    return [float(c) for c in np.atleast_1d(np.poly(squares))[::-1]]


def _sum(terms: Any) -> Any:
    """The sum of coefficient * value, without multiplications by 1."""
    total = None
    for c, value in sorted(terms, key=lambda term: term[0] != 1):
        if total is None:
            total = value if c == 1 else value * c
        elif abs(c) == 1:
            total = total + value if c == 1 else total - value
        else:
            total = total + value * c
    return total


@lru_cache(maxsize=8)
def matrices(m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """B' [t, t], G [t, 3] and A' [m, t] in float64."""
    t = m + WINDOW - 1
    unit = list(np.eye(t))
    inputs = np.stack(input_rows(m, unit))
    points = [0.0, *(sign * math.sqrt(s) for s in SQUARES[m] for sign in (1, -1))]
    norms = [float(inputs[k] @ p ** np.arange(t)) for k, p in enumerate(points)]
    finite = [[p**i / n for i in range(WINDOW)] for p, n in zip(points, norms, strict=True)]
    return inputs, np.array([*finite, [0.0, 0.0, 1.0]]), np.stack(output_rows(m, unit))


def transform_weights(w: np.ndarray, m: int) -> np.ndarray:
    """G w G' of weights [OC, IC, 3, 3]: [t * t, OC, IC].

    In the type of the weights, as one matrix product: of the error that a convolution makes,
    rounding here is some hundredths.
    """
    g = matrices(m)[1]
    both = np.einsum("xa,yb->xyab", g, g).reshape(-1, WINDOW * WINDOW).astype(w.dtype)
    return (both @ w.reshape(-1, WINDOW * WINDOW).T).reshape(-1, *w.shape[:2])


@dataclass(frozen=True)
class WinogradConv(Op):
    """Convolution of x [N, IC, H, W] with a 3x3 window whose weights are transformed already,
    u [t * t, OC, IC] (`transform_weights`).  `m`: size of a tile; `pads`: as `Conv` has them.
    """

    m: int
    pads: tuple[int, ...] = ()

    @property
    def t(self) -> int:
        """The size of a tile of inputs."""
        return self.m + WINDOW - 1

    @cached_property
    def window(self) -> Window:
        return Window.of(self.name, (WINDOW, WINDOW), (), self.pads, ())

    def tiles(self, image: Sequence[int]) -> tuple[int, ...]:
        """Tiles along each axis of an image."""
        extents = (self.window.out_extent(self.name, d, a) for a, d in enumerate(image))
        return tuple(-(-rules.static(self.name, n, "an extent") // self.m) for n in extents)

    def ends(self, image: Sequence[int]) -> tuple[int, ...]:
        """Padding after each axis, so that tiles are whole."""
        needed = (n * self.m + WINDOW - 1 for n in self.tiles(image))
        return tuple(n - d - b for n, d, b in zip(needed, image, self.window.begins, strict=True))

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x, u = self._checked(inputs)
        m, t = self.m, self.t
        n, ic, *image = (rules.static(self.name, d, "an extent of x") for d in x.shape)
        oc = u.shape[1]
        rows, columns = self.tiles(image)
        shape = [self.window.out_extent(self.name, d, a) for a, d in enumerate(image)]
        begins, ends = (0, 0, *self.window.begins), (0, 0, *self.ends(image))
        padded = pad(x, begins, ends, 0, axis_names=["n", "ic", "ih", "iw"])

        def gathered(row: Expr, j: Expr, tile: Expr, c: Expr) -> Expr:
            batch = tile // (rows * columns)
            y, z = tile // columns % rows * m, tile % columns * m
            return _at(row, input_rows(m, [padded[batch, c, y + i, z + j] for i in range(t)]))

        half = te.compute((t, t, n * rows * columns, ic), gathered, "input_rows")
        v = te.compute(
            (t * t, n * rows * columns, ic),
            lambda point, tile, c: _at(
                point % t, input_rows(m, [half[point // t, j, tile, c] for j in range(t)])
            ),
            "input_tiles",
        )
        k = te.reduce_axis(ic, "ic")
        product = te.compute(
            (t * t, n * rows * columns, oc),
            lambda point, tile, f: te.sum(v[point, tile, k.var] * u[point, f, k.var], axis=k),
            "product",
        )
        back = te.compute(
            (m, t, n * rows * columns, oc),
            lambda row, j, tile, f: _at(
                row, output_rows(m, [product[i * t + j, tile, f] for i in range(t)])
            ),
            "output_rows",
        )

        def result(batch: Expr, f: Expr, y: Expr, z: Expr) -> Expr:
            tile = (batch * rows + y // m) * columns + z // m
            return _at(z % m, output_rows(m, [back[y % m, j, tile, f] for j in range(t)]))

        return te.compute((n, oc, *shape), result, self.name, ["n", "oc", "oh", "ow"])

    def _checked(self, inputs: Sequence[te.Tensor]) -> tuple[te.Tensor, te.Tensor]:
        rules.check_count(self.name, inputs, 2)
        x, u = inputs
        rules.check_same_dtype(self.name, (x, u))
        fits = x.rank == 4 and u.rank == 3 and u.shape[2] == x.shape[1] and x.dtype in (f32, f64)
        if self.m not in SQUARES or not fits or u.shape[0] != self.t**2:
            rules.reject(
                self.name,
                f"f32 or f64 x [N, IC, H, W], weights [{self.t**2}, OC, IC], m in {tuple(SQUARES)}",
                f"{x.dtype}{rules.shape_text(x.shape)}, {rules.shape_text(u.shape)}, {self.m}",
            )
        return x, u

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        """Computed in float64, so that a kernel's difference is all the error it makes."""
        x, u = (a.astype(np.float64) for a in inputs)
        m, t = self.m, self.t
        n, ic, *image = x.shape
        rows, columns = self.tiles(image)
        for axis, (b, e) in enumerate(zip(self.window.begins, self.ends(image), strict=True), 2):
            around = [(0, 0)] * 4
            around[axis] = (max(b, 0), max(e, 0))
            x = np.pad(x, around)
            x = np.take(x, range(max(-b, 0), x.shape[axis] + min(e, 0)), axis)
        to, _, back = matrices(m)
        d = np.lib.stride_tricks.sliding_window_view(x, (t, t), axis=(2, 3))[:, :, ::m, ::m]
        v = np.einsum("xi,nchwij,yj->xynhwc", to, d, to, optimize=True)
        p = v.reshape(t * t, -1, ic) @ u.transpose(0, 2, 1)
        p = p.reshape(t, t, n, rows, columns, -1)
        y = np.einsum("ix,xynhwo,jy->nohiwj", back, p, back, optimize=True)
        y = y.reshape(n, -1, rows * m, columns * m)
        extents = (self.window.out_extent(self.name, d, a) for a, d in enumerate(image))
        return y[(..., *(slice(e) for e in extents))].astype(inputs[0].dtype)


def _at(row: Expr, values: Sequence[Expr]) -> Expr:
    """`values[row]`; `row` is a number once loops are unrolled."""
    result = values[-1]
    for i in reversed(range(len(values) - 1)):
        result = te.if_then_else(row.equal(i), values[i], result)
    return result
