"""Random loop nests (splits, kinds, guards, padding, reductions) keep their answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, note, settings
from hypothesis import strategies as st
from loop_programs import ORDERS, arguments, guarded, loop, run

from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import (
    Expr,
    Load,
    Var,
    all_of,
    const,
    maximum,
    post_order,
    select,
    substitute,
)
from tilesmith.loop.nodes import Allocate, Buffer, Func, If, Stmt, Store, seq
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import verify
from tilesmith.loop.visit import map_stmt


class Nest:
    """Loops over `extents`, each perhaps split, two perhaps fused; `indices`: the axes' values."""

    def __init__(self, draw: Any, extents: list[int], prefix: str, vectors: bool) -> None:
        self.indices: list[Expr] = []
        self.guards: list[Expr] = []
        self.loops: list[tuple[Var, int, str]] = []
        outer: list[tuple[Var, int]] = []
        inner: list[tuple[Var, int]] = []
        for n, extent in enumerate(extents):
            factor = draw(st.sampled_from([0, 0, 2, 3, 4, 8]))
            o = Var(f"{prefix}{n}o")
            if factor:
                i = Var(f"{prefix}{n}i")
                outer.append((o, -(-extent // factor)))
                inner.append((i, factor))
                self.indices.append(o * factor + i)
                if extent % factor:
                    self.guards.append(o * factor + i < extent)
            else:
                outer.append((o, extent))
                self.indices.append(o)
        if len(outer) > 1 and draw(st.booleans()):
            (a, m), (b, n) = outer[:2]
            p = Var(f"{prefix}p")
            self.replace({a: p // n, b: p % n})
            outer[:2] = [(p, m * n)]
        if draw(st.booleans()):
            inner.reverse()
        order = outer + inner
        for n, (var, extent) in enumerate(order):
            kinds = ["serial", "unrolled"] if n else ["serial", "parallel"]
            if vectors and n == len(order) - 1:
                kinds = ["vectorized", "serial"]
            elif vectors and n == len(order) - 2:
                kinds = ["serial", "unrolled", "vectorized"]
            self.loops.append((var, extent, draw(st.sampled_from(kinds))))

    def replace(self, mapping: dict[Var, Expr]) -> None:
        values: dict[Expr, Expr] = dict(mapping)
        self.indices = [substitute(e, values) for e in self.indices]
        self.guards = [substitute(e, values) for e in self.guards]

    def around(self, body: Stmt) -> Stmt:
        body = guarded(self.guards, body)
        for var, extent, kind in reversed(self.loops):
            body = loop(var, extent, body, kind)  # type: ignore[arg-type]
        return body


@st.composite
def programs(draw: Any) -> Func:
    """`Y[i...] = f(sum over k of X[i + k - pad, ...])`, perhaps with a local copy or a branch."""
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    window = draw(st.sampled_from([1, 1, 2, 3]))
    pad = draw(st.integers(0, window - 1))
    source = [max(shape[0] + window - 1 - 2 * pad, 1), *shape[1:]]
    x, y = Buffer("X", f32, tuple(source)), Buffer("Y", f32, tuple(shape))
    nest = Nest(draw, shape, "i", vectors=True)

    def read(indices: list[Expr], k: Expr) -> Expr:
        first = indices[0] + k - pad
        value: Expr = Load(x, (first, *indices[1:]))
        conds = []
        if pad:
            conds.append(first >= 0)
        if pad or source[0] < shape[0] + window - 1:
            conds.append(first < source[0])
        return select(all_of(*conds), value, draw(st.sampled_from([0.0, 2.0]))) if conds else value

    if window == 1:
        value = read(nest.indices, const(0))
        if draw(st.booleans()):
            value = maximum(value, 0.0)
        body: Stmt = Store(y, tuple(nest.indices), value)
        if draw(st.booleans()):
            last = nest.indices[-1]
            other = Store(y, tuple(nest.indices), value + 1.0) if draw(st.booleans()) else None
            body = seq(
                Store(y, tuple(nest.indices), const(5.0, f32)),
                If(last % 2 < 1, body, other)
                if draw(st.booleans())
                else If(last * 2 < 7, body, other),
            )
        whole = nest.around(body)
    elif draw(st.booleans()):  # an accumulator for each element
        acc = Buffer("acc", f32, (), draw(st.sampled_from(["register", "stack"])))
        k = Var("k")
        kind = draw(st.sampled_from(["serial", "unrolled", "vectorized"]))
        update = Store(acc, (), Load(acc, ()) + read(nest.indices, k))
        whole = nest.around(
            Allocate(
                acc,
                seq(
                    Store(acc, (), const(0.0, f32)),
                    loop(k, window, update, kind),
                    Store(y, tuple(nest.indices), Load(acc, ())),
                ),
            )
        )
    else:  # the output is the accumulator
        update_nest = Nest(draw, [*shape, window], "u", vectors=True)
        at = tuple(update_nest.indices[:-1])
        value = read(list(at), update_nest.indices[-1])
        update = Store(y, at, Load(y, at) + value)
        update_nest.loops = [
            (v, e, "serial" if q == "parallel" else q) for v, e, q in update_nest.loops
        ]
        whole = seq(
            nest.around(Store(y, tuple(nest.indices), const(0.0, f32))), update_nest.around(update)
        )
    if draw(st.booleans()):
        whole = through_a_copy(x, whole, draw)
    return Func("random", (x, y), (y,), whole)


def through_a_copy(x: Buffer, body: Stmt, draw: Any) -> Stmt:
    """`body` reading a heap copy of `x` made before it."""
    copy = Buffer("copy", x.dtype, x.shape, "heap")
    nest = Nest(draw, [int(d) for d in x.shape], "c", vectors=True)
    fill = nest.around(Store(copy, tuple(nest.indices), Load(x, tuple(nest.indices))))
    return Allocate(copy, seq(fill, redirected(body, x, copy)))


def redirected(stmt: Stmt, old: Buffer, new: Buffer) -> Stmt:
    def f(root: Expr) -> Expr:
        done: dict[Expr, Expr] = {}
        for node in post_order(root):
            children = tuple(done[c] for c in node.children)
            made = node.with_children(children) if children else node
            if isinstance(made, Load) and made.buffer is old:
                made = Load(new, made.indices, made.mask)
            done[node] = made
        return done[root]

    return map_stmt(stmt, f_expr=f)


@settings(max_examples=150, deadline=None, print_blob=True)
@given(programs(), st.sampled_from(sorted(ORDERS)))
def test_random_programs_keep_their_answers(func: Func, order: str) -> None:
    note(print_func(func))
    verify(func, "nest")
    args = arguments(func)
    want = run(func, args)
    for p in ORDERS[order]:
        func = p(func)
        note(f"{p.__name__}:\n{print_func(func)}")
        got = run(func, args)
        np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-6, err_msg=p.__name__)
    verify(func, "final")
