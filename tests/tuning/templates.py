"""Templates for tests of spaces and features."""

from __future__ import annotations

from typing import Any

from tilesmith import te
from tilesmith.te.knobs import Config


def gemm(cfg: Config, m: int = 60, n: int = 64, depth: int = 36) -> Any:
    """A product of matrices with a register tile, a parallel loop and a choice of order."""
    a, b = te.placeholder((m, depth), "f32", "A"), te.placeholder((depth, n), "f32", "B")
    k = te.reduce_axis(depth, "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    s = te.create_schedule(c.op)
    io, ii = cfg.split("i", s[c], s[c].axis[0])
    jo, jm, ji = cfg.split("j", s[c], s[c].axis[1], parts=3)
    ko, ki = cfg.split("k", s[c], s[c].reduce_axis[0], default=(4,))
    s[c].reorder(io, jo, ko, jm, ki, ii, ji)
    cfg.reorder("order", s[c], [jo, ko, jm])
    cfg.annotate("ii", s[c], ii, ("none", "unroll"))
    cfg.annotate("ji", s[c], ji, ("none", "vectorize"))
    if cfg.choice("share", (False, True), False):
        s[c].parallel(io)
    return s, [a, b, c]


def convolution(cfg: Config, channels: int = 8, size: int = 12) -> Any:
    """A convolution with its padding computed inside, accumulators in registers and an epilogue."""
    x = te.placeholder((1, size, size, channels), "f32", "x")
    w = te.placeholder((3, 3, channels, 32), "f32", "w")
    inside = te.compute(
        (1, size + 2, size + 2, channels),
        lambda n, y, z, c: te.if_then_else(
            te.all(y >= 1, y <= size, z >= 1, z <= size), x[n, y - 1, z - 1, c], 0.0
        ),
        "pad",
    )
    u, v, c = te.reduce_axis(3, "u"), te.reduce_axis(3, "v"), te.reduce_axis(channels, "c")
    r = te.compute(
        (1, size, size, 32),
        lambda n, y, z, o: te.sum(inside[n, y + u, z + v, c] * w[u, v, c, o], axis=(u, v, c)),
        "conv",
    )
    out = te.compute(r.shape, lambda n, y, z, o: te.exp(te.maximum(r[n, y, z, o], 0.0)), "out")
    s = te.create_schedule(out.op)
    o = s[out]
    n_, y, z, f = o.axis
    fo, fi = cfg.split("filters", o, f, default=(16,))
    zo, zi = cfg.split("columns", o, z, default=(4,))
    o.reorder(n_, fo, y, zo, zi, fi)
    cfg.annotate("fi", o, fi, ("vectorize", "none"))
    s[r].set_scope("register")
    s[r].compute_at(o, zo)
    _, _, rz, rf = s[r].axis
    ru, rv, rc = s[r].reduce_axis
    co, ci = s[r].split(rc, factor=cfg.choice("depth", (1, 2, 4), 1))
    s[r].reorder(ru, rv, co, ci, rz, rf)
    s[r].unroll(ci)
    s[r].unroll(rz)
    s[r].vectorize(rf)
    padding = cfg.choice("padding", ("inline", "row", "root"), "inline")
    if padding == "inline":
        s[inside].compute_inline()
    elif padding == "row":
        s[inside].compute_at(o, y)
    if cfg.choice("share", (False, True), False):
        o.parallel(fo)
    return s, [x, w, out]


def counting(cfg: Config) -> Any:
    """A template that looks at the value of a number."""
    a = te.placeholder((64, 48), "f32", "A")
    b = te.compute((64, 48), lambda i, j: a[i, j] + 1.0, "B")
    s = te.create_schedule(b.op)
    width = cfg.choice("width", (1, 4, 8, 16), 4)
    if width > 1:
        _, inner = s[b].split(s[b].axis[1], factor=width)
        s[b].vectorize(inner)
    outer, _ = cfg.split("rows", s[b], s[b].axis[0])
    if cfg.choice("share", (False, True), width > 8):  # whose default depends on another knob
        s[b].parallel(outer)
        cfg.choice("again", ("a", "b", "c"), "a")
    if cfg.choice("again", ("a", "b", "c"), "b") == "c":
        s[b].unroll(s[b].leaf_axes[1])
    if width == 16:
        cfg.annotate("rows_run", s[b], s[b].leaf_axes[1], ("none", "unroll"))
    return s, [a, b]


def partial_sums(cfg: Config) -> Any:
    """A row sum whose reduction is factored into partial results."""
    a = te.placeholder((40, 96), "f32", "A")
    k = te.reduce_axis(96, "k")
    b = te.compute((40,), lambda i: te.sum(a[i, k] * a[i, k], axis=k), "B")
    s = te.create_schedule(b.op)
    _, ki = cfg.split("k", s[b], s[b].reduce_axis[0], default=(8,))
    f = s.rfactor(b, ki)
    s[f].reorder(s[f].axis[1], s[f].reduce_axis[0], s[f].axis[0])
    cfg.annotate("lanes", s[f], s[f].axis[0], ("vectorize", "none"))
    s[f].compute_at(s[b], s[b].axis[0])
    return s, [a, b]
