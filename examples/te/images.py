"""Halide's image programs: windows, borders, reductions over a neighbourhood.

Images are (rows, columns) or (channels, rows, columns), with values from 0 to 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tutorial import Program, Tutorial

from tilesmith import te
from tilesmith.ir.expr import Expr

GRAY = 0.299, 0.587, 0.114


def edge(i: Expr, extent: int) -> Expr:
    """`i` clamped to 0 .. extent - 1: the border repeats the edge."""
    return te.maximum(te.minimum(i, extent - 1), 0)


def blur(h: int, w: int) -> Program:
    """A separable 3x3 box: rows of the first pass are computed in strips, next to their readers."""
    X = te.placeholder((h + 2, w + 2), name="X")
    across = te.compute((h + 2, w), lambda y, x: sum(X[y, x + d] for d in range(3)) / 3, "across")
    out = te.compute((h, w), lambda y, x: sum(across[y + d, x] for d in range(3)) / 3, "out")
    s = te.create_schedule(out.op)
    strip, _ = s[out].split("y", 16)
    _, lanes = s[out].split("x", 8)
    s[out].parallel(strip)
    s[out].vectorize(lanes)
    s[across].compute_at(s[out], strip)
    s[across].vectorize(s[across].split("x", 8)[1])
    return s, [X, out]


def numpy_blur(x: np.ndarray) -> np.ndarray:
    across = (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) / 3
    return (across[:-2] + across[1:-1] + across[2:]) / 3


SIGMA = 1.5
TAPS = [math.exp(-i * i / (2 * SIGMA**2)) / (math.sqrt(2 * math.pi) * SIGMA) for i in range(4)]


def unsharp(h: int, w: int) -> Program:
    """Add what a Gaussian blur takes away, and scale the colours by the change of gray."""
    X = te.placeholder((3, h, w), name="X")
    gray = te.compute((h, w), lambda y, x: sum(g * X[c, y, x] for c, g in enumerate(GRAY)), "gray")
    down = te.compute(
        (h, w),
        lambda y, x: sum(TAPS[abs(d)] * gray[edge(y + d, h), x] for d in range(-3, 4)),
        "down",
    )
    smooth = te.compute(
        (h, w),
        lambda y, x: sum(TAPS[abs(d)] * down[y, edge(x + d, w)] for d in range(-3, 4)),
        "smooth",
    )
    ratio = te.compute((h, w), lambda y, x: 2.0 - smooth[y, x] / gray[y, x], "ratio")
    out = te.compute((3, h, w), lambda c, y, x: ratio[y, x] * X[c, y, x], "out")
    s = te.create_schedule(out.op)
    strip, row = s[out].split("y", 32)
    s[out].reorder(strip, row, "c", "x")
    s[out].parallel(strip)
    for t in (out, ratio, down, gray):
        s[t].vectorize(s[t].split("x", 8)[1])
    s[smooth].compute_inline()
    for t in (ratio, down, gray):
        s[t].compute_at(s[out], strip)
    return s, [X, out]


def numpy_unsharp(x: np.ndarray) -> np.ndarray:
    gray = np.tensordot(np.float32(GRAY), x, 1)
    rows = np.pad(gray, ((3, 3), (0, 0)), "edge")
    down = sum(np.float32(TAPS[abs(d - 3)]) * rows[d : d + len(gray)] for d in range(7))
    columns = np.pad(down, ((0, 0), (3, 3)), "edge")
    smooth = sum(np.float32(TAPS[abs(d - 3)]) * columns[:, d : d + gray.shape[1]] for d in range(7))
    return (2 - smooth / gray) * x


def harris(h: int, w: int) -> Program:
    """Corners: where the gradients of a neighbourhood point in more than one direction."""
    X = te.placeholder((3, h + 4, w + 4), name="X")
    gray = te.compute(
        (h + 4, w + 4), lambda y, x: sum(g * X[c, y, x] for c, g in enumerate(GRAY)), "gray"
    )

    taps = (1 / 12, 2 / 12, 1 / 12)
    iy = te.compute(
        (h + 2, w + 2),
        lambda y, x: sum(f * (gray[y + 2, x + d] - gray[y, x + d]) for d, f in enumerate(taps)),
        "iy",
    )
    ix = te.compute(
        (h + 2, w + 2),
        lambda y, x: sum(f * (gray[y + d, x + 2] - gray[y + d, x]) for d, f in enumerate(taps)),
        "ix",
    )

    def box(a: te.Tensor, b: te.Tensor, y: Expr, x: Expr) -> Any:
        return sum(a[y + p, x + q] * b[y + p, x + q] for p in range(3) for q in range(3))

    sxx = te.compute((h, w), lambda y, x: box(ix, ix, y, x), "sxx")
    syy = te.compute((h, w), lambda y, x: box(iy, iy, y, x), "syy")
    sxy = te.compute((h, w), lambda y, x: box(ix, iy, y, x), "sxy")

    def response(y: Expr, x: Expr) -> Expr:
        trace = sxx[y, x] + syy[y, x]
        return sxx[y, x] * syy[y, x] - sxy[y, x] * sxy[y, x] - 0.04 * trace * trace

    return "auto", [X, te.compute((h, w), response, "out")]


def numpy_harris(x: np.ndarray) -> np.ndarray:
    gray = np.tensordot(np.float32(GRAY), x, 1)
    iy, ix = gray[2:] - gray[:-2], gray[:, 2:] - gray[:, :-2]
    iy = (iy[:, :-2] + 2 * iy[:, 1:-1] + iy[:, 2:]) / 12
    ix = (ix[:-2] + 2 * ix[1:-1] + ix[2:]) / 12
    h, w = iy.shape[0] - 2, iy.shape[1] - 2
    near = [(slice(p, p + h), slice(q, q + w)) for p in range(3) for q in range(3)]
    sxx, syy, sxy = (sum((a * b)[n] for n in near) for a, b in ((ix, ix), (iy, iy), (ix, iy)))
    return sxx * syy - sxy * sxy - np.float32(0.04) * (sxx + syy) ** 2


RADIUS = 8


def max_filter(h: int, w: int) -> Program:
    """The maximum over a square, one dimension after the other."""
    X = te.placeholder((h, w), name="X")
    dy, dx = te.reduce_axis(2 * RADIUS + 1, "dy"), te.reduce_axis(2 * RADIUS + 1, "dx")
    down = te.compute((h, w), lambda y, x: te.max(X[edge(y + dy - RADIUS, h), x], axis=dy), "down")
    out = te.compute((h, w), lambda y, x: te.max(down[y, edge(x + dx - RADIUS, w)], axis=dx), "out")
    s = te.create_schedule(out.op)
    strip, _ = s[out].split("y", 32)
    s[out].parallel(strip)
    s[down].compute_at(s[out], strip)
    for t in (down, out):
        lanes = s[t].split("x", 8)[1]
        s[t].reorder(s[t].reduce_axis[0], lanes)
        s[t].vectorize(lanes)
    return s, [X, out]


def numpy_max_filter(x: np.ndarray) -> np.ndarray:
    for axis in (0, 1):
        pad = [(RADIUS, RADIUS) if a == axis else (0, 0) for a in (0, 1)]
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(x, pad, "edge"), 2 * RADIUS + 1, axis
        )
        x = windows.max(-1)
    return x


def resize(h: int, w: int) -> Program:
    """Twice as large, by bilinear interpolation between the centres of pixels."""
    X = te.placeholder((h, w), name="X")

    def between(near: Expr, far: Expr) -> Expr:
        return 0.75 * near + 0.25 * far

    down = te.compute(
        (2 * h, w),
        lambda y, x: between(X[y // 2, x], X[edge(y // 2 - 1 + y % 2 * 2, h), x]),
        "down",
    )
    out = te.compute(
        (2 * h, 2 * w),
        lambda y, x: between(down[y, x // 2], down[y, edge(x // 2 - 1 + x % 2 * 2, w)]),
        "out",
    )
    return "auto", [X, out]


def numpy_resize(x: np.ndarray) -> np.ndarray:
    for axis in (0, 1):
        i = np.arange(2 * x.shape[axis])
        far = np.clip(i // 2 - 1 + i % 2 * 2, 0, x.shape[axis] - 1)
        x = np.float32(0.75) * x.take(i // 2, axis) + np.float32(0.25) * x.take(far, axis)
    return x


TUTORIALS = (
    Tutorial(blur, numpy_blur, (40, 64), (1024, 2048), "Halide, apps/blur", 12),
    Tutorial(unsharp, numpy_unsharp, (40, 50), (512, 1024), "Halide, apps/unsharp", 44),
    Tutorial(harris, numpy_harris, (40, 50), (512, 1024), "Halide, apps/harris", 43),
    Tutorial(max_filter, numpy_max_filter, (40, 50), (512, 1024), "Halide, apps/max_filter", 45),
    Tutorial(resize, numpy_resize, (20, 32), (512, 1024), "Halide, apps/resize (linear)", 40),
)
