"""Stencils, iterations and pyramids, on grids of (rows, columns)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from tutorial import Program, Tutorial

from tilesmith import te
from tilesmith.ir.expr import Expr, ExprLike

GENERATIONS = 4


def life(h: int, w: int) -> Program:
    """Four generations of Conway's Game of Life in one pass; cells outside of the grid are dead."""
    X = te.placeholder((h, w), "u8", "X")

    def inside(y: Expr, x: Expr) -> Expr:
        return te.all(y >= 1, y <= h, x >= 1, x <= w)

    def alive(cells: te.Tensor, y: Expr, x: Expr) -> Expr:
        near = sum(cells[y + a, x + b] for a in range(3) for b in range(3))
        return te.select(te.all(near >= 3, near <= 3 + cells[y + 1, x + 1]), 1, 0)

    cells, stages = X, []
    for g in range(GENERATIONS):
        wide = te.compute(
            (h + 2, w + 2),
            lambda y, x, c=cells: te.if_then_else(inside(y, x), c[y - 1, x - 1], 0),
            f"wide{g}",
        )
        cells = te.compute((h, w), lambda y, x, c=wide: alive(c, y, x).astype("u8"), f"cells{g}")
        stages += [wide, cells]
    s = te.create_schedule(cells.op)
    strip, _ = s[cells].split("y", 32)
    s[cells].parallel(strip)
    for stage in reversed(stages[:-1]):  # readers first
        s[stage].compute_at(s[cells], strip)
    for stage in stages:
        s[stage].vectorize(s[stage].split("x", 32)[1])
    return s, [X, cells]


def numpy_life(x: np.ndarray) -> np.ndarray:
    for _ in range(GENERATIONS):
        wide = np.pad(x, 1)
        near = sum(wide[a : a + x.shape[0], b : b + x.shape[1]] for a in range(3) for b in range(3))
        x = ((near >= 3) & (near <= 3 + x)).astype(np.uint8)
    return x


ITERATIONS = 8


def mandelbrot(h: int, w: int) -> Program:
    """Iterations of z^2 + c until |z| > 2, unrolled, in vectors of points."""
    C = te.placeholder((2, h, w), name="C")

    def count(y: Expr, x: Expr) -> Expr:
        a, b = 4.0 * C[0, y, x] - 2.5, 3.0 * C[1, y, x] - 1.5
        u, v, n, alive = a, b, te.const(0), te.const(1)
        for _ in range(ITERATIONS):
            alive = te.minimum(alive, te.select(u * u + v * v <= 4.0, 1, 0))
            u, v, n = u * u - v * v + a, 2.0 * u * v + b, n + alive
        return n.astype("i32")

    return "auto", [C, te.compute((h, w), count, "count")]


def numpy_mandelbrot(c: np.ndarray) -> np.ndarray:
    c = (4 * c[0] - np.float32(2.5)) + np.complex64(1j) * (3 * c[1] - np.float32(1.5))
    z, n = c.copy(), np.zeros(c.shape, np.int32)
    for _ in range(ITERATIONS):
        inside = z.real**2 + z.imag**2 <= 4
        n += inside
        z = np.where(inside, z * z + c, z)
    return n


def running_sum(n: int, m: int) -> Program:
    """A scan: each row is the sum of the rows up to it; columns are independent."""
    X, S = te.placeholder((n, m), name="X"), te.placeholder((n, m), name="S")
    first = te.compute((1, m), lambda t, j: X[0, j], "first")
    step = te.compute((n, m), lambda t, j: S[t - 1, j] + X[t, j], "step")
    total = te.scan(first, step, S)
    s = te.create_schedule(total.op)
    s[first].compute_inline()
    s[step].compute_inline()
    block, lanes = s[total].split(s[total].axis[1], 64)
    s[total].reorder(block, s[total].axis[0], lanes)
    s[total].vectorize(lanes)
    s[total].parallel(block)
    return s, [X, total]


def clip(i: ExprLike, below: int) -> Expr:
    """`i` clamped to 0 .. below - 1."""
    return te.maximum(te.minimum(i, below - 1), 0)


