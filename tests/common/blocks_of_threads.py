"""Products in blocks of threads."""

from __future__ import annotations

import numpy as np

from tilesmith import te
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Barrier, Func
from tilesmith.loop.visit import walk


def product(rows: int, columns: int, depth: int):
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    r = te.reduce_axis((0, depth), name="r")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return a, b, c


def blocked_schedule(
    shape=(16, 16, 8), block=(8, 8), threads=(4, 4), step=4, tail="guard", cached=("A", "B"),
    scope="register",
):  # fmt: skip
    """A product: blocks of the result, whose threads load what all of them read together."""
    a, b, c = product(*shape)
    s = te.create_schedule([c.op])
    own = s.cache_write(c, scope)
    shared = [s.cache_read(t, "shared", [own]) for t in (a, b) if t.name in cached]
    outer, inner = zip(
        *(s[c].split(x, factor=n, tail=tail) for x, n in zip(s[c].op.axis, block, strict=True)),
        strict=True,
    )
    ty, y = s[c].split(inner[0], nparts=threads[0])
    tx, x = s[c].split(inner[1], nparts=threads[1])
    s[c].reorder(*outer, ty, tx, y, x)
    for axis, index in zip(
        (*outer, ty, tx), ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"), strict=True
    ):
        s[c].bind(axis, index)
    s[c].unroll(y)
    s[c].unroll(x)
    s[own].compute_at(s[c], tx)
    depth_o, depth_i = s[own].split(s[own].op.reduce_axis[0], factor=step)
    s[own].reorder(depth_o, depth_i, *s[own].op.axis)
    for axis in s[own].op.axis:
        s[own].unroll(axis)
    for t in shared:
        s[t].compute_at(s[own], depth_o)
        all_ = s[t].fuse(*s[t].op.axis)
        rest, along_x = s[t].split(all_, factor=threads[1], tail=tail)
        rest, along_y = s[t].split(rest, factor=threads[0], tail=tail)
        s[t].bind(along_y, "threadIdx.y")
        s[t].bind(along_x, "threadIdx.x")
    return s, [a, b, c]


def blocked(*given) -> Func:
    return te.lower(*blocked_schedule(*given), "product")


def run(func: Func, shape: tuple[int, int, int]) -> None:
    rows, columns, depth = shape
    rng = np.random.default_rng(0)
    a = rng.integers(-9, 9, (rows, depth)).astype(np.float32)
    b = rng.integers(-9, 9, (depth, columns)).astype(np.float32)
    got = np.full((rows, columns), np.nan, np.float32)
    interpret(func, [a, b, got])
    np.testing.assert_array_equal(got, a @ b)


def barriers(func: Func) -> int:
    return sum(isinstance(s, Barrier) for s in walk(func.body))
