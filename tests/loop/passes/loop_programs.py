"""Kernels as lowering makes them (stage "nest"), for tests of the loop passes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import bool_, f32, i32, i64
from tilesmith.ir.expr import (
    Cast,
    Compare,
    Expr,
    Load,
    Select,
    Var,
    all_of,
    const,
    select,
)
from tilesmith.ir.intrinsics import call
from tilesmith.ir.loop_tables import ForKind
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import (
    Allocate,
    Buffer,
    For,
    Func,
    If,
    LetStmt,
    Stmt,
    Store,
    seq,
)
from tilesmith.loop.passes.flatten import flatten
from tilesmith.loop.passes.hoist import hoist
from tilesmith.loop.passes.peel import peel
from tilesmith.loop.passes.scalarize import scalarize
from tilesmith.loop.passes.simplify import simplify_func
from tilesmith.loop.passes.trim import trim
from tilesmith.loop.passes.unroll import unroll
from tilesmith.loop.passes.vectorize import vectorize


def loop(var: Var, extent: Expr | int, body: Stmt, kind: ForKind = "serial", start: int = 0) -> For:
    count = extent if isinstance(extent, Expr) else const(extent)
    return For(var, const(start), count, kind, body)


def guarded(conds: list[Expr], body: Stmt) -> Stmt:
    return If(all_of(*conds), body, None, True) if conds else body


def vars_(names: str) -> list[Var]:
    return [Var(n) for n in names.split()]


def matmul(m: int, n: int, k: int, tm: int = 4, tn: int = 16) -> Func:
    """A register-tiled product with a ReLU epilogue; tails guarded."""
    a, b, c = Buffer("A", f32, (m, k)), Buffer("B", f32, (k, n)), Buffer("C", f32, (m, n))
    acc = Buffer("acc", f32, (tm, tn), "register")
    io, jo, ii, ji, kk, i2, j2, i3, j3 = vars_("io jo ii ji k i2 j2 i3 j3")

    def tile(i: Var, j: Var, body: Stmt) -> Stmt:
        return loop(i, tm, loop(j, tn, body, "vectorized"), "unrolled")

    def tails(i: Var, j: Var) -> list[Expr]:
        return [io * tm + i < m] * (m % tm > 0) + [jo * tn + j < n] * (n % tn > 0)

    init = tile(ii, ji, Store(acc, (ii, ji), const(0.0, f32)))
    update = Store(acc, (i2, j2), acc[i2, j2] + a[io * tm + i2, kk] * b[kk, jo * tn + j2])
    update_nest = loop(kk, k, tile(i2, j2, guarded(tails(i2, j2), update)))
    value = ir.maximum(acc[i3, j3], 0.0)
    store = tile(i3, j3, guarded(tails(i3, j3), Store(c, (io * tm + i3, jo * tn + j3), value)))
    body = Allocate(acc, seq(init, update_nest, store))
    body = loop(io, -(-m // tm), loop(jo, -(-n // tn), body), "parallel")
    return Func("matmul", (a, b, c), (c,), body)


def conv(
    size: int,
    ic: int,
    oc: int,
    kernel: int = 3,
    stride: int = 1,
    pad: int = 1,
    tw: int = 4,
    tc: int = 8,
) -> Func:
    """Channels-last convolution; (row, channel block) fused; padding as guarded loads."""
    out = (size + 2 * pad - kernel) // stride + 1
    x, y = Buffer("X", f32, (1, size, size, ic)), Buffer("Y", f32, (1, out, out, oc))
    w, bias = Buffer("W", f32, (oc // tc, kernel, kernel, ic, tc)), Buffer("bias", f32, (oc,))
    acc = Buffer("acc", f32, (tw, tc), "register")
    p, wo, ii, ji, kh, kw, c, i2, j2, i3, j3 = vars_("p wo ii ji kh kw c i2 j2 i3 j3")
    blocks = oc // tc
    row, block = p // blocks, p % blocks

    def tile(i: Var, j: Var, body: Stmt) -> Stmt:
        body = guarded([wo * tw + i < out] if out % tw and i is not ii else [], body)
        return loop(i, tw, loop(j, tc, body, "vectorized"), "unrolled")

    h, v = row * stride + kh - pad, (wo * tw + i2) * stride + kw - pad
    inside = [h >= 0, h < size, v >= 0, v < size]
    value: Expr = Load(x, (const(0), h, v, c))
    if pad:
        value = select(all_of(*inside), value, 0.0)
    init = tile(ii, ji, Store(acc, (ii, ji), const(0.0, f32)))
    update: Stmt = tile(i2, j2, Store(acc, (i2, j2), acc[i2, j2] + value * w[block, kh, kw, c, j2]))
    for var, extent in ((kw, kernel), (kh, kernel), (c, ic)):
        update = loop(var, extent, update)
    result = ir.maximum(acc[i3, j3] + bias[block * tc + j3], 0.0)
    at = (const(0), row, wo * tw + i3, block * tc + j3)
    body = Allocate(acc, seq(init, update, tile(i3, j3, Store(y, at, result))))
    nest = loop(p, out * blocks, loop(wo, -(-out // tw), body), "parallel")
    return Func("conv", (x, w, bias, y), (y,), nest)


def softmax(rows: int, n: int, lanes: int = 8) -> Func:
    """Maximum, exponentials and their sum, division of each row; in vectors with a guarded tail."""
    x, y = Buffer("X", f32, (rows, n)), Buffer("Y", f32, (rows, n))
    top, total = Buffer("top", f32, (), "register"), Buffer("total", f32, (), "register")
    e = Buffer("e", f32, (n,), "stack")
    r, a, b, c = vars_("r a b c")
    ai, bi, ci = vars_("ai bi ci")
    blocks = -(-n // lanes)

    def sweep(o: Var, i: Var, body: Stmt) -> Stmt:
        inner = guarded([o * lanes + i < n] if n % lanes else [], body)
        return loop(o, blocks, loop(i, lanes, inner, "vectorized"))

    at = a * lanes + ai
    first = seq(
        Store(top, (), const(float("-inf"), f32)),
        sweep(a, ai, Store(top, (), ir.maximum(Load(top, ()), x[r, at]))),
    )
    at = b * lanes + bi
    exps = seq(
        Store(total, (), const(0.0, f32)),
        sweep(
            b,
            bi,
            seq(
                Store(e, (at,), call("exp", x[r, at] - Load(top, ()))),
                Store(total, (), Load(total, ()) + e[at]),
            ),
        ),
    )
    at = c * lanes + ci
    last = sweep(c, ci, Store(y, (r, at), e[at] / Load(total, ())))
    body = Allocate(top, Allocate(total, Allocate(e, seq(first, exps, last))))
    return Func("softmax", (x, y), (y,), loop(r, rows, body, "parallel"))


def depthwise(size: int, channels: int, lanes: int = 8, pad: int = 1) -> Func:
    x, w = Buffer("X", f32, (size, size, channels)), Buffer("W", f32, (3, 3, channels))
    out = size + 2 * pad - 2
    y, acc = Buffer("Y", f32, (out, out, channels)), Buffer("acc", f32, (lanes,), "register")
    h, v, co, c1, c2, c3, kh, kw = vars_("h v co c1 c2 c3 kh kw")
    a, b = h + kh - pad, v + kw - pad

    def lane(c: Var, body: Stmt) -> Stmt:
        return loop(
            c,
            lanes,
            guarded([co * lanes + c < channels] if channels % lanes else [], body),
            "vectorized",
        )

    inside = all_of(a >= 0, a < size, b >= 0, b < size, co * lanes + c2 < channels)
    value = select(inside, x[a, b, co * lanes + c2], 0.0)
    update = Store(acc, (c2,), acc[c2] + value * w[kh, kw, co * lanes + c2])
    body = seq(
        loop(c1, lanes, Store(acc, (c1,), const(0.0, f32)), "vectorized"),
        loop(kh, 3, loop(kw, 3, lane(c2, update), "unrolled"), "unrolled"),
        lane(c3, Store(y, (h, v, co * lanes + c3), acc[c3])),
    )
    nest = loop(
        h, out, loop(v, out, loop(co, -(-channels // lanes), Allocate(acc, body))), "parallel"
    )
    return Func("depthwise", (x, w, y), (y,), nest)


def fused_elementwise(
    shape: tuple[int, int, int], lanes: int = 8, transposed: bool = False
) -> Func:
    """One loop over all elements, split into vectors; indices by // and %."""
    a, b, c = shape
    x, y = Buffer("X", f32, (b, a, c) if transposed else shape), Buffer("Y", f32, shape)
    bias = Buffer("bias", f32, (c,))
    total = a * b * c
    o, i = vars_("o i")
    p = o * lanes + i
    at = (p // (b * c), p // c % b, p % c)
    source = (at[1], at[0], at[2]) if transposed else at
    body: Stmt = Store(y, at, x[source] + bias[p % c])
    body = guarded([p < total] if total % lanes else [], body)
    nest = loop(o, -(-total // lanes), loop(i, lanes, body, "vectorized"), "parallel")
    return Func("elementwise", (x, bias, y), (y,), nest)


def transpose(m: int, n: int, tile: int = 8) -> Func:
    x, y = Buffer("X", f32, (m, n)), Buffer("Y", f32, (n, m))
    io, jo, ii, ji = vars_("io jo ii ji")
    i, j = io * tile + ii, jo * tile + ji
    body = guarded([i < n] * (n % tile > 0) + [j < m] * (m % tile > 0), Store(y, (i, j), x[j, i]))
    body = loop(ii, tile, loop(ji, tile, body, "vectorized"), "unrolled")
    nest = loop(io, -(-n // tile), loop(jo, -(-m // tile), body))
    return Func("transpose", (x, y), (y,), nest)


def concat(widths: tuple[int, ...], rows: int = 3, lanes: int = 4) -> Func:
    """Each part's load stands in a `Select` that guards it."""
    parts = tuple(Buffer(f"X{i}", f32, (rows, w)) for i, w in enumerate(widths))
    total = sum(widths)
    y = Buffer("Y", f32, (rows, total))
    r, o, i = vars_("r o i")
    j = o * lanes + i
    start = total - widths[-1]
    value: Expr = parts[-1][r, j - start]
    for part, width in zip(parts[-2::-1], widths[-2::-1], strict=True):
        here = start
        start -= width
        value = select(j < here, part[r, j - start], value)
    body = guarded([j < total] if total % lanes else [], Store(y, (r, j), value))
    nest = loop(r, rows, loop(o, -(-total // lanes), loop(i, lanes, body, "vectorized")))
    return Func("concat", (*parts, y), (y,), nest)


def argmax(rows: int, n: int, kind: ForKind = "vectorized") -> Func:
    """Two values reduced together: no vector form: the loop has to stay serial."""
    x, y = Buffer("X", f32, (rows, n)), Buffer("Y", i64, (rows,))
    best, where = Buffer("best", f32, (), "register"), Buffer("where", i64, (), "register")
    r, j = vars_("r j")
    better = Compare("lt", Load(best, ()), x[r, j])
    new_best, new_where = Var("new_best", f32), Var("new_where", i64)
    update = LetStmt(
        new_best,
        Select(better, x[r, j], Load(best, ())),
        LetStmt(
            new_where,
            Select(better, j, Load(where, ())),
            seq(Store(best, (), new_best), Store(where, (), new_where)),
        ),
    )
    start = seq(Store(best, (), const(float("-inf"), f32)), Store(where, (), const(0)))
    body = seq(start, loop(j, n, update, kind), Store(y, (r,), Load(where, ())))
    return Func("argmax", (x, y), (y,), loop(r, rows, Allocate(best, Allocate(where, body))))


def gather(n: int, m: int, lanes: int = 8) -> Func:
    """An index that comes from memory, per lane; and a branch that differs between lanes."""
    x, index, y = Buffer("X", f32, (m,)), Buffer("index", i32, (n,)), Buffer("Y", f32, (n,))
    o, i = vars_("o i")
    at = o * lanes + i
    value = Load(x, (Cast(index[at], i64),))
    negative = Compare("lt", index[at], const(0, i32))
    body: Stmt = If(negative, Store(y, (at,), const(-1.0, f32)), Store(y, (at,), value))
    body = guarded([at < n] if n % lanes else [], body)
    nest = loop(o, -(-n // lanes), loop(i, lanes, body, "vectorized"))
    return Func("gather", (x, index, y), (y,), nest)


def pooling(size: int, lanes: int = 4) -> Func:
    """A private accumulator per lane, allocated inside the vectorised loop."""
    x, y = Buffer("X", f32, (size, 2 * lanes)), Buffer("Y", f32, (size - 2, 2 * lanes))
    acc = Buffer("acc", f32, (1,), "register")
    r, o, i, k = vars_("r o i k")
    update = Store(acc, (const(0),), ir.maximum(acc[const(0)], x[r + k, o * lanes + i]))
    body = seq(
        Store(acc, (const(0),), const(float("-inf"), f32)),
        loop(k, 3, update),
        Store(y, (r, o * lanes + i), acc[const(0)]),
    )
    nest = loop(r, size - 2, loop(o, 2, loop(i, lanes, Allocate(acc, body), "vectorized")))
    return Func("pooling", (x, y), (y,), nest)


def triangle(n: int, kind: ForKind = "vectorized") -> Func:
    """An inner extent and a branch that depend on the outer variable; a mask buffer of bools."""
    y, m = Buffer("Y", f32, (n, n)), Buffer("M", bool_, (n, n))
    i, j = vars_("i j")
    value = Cast(i * 10 + j, f32)
    inner = loop(j, i + 1, Store(y, (j, i), value))
    return Func("triangle", (y, m), (y, m), seq(
        loop(i, n, inner, kind),
        loop(i, n, loop(j, n, Store(m, (i, j), Compare("le", j, i)), kind)),
    ))  # fmt: skip


PROGRAMS: dict[str, Callable[[], Func]] = {
    "matmul even": lambda: matmul(8, 32, 5),
    "matmul row tail": lambda: matmul(10, 32, 3),
    "matmul both tails": lambda: matmul(9, 39, 4),
    "matmul smaller than a tile": lambda: matmul(3, 7, 4),
    "conv": lambda: conv(8, 3, 16, pad=0, kernel=1),
    "conv padded": lambda: conv(7, 2, 16),
    "conv padded, even tiles": lambda: conv(8, 2, 8),
    "conv strided": lambda: conv(9, 2, 8, stride=2),
    "conv 5x5": lambda: conv(7, 1, 8, kernel=5, pad=2),
    "softmax": lambda: softmax(3, 16),
    "softmax tail": lambda: softmax(2, 21),
    "softmax short": lambda: softmax(2, 3),
    "depthwise": lambda: depthwise(5, 8),
    "depthwise tail": lambda: depthwise(4, 11),
    "elementwise": lambda: fused_elementwise((3, 4, 8)),
    "elementwise odd": lambda: fused_elementwise((3, 5, 7)),
    "elementwise transposed": lambda: fused_elementwise((3, 4, 16), transposed=True),
    "elementwise transposed odd": lambda: fused_elementwise((3, 4, 6), transposed=True),
    "transpose": lambda: transpose(8, 16),
    "transpose tails": lambda: transpose(11, 13),
    "concat": lambda: concat((4, 8, 4)),
    "concat odd": lambda: concat((3, 6, 2)),
    "argmax": lambda: argmax(2, 9),
    "gather": lambda: gather(19, 10),
    "pooling": lambda: pooling(6),
    "triangle": lambda: triangle(6),
    "triangle unrolled": lambda: triangle(4, "unrolled"),
}


def arguments(func: Func, seed: int = 0) -> list[np.ndarray]:
    """Random arrays for the parameters (index buffers: -1..9)."""
    rng = np.random.default_rng(seed)
    args = []
    for b in func.buffers:
        shape = tuple(int(getattr(d, "value", d)) for d in b.shape)
        if b.dtype.is_float:
            args.append(rng.standard_normal(shape).astype(b.dtype.numpy))
        else:
            args.append(
                rng.integers(
                    -1 if b.dtype is i32 else 0, 2 if b.dtype.is_bool else 10, shape
                ).astype(b.dtype.numpy)
            )
    return args


def run(func: Func, args: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of `func` on copies of `args`, flattened."""
    copies = [
        a.copy().reshape(tuple(int(getattr(d, "value", d)) for d in b.shape))
        for a, b in zip(args, func.buffers, strict=True)
    ]
    interpret(func, copies)
    return [c.ravel() for c, b in zip(copies, func.buffers, strict=True) if b in func.outputs]


ORDERS = {
    "unroll first": (simplify_func, flatten, peel, unroll, vectorize, simplify_func, hoist),
    "vectorize first": (simplify_func, flatten, peel, vectorize, unroll, simplify_func, hoist),
    "no peeling": (flatten, vectorize, unroll, simplify_func),
    "scalars": (scalarize, simplify_func, flatten, trim, peel, simplify_func, hoist),
}