def down(f: te.Tensor, name: str) -> te.Tensor:
    """Half the rows and columns of the last two axes, with the filter 1 3 3 1."""
    *lead, h, w = f.shape

    def taps(read: Callable[[ExprLike], Expr], i: Expr, n: int) -> Expr:
        first, last = read(te.maximum(2 * i - 1, 0)), read(te.minimum(2 * i + 2, n - 1))
        return (first + 3.0 * (read(2 * i) + read(2 * i + 1)) + last) / 8.0

    half = te.compute(
        (*lead, h, w // 2), lambda *i: taps(lambda x: f[(*i[:-1], x)], i[-1], w), f"{name}_x"
    )
    return te.compute(
        (*lead, h // 2, w // 2),
        lambda *i: taps(lambda y: half[(*i[:-2], y, i[-1])], i[-2], h),
        name,
    )


def up(f: te.Tensor, name: str) -> te.Tensor:
    """Twice the rows and columns of the last two axes, bilinear."""
    *lead, h, w = f.shape

    def taps(read: Callable[[ExprLike], Expr], i: Expr, n: int) -> Expr:
        return 0.75 * read(i // 2) + 0.25 * read(clip(i // 2 - 1 + i % 2 * 2, n))

    wide = te.compute(
        (*lead, h, 2 * w), lambda *i: taps(lambda x: f[(*i[:-1], x)], i[-1], w), f"{name}_x"
    )
    return te.compute(
        (*lead, 2 * h, 2 * w),
        lambda *i: taps(lambda y: wide[(*i[:-2], y, i[-1])], i[-2], h),
        name,
    )


def numpy_down(f: np.ndarray) -> np.ndarray:
    for axis in (-1, -2):
        n = f.shape[axis]
        i = np.arange(n // 2)
        a, b, c, d = (
            f.take(j, axis)
            for j in (np.maximum(2 * i - 1, 0), 2 * i, 2 * i + 1, np.minimum(2 * i + 2, n - 1))
        )
        f = (a + 3 * (b + c) + d) / 8
    return f


def numpy_up(f: np.ndarray) -> np.ndarray:
    for axis in (-1, -2):
        i = np.arange(2 * f.shape[axis])
        far = np.clip(i // 2 - 1 + i % 2 * 2, 0, f.shape[axis] - 1)
        f = np.float32(0.75) * f.take(i // 2, axis) + np.float32(0.25) * f.take(far, axis)
    return f


def pyramid(h: int, w: int) -> Program:
    """Three levels of a Gaussian pyramid, and the detail that each level loses."""
    X = te.placeholder((h, w), name="X")
    levels = [X]
    for n in range(3):
        levels.append(down(levels[-1], f"level{n}"))
    details = []
    for n, (fine, coarse) in enumerate(pairwise(levels)):
        near = up(coarse, f"up{n}")
        details.append(te.compute(fine.shape, lambda *i, a=fine, b=near: a[i] - b[i], f"detail{n}"))
    s = te.create_schedule([t.op for t in (*levels[1:], *details)])
    for stage in s.stages[1:]:
        stage.parallel(stage.split("i0", 8)[0])
        stage.vectorize(stage.split("i1", 8)[1])
    return s, [X, *levels[1:], *details]


def numpy_pyramid(x: np.ndarray) -> tuple[np.ndarray, ...]:
    levels = [x]
    for _ in range(3):
        levels.append(numpy_down(levels[-1]))
    return (*levels[1:], *(a - numpy_up(b) for a, b in pairwise(levels)))


LEVELS = 8
"""Intensities at which the local Laplacian filter remaps the image."""


def local_laplacian(h: int, w: int) -> Program:
    """Two levels of the local Laplacian filter: detail is amplified, edges are kept."""
    X = te.placeholder((h, w), name="X")

    def remap(k: Expr, y: Expr, x: Expr) -> Expr:
        d = X[y, x] * (LEVELS - 1.0) - k.astype("f32")
        return X[y, x] + d * te.exp(d * d * -0.5)

    fine = te.compute((LEVELS, h, w), remap, "fine")
    coarse = down(fine, "coarse")
    near, small = up(coarse, "near"), down(X, "small")

    def between(image: te.Tensor, read: Callable[..., Expr], *i: Expr) -> Expr:
        level = image[i] * (LEVELS - 1.0)
        k = te.maximum(te.minimum(level.astype("i64"), LEVELS - 2), 0)
        part = level - k.astype("f32")
        return (1.0 - part) * read(k, *i) + part * read(k + 1, *i)

    rest = te.compute(small.shape, lambda *i: between(small, lambda *j: coarse[j], *i), "rest")
    wide = up(rest, "wide")
    out = te.compute(
        (h, w), lambda *i: wide[i] + between(X, lambda *j: fine[j] - near[j], *i), "out"
    )
    s = te.create_schedule(out.op)
    for stage in s.stages[1:]:
        rows, columns = stage.axis[-2:]
        stage.parallel(stage.split(rows, 8)[0])
        stage.vectorize(stage.split(columns, 8)[1])
    return s, [X, out]


def numpy_local_laplacian(x: np.ndarray) -> np.ndarray:
    one = np.float32(1)
    d = x * (LEVELS - one) - np.arange(LEVELS, dtype=np.float32)[:, None, None]
    fine = x + d * np.exp(d * d * np.float32(-0.5))
    coarse, small = numpy_down(fine), numpy_down(x)

    def between(image: np.ndarray, of: np.ndarray) -> np.ndarray:
        level = image * (LEVELS - one)
        k = np.clip(level.astype(np.int64), 0, LEVELS - 2)
        low, high = (np.take_along_axis(of, n[None], 0)[0] for n in (k, k + 1))
        return (one - (level - k)) * low + (level - k) * high

    return numpy_up(between(small, coarse)) + between(x, fine - numpy_up(coarse))


TUTORIALS = (
    Tutorial(running_sum, lambda x: x.cumsum(0), (9, 128), (1000, 1024), "TVM, scan", 14),
    Tutorial(
        local_laplacian,
        numpy_local_laplacian,
        (32, 48),
        (512, 768),
        "Halide, apps/local_laplacian",
        83,
    ),
    Tutorial(life, numpy_life, (40, 50), (512, 1024), "Halide, apps/stencil_chain", 28),
    Tutorial(mandelbrot, numpy_mandelbrot, (20, 32), (256, 512), "Halide, lesson 13", 22),
    Tutorial(pyramid, numpy_pyramid, (32, 48), (512, 1024), "Halide, the same, its pyramids", 20),
)
