"""First steps: loops, tiles, reductions, layouts, templates."""

from __future__ import annotations

import numpy as np
from tutorial import Program, Tutorial

from tilesmith import te
from tilesmith.te.knobs import ANALYTIC, Config


def vector_add(n: int) -> Program:
    """The first program: lanes inside, threads outside."""
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], "C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split("i", 8)
    s[C].vectorize(inner)
    s[C].parallel(outer)
    return s, [A, B, C]


def matmul(n: int) -> Program:
    """Tiles in registers, panels of B that are packed once, threads over rows of tiles."""
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis(n, "k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), "C")
    s = te.create_schedule(C.op)
    tile = s.cache_write(C, "register")
    panels = s.cache_read(B, "heap", [tile])
    s.transform_layout(panels, lambda k, j: (j // 16, k, j % 16))
    panel, lanes = s[panels].split(s[panels].axis[1], 16)
    s[panels].reorder(panel, s[panels].axis[0], lanes)
    s[panels].vectorize(lanes)
    io, jo, ii, ji = s[C].tile("i", "j", 5, 16)
    s[C].unroll(ii)
    s[C].vectorize(ji)
    s[C].parallel(io)
    s[tile].compute_at(s[C], jo)
    s[tile].reorder(k, *s[tile].axis)
    s[tile].unroll(s[tile].axis[0])
    s[tile].vectorize(s[tile].axis[1])
    return s, [A, B, C]


def matmul_template(n: int, cfg: Config = ANALYTIC) -> Program:
    """The same with open decisions, which a search answers:
    `ts.tune_template(lambda cfg, n: matmul_template(n, cfg), 256)`.
    """
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis(n, "k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), "C")
    s = te.create_schedule(C.op)
    tile = s.cache_write(C, "register")
    io, ii = cfg.split("rows", s[C], "i", default=(4,))
    jo, ji = cfg.split("columns", s[C], "j", default=(16,))
    s[C].reorder(io, jo, ii, ji)
    s[C].unroll(ii)
    s[C].vectorize(ji)
    cfg.annotate("outer", s[C], io, ("parallel", "none"))
    s[tile].compute_at(s[C], jo)
    s[tile].reorder(k, *s[tile].axis)
    s[tile].unroll(s[tile].axis[0])
    s[tile].vectorize(s[tile].axis[1])
    return s, [A, B, C]


def transpose(n: int) -> Program:
    """Blocks that fit in registers, so that reads and writes are whole vectors."""
    A = te.placeholder((n, n), name="A")
    B = te.compute((n, n), lambda i, j: A[j, i], "B")
    return "auto", [A, B]


def sum_of_squares(n: int) -> Program:
    """`rfactor`: partial sums in lanes, and blocks of them in threads."""
    A = te.placeholder((n,), name="A")
    k = te.reduce_axis(n, "k")
    B = te.compute((), lambda: te.sum(A[k] * A[k], axis=k), "B")
    s = te.create_schedule(B.op)
    block, _ = s[B].split(k, nparts=8)
    blocks = s.rfactor(B, block)
    _, lane = s[blocks].split(s[blocks].reduce_axis[0], 32)
    lanes = s.rfactor(blocks, lane)
    s[blocks].parallel(s[blocks].axis[0])
    s[lanes].compute_at(s[blocks], s[blocks].axis[0])
    s[lanes].reorder(s[lanes].reduce_axis[0], s[lanes].axis[0])
    s[lanes].vectorize(s[lanes].axis[0])
    return s, [A, B]


def argmax(m: int, n: int) -> Program:
    """A reduction of pairs: the index travels with the value."""
    X = te.placeholder((m, n), name="X")
    k = te.reduce_axis(n, "k")
    best = te.comm_reducer(
        lambda a, b: (te.select(a[1] >= b[1], a[0], b[0]), te.maximum(a[1], b[1])),
        lambda i, v: (-1, v.min),
        "argmax",
    )
    index, value = te.compute((m,), lambda i: best((k, X[i, k]), axis=k), "best")
    return "auto", [X, index, value]


TUTORIALS = (
    Tutorial(vector_add, np.add, (1000,), (1 << 16,), "TVM, tensor_expr_get_started", 8),
    Tutorial(matmul, np.matmul, (80,), (640,), "TVM, opt_gemm", 27),
    Tutorial(matmul_template, np.matmul, (80,), (512,), "TVM, autotvm_matmul_x86", 17),
    Tutorial(transpose, lambda a: a.T.copy(), (72,), (1024,), "Halide, block_transpose", 9),
    Tutorial(sum_of_squares, lambda a: a @ a, (5000,), (1 << 20,), "TVM, reduction (rfactor)", 12),
    Tutorial(
        argmax, lambda x: (x.argmax(1), x.max(1)), (7, 300), (512, 2048), "TVM, tuple_inputs", 16
    ),
)
