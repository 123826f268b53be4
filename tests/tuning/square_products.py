"""A template of a product of square matrices."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith import te
from tilesmith.te.knobs import Config


def gemm(cfg: Config, n: int) -> tuple[te.Schedule, Sequence[te.Tensor]]:
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")
    s = te.create_schedule(c.op)
    i, j = s[c].axis
    io, ii = cfg.split("i", s[c], i)
    jo, ji = cfg.split("j", s[c], j)
    s[c].reorder(io, jo, s[c].reduce_axis[0], ii, ji)
    cfg.annotate("ii", s[c], ii, ("none", "unroll"))
    cfg.annotate("ji", s[c], ji, ("none", "vectorize"))
    return s, [a, b, c]
