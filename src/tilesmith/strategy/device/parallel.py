"""Launches for parallel loops: each outermost parallel loop becomes blocks of threads.

    for i in parallel(n):                  for b in block_x((n * m + 255) // 256):
        for j in parallel(m):                  for t in thread_x(256):
            S(i, j)                  ->            if b * 256 + t < n * m:
                                                       let i = (b * 256 + t) // m
                                                       let j = (b * 256 + t) % m
                                                       S(i, j)

A loop nest that stores a constant, such as the zeros of a halo, is launched too.

If parallel loops are directly nested, neighbouring threads run neighbouring iterations of the
innermost one.  Heap memory that a parallel loop allocates is allocated outside of it, with a part
for each iteration.  The pass is for nests that are not scheduled for devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesmith.ir.expr import Const, Expr, Load, Var, const, free_vars, reads_memory, vars_of
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES
from tilesmith.ir.simplify import simplify
from tilesmith.loop.nodes import Allocate, Buffer, For, Func, If, LetStmt, Stmt, Store
from tilesmith.loop.visit import children, map_stmt, rebuild, walk
from tilesmith.te.rewrite import map_loads


def launch_parallel(func: Func, threads: int) -> Func:
    """`func` (stage "nest" or "flat") with launches of blocks of `threads` threads; the same object
    if it has no parallel loops outside of launches.
    """

    def outside(s: Stmt) -> Stmt:
        if isinstance(s, For) and LOOP_KINDS[s.kind].level:
            return s
        if isinstance(s, For) and s.kind == "parallel":
            return _launch(s, threads)
        if isinstance(s, For) and _is_fill(s):
            made = map_stmt(s, f_stmt=_in_parallel)
            assert isinstance(made, For)
            return _launch(made, threads)
        return rebuild(s, in_loop if isinstance(s, For) else outside, lambda e: e)

    def in_loop(s: Stmt) -> Stmt:
        if isinstance(s, For) and (s.kind == "parallel" or LOOP_KINDS[s.kind].level):
            return outside(s)
        return rebuild(s, in_loop, lambda e: e)

    body = outside(func.body)
    return func if body is func.body else replace(func, body=body)


def _is_fill(s: Stmt) -> bool:
    """Whether `s` only stores a constant in loops, so that all iterations are independent."""
    own: set[Var] = set()
    while isinstance(s, For) and not LOOP_KINDS[s.kind].level:
        own.add(s.var)
        s = s.body
    if not isinstance(s, Store) or not isinstance(s.value, Const):
        return False
    if SCOPES[s.buffer.scope].owner:
        return False  # the memory is local to a thread
    return own <= vars_of(s.indices)


def _in_parallel(s: Stmt) -> Stmt:
    return For(s.var, s.start, s.extent, "parallel", s.body) if isinstance(s, For) else s


LONGEST = 1024
"""Steps per thread above which a launch with fewer threads than a wave counts as slow."""


def is_sequential(func: Func, wave: int) -> bool:
    """Whether a kernel without launches has a long loop nest with fewer independent iterations than
    a wave has threads.  A CPU core runs such a nest faster.
    """
    return any(
        (n := _independent(loop)) < wave and _steps(loop) > n * LONGEST
        for loop in _outermost(func.body)
    )


def _outermost(s: Stmt) -> Iterator[For]:
    if isinstance(s, For):
        yield s
    else:
        for part in children(s):
            yield from _outermost(part)


def _independent(s: For) -> int:
    """Number of iterations of parallel loops that are perfectly nested."""
    if s.kind != "parallel":
        return 1
    return _count(s) * (_independent(s.body) if isinstance(s.body, For) else 1)


def _count(s: For) -> int:
    """Iterations of a loop; 1 if the number is not a constant."""
    extent = simplify(s.extent)
    return int(extent.value) if isinstance(extent, Const) else 1


def _steps(s: Stmt) -> int:
    """Steps of the longest chain of nested loops in `s`.  A loop of data-dependent extent counts as
    long.
    """
    inside = max((_steps(part) for part in children(s)), default=1)
    if not isinstance(s, For):
        return inside
    return inside * (LONGEST if reads_memory(s.extent) else _count(s))


def _launch(s: For, threads: int) -> Stmt:
    loops = [s]
    while isinstance(inner := loops[-1].body, For) and inner.kind == "parallel":
        outer = {loop.var for loop in loops}
        if outer & (free_vars(inner.start) | free_vars(inner.extent)):
            break
        loops.append(inner)
    count: Expr = const(1)
    for loop in loops:
        count = simplify(count * loop.extent)
    block, thread = Var("block"), Var("thread")
    number = block * threads + thread
    body, left = loops[-1].body, number
    for n, loop in enumerate(reversed(loops)):
        is_last = n == len(loops) - 1
        offset = left if is_last else left % loop.extent
        body, left = LetStmt(loop.var, loop.start + offset, body), left // loop.extent
    body, own = _hoisted(body, count, number)
    inside = For(thread, const(0), const(threads), "threadIdx.x", If(number < count, body))
    blocks = simplify((count + (threads - 1)) // threads)
    launched: Stmt = For(block, const(0), blocks, "blockIdx.x", inside)
    for buffer in own:
        launched = Allocate(buffer, launched)
    return launched


def _hoisted(body: Stmt, count: Expr, number: Expr) -> tuple[Stmt, list[Buffer]]:
    """`body` without its allocations on the heap, and their replacements: buffers with a part for
    each of `count` iterations.  `number` is the current iteration.
    """
    hoisted = {
        s.buffer: Buffer(s.buffer.name, s.buffer.dtype, (count, *s.buffer.shape), "heap")
        for s in walk(body)
        if isinstance(s, Allocate) and s.buffer.scope == "heap"
    }
    if not hoisted:
        return body, []

    def load(e: Load) -> Expr:
        made = hoisted.get(e.buffer)  # type: ignore[arg-type]  # a buffer: this is loop IR
        return e if made is None else Load(made, (number, *e.indices), e.mask)

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Allocate) and s.buffer in hoisted:
            return s.body
        if isinstance(s, Store) and s.buffer in hoisted:
            return Store(hoisted[s.buffer], (number, *s.indices), s.value, s.mask)
        return s

    body = map_stmt(body, f_expr=lambda e: map_loads((e,), load)[0], f_stmt=stmt)
    return body, list(hoisted.values())
